"""Whether the code of a bundle gives the vectors that the toolkit gives, from image files of every
mode, in a process of its own."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unseen.core import read_limits
from unseen.data.images.decode import ORIENTATION
from unseen.runs.trained_run import Trained

LEAST = 0.999  # cosine
EXAMPLE = '["image.jpg"]'  # what the code of a bundle embeds


def _transparent(image: Image.Image) -> Image.Image:
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    return image


def _deep(image: Image.Image) -> Image.Image:
    return Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)


def _turned() -> Image.Exif:
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    return exif


MODES: dict[str, Callable[[Image.Image, Path], object]] = {  # how each is written to FOLDER/name
    "RGB": lambda image, path: image.save(f"{path}.jpg"),
    "RGBA": lambda image, path: _transparent(image).save(f"{path}.png"),
    "L": lambda image, path: image.convert("L").save(f"{path}.png"),
    "P": lambda image, path: image.quantize().save(f"{path}.png"),
    "P with transparency": lambda image, path: image.quantize(8).save(
        f"{path}.png", transparency=bytes(range(0, 256, 32))
    ),
    "CMYK": lambda image, path: image.convert("CMYK").save(f"{path}.jpg"),
    "16 bit": lambda image, path: _deep(image).save(f"{path}.png"),
    "rotated by EXIF": lambda image, path: image.save(f"{path}.jpg", exif=_turned()),
}


def write_files(
    folder: Path, images: Tensor, modes: Sequence[str] = tuple(MODES)
) -> list[Path]:  # images: levels [N, 3, h, w]
    """A file of each mode, larger than the network takes it and not square."""
    for place, mode in enumerate(modes):
        levels = images[place % len(images)].to(torch.uint8)
        image = Image.fromarray(levels.permute(1, 2, 0).numpy())
        MODES[mode](image.resize((4 * image.width, 3 * image.height)), folder / mode)
    return [next(folder.glob(f"{mode}.*")) for mode in modes]


def agreement(trained: Trained, bundle: Path, code: str, images: Tensor) -> float:
    """The smallest cosine between the vectors that `code` makes in the folder of a bundle and those
    of `Trained.embed`; raises where it is below LEAST. images: levels [N, 3, s, s]."""
    with TemporaryDirectory() as name:
        files, vectors = write_files(Path(name), images), Path(name) / "vectors.npy"
        snippet = code.replace(EXAMPLE, repr([str(file) for file in files]))
        script = f"{snippet}\nnp.save({str(vectors)!r}, vectors)\n"
        words = [sys.executable, "-E", "-B", "-c", script]
        ran = subprocess.run(words, cwd=bundle, capture_output=True, text=True, check=False)
        if ran.returncode:
            reason = (ran.stderr.strip() or "no message").splitlines()[-1]
            raise ValueError(f"the code of the bundle does not run ({reason}): not kept")
        made = torch.from_numpy(read_limits.load(vectors))
        cosines = torch.cosine_similarity(made, trained.embed(files))
    least = float(cosines.min())
    if not least >= LEAST:
        mode = list(MODES)[int(cosines.nan_to_num(-1).argmin())]
        raise ValueError(
            f"the code of the bundle and unseen disagree on an image file ({mode}): cosine "
            f"{least:.3f}, {LEAST} is needed: not kept"
        )
    return least
