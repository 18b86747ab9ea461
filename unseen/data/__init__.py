"""Where images and labels come from: a data set per file, but for known benchmarks (`benchmarks`)
and files that hold many images (`containers`); the machinery is in `images`."""

from unseen.core.names import class_name, classes_of, lazy

IN_FOLDERS = {
    "benchmarks.official": [
        *("cars196", "cub200", "groceries", "inshop", "omniglot", "online_products"),
    ],
    "containers.contained": ["hugging_face", "parquet", "webdataset"],
}
_files = {class_name("data", name): file for file, names in IN_FOLDERS.items() for name in names}

__getattr__, __dir__, __all__ = lazy(
    __name__,
    classes_of(__name__, __path__) | _files,
    ours={"ChosenItems": "images.subset", "as_dataset": "in_memory.user_data"},
)
