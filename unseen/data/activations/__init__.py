"""What frozen layers give for each image, kept on disk and loaded in place of images."""
