"""One split for all seeds."""

from dataclasses import dataclass

from unseen.core.contracts import Dataset, Split
from unseen.protocols.half_split import HalfSplit


@dataclass(frozen=True)
class FixedValidation:
    """Fixed validation: one split for all seeds, a tenth of the training classes to select on.

    Cut like the half split, but from `split_seed` and never from the seed of the run: every seed of
    every method trains, selects and is tested on the same classes, so that differences between
    seeds are those of training alone.

    Paper:
        Psomas' thesis, which compares 70/30, 80/20, 90/10 and 95/5 and takes 90/10

    Args:
        validation_fraction: the share of training classes set aside to select on; 0.1 (Psomas'
            thesis).
        split_seed: draws the classes.

    Example:
        >>> import torch
        >>> from unseen.protocols import FixedValidation
        >>> from unseen.data.in_memory.user_data import as_dataset
        >>> dataset = as_dataset((torch.randn(80, 4), torch.arange(80) // 4))
        >>> [len(split.train) for split in FixedValidation()(dataset, seed=0)]
        [32]
    """

    validation_fraction: float = 0.1
    split_seed: int = 0

    def __post_init__(self) -> None:
        HalfSplit(self.validation_fraction)

    def __call__(self, dataset: Dataset, seed: int) -> list[Split]:
        return HalfSplit(self.validation_fraction)(dataset, self.split_seed)
