"""How many faults of each kind are tried on what."""

import importlib
from collections.abc import Collection, Iterable

import torch

from tests.faults.stores import ImageStudy, Indexed, Pack, Study, Upgraded
from tests.faults.subjects import Cache, Run, narrow_network
from tests.faults.trials import CHANGED, FILES, Bench, Subject, Trial

FAULTS = ("kill", "full disk", "second writer", *FILES, CHANGED)
NUMBERS = {  # of the faults in this order; data are changed in every way once
    "training": (60, 6, 14, 60, 20, 20),
    "refit": (30, 4, 4, 40, 12, 12),
    "cache": (30, 4, 6, 16, 6, 6),
    "study": (20, 4, 6, 24, 8, 8),
    "study of images": (6, 2, 2, 8, 4, 4),
    "pack": (20, 4, 8, 24, 6, 1),
    "index, exact": (16, 4, 6, 18, 9, 9),
    "index, faiss": (14, 2, 2, 20, 10, 10),
    "index, milvus": (10, 2, 4, 20, 8, 8),
    "index, upgrade": (24, 2, 3, 8, 8, 8),
}
REFIT = ("freeze_until=pooled", "head.start=principal", "lr=0.03", "refit=true")
# stand-ins for runs do not depend on images; an upgrade leaves changed ones to `index update`
WITHOUT_DATA = ("study", "index, upgrade")


def subjects() -> list[Subject]:
    return [
        Run("training", "seed=1", "lr=0.001", "ema=0.9", "memory.size=40"),
        Run("refit", *REFIT),
        Cache(),
        Study(),
        ImageStudy(),
        Pack(),
        Indexed("exact"),
        Indexed("faiss"),
        Indexed("milvus"),
        Upgraded(),
    ]


def ready() -> None:
    """What processes that are forked later share."""
    torch.set_num_threads(1)
    narrow_network()
    for slow in ("alembic.command", "alembic.config", "alembic.migration", "sqlalchemy.orm"):
        importlib.import_module(slow)  # Optuna imports them late


def tried(
    bench: Bench, fault: str, fraction: float = 1.0, kinds: Collection[str] | None = None
) -> Iterable[Trial]:
    """A share of the full number of a fault, at least one."""
    if fault == CHANGED:
        return [] if bench.subject.name in WITHOUT_DATA else bench.changed_data()
    number = max(1, round(fraction * NUMBERS[bench.subject.name][FAULTS.index(fault)]))
    if fault in FILES:
        return bench.harms(fault, number, kinds)
    return {
        "kill": bench.kills,
        "full disk": bench.full_disks,
        "second writer": bench.second_writers,
    }[fault](number)
