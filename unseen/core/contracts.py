"""Every call of the toolkit on one page. Parts are plain callables; none of yours needs a class of
ours.

    data set -> sampler -> network -> miner -> loss + regularizers = objective      (training)
    data set -> network -> neighbours -> metrics, diagnostics                       (evaluation)

A part knows nothing of the parts beside it: a loss sees two tensors, never a config, a rank or a
log. Where labels stand, items of a relevance may stand: who is the same as whom
(`core/relevance.py`).
The class of a metric says its kind: `metrics/base.py`. Shapes: N anchors, M
references, D embedding size, C classes, Q queries, G gallery items, K neighbours.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unseen.core.files import Box, Size
from unseen.core.relevance import AnyLabels
from unseen.core.tuples import Pairs, Triplets

if TYPE_CHECKING:
    from PIL import Image

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
Pixels = NDArray[np.uint8]  # [height, width, 3]
Progress = Callable[[int, int], None]  # (done, total) of long work


class CpuProcesses(Protocol):
    """Several processes that each do a part of some work (training/distributed.py)."""

    def fraction(self, total: int) -> slice: ...
    def lengths(self, rows: int, device: torch.device) -> list[int]: ...
    def gather(self, rows: Tensor, lengths: Sequence[int]) -> Tensor: ...


class Shards(Protocol):
    """Several processes that each hold some of the rows that all compute with, such as the centres
    of their part of the classes (training/distributed.py)."""

    def fraction(self, total: int) -> slice: ...

    def largest(self, values: Tensor) -> Tensor:
        """The largest of all processes' values, entry by entry, without gradient."""
        ...

    def added(self, values: Tensor) -> Tensor:
        """The sum of all processes' values; each process has the gradient of its own."""
        ...

    def shared(self, values: Tensor) -> Tensor:
        """Values that every process has; their gradient is the sum of all processes'."""
        ...


class Batch(NamedTuple):
    """What a loader yields: images (or features), 0..C-1 labels, positions in the data set."""

    images: Tensor  # [N, channels, height, width] or [N, features]
    labels: Tensor  # [N] int64
    indices: Tensor  # [N] int64


@dataclass(frozen=True)
class Output:
    """What a network returns for a batch.

    Args:
        embeddings: [N, D] raw output of the head; losses and evaluation normalise.
        pooled: [N, P] the backbone's descriptor before the head.
        maps: [N, channels, height, width] the backbone's last map, where it has one.
        heads: [N, heads, d] one embedding per learner of an ensemble.

    Example:
        >>> import torch
        >>> from unseen import Output
        >>> output = Output(embeddings=torch.ones(2, 8), pooled=torch.ones(2, 32))
        >>> output.maps is None
        True
    """

    embeddings: Tensor  # [N, D]
    pooled: Tensor  # [N, P], the backbone's descriptor before the head
    maps: Tensor | None = None  # [N, channels, height, width], the backbone's last map
    heads: Tensor | None = None  # [N, heads, d], one embedding per learner of an ensemble


@dataclass(frozen=True)
class Neighbors:
    """The nearest gallery items of each query, nearest first; among equals the wrong ones first."""

    indices: Tensor  # [Q, K] int64 positions in the gallery; -1 where the gallery is exhausted
    similarities: Tensor  # [Q, K]; cosine, or minus the squared distance of raw embeddings
    matches: Tensor  # [Q, K] bool, same label as the query
    num_relevant: Tensor  # [Q] int64, items of the query's class in the gallery (itself excluded)
    ranks: Tensor | None = (
        None  # [Q, R] int64 ranks of all relevant items, rising, from 1; 0 = none
    )
    tied: Tensor | None = (
        None  # [Q] bool, a tie between right and wrong items was decided against us
    )
    graded: "GradedRanks | None" = None  # of all that is related to a query at all


@dataclass(frozen=True)
class GradedRanks:
    """Every item with a grade above 0, by rising rank."""

    ranks: Tensor  # [Q, R] int64 from 1; 0 = no more
    grades: Tensor  # [Q, R] float64, 0 to 1

    def padded(self, width: int) -> "GradedRanks":
        """The same in wider rows."""
        more = (0, width - self.ranks.shape[1])
        return GradedRanks(
            nn.functional.pad(self.ranks, more), nn.functional.pad(self.grades, more)
        )


