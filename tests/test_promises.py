"""What the documentation promises of other people's servers, tried on real ones of this machine."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unseen.cli import main
from unseen.search.index import Index

TINY = ["epochs=1", "batch_size=8", "embedding_size=8", "sampler.steps=2", "backbone=small_conv"]
TINY += ["transform=small", "workers=0", 'metrics=["recall@1"]']


def unseen(*words: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["unseen", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main.run()
    assert not ended.value.code


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("images")
    draw = np.random.default_rng(0)
    for number in range(80):
        folder = root / f"class {number // 4}"
        folder.mkdir(exist_ok=True)
        pixels = draw.integers(0, 255, (24, 24, 3), dtype=np.uint8) // 2 + 6 * (number // 4)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return root


@pytest.fixture(scope="module")
def run(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    unseen("train", images, "--out", out, *TINY)
    return out


@pytest.mark.xdist_group("promises")
def test_s3_holds_images_vectors_and_an_index(images: Path, s3: str, tmp_path: Path) -> None:
    import fsspec
    import lancedb

    store = fsspec.filesystem("s3")
    store.put(str(images), f"{s3}/images", recursive=True)
    unseen("train", f"{s3}/images", "--out", tmp_path / "run", *TINY)
    unseen("embed", tmp_path / "run", f"{s3}/images", "--out", f"{s3}/vectors/", "--shard", "48")
    names = [name.rpartition("/")[2] for name in store.glob(f"{s3}/vectors/shard-*")]
    assert names == ["shard-00000.parquet", "shard-00001.parquet"]
    index = tmp_path / "my.index"
    unseen("index", "build", tmp_path / "run", images, "--out", index)
    unseen("index", "export", index, "--to", "lance", "--out", f"{s3}/rows")
    assert lancedb.connect(f"{s3}/rows").open_table("images").count_rows() == 80
    far = tmp_path / "far.index"
    unseen("index", "build", tmp_path / "run", f"{s3}/images", "--out", far)
    pairs = [
        {Path(m.path).name: (id, m.path) for id, m in Index.open(i).every()} for i in (far, index)
    ]
    assert len(pairs[0]) == 80
    assert all(path.startswith(f"{s3}/images/") for _, path in pairs[0].values())
    vectors = [
        Index.open(place).vectors([named[name][0] for name in sorted(named)])
        for place, named in zip((far, index), pairs, strict=True)
    ]
    np.testing.assert_allclose(*vectors, atol=1e-6)
    unseen("index", "verify", far, "--thorough", "--allow-remote")
    store.rm(pairs[0]["7.png"][1])
    unseen("index", "update", far, "--allow-remote")
    assert len(Index.open(far)) == 79


@pytest.mark.xdist_group("promises")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # Ray's own
def test_ray_embeds_what_one_process_embeds(run: Path, images: Path, tmp_path: Path) -> None:
    for name, engine in (("plain", ()), ("ray", ("--ray", "start", "--workers", "1"))):
        unseen("embed", run, images, "--out", f"{tmp_path / name}/", "--shard", "40", *engine)
    for shard in ("shard-00000.parquet", "shard-00001.parquet"):
        assert (tmp_path / "plain" / shard).read_bytes() == (tmp_path / "ray" / shard).read_bytes()


def test_an_index_becomes_a_table_of_postgresql(
    run: Path, images: Path, postgresql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines of docs/vectors.md, with the address of this server, find what the index finds."""
    import psycopg

    monkeypatch.chdir(tmp_path)
    unseen("index", "build", run, images, "--out", "birds.index")
    unseen("index", "export", "birds.index", "--to", "parquet", "--out", "birds.parquet")
    page = (Path(__file__).parent.parent / "docs" / "vectors.md").read_text()
    code = next(b for b in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "psycopg" in b)
    exec(code.replace('"dbname=birds"', repr(postgresql)), {})
    index = Index.open(Path("birds.index"))
    query = index.vectors([5])[0]
    with psycopg.connect(postgresql) as connection:
        result = connection.execute(
            "SELECT id FROM images ORDER BY vector <#> %s::vector LIMIT 10",
            [str(query.tolist())],
        ).fetchall()
    assert [row[0] for row in result] == index.search(query, k=10).ids[0].tolist()
