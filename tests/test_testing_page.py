"""docs/testing.md names the test of every promise, and every promise."""

import ast
import re
import tomllib
from itertools import chain
from pathlib import Path

from unseen.core import uris

ROOT = Path(__file__).parent.parent
EXTRAS = {  # of pyproject.toml, and what the documents call what they bring
    "pretrained": ["published weights"],
    "search": ["faiss"],
    "heic": ["HEIC"],
    "milvus": ["Milvus"],
    "pgvector": ["pgvector"],
    "lance": ["LanceDB"],
    "onnx": ["ONNX"],
    "tracking": ["TensorBoard", "wandb", "MLflow"],
    "parquet": ["Parquet"],
    "formats": ["datasets"],
    "cluster": ["Ray"],
    "fleet": ["PostgreSQL", "optuna-dashboard"],
    "slurm": ["Slurm"],
    "docs": ["Sphinx"],
    "pml": ["pytorch-metric-learning"],
    "s3": ["S3"],
    "dev": ["Chromium", "curl"],
    "all": [],  # several of these
}
OTHERS = [  # that no extra brings
    *("Qdrant", "torchrun", "Docker", "MySQL", "CUDA", "Kubernetes", "OpenVINO", "TensorRT"),
    *("Spark", "Redis", "Elasticsearch", "Weaviate"),
    *("WebDataset", "Prometheus", "Caddy", "nginx", "COCO"),
]
SCHEMES = [f"{name}://" for name in uris.PROTOCOLS]


def rows() -> list[list[str]]:
    page = (ROOT / "docs" / "testing.md").read_text().partition("## Promises")[2]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines()]
    return [row for row in cells if len(row) == 3][2:]


def is_slow(function: ast.FunctionDef, module: ast.Module) -> bool:
    marks = [ast.unparse(each) for each in function.decorator_list]
    own = [ast.unparse(node) for node in module.body if isinstance(node, ast.Assign)]
    return "pytest.mark.slow" in marks or "pytestmark = pytest.mark.slow" in own


def test_each_test_is_there_and_runs_where_the_page_says() -> None:
    assert len(rows()) > 15
    for promise, test, where in rows():
        if where == "not executed":
            continue
        named = re.match(r"`(tests/[\w/]+\.py)::(\w+)`", test)
        assert named, promise
        module = ast.parse((ROOT / named[1]).read_text())
        (function,) = (
            node
            for node in module.body
            if isinstance(node, ast.FunctionDef) and node.name == named[2]
        )
        assert where == ("`make test-slow`" if is_slow(function, module) else "`make test`"), test


def test_each_other_system_that_the_documents_name_has_a_row() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(
        p.read_text() for p in pages if p.name not in ("testing.md", "dependencies.md")
    )
    promised = " ".join(row[0] for row in rows())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS) == set(project["optional-dependencies"])
    for system in [*chain(*EXTRAS.values()), *OTHERS, *SCHEMES]:
        name = rf"(?<!\w){re.escape(system)}(?!\w)" if system[-1].isalnum() else re.escape(system)
        if re.search(name, text):
            assert re.search(name, promised), system


def test_files_that_the_tests_hardly_execute_are_named_as_they_are() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## Coverage")[2].partition("\n## ")[0]
    named = re.findall(r"`([\w/]+\.py)`", table)
    assert len(named) > 15
    for file in named:
        assert (ROOT / "unseen" / file).is_file(), file
