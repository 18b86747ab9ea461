"""What Dockerfile and compose file name exists, and the image's steps run without an engine."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.conftest import CANNOT
from unseen.cli.main import loaded
from unseen.data.glyphs import Glyphs

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())


def lines(word: str) -> list[list[str]]:
    return [shlex.split(line)[1:] for line in DOCKERFILE.splitlines() if line.startswith(word)]


def exec_form(word: str) -> list[str]:
    """The words of a line that is a list."""
    (words,) = re.findall(rf"^{word} (\[.+\])$", DOCKERFILE, re.M)
    result: list[str] = yaml.safe_load(words)
    return result


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
    assert DOCKERFILE.index("USER 1000:1000") < DOCKERFILE.index("ENTRYPOINT")


def test_the_dockerfile_is_linted() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    linted = subprocess.run([hadolint, ROOT / "Dockerfile"], stdout=subprocess.PIPE, check=False)
    assert (linted.returncode, linted.stdout) == (0, b"")


def test_nothing_is_loosened() -> None:
    for service in COMPOSE["services"].values():
        assert not service.get("privileged")
        if "build" in service:
            assert service["read_only"]
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]
            assert service["tmpfs"] == ["/tmp"]
        else:
            assert "security_opt" not in service
    assert "0.0.0.0" not in COMPOSE["configs"]["etcd_inside"]["content"]


def test_both_start_the_page() -> None:
    assert '\nENTRYPOINT ["unseen"]\n' in DOCKERFILE
    understood(exec_form("CMD"))
    understood([str(word) for word in COMPOSE["services"]["page"]["command"]])
    assert "/health" in DOCKERFILE


def test_the_services_of_the_compose_file_fit_together() -> None:
    services = COMPOSE["services"]
    assert [name for name in services if "profiles" not in services[name]] == ["page", "postgres"]
    for name, service in services.items():
        for other, needed in service.get("depends_on", {}).items():
            assert needed == {"condition": "service_healthy"}
            assert "healthcheck" in services[other], name
        if "image" in service:
            assert re.fullmatch(
                r"[\w./-]+:(?!latest)[\w.-]+(@sha256:[0-9a-f]{64})?", service["image"]
            )
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source.startswith("./") or source in COMPOSE["volumes"]
        for config in service.get("configs", ()):
            assert config["source"] in COMPOSE["configs"]
    assert yaml.safe_load(COMPOSE["configs"]["etcd_inside"]["content"])
    assert "UNSEEN_TOKEN" in services["page"]["environment"]
    words = loaded("study").commands["work"].make_context("work", services["worker"]["command"][2:])
    assert urlsplit(words.params["storage"]).hostname == "postgres"
    assert (
        urlsplit(words.params["storage"]).username
        == services["postgres"]["environment"]["POSTGRES_USER"]
    )


@pytest.mark.parametrize("answer", ["sha256:" + 64 * "a", "no such image"])
def test_the_base_is_pinned_by_the_digest_that_docker_names(tmp_path: Path, answer: str) -> None:
    (tmp_path / ".ci").mkdir()
    script = shutil.copy(ROOT / ".ci" / "pin-base", tmp_path / ".ci")
    file = Path(shutil.copy(ROOT / "Dockerfile", tmp_path))
    compose = Path(shutil.copy(ROOT / "compose.yaml", tmp_path))
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\necho '{answer}'\n")
    docker.chmod(0o755)
    before = file.read_text(), compose.read_text()
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for _ in range(2):  # the second time it replaces digests
        ended = subprocess.run([script], env=env, capture_output=True, text=True, check=False)
    after = file.read_text(), compose.read_text()
    if answer.startswith("sha256"):
        assert after[0] == before[0].replace("3.11-slim", f"3.11-slim@{answer}", 1)
        assert after[1] == re.sub(r"(image: .+)", rf"\1@{answer}", before[1])
    else:
        assert (ended.returncode, after) == (1, before)
        assert "no digest of python:3.11-slim" in ended.stderr


# What an engine does with the Dockerfile, in a copy-on-write root: the base image is a Python in
# /usr/local, and nobody but root.
BUILD = """
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root || exit 77
mount -t proc proc root/proc
mount --rbind /dev root/dev
rm -rf root/home/* root/opt/unseen
mkdir -p root/opt/unseen root/data
for file in passwd group shadow; do grep '^root:' /etc/$file > root/etc/$file; done
rm -f root/etc/subuid root/etc/subgid
chmod a+x {parents}
chroot root {python} -m venv /usr/local
cp -r context/. root/opt/unseen/
env -i HOME=/root PATH={path} {index} chroot root sh -euc {run}
mount -o remount,ro root
mount -t tmpfs tmpfs root/tmp
mount --bind data root/data
unshare --net sh -euc {serve}
"""
SERVE = """
as_user() {{ env -i PATH={path} {env} chroot --userspec={user} root "$@"; }}
ip link set lo up
if as_user touch /opt/unseen/x; then exit 1; fi
as_user {command} &
for second in $(seq 120); do
    sleep 1
    if as_user {health}; then break; fi
done 2> /dev/null
as_user python -c {search}
"""
SEARCH = """
import json, os, urllib.request
from pathlib import Path
image = next(Path("/data/images").iterdir())
head = {"Authorization": "Bearer " + os.environ["UNSEEN_TOKEN"]}
request = urllib.request.Request("http://127.0.0.1:8000/api/search", image.read_bytes(), head)
print(json.load(urllib.request.urlopen(request))["hits"][0]["similarity"], os.getuid())
"""
PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"


def reached(argument: str) -> str:
    """An index of packages, or nothing where only pip's configuration knows a way to them."""
    try:
        with urllib.request.urlopen(argument.partition("=")[2], timeout=5):
            return argument
    except OSError:
        return ""


@pytest.fixture
def context(finished_run: Path, tmp_path: Path) -> Path:
    """What the Dockerfile copies, an index of a run, and folders for an overlay."""
    for name in ("root", "upper", "work", "context", "data/images"):
        (tmp_path / name).mkdir(parents=True)
    for *sources, _ in lines("COPY"):
        for source in sources:
            copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
            copy(ROOT / source, tmp_path / "context" / source)
    glyphs = Glyphs(max_classes=12, size=16)
    for index in range(0, len(glyphs), 9):
        glyphs.image(index).save(tmp_path / "data" / "images" / f"{index}.png")
    shutil.copytree(finished_run, tmp_path / "data" / "run")
    words = ["index", "build", "data/run", "data/images", "--out", "data/my.index"]
    subprocess.run([sys.executable, "-m", "unseen", *words], cwd=tmp_path, check=True)
    subprocess.run(["chown", "-R", "1000:1000", tmp_path / "data"], check=True)
    return tmp_path


@pytest.mark.slow
def test_the_steps_of_the_image_run_and_its_page_answers(context: Path) -> None:
    """Installs by the lock, makes the user, and serves from a root that cannot be written."""
    if os.getuid() != 0 or not shutil.which("unshare"):
        pytest.skip(f"{CANNOT}: no right to make a root of its own")
    variables = [*lines("ENV")[0], "UNSEEN_TOKEN=a-long-enough-word"]
    page = map(str, COMPOSE["services"]["page"]["command"])
    serve = SERVE.format(
        path=PATH,
        env=shlex.join(variables),
        user=lines("USER")[0][0],
        command=shlex.join([*exec_form("ENTRYPOINT"), *page]),
        health=shlex.join(yaml.safe_load(re.findall(r"CMD (.+r.urlopen.+)", DOCKERFILE)[0])),
        search=shlex.quote(SEARCH),
    )
    build = BUILD.format(
        parents=" ".join(f"root{parent}" for parent in Path(sys.base_prefix).parents[:-1]),
        python=Path(sys.base_prefix) / "bin" / "python3",
        path=PATH,
        index=reached(lines("ARG")[0][0]),
        run=shlex.quote("cd /opt/unseen; " + re.findall(r"^RUN (.+)$", DOCKERFILE, re.M)[0]),
        serve=shlex.quote(serve),
    )
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", build]
    ended = subprocess.run(
        words, cwd=context, capture_output=True, text=True, timeout=900, check=False
    )
    if ended.returncode == 77:
        pytest.skip(f"{CANNOT}: no right to mount an overlay")
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    similarity, user = ended.stdout.splitlines()[-1].split()
    assert (round(float(similarity), 2), user) == (1.0, "1000")
