"""What an embedding space looks like: one file, one class, callable on embeddings and labels."""

from unseen.core.names import classes_of, lazy

__getattr__, __dir__, __all__ = lazy(__name__, classes_of(__name__, __path__))
