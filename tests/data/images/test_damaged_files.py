"""Damaged images through decode: never a crash, a hang or much memory; every one is reported.

A child process decodes them one after the other under a limit of memory, so that a crash of a
decoder would be seen, and gives an account of each.
"""

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

CHILD = """
import json, sys, time, warnings
from pathlib import Path
import numpy as np
warnings.simplefilter("ignore")
from unseen.data.images.decode import SafeImageFile, UnreadableImageError, decode
account = []
def pixels(path):
    try:
        with SafeImageFile(path) as waiting:
            return waiting.pixels()
    except UnreadableImageError as error:
        return None
for path in sorted(Path(sys.argv[1]).iterdir()):
    began = time.process_time()
    straight = pixels(path)
    try:
        image = decode(path)
        assert image.mode == "RGB"
        assert len(image.tobytes()) == 3 * image.width * image.height
        with SafeImageFile(path) as waiting:
            assert waiting.pixels((0, 0, 1, 1), (1, 1)).shape[2] == 3
        assert (straight == np.asarray(image)).all(), path
        outcome = "read"
    except UnreadableImageError as error:
        assert str(path) in str(error) and error.reason and "\\n" not in str(error)
        assert straight is None, path
        outcome = "reported"
    account.append((path.name, outcome, time.process_time() - began))
# getrusage would count the memory of the process that started this one
peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
print(json.dumps({"account": account, "peak": peak}))
"""
KINDS = ("JPEG", "PNG", "GIF", "TIFF", "WEBP", "BMP")
LIMIT = 1 << 20  # kB of memory, the interpreter and its libraries included


def whole(kind: str, rng: np.random.Generator) -> bytes:
    """A small image of a kind, in one of its modes."""
    coarse = Image.fromarray(rng.integers(0, 256, (5, 6, 3)).astype(np.uint8))
    image = coarse.resize((int(rng.integers(8, 90)), int(rng.integers(8, 90))))
    modes = {"JPEG": ["RGB", "L", "CMYK"], "PNG": ["RGB", "RGBA", "P", "L", "I;16"]}
    image = (
        image.convert("L").convert("I;16")
        if (mode := str(rng.choice(modes.get(kind, ["RGB"])))) == "I;16"
        else image.convert(mode)
    )
    buffer = io.BytesIO()
    options = {"progressive": bool(rng.random() < 0.5)} if kind == "JPEG" else {}
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def damaged(number: int) -> tuple[str, bytes]:
    """Cut, flipped, overwritten, filled with another's bytes, or under another's header."""
    rng = np.random.default_rng([20, number])
    kind = KINDS[number % len(KINDS)]
    content = bytearray(whole(kind, rng))
    harm = ("cut", "flip", "header", "splice", "fill")[int(rng.integers(5))]
    if harm == "cut":
        del content[int(rng.integers(len(content))) :]
    elif harm == "flip":
        for place in rng.integers(0, len(content), int(rng.integers(1, 12))):
            content[place] ^= 1 << int(rng.integers(8))
    elif harm == "header":  # sizes and offsets lie near the beginning
        for place in rng.integers(0, min(64, len(content)), int(rng.integers(1, 6))):
            content[place] = int(rng.integers(256))
    elif harm == "splice":
        other = whole(KINDS[int(rng.integers(len(KINDS)))], rng)
        place = int(rng.integers(min(len(content), len(other))))
        content = content[:place] + other[place:]
    else:
        start = int(rng.integers(len(content)))
        content[start : start + 40] = bytes([int(rng.choice([0, 255]))]) * 40
    return f"{number:05}-{harm}.{kind.lower()}", bytes(content)


def account_of(folder: Path, numbers: range) -> dict[str, int]:
    folder.mkdir()
    for name, content in map(damaged, numbers):
        (folder / name).write_bytes(content)
    child = [sys.executable, "-c", CHILD, str(folder)]
    done = subprocess.run(child, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    message = json.loads(done.stdout)
    assert len(message["account"]) == len(numbers)
    assert message["peak"] < LIMIT
    slowest = max(message["account"], key=lambda entry: entry[2])
    assert slowest[2] < 30, slowest  # seconds of computing: a hang, not a slow machine
    outcomes = [outcome for _, outcome, _ in message["account"]]
    return {outcome: outcomes.count(outcome) for outcome in ("read", "reported")}


def test_a_sample_of_damaged_files(tmp_path: Path) -> None:
    counts = account_of(tmp_path / "damaged", range(200))
    assert counts["reported"] > 60
    assert counts["read"] > 20  # damage that leaves an image


@pytest.mark.slow
def test_ten_thousand_damaged_files(tmp_path: Path) -> None:
    counts = account_of(tmp_path / "damaged", range(10_000))
    assert counts["reported"] > 3_000
    print(counts)
