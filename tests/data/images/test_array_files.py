import os

import numpy as np
import pytest

from unseen.data.images import array_files

ARRAYS = {"pixels": np.arange(24, dtype=np.uint8).reshape(2, 3, 4), "names": np.array(["A Α", "ß"])}


def test_round_trip(tmp_path):
    path = tmp_path / "deep" / "file"
    array_files.save(path, ARRAYS)
    back = array_files.load(path)
    assert set(back) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert back[name].dtype == array.dtype
        assert np.array_equal(back[name], array)
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_no_file_gives_none(tmp_path):
    assert array_files.load(tmp_path / "nothing") is None


def test_every_damage_is_seen(tmp_path):
    path = tmp_path / "file"
    array_files.save(path, ARRAYS)
    whole = path.read_bytes()
    for place in range(0, len(whole), 13):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        assert array_files.load(path) is None
        path.write_bytes(whole[:place])
        assert array_files.load(path) is None
    path.write_bytes(whole + b"x")
    assert array_files.load(path) is None
    path.write_bytes(whole)
    assert array_files.load(path) is not None


def test_failed_write_keeps_the_old_file_and_leaves_nothing(tmp_path, monkeypatch):
    path = tmp_path / "file"
    array_files.save(path, ARRAYS)

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        array_files.save(path, {"pixels": np.zeros(1)})
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert "names" in array_files.load(path)


def test_pickles_are_never_read(tmp_path):
    path = tmp_path / "file"
    array_files.save(path, {"objects": np.array([{"a": 1}], dtype=object)})
    assert array_files.load(path) is None
