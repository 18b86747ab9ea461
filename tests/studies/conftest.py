"""The stand-in for training, from a file that is also a script."""

import importlib.util
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from unseen.studies.worker import Worker

STUB = Path(__file__).parent / "stub.py"


@pytest.fixture(scope="session")
def stub() -> ModuleType:
    spec = importlib.util.spec_from_file_location("study_stub", STUB)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def instant(stub: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Workers of this process do not train."""
    monkeypatch.setattr(Worker, "_train", stub.instant)
    return stub


@pytest.fixture
def scenario() -> Callable[..., dict[str, Any]]:
    """Runs the stub as a script: what it printed."""

    def run(*words: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, str(STUB), *words],
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(STUB.parents[2])},
        )
        assert done.returncode == 0, done.stderr[-2000:]
        message: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return message | {"errors": done.stderr[-2000:]}

    return run


@pytest.fixture
def storage(postgresql: str) -> str:
    """The URL of an empty database."""
    import psycopg

    name = f"study_{uuid.uuid4().hex}"
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    return postgresql.replace("/postgres?", f"/{name}?")
