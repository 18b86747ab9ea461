"""A clean drawing of a character made into a picture as a camera or a scanner might give it.

In this order, each step drawn at random: turned, slanted, stretched, scaled and placed; stroke made
thinner, thicker or hollow; laid in some grey over a shaded, cluttered background of another grey; crossed
by a stray line; blurred; noise added. Everything is drawn from the generator that comes in, always the
same number of values, so one picture never shifts the next.
"""

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

_OVER = 2  # worked on at twice the final size, so that thin strokes stay smooth

MAX_TURN = 10  # degrees
_MAX_SLANT = 0.15
_MAX_STRETCH = 0.14  # of the logarithm of width / height
_SCALE = (0.64, 0.8)  # longer side of the character, of the picture's side
_MAX_SHIFT = 0.07  # of the picture's side
_HOLLOW = 0.06  # share of outlined characters
_INVERTED = 0.0  # share of light characters on dark ground

FloatArray = NDArray[np.float32]


def distort(drawing: Image.Image, size: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """A grey picture [size, size] of a drawing in white on black, cut to its ink."""
    ink = _stroked(_placed(drawing, size * _OVER, rng), rng)  # [side, side], 0..1
    ground, level = _greys(size * _OVER, rng)
    scene = ground + (level - ground) * ink
    image = Image.fromarray(scene.clip(0, 255).astype(np.uint8))
    _cross(image, level, rng)
    image = image.filter(ImageFilter.GaussianBlur(_OVER * rng.uniform(0.0, 0.6))).reduce(_OVER)
    noise = rng.normal(0, rng.uniform(2, 14), (size, size))
    return (np.asarray(image) + noise).round().clip(0, 255).astype(np.uint8)


def _placed(drawing: Image.Image, side: int, rng: np.random.Generator) -> Image.Image:
    turn = math.radians(rng.uniform(-MAX_TURN, MAX_TURN))
    slant = rng.uniform(-_MAX_SLANT, _MAX_SLANT)
    stretch = math.exp(rng.uniform(-_MAX_STRETCH, _MAX_STRETCH) / 2)
    scale = rng.uniform(*_SCALE) * side / max(drawing.size)
    across, down = rng.uniform(-1, 1, 2)

    cos, sin = math.cos(turn), math.sin(turn)
    forward = np.array([[cos, -sin], [sin, cos]]) @ np.array([[1, slant], [0, 1]])
    forward = scale * forward @ np.diag([stretch, 1 / stretch])
    half = np.array(drawing.size) / 2
    reach = np.abs(forward) @ half  # half the box around the placed drawing
    forward *= min(1.0, (0.48 * side) / reach.max())
    room = side / 2 - np.abs(forward) @ half
    centre = side / 2 + np.array([across, down]) * np.minimum(room, _MAX_SHIFT * side)
    back = np.linalg.inv(forward)
    offset = half - back @ centre
    coefficients = (*back[0], offset[0], *back[1], offset[1])
    return drawing.transform(
        (side, side), Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR
    )


def _stroked(image: Image.Image, rng: np.random.Generator) -> FloatArray:
    """Thinner or thicker by cutting a blurred copy at another level than one half."""
    radius, cut, hollow = rng.uniform(0.9, 1.9), rng.uniform(0.22, 0.6), rng.random() < _HOLLOW
    soft = np.asarray(image.filter(ImageFilter.GaussianBlur(radius)), dtype=np.float32) / 255
    sharp = np.asarray(image, dtype=np.float32) / 255
    ink = np.clip((soft - cut) * 5 + 0.5, 0, 1)
    ink = np.maximum(ink, 0.6 * sharp)  # a hairline gets pale, never lost
    if hollow:
        wide = np.asarray(image.filter(ImageFilter.MaxFilter(5)), dtype=np.float32) / 255
        ink = np.maximum(wide - sharp, 0)
    return ink


def _greys(side: int, rng: np.random.Generator) -> tuple[FloatArray, float]:
    """A shaded, cluttered background [side, side] and the grey of the character on it."""
    contrast, paper = rng.uniform(90, 200), rng.uniform(0.4, 1)
    dark = (255 - contrast) * paper  # the darker of the two greys
    inverted = rng.random() < _INVERTED
    base, level = (dark, dark + contrast) if inverted else (dark + contrast, dark)
    image = Image.new("L", (side, side), round(base))
    draw = ImageDraw.Draw(image)
    for _ in range(rng.integers(0, 4)):
        grey = round(base + (level - base) * rng.uniform(-0.3, 0.45))
        points = [tuple(p) for p in rng.uniform(-0.1, 1.1, (2, 2)) * side]
        draw.line(points, fill=min(255, max(0, grey)), width=int(rng.integers(2, 9)))
    slope = rng.uniform(-0.25, 0.25, 2) * contrast
    ramp = np.linspace(-0.5, 0.5, side, dtype=np.float32)
    shade = slope[0] * ramp[:, None] + slope[1] * ramp[None, :]
    return (np.asarray(image, dtype=np.float32) + shade).astype(np.float32), level


def _cross(image: Image.Image, level: float, rng: np.random.Generator) -> None:
    """Half of the pictures are crossed by a thin stray line."""
    points = [tuple(p) for p in rng.uniform(0, 1, (2, 2)) * image.width]
    if rng.random() < 0.5:
        ImageDraw.Draw(image).line(points, fill=round(level), width=_OVER)
