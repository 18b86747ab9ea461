"""Vector backends outside the folder by name: `--backend milvus:URI`, `--backend pgvector:URI`."""

import re
from pathlib import Path
from uuid import uuid4

from unseen.search.backends.external import ExternalBackend
from unseen.search.backends.milvus import Milvus
from unseen.search.backends.pgvector import Pgvector
from unseen.search.manifest import ExternalEntry, ModelEntry

KINDS: dict[str, type[ExternalBackend]] = {"milvus": Milvus, "pgvector": Pgvector}
PASSWORD = re.compile(r"//[^/@]*:[^/@]+@|password=", re.IGNORECASE)


def parse(backend: str, index: Path) -> ExternalEntry:
    """The entry that a manifest keeps.

    Args:
        backend: `milvus:URI` or `pgvector:URI`; `milvus:` without one, a file beside the index.
        index: the folder of the index.
    """
    kind, colon, uri = backend.partition(":")
    if kind not in KINDS or not colon or (kind == "pgvector" and not uri):
        raise ValueError(
            "backend must be milvus:URI or pgvector:URI, e.g. milvus:http://host:19530 or "
            f"pgvector:postgresql://user@host/images, got {backend!r}"
        )
    if kind == "pgvector" and PASSWORD.search(uri):
        raise ValueError(
            "the manifest would hold the password: put it into ~/.pgpass or PGPASSWORD"
        )
    uri = uri or f"{index.resolve()}.milvus.db"
    return ExternalEntry.model_validate({"kind": kind, "uri": uri, "table": _new_name()})


def renewed(entry: ExternalEntry) -> ExternalEntry:
    """For other vectors in the same place: an old collection is never filled with them."""
    return ExternalEntry(kind=entry.kind, uri=entry.uri, table=_new_name())


def external_backend(entry: ExternalEntry, model: ModelEntry) -> ExternalBackend:
    return KINDS[entry.kind](entry, model.size, model.normalize)


def _new_name() -> str:
    return f"unseen_{uuid4().hex[:12]}"
