"""The training loop and what is on disk of it. What few runs need is imported when it is asked
for."""

from unseen.core.names import lazy

__getattr__, __dir__, __all__ = lazy(__name__, {"ManifoldMixup": "manifold_mixup"})
