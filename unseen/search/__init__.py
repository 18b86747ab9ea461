"""A trained model at work: an index of pictures that survives crashes, and what it answers."""
