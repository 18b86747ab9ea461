"""One run from data to score: train, select on validation classes, read the test classes once.

A command that trains asks for `fit_config` when it has a config: its help needs none of it. Few
steps break (`keep_bad_step`).
"""

from unseen.names import lazy

__getattr__, __dir__, __all__ = lazy(__name__, {"fit_config": "run:fit", "keep_bad_step": "replay"})
