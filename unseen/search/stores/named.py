"""Stores outside the folder by their names: `--store milvus:URI`, `--store lance:PATH-or-URI`."""

from pathlib import Path
from uuid import uuid4

from unseen.search.manifest import LanceEntry, MilvusEntry, ModelEntry, OutsideEntry
from unseen.search.stores.lance import Lance
from unseen.search.stores.milvus import Milvus
from unseen.search.stores.outside import Outside

MILVUS, LANCE = "milvus:", "lance:"


def parse(store: str, index: Path) -> OutsideEntry:
    """`milvus:URI` or `lance:URI`; without a URI, a file or folder beside the index."""
    beside = str(index.resolve())
    if store.startswith(MILVUS):
        uri = store.removeprefix(MILVUS) or f"{beside}.milvus.db"
        return MilvusEntry(uri=uri, collection=_new_name(), labels=True)
    if store.startswith(LANCE):
        return LanceEntry(
            uri=_place(store.removeprefix(LANCE)) or f"{beside}.lance", table=_new_name()
        )
    raise ValueError(
        "store must be milvus:URI, lance:URI or binary, e.g. milvus:http://host:19530, "
        f"got {store!r}"
    )


def renewed(entry: OutsideEntry) -> OutsideEntry:
    """For other vectors in the same place: an old collection is never filled with them."""
    if isinstance(entry, MilvusEntry):
        return MilvusEntry(uri=entry.uri, collection=_new_name(), labels=True)
    return LanceEntry(uri=entry.uri, table=_new_name())


def outside(entry: OutsideEntry, model: ModelEntry) -> Outside:
    kind = Milvus if isinstance(entry, MilvusEntry) else Lance
    return kind(entry, model.size, model.normalise)


def field_of(entry: OutsideEntry | None) -> dict[str, OutsideEntry | None]:
    """Where a manifest keeps it: one store at a time."""
    return {
        "milvus": entry if isinstance(entry, MilvusEntry) else None,
        "lance": entry if isinstance(entry, LanceEntry) else None,
    }


def _place(uri: str) -> str:
    """A folder in full, since commands start anywhere; an address as it is."""
    return uri if not uri or "://" in uri else str(Path(uri).resolve())


def _new_name() -> str:
    return f"unseen_{uuid4().hex[:12]}"
