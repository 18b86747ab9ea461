"""Where images and labels come from: one data set per file, the machinery in `images`."""

from unseen.core.names import classes_of, lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    classes_of(__name__, __path__),
    ours={"ChosenItems": "images.subset", "as_dataset": "in_memory.user_data"},
)
