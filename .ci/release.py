"""Makes and checks what is published: wheel, sdist, the list of all parts and their licences.

    python .ci/release.py dist

dist/*.tar.gz, dist/*.whl  the sdist, and the wheel that is built from it; checked by twine and
                           check-wheel-contents
dist/installed             an environment that holds the wheel with the extras of the README
dist/sbom.json             what that environment holds, as CycloneDX
dist/licences.csv          name, version and licence of each part
"""

import csv
import json
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BUILD = "import sys; from setuptools import build_meta; build_meta.build_{}(sys.argv[1])"
EXTRAS = "[pretrained,search]"


def run(*words: object, inside: Path = ROOT) -> None:
    subprocess.run([str(word) for word in words], cwd=inside, check=True)


def environment(place: Path, *wanted: object) -> Path:
    """The folder of the commands of a new environment with these packages."""
    venv.create(place, with_pip=True, clear=True)
    run(place / "bin" / "pip", "--disable-pip-version-check", "install", "-q", *wanted)
    return place / "bin"


def built(tools: Path, out: Path) -> Path:
    """The wheel; built from the sdist, so that the sdist is whole."""
    run(tools / "python", "-c", BUILD.format("sdist"), out)
    (sdist,) = out.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        (source,) = Path(folder).iterdir()
        run(tools / "python", "-c", BUILD.format("wheel"), out, inside=source)
    (wheel,) = out.glob("*.whl")
    run(tools / "twine", "check", "--strict", sdist, wheel)
    run(tools / "check-wheel-contents", wheel)
    return wheel


def licence(part: dict[str, Any]) -> str:
    """As its metadata state it: an expression, names, or nothing."""
    stated = [
        each.get("expression") or each["license"].get("id") or each["license"].get("name", "")
        for each in part.get("licenses", ())
    ]
    return "; ".join(dict.fromkeys(line.partition("\n")[0] for line in stated if line))


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        lock = ROOT / "requirements-lock-release.txt"
        tools = environment(Path(folder) / "tools", "--require-hashes", "-r", lock)
        wheel = built(tools, out)
        installed = environment(
            out / "installed", "-c", ROOT / "constraints.txt", f"{wheel}{EXTRAS}"
        )
        options = ["--output-file", out / "sbom.json", "--pyproject", ROOT / "pyproject.toml"]
        run(tools / "cyclonedx-py", "environment", *options, installed / "python")
    parts = json.loads((out / "sbom.json").read_text())["components"]
    with (out / "licences.csv").open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(["name", "version", "licence"])
        for part in sorted(parts, key=lambda part: str(part["name"])):
            table.writerow([part["name"], part["version"], licence(part)])
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes, {len(parts)} parts in sbom.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
