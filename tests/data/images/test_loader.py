import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from unseen.data.folder import Folder
from unseen.data.glyphs import Glyphs
from unseen.data.images import transforms
from unseen.data.images.loader import evaluation_batches, training_batches

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


class Lists:
    """A sampler that gives the same lists each epoch and notes how far it was asked."""

    def __init__(self, *lists: list[int]) -> None:
        self.lists, self.request, self.epoch = lists, 0, None

    def set_epoch(self, epoch: int) -> None:
        self.epoch, self.request = epoch, 0

    def __iter__(self):
        for indices in self.lists:
            self.request += 1
            yield indices

    def __len__(self) -> int:
        return len(self.lists)


@pytest.fixture(scope="module")
def glyphs(tmp_path_factory) -> Glyphs:
    return Glyphs(size=24, max_classes=4, cache_dir=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, glyphs) -> Folder:
    """The same images as files."""
    root = tmp_path_factory.mktemp("photos")
    for index, label in enumerate(glyphs.labels):
        path = Path(root, str(label), f"{index:03}.png")
        path.parent.mkdir(exist_ok=True)
        glyphs.image(index).save(path)
    return Folder(root)


def training(dataset, name="small", workers=0, *, epoch=0, seed=0, sampler=None):
    transform, _ = transforms.named(name, 24, MEAN, STD)
    sampler = sampler or Lists([3, 1, 4, 1], [5, 9, 2, 6], [5, 3, 5], [8], [9, 7])
    return list(training_batches(dataset, transform, sampler, epoch, seed, workers=workers))


def same(first, second, exactly=True) -> bool:
    assert len(first) == len(second) > 0
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a.indices, b.indices)
        assert torch.equal(a.labels, b.labels)
        if not (torch.equal if exactly else torch.allclose)(
            a.images, b.images, **({} if exactly else {"atol": 1e-4})
        ):
            return False
    return True


@pytest.mark.parametrize("name", ["base", "small"])
@pytest.mark.parametrize("kind", ["glyphs", "folder"])
def test_number_of_workers_changes_nothing(request, name, kind):
    dataset = request.getfixturevalue(kind)
    alone = training(dataset, name)
    for workers in (1, 2, 5):
        assert same(alone, training(dataset, name, workers))


def test_batches_are_what_the_sampler_said(glyphs):
    sampler = Lists([3, 20, 40], [7])
    batches = training(glyphs, sampler=sampler, epoch=6)
    assert sampler.epoch == 6
    assert [b.indices.tolist() for b in batches] == [[3, 20, 40], [7]]
    for batch in batches:
        assert batch.images.shape == (len(batch.indices), 3, 24, 24)
        assert batch.images.dtype == torch.float32
        assert batch.labels.dtype == batch.indices.dtype == torch.int64
        assert batch.labels.tolist() == glyphs.labels[batch.indices.numpy()].tolist()


def test_images_depend_on_seed_epoch_place_and_index_alone(glyphs):
    first = training(glyphs, seed=1, epoch=2)
    assert same(first, training(glyphs, seed=1, epoch=2))
    assert not same(first, training(glyphs, seed=1, epoch=3))
    assert not same(first, training(glyphs, seed=2, epoch=2))
    assert not torch.equal(first[0].images[1], first[0].images[3])  # index 1, twice in the batch
    assert not torch.equal(first[1].images[0], first[2].images[0])  # index 5, two batches
    # what came before in the epoch has no influence but its number
    later = training(glyphs, seed=1, epoch=2, sampler=Lists([0, 0, 0, 0], [5, 9, 2, 6]))
    assert torch.equal(first[1].images, later[1].images)


@pytest.mark.parametrize("skip", [1, 3, 5])
def test_a_resumed_epoch_goes_on_as_if_never_stopped(glyphs, skip):
    transform, _ = transforms.named("small", 24, MEAN, STD)
    lists = Lists([3, 1, 4, 1], [5, 9, 2, 6], [5, 3, 5], [8], [9, 7])
    whole = list(training_batches(glyphs, transform, lists, 4, 2, workers=0))
    rest = list(training_batches(glyphs, transform, lists, 4, 2, workers=2, skip=skip))
    assert len(rest) == 5 - skip
    for resumed, expected in zip(rest, whole[skip:], strict=True):
        assert torch.equal(resumed.images, expected.images)
        assert torch.equal(resumed.indices, expected.indices)


def test_pixels_in_memory_equal_images_from_files(glyphs, folder):
    assert glyphs.labels.tolist() == folder.labels.tolist()
    assert same(training(glyphs), training(folder), exactly=False)
    _, evaluation = transforms.named("small", 32, MEAN, STD)
    chosen = np.arange(0, len(glyphs), 3)
    from_memory = list(evaluation_batches(glyphs, chosen, evaluation, 8, workers=0))
    from_files = list(evaluation_batches(folder, chosen, evaluation, 8, workers=2))
    assert same(from_memory, from_files, exactly=False)


