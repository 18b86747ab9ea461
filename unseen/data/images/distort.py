"""A clean drawing of a character made into an image as a camera or a scanner might give it.

In this order, each drawn at random: turned, slanted, stretched, scaled and placed; its stroke
made thinner, thicker or hollow; laid in one grey over a shaded, cluttered background of another;
crossed by a stray line; blurred; covered with noise. The ranges are chosen so that nearest
neighbours by raw pixels are mostly wrong, a small network learns to be mostly right, and a person
reads every image.
"""

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

_OVER = 2  # worked on at twice the final size, so that thin strokes stay smooth

_MAX_TURN = 12  # degrees; far from the half turn that makes a 9 of a 6
_MAX_SLANT = 0.2
_MAX_STRETCH = 0.14  # of the logarithm of width / height
_SCALE = (0.64, 0.8)  # longer side of the character, of the image's side
_MAX_SHIFT = 0.035  # of the image's side
_HOLLOW = 0.12  # share of outlined characters
_INVERTED = 0.25  # share of light characters on dark ground
_CONTRAST = (90, 200)  # grey levels between character and ground
_CROSSED = 0.5  # share of images with a stray line over the character
_MAX_NOISE = 14  # grey levels, standard deviation

FloatArray = NDArray[np.float32]


def distort(drawing: Image.Image, size: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """A grey image [size, size] of a drawing in white on black, cut to its ink."""
    side = size * _OVER
    ink = _stroked(_placed(drawing, side, rng), rng)  # [side, side], 0..1
    ground, level = _greys(side, rng)
    scene = ground + (level - ground) * ink
    image = Image.fromarray(scene.clip(0, 255).astype(np.uint8))
    if rng.random() < _CROSSED:
        ImageDraw.Draw(image).line(_two_points(side, 0, rng), fill=round(level), width=_OVER)
    image = image.filter(ImageFilter.GaussianBlur(_OVER * rng.uniform(0.0, 0.6))).reduce(_OVER)
    noise = rng.normal(0, rng.uniform(2, _MAX_NOISE), (size, size))
    return (np.asarray(image) + noise).round().clip(0, 255).astype(np.uint8)


def _placed(drawing: Image.Image, side: int, rng: np.random.Generator) -> Image.Image:
    turn = math.radians(rng.uniform(-_MAX_TURN, _MAX_TURN))
    slant = rng.uniform(-_MAX_SLANT, _MAX_SLANT)
    stretch = math.exp(rng.uniform(-_MAX_STRETCH, _MAX_STRETCH) / 2)
    scale = rng.uniform(*_SCALE) * side / max(drawing.size)

    rotation = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    forward = scale * rotation @ np.array([[stretch, slant / stretch], [0, 1 / stretch]])
    half = np.array(drawing.size) / 2
    reach = np.abs(forward) @ half  # half the box around the placed drawing
    forward *= min(1.0, 0.47 * side / reach.max())  # never out of the image
    room = np.minimum(0.485 * side - np.abs(forward) @ half, _MAX_SHIFT * side)
    center = side / 2 + rng.uniform(-1, 1, 2) * room
    back = np.linalg.inv(forward)  # Pillow asks where each target pixel comes from
    offset = half - back @ center
    coefficients = (*back[0], offset[0], *back[1], offset[1])
    method, bilinear = Image.Transform.AFFINE, Image.Resampling.BILINEAR
    return drawing.transform((side, side), method, coefficients, bilinear)


def _stroked(image: Image.Image, rng: np.random.Generator) -> FloatArray:  # [side, side]
    """Thinner or thicker, by cutting a blurred copy at another level than one half; or hollow."""
    radius, cut, hollow = rng.uniform(0.9, 1.9), rng.uniform(0.22, 0.6), rng.random() < _HOLLOW
    sharp = np.asarray(image, dtype=np.float32) / 255
    if hollow:
        wide = np.asarray(image.filter(ImageFilter.MaxFilter(5)), dtype=np.float32) / 255
        return np.maximum(wide - sharp, 0)
    soft = np.asarray(image.filter(ImageFilter.GaussianBlur(radius)), dtype=np.float32) / 255
    ink = np.clip((soft - cut) * 5 + 0.5, 0, 1)
    return np.maximum(ink, 0.6 * sharp)  # a hairline gets pale, never lost


def _greys(side: int, rng: np.random.Generator) -> tuple[FloatArray, float]:
    """A shaded, cluttered background [side, side] and the grey of the character on it."""
    contrast = rng.uniform(*_CONTRAST)
    dark = (255 - contrast) * rng.uniform(0.4, 1)
    ground, level = dark + contrast, dark
    if rng.random() < _INVERTED:
        ground, level = level, ground
    image = Image.new("L", (side, side), round(ground))
    draw = ImageDraw.Draw(image)
    for _ in range(rng.integers(0, 4)):
        grey = ground + (level - ground) * rng.uniform(-0.3, 0.45)
        width = int(rng.integers(2, 9))
        draw.line(_two_points(side, 0.1, rng), fill=round(min(255, max(0, grey))), width=width)
    slope = rng.uniform(-0.25, 0.25, 2) * contrast
    ramp = np.linspace(-0.5, 0.5, side)
    shaded = np.asarray(image) + slope[0] * ramp[:, None] + slope[1] * ramp[None, :]
    return shaded.astype(np.float32), level


def _two_points(side: int, outside: float, rng: np.random.Generator) -> list[tuple[float, float]]:
    x, y = rng.uniform(-outside, 1 + outside, (2, 2)) * side
    return [(float(x[0]), float(y[0])), (float(x[1]), float(y[1]))]
