"""What an embedding space looks like: one file, one class, callable on embeddings and labels."""
