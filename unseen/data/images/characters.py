"""Which characters the typefaces inside matplotlib can draw, and which of them look alike.

Faces      the twelve DejaVu faces (sans, serif, mono; upright, bold, slanted) and the four of
           STIX General. Left out: display, size-variant, non-Unicode and Computer Modern faces
           (a handful of characters each) and Last Resort (draws boxes).
Characters letters, digits and currency signs that all DejaVu faces hold; a STIX face adds its
           drawing where it has one. Left out: whatever Unicode composes of other characters (an
           accented capital differs from its siblings by three pixels), marks, punctuation and
           symbols (dots and strokes that only place, size or rotation tell apart), blanks,
           missing-glyph boxes.
Alike      two characters are one class when a quarter of the faces draw them the same once place,
           size and, mostly, proportions are taken away: A, Alpha and Cyrillic A; S and s; l and I.
           Mirrored and turned shapes stay apart (b d, p q, 6 9), because the images are never
           mirrored and turn by little.
"""

import unicodedata
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.ft2font import FT2Font
from numpy.typing import NDArray
from PIL import Image, ImageFilter, ImageFont

from unseen.core.relevance import joined_classes

_FAMILIES = {
    "DejaVuSans": ("", "-Bold", "-Oblique", "-BoldOblique"),
    "DejaVuSansMono": ("", "-Bold", "-Oblique", "-BoldOblique"),
    "DejaVuSerif": ("", "-Bold", "-Italic", "-BoldItalic"),
    "STIXGeneral": ("", "Bol", "Italic", "BolIta"),
}
FACES = tuple(family + style for family, styles in _FAMILIES.items() for style in styles)
_REQUIRED = tuple(face for face in FACES if face.startswith("DejaVu"))
# Slanted faces repeat what the upright ones say about likeness.
_COMPARED = tuple(face for face in _REQUIRED if face.endswith(("Sans", "Mono", "Serif", "-Bold")))
_CATEGORIES = {"Lu", "Ll", "Lo", "Nd", "Sc"}

_EM = 80  # pixels a clean drawing has per em
_GRID = 24  # longer side of the drawings that are compared
_EDGE = 3  # room for the blur around them
_SQUARING = 0.6  # exponent on width / height: 1 keeps proportions, 0 makes every drawing square
_WORTH_COMPARING = 0.88  # mean correlation below which two drawings are never alike
_ALIKE = 0.33  # largest grey difference anywhere between two blurred drawings that are alike


def face_path(face: str) -> Path:
    """The file of a face inside the installed matplotlib."""
    return Path(matplotlib.get_data_path(), "fonts", "ttf", f"{face}.ttf")


@cache
def _font(face: str) -> ImageFont.FreeTypeFont:
    # BASIC: shaping with Raqm differs between machines, and single characters need none.
    return ImageFont.truetype(face_path(face), _EM, layout_engine=ImageFont.Layout.BASIC)


@cache
def covered(face: str) -> frozenset[int]:
    """Code points a face has a drawing for."""
    return frozenset(FT2Font(str(face_path(face))).get_charmap())


def drawing(code: int, face: str) -> Image.Image | None:
    """A clean grey drawing, cut to its ink; None where the face draws nothing."""
    mask = _font(face).getmask(chr(code), mode="L")
    image = Image.frombytes("L", mask.size, bytes(mask))
    box = image.getbbox()
    return image.crop(box) if box else None


def _is_plain(code: int) -> bool:
    character = chr(code)
    composed = unicodedata.normalize("NFKD", character) != character
    return unicodedata.category(character) in _CATEGORIES and not composed


def _is_drawn(code: int, missing: dict[str, bytes]) -> bool:
    for face, box in missing.items():
        image = drawing(code, face)
        if image is None or image.tobytes() == box:
            return False
    return True


@cache
def usable() -> tuple[int, ...]:
    """Code points every required face draws, in order."""
    nowhere = 0x10FFFE  # never assigned, so every face answers with its missing-glyph box
    boxes = {face: drawing(nowhere, face) for face in _REQUIRED}
    missing = {face: box.tobytes() if box else b"" for face, box in boxes.items()}
    shared = frozenset.intersection(*map(covered, _REQUIRED))
    return tuple(code for code in sorted(shared) if _is_plain(code) and _is_drawn(code, missing))


def _comparable(code: int, face: str) -> NDArray[np.float32]:  # [pixels]
    """A drawing freed of place and size and, in part, of its proportions, then blurred."""
    image = drawing(code, face)
    assert image is not None
    longer = max(image.size)
    width, height = (max(1, round(_GRID * (side / longer) ** _SQUARING)) for side in image.size)
    side = _GRID + 2 * _EDGE
    frame = Image.new("L", (side, side))
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    frame.paste(resized, ((side - width) // 2, (side - height) // 2))
    blurred = frame.filter(ImageFilter.GaussianBlur(1.5))
    return np.asarray(blurred, dtype=np.float32).ravel() / np.float32(255)


def _alike_pairs(codes: tuple[int, ...]) -> list[tuple[int, int]]:
    drawings = np.stack([[_comparable(c, face) for c in codes] for face in _COMPARED])
    units = drawings / np.linalg.norm(drawings, axis=2, keepdims=True)  # [faces, n, pixels]
    correlation = np.mean([unit @ unit.T for unit in units], axis=0)  # [n, n]
    left, right = np.nonzero(np.triu(correlation > _WORTH_COMPARING, k=1))
    # The largest local difference sees a bar or a tail that a correlation over the whole misses.
    differences = np.stack([np.abs(d[left] - d[right]).max(axis=1) for d in drawings])
    alike = np.quantile(differences, 0.25, axis=0) < _ALIKE  # [pairs]
    return list(zip(left[alike].tolist(), right[alike].tolist(), strict=True))


@cache
def alike() -> tuple[tuple[int, ...], ...]:
    """The usable code points in groups that look alike, ordered by their smallest member."""
    codes = usable()
    pairs = np.array(_alike_pairs(codes), dtype=np.int64).reshape(-1, 2)
    groups: dict[int, list[int]] = {}
    for code, group in zip(codes, joined_classes(np.arange(len(codes)), pairs), strict=True):
        groups.setdefault(int(group), []).append(code)
    return tuple(tuple(group) for group in groups.values())
