"""Draws `docs/three_commands.gif`: three commands, typed and answered, from what they really print.

    python benchmarks/recording.py IMAGES --out docs/three_commands.gif

IMAGES is a folder of class folders. Most are trained and evaluated on, every sixth goes into the
index, and one image of those is searched with. Waiting is cut: lines follow each other.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

COLUMNS, LINES, MARGIN = 80, 25, 14
AT_ONCE = 4  # lines of an answer in a frame
SHADES = 4  # of each colour, for the edges of letters
INK, DIM, GREEN, PAPER = "#e6e6e6", "#8a8f98", "#7ec699", "#15181d"
FONT = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSansMono.ttf"

Line = tuple[str, str]  # text and colour


def answer(words: list[str], folder: Path) -> list[str]:
    """What a command prints."""
    terminal = {"FORCE_COLOR": "1", "TERM": "dumb", "COLUMNS": str(COLUMNS)}
    done = subprocess.run(
        [sys.executable, "-m", "unseen", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | terminal | {"UNSEEN_CACHE": str(folder / ".cache" / "unseen")},
    )
    printed = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).replace(f"{folder}/", "")
    return printed.splitlines()


def rows(line: str) -> list[Line]:
    """A line as a terminal shows it, broken between words."""
    color = DIM if line.startswith("  ") else INK
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    broken = textwrap.wrap(line, COLUMNS, subsequent_indent=indent)
    return [(row, color) for row in broken or [""]]


def frame(lines: list[Line], font: ImageFont.FreeTypeFont) -> Image.Image:
    """The last lines that fit, each with its colour."""
    width, height = round(font.getlength("M")), font.size + 5
    image = Image.new("RGB", (2 * MARGIN + COLUMNS * width, 2 * MARGIN + LINES * height), PAPER)
    draw = ImageDraw.Draw(image)
    for row, (text, color) in enumerate(lines[-LINES:]):
        draw.text((MARGIN, MARGIN + row * height), text, fill=color, font=font)
    return image


def palette() -> Image.Image:
    """The same colours for all frames: those that do not change cost nothing."""
    made = Image.new("RGB", (3 * (SHADES + 1), 1), PAPER)
    for number, color in enumerate((INK, DIM, GREEN)):
        full = Image.new("RGB", (1, 1), color)
        for shade in range(1, SHADES + 1):
            mixed = Image.blend(Image.new("RGB", (1, 1), PAPER), full, shade / SHADES)
            made.paste(mixed, (number * (SHADES + 1) + shade, 0))
    return made.quantize(3 * SHADES + 1, dither=Image.Dither.NONE)


def laid_out(images: Path, here: Path) -> None:
    """Copies: a folder to train on, `new` classes for the index, and an image to search with."""
    for number, folder in enumerate(sorted(images.iterdir())):
        to = here / (images.name if number % 6 else "new") / folder.name
        shutil.copytree(folder, to)
    query = sorted((here / "new").rglob("*.jpg"))[-1]
    query.rename(here / "query.jpg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/three_commands.gif"))
    given = parser.parse_args()
    font = ImageFont.truetype(FONT, 13)
    frames: list[Image.Image] = []
    pauses: list[int] = []
    shown: list[Line] = []

    def show(lines: list[Line], pause: int) -> None:
        frames.append(frame(lines, font))
        pauses.append(pause)

    with tempfile.TemporaryDirectory() as name:
        here, data = Path(name).resolve(), given.images.resolve().name
        laid_out(given.images.resolve(), here)
        for words in (
            ["train", data, "--minutes", "3", "--out", f"runs/{data}"],
            ["index", "build", f"runs/{data}", "new", "--out", "new.index"],
            ["search", "new.index", "query.jpg", "-k", "6"],
        ):
            typed = f"$ unseen {' '.join(words)}"
            for end in range(2, len(typed) + 4, 4):
                show([*shown, (typed[:end] + "▌", GREEN)], 60)
            shown.append((typed, GREEN))
            lines = [row for line in answer(words, here) for row in rows(line)]
            for start in range(0, len(lines), AT_ONCE):
                shown += lines[start : start + AT_ONCE]
                show(shown, 350)
            shown.append(("", INK))
            pauses[-1] = 2500
    pauses[-1] = 5000
    drawn = [each.quantize(palette=palette(), dither=Image.Dither.NONE) for each in frames]
    given.out.parent.mkdir(parents=True, exist_ok=True)
    drawn[0].save(given.out, save_all=True, append_images=drawn[1:], duration=pauses, loop=0)
    print(f"{given.out}: {len(frames)} frames, {given.out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
