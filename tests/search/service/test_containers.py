"""Dockerfile and compose file name what exists: no engine runs here."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from unseen.cli.main import loaded

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())


def lines(word: str) -> list[list[str]]:
    return [shlex.split(line)[1:] for line in DOCKERFILE.splitlines() if line.startswith(word)]


def understood(words: list[str]) -> None:
    """Options and their number are those of `unseen serve`."""
    assert words[0] == "serve"
    command = loaded("serve")
    parsed = command.make_context("serve", list(words[1:]))
    assert str(parsed.params["index"]).startswith("/data/")
    assert parsed.params["host"] == "0.0.0.0"
    assert parsed.params["workers"] == 2


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    allowed = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.M)
    for *sources, _ in lines("COPY"):
        for source in sources:
            assert (ROOT / source).exists()
            assert source in allowed


def test_what_is_installed_is_declared() -> None:
    (install,) = (words for words in lines("RUN") if "pip" in words)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    (place,) = (word for word in install if word.startswith(".["))
    assert set(place[2:-1].split(",")) <= set(extras)
    assert install[install.index("-c") + 1] == "constraints.txt"
    assert "useradd" in install
    assert DOCKERFILE.index("USER unseen") < DOCKERFILE.index("ENTRYPOINT")


def test_both_start_the_page() -> None:
    assert '\nENTRYPOINT ["unseen"]\n' in DOCKERFILE
    (words,) = re.findall(r"^CMD (\[.+\])$", DOCKERFILE, re.M)
    understood(yaml.safe_load(words))
    understood([str(word) for word in COMPOSE["services"]["page"]["command"]])
    assert "/health" in DOCKERFILE


def test_the_services_of_the_compose_file_fit_together() -> None:
    services = COMPOSE["services"]
    assert set(services["page"]["depends_on"]) == {"milvus"}
    assert "healthcheck" in services["milvus"]
    assert ":latest" not in services["milvus"]["image"]
    for service in services.values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source.startswith("./") or source in COMPOSE["volumes"]
        for config in service.get("configs", ()):
            assert config["source"] in COMPOSE["configs"]
    assert yaml.safe_load(COMPOSE["configs"]["etcd_inside"]["content"])
    assert "UNSEEN_TOKEN" in services["page"]["environment"]
