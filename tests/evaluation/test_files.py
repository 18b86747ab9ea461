"""Embeddings and labels of any model, from files; what is no such file is refused in one line."""

from pathlib import Path

import numpy as np
import pytest
import torch

from unseen.evaluation.files import read_embeddings, read_labels


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float32", torch.float32), ("float16", torch.float32), ("float64", torch.float64)],
)
def test_embeddings(tmp_path: Path, dtype: str, expected: torch.dtype) -> None:
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    found = read_embeddings(tmp_path / "x.npy")
    assert found.dtype == expected
    assert np.array_equal(found.numpy(), x.astype(found.numpy().dtype))


def test_labels_of_several_files_share_their_classes(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array(["b", "a", "c"]))
    np.save(tmp_path / "b.npy", np.array(["c", "zebra"]))
    a, b = read_labels([tmp_path / "a.npy", tmp_path / "b.npy"])
    assert a.tolist() == [1, 0, 2]
    assert b.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (np.ones(3), "must hold a matrix of numbers"),
        (np.array([["a"]]), "must hold a matrix of numbers"),
        (np.array([{}], dtype=object), "is no NumPy file"),
    ],
)
def test_what_is_no_matrix_is_refused(tmp_path: Path, array: np.ndarray, told: str) -> None:
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(ValueError, match=told):
        read_embeddings(tmp_path / "x.npy")


def test_other_files_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"must hold one array \(.npy\), got several \(a\)"):
        read_embeddings(tmp_path / "x.npz")
    (tmp_path / "x.npy").write_text("1,2,3")
    with pytest.raises(ValueError, match="is no NumPy file"):
        read_labels([tmp_path / "x.npy"])
    np.save(tmp_path / "y.npy", np.ones(3))
    with pytest.raises(ValueError, match="must hold integers or strings"):
        read_labels([tmp_path / "y.npy"])
