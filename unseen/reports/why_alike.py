"""Why two images are alike, as an image and a page: heat on both, lines between the places that
pull most."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

from unseen.core.files import replace_bytes
from unseen.core.html_templates import render
from unseen.reports.thumbnails import Explained, data_uri
from unseen.runs.explain import Explanation, Grid

SIDE = 360
PAIRS = 5
KEY = (
    "Orange places pull the two together, blue ones push them apart; what is grey adds nothing. "
    "Rings of one number are the pairs of places that pull most."
)
_GAP = 12
_PULL, _PUSH = (255, 140, 0), (30, 100, 255)
_STRONGEST = 0.75  # opacity of the hottest place
_FADED = 0.3  # of the image, so that heat shows on dark places too
_INK, _PAPER = (20, 20, 20), (255, 255, 255)


def explained(why: Explanation) -> Explained:
    """As a page shows it."""
    drawn = draw(why)
    return Explained(data_uri(drawn), *drawn.size, why.sentences)


def write(out: Path, why: Explanation, names: tuple[str, str]) -> None:
    """One HTML file that loads nothing."""
    title = f"{names[0]} and {names[1]}"
    html = render("reports/why_alike", title=title, shown=explained(why), key=KEY, names=names)
    replace_bytes(out, html.encode())


def draw(why: Explanation, side: int = SIDE) -> Image.Image:
    """Both images side by side under their heat, with the strongest pairs."""
    hottest = max(float(heat.abs().max()) for heat in why.heat)
    sheet = Image.new("RGB", (2 * side + _GAP, side), _PAPER)
    for place, (image, heat) in enumerate(zip(why.images, why.heat, strict=True)):
        sheet.paste(_heated(image, heat, hottest, side), (place * (side + _GAP), 0))
    pen, (one, two) = ImageDraw.Draw(sheet), why.grids
    ends = [
        (_center(pair.first, one, side, 0), _center(pair.second, two, side, side + _GAP))
        for pair in why.strongest(PAIRS)
    ]
    for first, second in ends:
        pen.line([*first, *second], fill=_PAPER, width=3)
        pen.line([*first, *second], fill=_INK, width=1)
    for number, pair in enumerate(ends, start=1):  # rings above all lines
        for x, y in pair:
            pen.ellipse((x - 9, y - 9, x + 9, y + 9), fill=_PAPER, outline=_INK, width=2)
            pen.text((x, y), str(number), fill=_INK, anchor="mm")
    return sheet


def _heated(image: Image.Image, heat: Tensor, hottest: float, side: int) -> Image.Image:
    """The image in grey, coloured where places pull or push."""
    levels = Image.fromarray(heat.float().numpy() / max(hottest, 1e-12))
    strength = np.asarray(levels.resize((side, side), Image.Resampling.BICUBIC))[..., None]
    grey = image.convert("L").convert("RGB").resize((side, side), Image.Resampling.BICUBIC)
    ink = np.where(strength > 0, np.array(_PULL), np.array(_PUSH))
    opacity = _STRONGEST * np.abs(strength).clip(0, 1)
    light = _FADED * 255 + (1 - _FADED) * np.asarray(grey)
    mixed = (1 - opacity) * light + opacity * ink
    return Image.fromarray(mixed.round().astype(np.uint8))


def _center(place: int, grid: Grid, side: int, left: int) -> tuple[float, float]:
    row, column = divmod(place, grid[1])
    return left + (column + 0.5) * side / grid[1], (row + 0.5) * side / grid[0]
