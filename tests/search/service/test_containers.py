"""Dockerfile and compose file name what exists: no engine runs here."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from unseen.cli.main import loaded

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


def test_every_package_is_compared_with_its_hash() -> None:
    (install,) = (words for words in lines("RUN") if "pip" in words)
    assert "--require-hashes" in install
    assert install[install.index("-r") + 1] == "requirements-lock-service.txt"
    second = install[install.index("install", install.index("-r")) :]
    assert {"--no-deps", "--no-build-isolation"} <= set(second), "nothing else is fetched"
    assert "useradd" in install
    assert DOCKERFILE.index("USER unseen") < DOCKERFILE.index("ENTRYPOINT")


def test_nothing_is_loosened() -> None:
    for service in COMPOSE["services"].values():
        assert "unconfined" not in str(service.get("security_opt", ""))
        assert not service.get("privileged")
    assert "0.0.0.0" not in COMPOSE["configs"]["etcd_inside"]["content"]


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


@pytest.mark.parametrize("answer", ["sha256:" + 64 * "a", "no such image"])
def test_the_base_is_pinned_by_the_digest_that_docker_names(tmp_path: Path, answer: str) -> None:
    (tmp_path / ".ci").mkdir()
    script = shutil.copy(ROOT / ".ci" / "pin-base", tmp_path / ".ci")
    file = Path(shutil.copy(ROOT / "Dockerfile", tmp_path))
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\necho '{answer}'\n")
    docker.chmod(0o755)
    before = file.read_text()
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ended = subprocess.run([script], env=env, capture_output=True, text=True, check=False)
    if answer.startswith("sha256"):
        assert file.read_text() == before.replace("3.11-slim", f"3.11-slim@{answer}", 1)
    else:
        assert (ended.returncode, file.read_text()) == (1, before)
        assert "no digest of python:3.11-slim" in ended.stderr
