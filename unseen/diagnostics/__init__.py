"""What an embedding space looks like: one file, one class, callable on embeddings and labels."""

from unseen.names import classes_of, lazy

__getattr__, __dir__, __all__ = lazy(__name__, classes_of(__path__))