@pytest.mark.parametrize("workers", [0, 2])
def test_evaluation_keeps_the_order_and_the_rest(glyphs, workers):
    _, evaluation = transforms.named("small", 24, MEAN, STD)
    chosen = np.random.default_rng(0).permutation(len(glyphs))[:23]
    batches = list(evaluation_batches(glyphs, chosen, evaluation, 5, workers=workers))
    assert [len(b.indices) for b in batches] == [5, 5, 5, 5, 3]
    assert torch.cat([b.indices for b in batches]).tolist() == chosen.tolist()
    expected = torch.stack([evaluation(glyphs.image(i)) for i in chosen])
    torch.testing.assert_close(torch.cat([b.images for b in batches]), expected)
    assert list(evaluation_batches(glyphs, chosen[:0], evaluation, 5, workers=workers)) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_never_more_than_a_few_batches_ahead(glyphs, workers):
    sampler = Lists(*[[k] for k in range(20)])
    transform, _ = transforms.named("small", 24, MEAN, STD)
    batches = training_batches(glyphs, transform, sampler, 0, 0, workers=workers)
    for taken, _ in enumerate(batches, start=1):
        assert sampler.request == min(20, taken + 2)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_that_breaks_is_named_and_threads_end(tmp_path, workers):
    for name in "abcd":
        (tmp_path / name).mkdir()
        for k in range(3):
            Image.new("RGB", (40, 40), "red").save(tmp_path / name / f"{k}.jpg")
    data = Folder(tmp_path)
    broken = tmp_path / "b" / "1.jpg"
    broken.write_bytes(broken.read_bytes()[:300])
    _, evaluation = transforms.named("base", 32, MEAN, STD)
    batches = evaluation_batches(data, np.arange(12), evaluation, 4, workers=workers)
    assert len(next(batches).labels) == 4
    with pytest.raises(ValueError, match=r"b.1\.jpg"):
        list(batches)
    assert not [t for t in threading.enumerate() if t.name.startswith("images")]


@pytest.fixture
def half_broken(tmp_path) -> Folder:
    """Four classes of four images in different greys; two of class b break afterwards."""
    for c, name in enumerate("abcd"):
        (tmp_path / name).mkdir()
        for k in range(4):
            Image.new("RGB", (40, 40), (60 * c + 10 * k,) * 3).save(tmp_path / name / f"{k}.png")
    data = Folder(tmp_path)
    for k in (1, 2):
        (tmp_path / "b" / f"{k}.png").write_bytes(b"no image")
    return data


def test_another_of_its_class_stands_in_for_a_broken_image(half_broken):
    sampler = Lists([0, 5, 9, 5], [6, 5, 12, 4], [4, 7])
    transform, _ = transforms.named("base", 8, (0, 0, 0), (1, 1, 1))

    def run(workers, skip=0):
        message = []
        batches = training_batches(
            half_broken,
            transform,
            sampler,
            3,
            1,
            workers=workers,
            skip=skip,
            on_unreadable=message.append,
        )
        return list(batches), [(error.path.name, error.reason) for error in message]

    batches, message = run(0)
    greys = [round(255 * float(image.mean())) for batch in batches for image in batch.images]
    for grey, index in zip(greys, [0, 5, 9, 5, 6, 5, 12, 4, 4, 7], strict=True):
        if index in (5, 6):
            assert grey in (60, 90)  # the two of its class that can be read
        else:
            assert grey == 60 * (index // 4) + 10 * (index % 4)
    assert len({greys[i] for i in (1, 3, 4, 5)}) == 2
    assert [batch.indices.tolist() for batch in batches] == list(sampler.lists)
    assert {name for name, _ in message} == {"1.png", "2.png"}
    assert {reason for _, reason in message} == {"not an image"}
    for workers in (1, 3):
        again, message_again = run(workers)
        assert same(batches, again)
        assert message_again == message
    rest, _ = run(2, skip=1)
    assert same(batches[1:], rest)


def test_a_blank_image_stands_in_when_evaluation(half_broken):
    _, evaluation = transforms.named("base", 8, (0, 0, 0), (1, 1, 1))
    message = []
    batches = evaluation_batches(
        half_broken, np.arange(4, 8), evaluation, 3, workers=2, on_unreadable=message.append
    )
    images = torch.cat([batch.images for batch in batches])
    greys = [round(255 * float(image.mean())) for image in images]
    assert greys == [60, 0, 0, 90]
    assert [error.path.name for error in message] == ["1.png", "2.png"]


def test_a_class_without_any_readable_image_ends_the_run(half_broken):
    for path in (half_broken.root / "b").iterdir():
        path.write_bytes(b"no image")
    transform, _ = transforms.named("base", 8, MEAN, STD)
    batches = training_batches(
        half_broken, transform, Lists([5]), 0, 0, workers=0, on_unreadable=lambda error: None
    )
    with pytest.raises(ValueError, match=r"no image of class b can be read.*1\.png"):
        list(batches)


def test_threads_end_when_the_caller_stops_early(folder):
    transform, _ = transforms.named("small", 24, MEAN, STD)
    sampler = Lists(*[[k] for k in range(20)])
    batches = training_batches(folder, transform, sampler, 0, 0, workers=2)
    next(batches)
    assert [t for t in threading.enumerate() if t.name.startswith("images")]
    batches.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("images")]


def test_bad_values_are_named(glyphs):
    _, evaluation = transforms.named("small", 24, MEAN, STD)
    with pytest.raises(ValueError, match="workers"):
        evaluation_batches(glyphs, np.arange(3), evaluation, 2, workers=-1)
    with pytest.raises(ValueError, match="batch_size"):
        evaluation_batches(glyphs, np.arange(3), evaluation, 0, workers=0)


def test_batches_for_a_gpu_are_joined_in_pinned_memory(glyphs, monkeypatch):
    """Without a GPU nothing can be pinned: what is asked for is noted instead."""
    empty, request = torch.empty, []

    def noted(*shape, pin_memory=False, **more):
        request.append(pin_memory)
        return empty(*shape, **more)

    plain = training(glyphs)
    transform, _ = transforms.named("small", 24, MEAN, STD)
    sampler = Lists([3, 1, 4, 1], [5, 9, 2, 6], [5, 3, 5], [8], [9, 7])
    monkeypatch.setattr(torch, "empty", noted)
    pinned = list(training_batches(glyphs, transform, sampler, 0, 0, workers=0, pinned=True))
    assert request.count(True) == len(pinned)
    assert same(plain, pinned)
