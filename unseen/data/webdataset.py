"""`webdataset`: tar files of images, as WebDataset writes them: `shards/000.tar`.

    a/17.jpg with a/17.cls       the class in a text of its own, a number or a word
    a/17.jpg with a/17.json      columns by their names: `label`, and `split`, `is_query` ... as in
                                 a table; `data.label=species` names another
    a/17.jpg alone               the folder is the class

root is a tar, a folder of them, or a pattern: `shards/{000..099}.tar`, `shards/train-*.tar`, also
at an address (`s3://...`). Where each image lies is found once and kept in the cache folder; any
class is then drawn at random without unpacking. Compressed tars are refused: they can only be read
from their beginning.
"""

import re
from pathlib import Path

from unseen.core import uris
from unseen.core.uris import Place
from unseen.data.containers.contained import Contained, SplitFile, files_of

TAR = ".tar"
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


class Webdataset(Contained):
    """Images inside tars, as WebDataset writes them.

    Args:
        root: A tar, a folder of tars, or a pattern.
        path: The field of the images.
        label: The column of classes; None: every image is its own.
        split: The column that says train, validation or test.
        query: The column that says which test images ask.
        gallery: The column that says which test images are searched.
        group: The column of groups: a query does not find images of its own.
        strict: An unreadable image is an error, not a note.
        progress: Called with the images looked at and their number.

    Example:
        >>> from unseen.data import Webdataset
        >>> Webdataset("shard-{000..009}.tar").label_names  # doctest: +SKIP
    """

    @classmethod
    def files(cls, root: Place) -> list[SplitFile]:
        return [SplitFile(file) for file in shards(root)]

    @classmethod
    def recognises(cls, root: Place) -> bool:
        if uris.suffix(root) == TAR:
            return True
        return any(uris.suffix(file) == TAR for file in files_of(root))


def shards(root: Place) -> list[Place]:
    """The tars that are meant, sorted."""
    text = str(root)
    if result := _RANGE.search(text):
        first, last = result.groups()
        numbers = range(int(first), int(last) + 1)
        width = len(first)
        words = [_RANGE.sub(f"{number:0{width}d}", text, count=1) for number in numbers]
        return [file for word in words for file in shards(_as(root, word))]
    if "*" in text:
        files = _matching(root)
    else:
        files = [root] if uris.suffix(root) == TAR else files_of(root)
    tars = sorted(file for file in files if uris.suffix(file) == TAR)
    if not tars:
        raise FileNotFoundError(f"no tars are found at {root}")
    return tars


def _as(root: Place, word: str) -> Place:
    return word if isinstance(root, str) else Path(word)


def _matching(root: Place) -> list[Place]:
    if isinstance(root, str):
        return list(uris.matching(root))
    return list(Path(root.anchor or ".").glob(str(root.relative_to(root.anchor))))
