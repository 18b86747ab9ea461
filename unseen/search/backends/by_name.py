"""Vector backends outside the folder by name: `--backend milvus:URI`, `--backend lance:URI`."""

from pathlib import Path
from uuid import uuid4

from unseen.search.backends.external import ExternalBackend
from unseen.search.backends.lance import Lance
from unseen.search.backends.milvus import Milvus
from unseen.search.manifest import ExternalEntry, ModelEntry

KINDS: dict[str, tuple[type[ExternalBackend], str]] = {  # and what a file beside an index ends in
    "milvus": (Milvus, ".milvus.db"),
    "lance": (Lance, ".lance"),
}


def parse(backend: str, index: Path) -> ExternalEntry:
    """The entry that a manifest keeps.

    Args:
        backend: `milvus:URI` or `lance:URI`; without a URI, a file or folder beside the index.
        index: the folder of the index.
    """
    kind, colon, uri = backend.partition(":")
    if kind not in KINDS or not colon:
        raise ValueError(
            "backend must be milvus:URI, lance:URI or binary, e.g. milvus:http://host:19530, "
            f"got {backend!r}"
        )
    if kind == "lance" and uri and "://" not in uri:
        uri = str(Path(uri).resolve())  # commands start anywhere
    uri = uri or f"{index.resolve()}{KINDS[kind][1]}"
    return ExternalEntry.model_validate({"kind": kind, "uri": uri, "table": _new_name()})


def renewed(entry: ExternalEntry) -> ExternalEntry:
    """For other vectors in the same place: an old collection is never filled with them."""
    return ExternalEntry(kind=entry.kind, uri=entry.uri, table=_new_name())


def external_backend(entry: ExternalEntry, model: ModelEntry) -> ExternalBackend:
    return KINDS[entry.kind][0](entry, model.size, model.normalize)


def _new_name() -> str:
    return f"unseen_{uuid4().hex[:12]}"
