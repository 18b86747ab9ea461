from pathlib import Path

import numpy as np
import pytest
import torch

from unseen.core import contracts
from unseen.data.glyphs import Glyphs
from unseen.data.images import characters


def small(folder: Path, **options) -> Glyphs:
    return Glyphs(**({"size": 32, "max_classes": 12, "cache_dir": folder} | options))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def glyphs(folder) -> Glyphs:
    return Glyphs(max_classes=60, cache_dir=folder)


def raw_pixel_recall(dataset: Glyphs) -> float:
    """Share of test images whose nearest other one, by cosine of pixels, has their label."""
    chosen = np.isin(dataset.labels, dataset.official_test_classes)
    rows = torch.from_numpy(dataset.arrays()[chosen]).flatten(1).double()
    rows = rows / rows.norm(dim=1, keepdim=True)
    similarity = (rows @ rows.T).fill_diagonal_(-1)
    labels = torch.from_numpy(dataset.labels[chosen])
    return (labels[similarity.argmax(dim=1)] == labels).double().mean().item()


def test_keeps_the_contract(glyphs):
    assert isinstance(glyphs, contracts.Dataset)
    assert glyphs.labels.dtype == np.int64
    assert glyphs.labels.tolist() == sorted(glyphs.labels.tolist())
    counts = np.bincount(glyphs.labels)
    assert len(counts) == len(glyphs.label_names) == len(set(glyphs.label_names)) == 60
    assert counts.min() >= 12
    assert counts.max() <= 16
    assert len(glyphs) == counts.sum()


def test_images_are_rgb_views_of_the_arrays(glyphs):
    pixels = glyphs.arrays()
    assert pixels.shape == (len(glyphs), 40, 40)
    assert pixels.dtype == np.uint8
    image = glyphs.image(7)
    assert image.mode == "RGB"
    for channel in range(3):
        assert np.array_equal(np.asarray(image)[..., channel], pixels[7])
    with pytest.raises(ValueError, match="read-only"):
        pixels[0, 0, 0] = 1


def test_describe_adds_up(glyphs):
    message = glyphs.describe()
    assert message["items"] == len(glyphs)
    assert message["classes"] == 60
    assert message["test classes"] == 30
    assert message["characters"] - message["merged look-alikes"] == 60


def test_test_classes_are_a_fixed_half(glyphs, folder):
    test = glyphs.official_test_classes
    assert test.dtype == np.int64
    assert len(set(test.tolist())) == 30
    assert set(test.tolist()) < set(range(60))
    names = np.array(glyphs.label_names)
    fewer = small(folder, seed=3)
    chosen = set(np.array(fewer.label_names)[fewer.official_test_classes])
    assert len(chosen) == 6
    assert set(fewer.label_names) < set(names)
    assert chosen == set(fewer.label_names) & set(names[test])


def test_same_seed_same_bytes(tmp_path):
    first, second = small(tmp_path / "a"), small(tmp_path / "b")
    assert first.arrays().tobytes() == second.arrays().tobytes()
    assert first.fingerprint() == second.fingerprint()


def test_fingerprint_sees_pixels_labels_and_names(folder):
    plain, other_seed = small(folder), small(folder, seed=1)
    assert plain.fingerprint() != other_seed.fingerprint()
    assert np.array_equal(plain.labels, other_seed.labels)
    before = plain.fingerprint()
    plain.labels = plain.labels[::-1].copy()
    assert plain.fingerprint() != before
    renamed = small(folder)
    renamed.label_names[0] += "?"
    assert renamed.fingerprint() != before


def test_a_image_does_not_depend_on_how_many_others_there_are(glyphs, folder):
    fewer = Glyphs(max_classes=12, cache_dir=folder)
    for label, name in enumerate(fewer.label_names):
        there = glyphs.label_names.index(name)
        few, many = fewer.labels == label, glyphs.labels == there
        assert np.array_equal(fewer.arrays()[few], glyphs.arrays()[many])


def test_more_images_per_face(folder):
    one, two = small(folder), small(folder, images_per_face=2)
    assert len(two) == 2 * len(one)
    assert len(np.unique(two.arrays(), axis=0)) == len(two)
    assert np.array_equal(two.arrays()[::2], one.arrays())


def test_second_use_reads_the_file(tmp_path, monkeypatch):
    first = small(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setattr(characters, "drawing", None)
    again = small(tmp_path)
    assert again.fingerprint() == first.fingerprint()
    assert again.label_names == first.label_names
    assert np.array_equal(again.official_test_classes, first.official_test_classes)


@pytest.mark.parametrize("place", [0, 40, -1])
def test_damaged_cache_is_drawn_again(tmp_path, place):
    first = small(tmp_path)
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    assert small(tmp_path).fingerprint() == first.fingerprint()
    assert file.read_bytes() != content


def test_cut_cache_is_drawn_again(tmp_path):
    first = small(tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:1000])
    assert small(tmp_path).fingerprint() == first.fingerprint()


def test_works_without_a_place_for_the_cache(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    assert len(small(blocked / "below")) > 100


def test_cache_folder_comes_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path / "here"))
    Glyphs(size=16, max_classes=4)
    assert len(list((tmp_path / "here").iterdir())) == 1


def test_progress_counts_up_to_the_total(tmp_path):
    seen = []
    small(tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 12) for done in range(1, 13)]


@pytest.mark.parametrize(
    "options", [{"size": 8}, {"seed": -1}, {"images_per_face": 0}, {"max_classes": 3}]
)
def test_bad_values_are_named(options):
    (name,) = options
    with pytest.raises(ValueError, match=name):
        Glyphs(**options)


def test_raw_pixels_find_few_neighbors(glyphs):
    # 30 test classes; the whole set has 210, which is harder still.
    assert 0.2 < raw_pixel_recall(glyphs) < 0.6


@pytest.mark.slow
def test_whole_set_is_large_and_hard_for_raw_pixels(tmp_path):
    whole = Glyphs(cache_dir=tmp_path)
    assert len(whole.label_names) >= 400
    assert len(whole) >= 5500
    assert 0.2 < raw_pixel_recall(whole) < 0.6
