"""What a transform makes of some images, side by side on one sheet."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

from unseen.core.contracts import Dataset
from unseen.data.images.crops import Normalization

_GAP, _LINE = 6, 16
_BACKGROUND, _INK = (255, 255, 255), (60, 60, 60)


def contact_sheet(
    dataset: Dataset,
    items: Sequence[int],
    training: Normalization,
    evaluation: Normalization,
    augmentations: int = 6,
    seed: int = 0,
) -> Image.Image:
    """One row per image: the image, what is evaluated, and `views` of what is trained on."""
    side = max(96, training.size)
    columns = ["image", "evaluated", *(f"trained {k + 1}" for k in range(augmentations))]
    width = len(columns) * (side + _GAP) + _GAP
    sheet = Image.new("RGB", (width, _LINE + len(items) * (side + _LINE + _GAP)), _BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    for column, title in enumerate(columns):
        draw.text((_GAP + column * (side + _GAP), 2), title, fill=_INK)
    for row, item in enumerate(items):
        top = _LINE + row * (side + _LINE + _GAP)
        image = dataset.image(item)
        shown = [image, _seen(evaluation, image, (seed, item))]
        shown += [_seen(training, image, (seed, view, item)) for view in range(augmentations)]
        for column, thumbnail in enumerate(shown):
            thumbnail.thumbnail((side, side))
            sheet.paste(thumbnail, (_GAP + column * (side + _GAP), top))
        draw.text((_GAP, top + side + 1), str(dataset.label_names[dataset.labels[item]]), fill=_INK)
    return sheet


def _seen(transform: Normalization, image: Image.Image, seed: tuple[int, ...]) -> Image.Image:
    """What the network gets, brought back to colours."""
    seen: Tensor = transform(image, np.random.default_rng(seed))  # type: ignore[operator]
    return transform.colors(seen)
