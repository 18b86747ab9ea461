"""A study's workers as jobs of schedulers: Slurm by submitit, Kubernetes by its Job."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.conftest import CANNOT
from unseen.cli.main import loaded
from unseen.studies.results import read
from unseen.studies.worker import Worker
from unseen.training.run_folder import RunFolder

KUBERNETES = "1.33"
ROOT = Path(__file__).parents[2]
CONFIG = {
    "data": {"name": "glyphs", "max_classes": 24, "size": 16},
    "batch_size": 16,
    "epochs": 1,
    "sampler": {"name": "m_per_class", "steps": 2},
    "metrics": ["recall@1"],
}


SLURM = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={place}/munge.socket
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SwitchType=switch/none
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def submitted(cluster: str, command: str, place: Path, number: int) -> list[Any]:
    """The jobs that the lines of docs/scaling.md submit, with a command and a number of here."""
    page = (ROOT / "docs" / "scaling.md").read_text()
    (code,) = (b for b in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "submitit" in b)
    for there, here in (
        (re.findall(r'^command = (".+")$', code, re.M)[0], repr(command)),
        ('folder="slurm"', f'cluster="{cluster}", folder="{place / "jobs"}"'),
        ("cpus_per_task=4", "cpus_per_task=1"),
        ("range(8)", f"range({number})"),
    ):
        assert there in code, there
        code = code.replace(there, here)
    space: dict[str, Any] = {}
    exec(code, space)
    jobs: list[Any] = space["jobs"]
    return jobs


def understood(words: list[str]) -> dict[str, Any]:
    """Options and their values, as `unseen study work` takes them."""
    assert words[:2] == ["study", "work"]
    command = loaded("study").commands["work"]
    params: dict[str, Any] = command.make_context("work", words[2:]).params
    return params


def test_submitit_starts_the_command_of_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "scaling.md").read_text()
    (command,) = re.findall(r'^command = "unseen (.+)"$', page, re.M)
    assert understood(command.split())["name"] == "losses"
    jobs = submitted("local", f"echo {command}", tmp_path, 2)
    assert [job.result().strip() for job in jobs] == [command, command]


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cluster of this machine alone, with a key, ports and folders of its own."""
    if not all(map(shutil.which, ("munged", "slurmctld", "slurmd", "sbatch"))):
        pytest.skip("slurmctld, slurmd, slurm-client and munge are not installed")
    if os.getuid() != 0:
        pytest.skip(f"{CANNOT}: Slurm's daemons start jobs as root only")
    with tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp") as folder:
        place = Path(folder)
        (place / "key").write_bytes(os.urandom(128))
        (place / "key").chmod(0o600)
        for name in ("state", "spool"):
            (place / name).mkdir()
        host = socket.gethostname().partition(".")[0]
        values = {"place": place, "host": host, "ports": free_ports(2), "cpus": os.cpu_count()}
        (place / "slurm.conf").write_text(SLURM.format(**values))
        monkeypatch.setenv("SLURM_CONF", str(place / "slurm.conf"))
        files = {"key-file": "key", "socket": "munge.socket", "pid-file": "munged.pid"}
        files |= {"log-file": "munged.log", "seed-file": "seed"}
        munged = ["munged", "--foreground", "--force"]
        munged += [f"--{name}={place / file}" for name, file in files.items()]
        daemons = []
        try:
            for words in (munged, ["slurmctld", "-D"], ["slurmd", "-D"]):
                daemons.append(subprocess.Popen(words, stderr=subprocess.DEVNULL))
                time.sleep(1)
            yield
        finally:
            for daemon in reversed(daemons):
                daemon.terminate()
                daemon.wait(timeout=60)


def free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


@pytest.mark.slow
def test_jobs_of_slurm_run_a_study(
    slurm: None, stub: ModuleType, storage: str, tmp_path: Path
) -> None:
    out = tmp_path / "study"
    plan = stub.small_plan(config=CONFIG, seeds=[0], factors={"loss": ["margin", "triplet"]})
    RunFolder(out).write_text("study.toml", plan.to_toml())
    worker = Worker(plan, storage, out)
    worker.queues[""].study.set_user_attr("plan", plan.to_toml())
    worker.queues[""].study.set_user_attr("sources", json.dumps({}))
    worker.resolve()
    words = f"study work small --storage {storage} --out {out} --jobs 1"
    submitted("slurm", f"{sys.executable} -m unseen {words}", tmp_path, 2)
    assert [run.state for run in read(out).runs] == ["done", "done"]


def test_the_job_of_kubernetes_is_one_and_starts_workers() -> None:
    job = yaml.safe_load((ROOT / "examples" / "study_on_kubernetes.yaml").read_text())
    kubernetes_validate.validate(job, KUBERNETES, strict=True)
    misspelt = json.loads(json.dumps(job).replace("backoffLimit", "backofLimit"))
    with pytest.raises(kubernetes_validate.ValidationError, match="backofLimit"):
        kubernetes_validate.validate(misspelt, KUBERNETES, strict=True)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    words = understood(container["args"])
    assert words["storage"] == "$(STORAGE)"
    assert "STORAGE" in [variable["name"] for variable in container["env"]]
    assert str(words["out"]).startswith("/scratch/")
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
