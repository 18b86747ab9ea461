"""Where images and labels come from: one data set per file (known benchmarks in `benchmarks`), the
machinery in `images`."""

from unseen.core.names import class_name, classes_of, lazy

BENCHMARKS = ("cars196", "cub200", "groceries", "inshop", "omniglot", "online_products")
_official = {class_name("data", name): "benchmarks.official" for name in BENCHMARKS}

__getattr__, __dir__, __all__ = lazy(
    __name__,
    classes_of(__name__, __path__) | _official,
    ours={"ChosenItems": "images.subset", "as_dataset": "in_memory.user_data"},
)