@dataclass(frozen=True)
class Split:
    """Positions in a data set. Classes of train, validation and test never overlap."""

    train: IntArray
    validation: IntArray
    test: IntArray
    query: IntArray | None = None  # positions among the test items; None = every test item
    gallery: IntArray | None = None  # likewise; None = every test item but the query itself


@runtime_checkable
class LazyImage(Protocol):
    """An image whose pixels are fetched when it is known which: a file (`decode.SafeImageFile`), or
    one in memory (`crops.Loaded`)."""

    size: Size

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def pixels(self, box: Box | None = None, size: Size | None = None) -> Pixels: ...


@runtime_checkable
class Dataset(Protocol):
    """Images with labels. Labels are 0..C-1; `label_names[c]` is what the user called class c.

    This is what every data set has. The protocols after it are abilities some have besides; who can
    use one asks with isinstance, and does without where there is none:

        IdentifiedDataset    items can be known again one by one
        AnnotatedDataset     items have more than a class
        FeatureDataset       descriptors in place of images
        PixelDataset         all images are at hand as one array
        OpeningDataset       images need not be decoded whole
        FiledDataset         images are files
    """

    name: str
    labels: IntArray  # [n]

    @property
    def label_names(self) -> Sequence[str]: ...  # [C]

    @property
    def official_test_classes(self) -> IntArray | None: ...  # set aside for testing by its authors

    def __len__(self) -> int: ...

    def image(self, index: int) -> "Image.Image":
        """The image as RGB; a data set of features has none and raises ValueError, a file that
        cannot be read UnreadableImageError."""
        ...

    def describe(self) -> dict[str, Any]:
        """Counts a user wants to see: items, classes, what was left out and why."""
        ...

    def fingerprint(self) -> str:
        """A hash that changes when an item, its content, a label or the order changes."""
        ...


@runtime_checkable
class IdentifiedDataset(Protocol):
    """A data set whose items can be known again, one by one; all of ours are. Of one that cannot, a
    run compares `fingerprint()`, and items are their positions."""

    def item_ids(self) -> list[str]:
        """A name for each item, the same wherever the data lie; no two are alike."""
        ...

    def digests(self, progress: Progress | None = None) -> list[bytes]:
        """32 bytes for each item that change when its content changes: copies have the same."""
        ...


def item_ids_of(dataset: Dataset) -> list[str]:
    """The names of a data set's items; their positions where it has none."""
    if isinstance(dataset, IdentifiedDataset):
        return dataset.item_ids()
    return [f"item {index}" for index in range(len(dataset))]


@dataclass(frozen=True)
class Annotations:
    """What a data set knows of its items beyond their class; None where it knows nothing."""

    validation_classes: IntArray | None = None  # classes its authors set aside to select on
    query: BoolArray | None = None  # [n] test items that ask; None = all do
    gallery: BoolArray | None = None  # [n] test items that answer; None = all do
    ignore_groups: IntArray | None = None  # [n] same camera, same sequence; negative = no group
    labels: Mapping[str, IntArray] = field(default_factory=dict)  # further labels [n] by name
    label_names: Mapping[str, Sequence[str]] = field(default_factory=dict)  # and what they mean
    levels: Sequence[str] = ()  # which of the further labels form a hierarchy, the coarsest first
    label_sets: IntArray | None = None  # [n, S] several labels of an item; -1: no more
    set_names: Sequence[str] = ()  # what the labels of the sets mean
    pairs: FloatArray | None = None  # [P, 3] two items, and 1: known to be the same, 0: not to be
    grades: FloatArray | None = None  # [P, 3] likewise, 0 to 1; pairs that are not listed: 0


@runtime_checkable
class AnnotatedDataset(Protocol):
    """A data set whose items have more than a class."""

    @property
    def annotations(self) -> Annotations: ...


def annotations_of(dataset: Dataset) -> Annotations:
    """What a data set says of its items beyond their class, be it nothing."""
    return dataset.annotations if isinstance(dataset, AnnotatedDataset) else Annotations()


DOMAIN = "domain"  # the further label that says which of several data sets an item comes from


