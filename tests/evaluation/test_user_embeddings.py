"""Embeddings and labels of any model, from values and files; what is none is refused in a line."""

from pathlib import Path

import numpy as np
import pyarrow
import pytest
import torch
from pyarrow import parquet

from unseen.evaluation.evaluate import evaluate
from unseen.evaluation.user_embeddings import as_labels, as_matrix, read_items, read_labels

X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
WORDS = ["b", "a", "a", "b", "c", "c"]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float32", torch.float32), ("float16", torch.float32), ("float64", torch.float64)],
)
def test_numbers_keep_their_precision(dtype, expected):
    result = as_matrix(X.astype(dtype))
    assert result.dtype == expected
    assert np.array_equal(result.numpy(), X.astype(dtype).astype(result.numpy().dtype))
    assert as_matrix(X.tolist()).dtype == torch.float64


def test_words_of_queries_and_gallery_share_their_classes():
    a, b = as_labels(np.array(["b", "a", "c"]), ["c", "zebra"])
    assert a.tolist() == [1, 0, 2]
    assert b.tolist() == [2, 3]
    assert as_labels([7, 3], None)[0].tolist() == [7, 3]
    tensor = torch.tensor([1, 2])
    assert as_labels(tensor, None)[0] is tensor
    both, none = as_labels({"": [1, 1], "kind": ["x", "y"]}, None)
    assert none is None
    assert both["kind"].tolist() == [0, 1]


def test_scores_do_not_depend_on_what_the_values_come_in():
    expected = evaluate(torch.from_numpy(X), as_labels(WORDS)[0], resamples=50)
    for x, y in ((X, WORDS), (X.astype(np.float64).astype(np.float32), np.array(WORDS))):
        assert evaluate(x, y, resamples=50).to_dict() == expected.to_dict()
    nested = evaluate(X.tolist(), [1, 0, 0, 1, 2, 2], resamples=50)
    assert nested.values["recall@1"].value == expected.values["recall@1"].value
    crossed = evaluate(X, WORDS, gallery_embeddings=X, gallery_labels=WORDS, resamples=0)
    assert crossed.counts["queries"] == 6


@pytest.mark.parametrize(
    ("labels", "gallery", "message"),
    [
        ([0.5] * 6, None, "labels must be integers or words"),
        (WORDS, [1, 2, 3, 4, 5, 6], "both be numbers or both be words"),
        (WORDS, {"": WORDS}, "both be a mapping"),
        ({"a": WORDS}, {"b": WORDS}, "must have the columns of labels: a"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, gallery, message):
    others = {} if gallery is None else {"gallery_embeddings": X, "gallery_labels": gallery}
    with pytest.raises(ValueError, match=message):
        evaluate(X, labels, **others)


def test_a_result_prints_as_a_short_table():
    result = evaluate(X, WORDS, metrics=["recall@1", "nmi"], resamples=100)
    lines = str(result).splitlines()
    assert [line.split()[0] for line in lines] == ["recall@1", "nmi"]
    assert " to " in lines[0]
    assert "<td>recall@1</td>" in result._repr_html_()


def written(folder: Path) -> list[Path]:
    """The same vectors and words in every kind of file."""
    np.savez(folder / "embedded.npz", vectors=X, labels=np.array(WORDS), paths=np.array(WORDS))
    np.savez(folder / "features.npz", features=X, labels=np.array(WORDS))
    rows = [
        f"{p}.jpg,{y},{','.join(map(str, x))}"
        for p, (x, y) in enumerate(zip(X, WORDS, strict=True))
    ]
    (folder / "x.csv").write_text("\n".join(["path,label,d0,d1,d2", *rows]))
    flat = {f"d{k}": X[:, k] for k in range(3)}
    parquet.write_table(pyarrow.table({"label": WORDS, **flat}), folder / "flat.parquet")
    lists = {"embedding": X.tolist(), "label": WORDS, "id": [*range(6)]}
    parquet.write_table(pyarrow.table(lists), folder / "lists.parquet")
    return sorted(folder.iterdir())


def test_every_kind_of_file_holds_the_same(tmp_path):
    files = written(tmp_path)
    assert len(files) == 5
    for file in files:
        items = read_items(file)
        assert np.allclose(items.embeddings, X, atol=1e-7), file
        assert items.labels.tolist() == WORDS, file
        assert read_labels(file).tolist() == WORDS, file


def test_a_matrix_alone_has_no_labels(tmp_path):
    np.save(tmp_path / "x.npy", X)
    assert read_items(tmp_path / "x.npy").labels is None
    np.savez(tmp_path / "loose.npz", vectors=X, labels=np.array([""] * 6))
    assert read_items(tmp_path / "loose.npz").labels is None


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones(3), "must hold a matrix of numbers"),
        (np.array([["a"]]), "must hold a matrix of numbers"),
        (np.array([{}], dtype=object), "is no NumPy file"),
    ],
)
def test_what_is_no_matrix_is_refused(tmp_path, array, message):
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(ValueError, match=message):
        read_items(tmp_path / "x.npy")


def test_other_files_are_refused(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.ones((2, 2)))
    with pytest.raises(ValueError, match="has no vectors or embeddings or features, it has a"):
        read_items(tmp_path / "x.npz")
    (tmp_path / "x.npy").write_text("1,2,3")
    with pytest.raises(ValueError, match="is no NumPy file"):
        read_labels(tmp_path / "x.npy")
    np.save(tmp_path / "y.npy", np.ones(3))
    with pytest.raises(ValueError, match="must hold integers or strings"):
        read_labels(tmp_path / "y.npy")
    (tmp_path / "x.csv").write_text("label,d0\na,far\n")
    with pytest.raises(ValueError, match="every column but label, path and id must hold numbers"):
        read_items(tmp_path / "x.csv")
    (tmp_path / "y.csv").write_text("d0\n1\n")
    with pytest.raises(ValueError, match="has no column label, it has d0"):
        read_labels(tmp_path / "y.csv")
