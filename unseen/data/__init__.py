"""Where pictures and labels come from: one data set per file, the machinery in `pictures`."""

from unseen.names import classes_of, lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    classes_of(__path__),
    ours={"ChosenItems": "pictures.chosen", "as_dataset": "own.given"},
)
