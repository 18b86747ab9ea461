"""What frozen layers give for each picture, kept on disk and loaded in place of pictures."""
