"""Whose a table outside the folder is: it carries a mark, and only the mark's index changes it.

The mark names the index and its folder, and holds a word that is drawn anew for every change; the
manifest knows the word before the table gets it. An index that was moved or restored from a backup
is still at the mark's path or has its inode, and knows the word. A copy is elsewhere, or does not
know the word since another copy has changed the table: it gets a table of its own.
"""

from pathlib import Path
from uuid import uuid4

from pydantic import ValidationError

from unseen.search.manifest import Entry

KEY = "unseen.index"  # of the table's property that holds the mark


class Mark(Entry):
    """What a table says of its index."""

    index: str  # its identity, which its copies share
    word: str
    folder: str
    inode: str

    @classmethod
    def of(cls, folder: Path, index: str, word: str) -> "Mark":
        result = folder.stat()
        inode = f"{result.st_dev}:{result.st_ino}"
        return cls(index=index, word=word, folder=str(folder.resolve()), inode=inode)

    @classmethod
    def parse(cls, text: str) -> "Mark | None":
        """None: a text that is no mark."""
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            return None

    def is_of_folder(self, other: "Mark") -> bool:
        return self.folder == other.folder or self.inode == other.inode


def new_word() -> str:
    return uuid4().hex
