"""What a transform makes of some pictures, side by side on one sheet."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

from unseen.contracts import Dataset
from unseen.data.pictures.normalising import Normalising

_GAP, _LINE = 6, 16
_BACKGROUND, _INK = (255, 255, 255), (60, 60, 60)


def contact_sheet(
    dataset: Dataset,
    items: Sequence[int],
    training: Normalising,
    evaluation: Normalising,
    views: int = 6,
    seed: int = 0,
) -> Image.Image:
    """One row per picture: the picture, what is judged, and `views` of what is trained on."""
    side = max(96, training.size)
    columns = ["picture", "judged", *(f"trained {k + 1}" for k in range(views))]
    width = len(columns) * (side + _GAP) + _GAP
    sheet = Image.new("RGB", (width, _LINE + len(items) * (side + _LINE + _GAP)), _BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    for column, title in enumerate(columns):
        draw.text((_GAP + column * (side + _GAP), 2), title, fill=_INK)
    for row, item in enumerate(items):
        top = _LINE + row * (side + _LINE + _GAP)
        picture = dataset.picture(item)
        shown = [picture, _seen(evaluation, picture, (seed, item))]
        shown += [_seen(training, picture, (seed, view, item)) for view in range(views)]
        for column, image in enumerate(shown):
            image.thumbnail((side, side))
            sheet.paste(image, (_GAP + column * (side + _GAP), top))
        draw.text((_GAP, top + side + 1), str(dataset.label_names[dataset.labels[item]]), fill=_INK)
    return sheet


def _seen(transform: Normalising, picture: Image.Image, seed: tuple[int, ...]) -> Image.Image:
    """What the network gets, brought back to colours."""
    seen: Tensor = transform(picture, np.random.default_rng(seed))  # type: ignore[operator]
    return transform.colours(seen)
