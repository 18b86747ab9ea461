"""Fixed validation: one split for all seeds, a tenth of the training classes to select on.

Cut like the half split, but from `split_seed` and never from the seed of the run: every seed of
every method trains, selects and is tested on the same classes, so that differences between seeds
are those of training alone.

Paper    Psomas' thesis, which compares 70/30, 80/20, 90/10 and 95/5 and takes 90/10
"""

from dataclasses import dataclass

from unseen.contracts import Dataset, Split
from unseen.protocols.half_split import HalfSplit


@dataclass(frozen=True)
class FixedValidation:
    """validation_share: as in the half split. split_seed: draws the classes."""

    validation_share: float = 0.1
    split_seed: int = 0

    def __post_init__(self) -> None:
        HalfSplit(self.validation_share)

    def __call__(self, dataset: Dataset, seed: int) -> list[Split]:
        return HalfSplit(self.validation_share)(dataset, self.split_seed)
