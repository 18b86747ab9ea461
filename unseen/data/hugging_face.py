"""`hugging_face`: a data set of Hugging Face's `datasets`, saved to disk or by name.

    photos/              what `save_to_disk` wrote, one data set or train, test ... together
    hf:ethz/food101      by name: `datasets` finds and keeps it (needs the extra `formats`)

One column holds images; the class is `label`, or the only column of classes, or what
`data.label=` names. Parts that share classes are put together and divided by class. What is on the
disk is mapped into memory, any image at once.
"""

import json
from importlib import import_module
from pathlib import Path

from unseen.core.extras import install_command
from unseen.core.uris import Place
from unseen.data.base import HUB
from unseen.data.containers.contained import Contained, SplitFile

_SAVED, _SEVERAL = "state.json", "dataset_dict.json"


class HuggingFace(Contained):
    """A data set that `datasets` has saved, or one of the hub.

    Args:
        root: The folder, or hf:NAME.
        path: The column of the images.
        label: The column of classes; None: every image is its own.
        split: The column that says train, validation or test.
        query: The column that says which test images ask.
        gallery: The column that says which test images are searched.
        group: The column of groups: a query does not find images of its own.
        strict: An unreadable image is an error, not a note.
        progress: Called with the images looked at and their number.

    Example:
        >>> from unseen.data import HuggingFace
        >>> HuggingFace("hf:user/name").label_names  # doctest: +SKIP
    """

    @classmethod
    def files(cls, root: Place) -> list[SplitFile]:
        if str(root).startswith(HUB):
            return _by_name(str(root).removeprefix(HUB))
        folder = Path(root)
        if not (folder / _SEVERAL).exists():
            return [SplitFile(file) for file in _saved(folder)]
        parts = json.loads((folder / _SEVERAL).read_text())["splits"]
        return [SplitFile(file, split) for split in parts for file in _saved(folder / split)]

    @classmethod
    def recognises(cls, root: Place) -> bool:
        if str(root).startswith(HUB):
            return True
        return any((Path(root) / name).is_file() for name in (_SAVED, _SEVERAL))


def _saved(folder: Path) -> list[Path]:
    """The files that a saved data set lists."""
    try:
        state = json.loads((folder / _SAVED).read_text())
        return [folder / file["filename"] for file in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{folder} is no data set saved by `datasets`: {error!r}") from error


def _by_name(name: str) -> list[SplitFile]:
    try:
        result = import_module("datasets").load_dataset(name)
    except ModuleNotFoundError as error:
        raise ValueError(f"{HUB}{name} needs datasets: {install_command('formats')}") from error
    except Exception as error:  # the hub's, the network's, the data set's
        raise ValueError(f"{HUB}{name} cannot be loaded: {error}") from error
    parts = [(split, dataset.cache_files) for split, dataset in result.items()]
    return [SplitFile(Path(file["filename"]), split) for split, files in parts for file in files]
