"""Which tuples of a batch count: `miners.SemiHard()`. One file, one class, one name."""

from unseen.names import classes_of, lazy

__getattr__, __dir__, __all__ = lazy(__name__, classes_of(__path__))
