"""Maps (t-SNE) of the embeddings of runs, for the pages of published studies.

Made once and stored as plain values, so that a page can be drawn again from them: places, classes
and, where there are images, a sheet of thumbnails.
"""

import base64
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unseen.core.contracts import FeatureDataset
from unseen.reports import stored_run
from unseen.reports.embedding_map import FEWEST_POINTS, flatten, sample
from unseen.reports.thumbnails import sheet
from unseen.reproductions.against_source import drawn
from unseen.reproductions.charts import Cloud, clouds, images
from unseen.reproductions.published_study import Message
from unseen.runs.prepare import reopen
from unseen.studies.results import Run
from unseen.studies.study_figures import Drawn

CLASSES, MOST_POINTS, TILE, SEED = 10, 1500, 32, 0


def of_some_classes(embeddings: Tensor, labels: Tensor) -> dict[str, Any]:
    """Ten classes drawn at random, the same for all runs on the same data."""
    generator = torch.Generator().manual_seed(SEED)
    classes = labels.unique()
    chosen = classes[torch.randperm(len(classes), generator=generator)[:CLASSES]]
    is_chosen = torch.isin(labels, chosen)
    return _map(embeddings[is_chosen], labels[is_chosen])


def of_all_classes(embeddings: Tensor, labels: Tensor) -> dict[str, Any]:
    """A sample of all classes, the same for all runs on the same data."""
    points = sample(labels.numpy(), MOST_POINTS)
    return _map(embeddings[points], labels[points])


def _map(embeddings: Tensor, labels: Tensor) -> dict[str, Any]:
    places = flatten(embeddings.numpy(), normalize=True)
    return {"places": np.round(places, 2).tolist(), "classes": labels.tolist()}


def of_test(run: Run, progress: Message) -> dict[str, Any] | None:
    """A sample of the test items; None where there are too few."""
    progress("map of the test classes", 0, 1)
    test = stored_run.read(run.folder).test
    if test is None or not test.usable or len(test) < FEWEST_POINTS:
        return None
    points = sample(test.labels, MOST_POINTS)
    points = np.random.default_rng(SEED).permutation(points)
    places = flatten(test.embeddings[points], normalize=True)
    result = {"places": np.round(places, 2).tolist(), "classes": test.labels[points].tolist()}
    dataset = reopen(run.folder)[0].dataset
    if not isinstance(dataset, FeatureDataset):
        uri, columns = sheet(dataset, test.indices[points].tolist(), TILE)
        result |= {"sheet": uri, "columns": columns}
    progress("map of the test classes", 1, 1)
    return result


def classes_figure(name: str, result: Mapping[str, Any], columns: int) -> Drawn:
    """Panels in rows of so many, a colour per class."""
    panels = [Cloud(title, each["places"], each["classes"]) for title, each in result.items()]
    count = len(set(panels[0].classes))
    caption = f"t-SNE of {count} training classes, the same in every panel, a colour each."
    return drawn(name, caption, lambda: clouds(panels, columns))


def test_figure(name: str, result: Mapping[str, Any]) -> Drawn:
    """Thumbnails where there are images, otherwise points coloured by class."""
    places = np.asarray(result["places"])
    count = len(set(result["classes"]))
    caption = f"t-SNE of {len(places):,} items of {count} unseen classes"
    if not result.get("sheet"):  # features, or an archived study, whose images stay where they were
        panel = Cloud("unseen classes", places, result["classes"])
        return drawn(name, f"{caption}, a colour per class.", lambda: clouds([panel]))
    tiles = _tiles(result["sheet"], int(result["columns"]), len(places))
    caption += "; images that would cover another by more than half are left out."
    return drawn(name, caption, lambda: images(places, tiles))


def _tiles(uri: str, columns: int, count: int) -> list[Any]:
    content = base64.b64decode(uri.partition(",")[2])
    whole = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    return [
        whole[TILE * (i // columns) :, TILE * (i % columns) :][:TILE, :TILE] for i in range(count)
    ]
