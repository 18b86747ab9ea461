"""Draws `docs/three_commands.gif`: three commands, typed and answered, from what they really print.

    python benchmarks/recording.py PICTURES --out docs/three_commands.gif

PICTURES is a folder of class folders. Waiting is cut: lines follow each other, and what each
command took is written behind it.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

COLUMNS, LINES, MARGIN = 80, 26, 14
INK, DIM, GREEN, PAPER = "#e6e6e6", "#8a8f98", "#7ec699", "#15181d"
FONT = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSansMono.ttf"


def answer(words: list[str], folder: Path) -> tuple[list[str], float]:
    """What a command prints, and its seconds."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "unseen", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"FORCE_COLOR": "1", "TERM": "dumb", "COLUMNS": str(COLUMNS)},
    )
    seconds = time.perf_counter() - began
    printed = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).replace(f"{folder}/", "")
    return printed.splitlines(), seconds


def rows(line: str) -> list[str]:
    """A line as a terminal shows it, broken between words."""
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, COLUMNS, subsequent_indent=indent) or [""]


def frame(lines: list[tuple[str, str]], font: ImageFont.FreeTypeFont) -> Image.Image:
    """The last lines that fit, each with its colour."""
    width, height = round(font.getlength("M")), font.size + 5
    image = Image.new("RGB", (2 * MARGIN + COLUMNS * width, 2 * MARGIN + LINES * height), PAPER)
    draw = ImageDraw.Draw(image)
    for row, (text, colour) in enumerate(lines[-LINES:]):
        draw.text((MARGIN, MARGIN + row * height), text[:COLUMNS], fill=colour, font=font)
    return image.quantize(16, dither=Image.Dither.NONE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pictures", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/three_commands.gif"))
    parser.add_argument("--query", type=Path, help="a picture to search with")
    given = parser.parse_args()
    pictures = given.pictures.resolve()
    query = (given.query or next(pictures.rglob("*.jpg"))).resolve()
    font = ImageFont.truetype(FONT, 13)
    frames: list[Image.Image] = []
    pauses: list[int] = []
    shown: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        (here / "birds").symlink_to(pictures)
        (here / "query.jpg").write_bytes(query.read_bytes())
        for words in (
            ["train", "birds", "--minutes", "3", "--out", "runs/birds"],
            ["index", "build", "runs/birds", "birds", "--out", "birds.index"],
            ["search", "birds.index", "query.jpg", "-k", "6"],
        ):
            typed = f"$ unseen {' '.join(words)}"
            for end in range(2, len(typed) + 1, 4):
                frames.append(frame([*shown, (typed[:end] + "▌", GREEN)], font))
                pauses.append(60)
            lines, seconds = answer(words, here)
            shown.append((f"{typed}    # {seconds:.0f} s", GREEN))
            for line in lines:
                colour = DIM if line.startswith("  ") else INK
                shown += [(row, colour) for row in rows(line)]
                frames.append(frame(shown, font))
                pauses.append(110)
            shown.append(("", INK))
            pauses[-1] = 1800
    pauses[-1] = 4000
    given.out.parent.mkdir(parents=True, exist_ok=True)
    frames[0].save(
        given.out, save_all=True, append_images=frames[1:], duration=pauses, loop=0, optimize=True
    )
    print(f"{given.out}: {len(frames)} frames, {given.out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
