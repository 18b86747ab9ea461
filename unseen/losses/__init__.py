"""The price of tuples: `losses.MultiSimilarity()`. One file, one class, one name."""

from unseen.names import classes_of, lazy

__getattr__, __dir__, __all__ = lazy(__name__, classes_of(__path__))
