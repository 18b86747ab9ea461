"""One run from its data to its scores: prepare, train, select on validation classes, evaluate.

Names are imported on demand: a command that trains needs none of it for its help, and few steps
break (`keep_bad_step`).
"""

from unseen.core.names import lazy

__getattr__, __dir__, __all__ = lazy(__name__, {"run_config": "run", "keep_bad_step": "replay"})