def domains_of(dataset: Dataset) -> IntArray | None:
    """[n] where items come from; None: from one place."""
    return annotations_of(dataset).labels.get(DOMAIN)


@runtime_checkable
class FeatureDataset(Protocol):
    """A data set of ready descriptors in place of images: its network is a head."""

    @property
    def features(self) -> NDArray[np.floating[Any]]: ...  # [n, P]


@runtime_checkable
class PixelDataset(Protocol):
    """A data set that has all its images at hand, grey and of one size."""

    def arrays(self) -> NDArray[np.uint8]: ...  # [n, height, width]


@runtime_checkable
class OpeningDataset(Protocol):
    """A data set whose images need not be decoded whole."""

    def opened(self, index: int) -> LazyImage: ...


@runtime_checkable
class FiledDataset(Protocol):
    """A data set of files, or of images with an address of their own."""

    def path(self, index: int) -> Path | str: ...


class Sampler(Protocol):
    """Chooses which items make a batch; draws from its own generator, made of (seed, epoch)."""

    def set_epoch(self, epoch: int) -> None: ...

    def __iter__(self) -> Iterator[list[int]]: ...

    def __len__(self) -> int: ...

    def describe(self) -> dict[str, Any]:
        """What an epoch covers: classes, images, repeats, classes left out and why."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@runtime_checkable
class EmbeddedSampler(Sampler, Protocol):
    """A sampler that also looks at embeddings, which the trainer brings it."""

    def is_due(self) -> bool:
        """Whether all items are to be embedded before the current epoch."""
        ...

    def fill(self, embeddings: Tensor) -> None:
        """The embeddings of all items, in their order."""
        ...

    def update(self, indices: Tensor, embeddings: Tensor) -> None:
        """The embeddings of a batch, after its step."""
        ...


class Network(nn.Module, ABC):
    """Images, features or kept activations to embeddings. One of the user's own is any module
    that gives [N, D] or an Output (`models/custom_network.py`)."""

    embedding_size: int

    @abstractmethod
    def forward(self, images: Tensor) -> Output:
        """Embeddings, and what regularizers and taps want beside them."""


class FrozenLayers(nn.Module, ABC):
    """The layers of a network up to the freeze point, which stay as they are: images to the
    activation of `layer`. What they give is kept (`data/activations`): each image passes them
    once."""

    layer: str

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor:
        """The activation at the freeze point."""

    @abstractmethod
    def run(self, images: Tensor) -> Tensor:
        """Of a large batch, where the layers are, a few images at a time."""

    @abstractmethod
    def faster(self, images: Tensor) -> "FrozenLayers":
        """The same layers for speed: equal but for rounding. images: a few typical ones."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Changes when a weight, a layer or the freeze point changes."""


class Miner(Protocol):
    """Chooses which tuples of a batch count. No gradient; a generator of its own."""

    def __call__(
        self,
        embeddings: Tensor,
        labels: AnyLabels,
        ref_embeddings: Tensor | None = None,
        ref_labels: AnyLabels | None = None,
    ) -> Pairs | Triplets: ...


class Loss(Protocol):
    """A number from tuples. `tuples=None` means every tuple of the batch; references stand in the
    columns, where positives and negatives come from (the batch itself when there are none)."""

    def __call__(
        self,
        embeddings: Tensor,
        labels: AnyLabels,
        tuples: Pairs | Triplets | None = None,
        ref_embeddings: Tensor | None = None,
        ref_labels: AnyLabels | None = None,
    ) -> Tensor: ...


class Regularizer(Protocol):
    """A term on the embedding space, unweighted. May also have `report() -> dict` of scalars, and
    `prepare(pooled, labels)` with `is_prepared` for what it needs before the first step. One that
    reads maps comes in two halves, `local_half(output)` of some images' rows [N, ...] and
    `global_half(rows, labels)`, with `local_parameters()` behind the first."""

    def __call__(self, output: Output, labels: AnyLabels) -> Tensor: ...


class Diagnostic(Protocol):
    """What an embedding space looks like."""

    def __call__(self, embeddings: Tensor, labels: Tensor) -> dict[str, Any]: ...


class SplitProtocol(Protocol):
    """Cuts the classes of a data set, the same way for the same seed."""

    def __call__(self, dataset: Dataset, seed: int) -> list[Split]: ...
