"""How classes are divided: `protocols.HalfSplit(0.15)`. One file, one class, one name."""

from unseen.core.names import classes_of, lazy

__getattr__, __dir__, __all__ = lazy(__name__, classes_of(__name__, __path__))
