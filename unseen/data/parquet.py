"""`parquet`: Parquet files with the images inside: a column of bytes, or of structs with `bytes`
and `path` as Hugging Face writes them.

    label                     required; of several columns `data.label=species` names it
    split, is_query, ...      as in a table, all optional

root is a file or a folder of files, also at an address. Files called `train-...`, `test-...` and
`validation-...` are the official split where no class is in two of them; otherwise they are put
together and divided by class. Parquet cannot be read from the middle: it is copied once to the
cache folder, in Arrow's format, about as large. A Parquet table of paths is a `table`.
"""

from unseen.core import uris
from unseen.core.uris import Place
from unseen.data.base import PARTS
from unseen.data.containers.contained import Contained, SplitFile, files_of
from unseen.data.containers.image_rows import images_in
from unseen.data.images.table_file import PARQUET, parquet_of


class Parquet(Contained):
    """Images inside Parquet files.

    Args:
        root: A file, or a folder of files.
        path: The column of the images.
        label: The column of classes; None: every image is its own.
        split: The column that says train, validation or test.
        query: The column that says which test images ask.
        gallery: The column that says which test images are searched.
        group: The column of groups: a query does not find images of its own.
        strict: An unreadable image is an error, not a note.
        progress: Called with the images looked at and their number.

    Example:
        >>> from unseen.data import Parquet
        >>> Parquet("images.parquet").label_names  # doctest: +SKIP
    """

    @classmethod
    def files(cls, root: Place) -> list[SplitFile]:
        result = parquets(root)
        if not result:
            raise FileNotFoundError(f"no Parquet files at {root}")
        return [SplitFile(file, _split_name(file)) for file in result]

    @classmethod
    def recognises(cls, root: Place) -> bool:
        """By the first file: it has a column of images."""
        result = parquets(root)
        if not result:
            return False
        try:
            with parquet_of(result[0]) as file:
                return bool(images_in(file.schema_arrow))
        except (OSError, ValueError):
            return False  # a table, which says what is wrong with it


def parquets(root: Place) -> list[Place]:
    """The file itself, or those in a folder."""
    if uris.suffix(root) in PARQUET:
        return [root]
    return sorted(file for file in files_of(root) if uris.suffix(file) in PARQUET)


def _split_name(file: Place) -> str:
    first = uris.name_of(file).lower().replace(".", "-").replace("_", "-").split("-")[0]
    return first if first in PARTS else ""
