"""Some items of a data set, in an order of one's own, under labels of one's own: what a stored run
is about, whatever has come to its data since."""

from collections.abc import Callable, Sequence
from typing import Any

from PIL import Image

from unseen.core.contracts import (
    Annotations,
    Dataset,
    FeatureDataset,
    FiledDataset,
    IdentifiedDataset,
    IntArray,
    OpeningDataset,
    PixelDataset,
)
from unseen.data.base import Described, Items, class_counts, lacking


class ChosenItems(Items):
    """places: positions in `dataset`. labels, label_names, annotations: of the chosen items.
    fingerprint: what the data set had when it held these items and no others. incomplete: what it
    lacked then, in a sentence."""

    def __init__(
        self,
        dataset: Dataset,
        places: IntArray,
        labels: IntArray,
        label_names: Sequence[str],
        annotations: Annotations,
        fingerprint: str,
        incomplete: str = "",
    ) -> None:
        metadata = Described(labels, list(label_names), None, annotations)
        super().__init__(dataset.name, metadata, incomplete)
        self._dataset, self._places, self._fingerprint = dataset, places, fingerprint
        if isinstance(dataset, FiledDataset):
            self.path = self._of_item(dataset.path)
        if isinstance(dataset, OpeningDataset):
            self.opened = self._of_item(dataset.opened)
        if isinstance(dataset, IdentifiedDataset):
            ids, digests = dataset.item_ids(), dataset.digests()
            self.item_ids = lambda: [ids[place] for place in places]
            self.digests = lambda progress=None: [digests[place] for place in places]
        if isinstance(dataset, FeatureDataset):
            self.features = dataset.features[places]
        if isinstance(dataset, PixelDataset):
            pixels = dataset.arrays()[places]
            self.arrays = lambda: pixels

    def image(self, index: int) -> Image.Image:
        return self._dataset.image(int(self._places[index]))

    def describe(self) -> dict[str, Any]:
        return class_counts(self.labels, self.label_names) | lacking(self.incomplete)

    def fingerprint(self) -> str:
        return self._fingerprint

    def _of_item(self, of: Callable[[int], Any]) -> Callable[[int], Any]:
        return lambda index: of(int(self._places[index]))
