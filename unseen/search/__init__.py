"""A trained model at work: an index of images that survives crashes, and what it answers."""
