"""The activation cache: never stale, never lost, and how near it is to the uncached run."""

import itertools
import shutil

import numpy as np
import pytest
import torch

from unseen.data.activations import cache as activation_cache
from unseen.data.activations.cache import ActivationCache, Augmentations, OneAugmentation
from unseen.data.activations.file import BLOCK, ActivationFile
from unseen.models.freezing import split_network
from unseen.models.frozen_batch_norm import batch_norms

ITEMS = np.arange(36)


class Lists:
    """A sampler that yields given lists."""

    def __init__(self, *lists):
        self.lists = lists

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(self.lists)

    def __len__(self):
        return len(self.lists)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of 8, so that 36 items make 5 of them."""
    monkeypatch.setattr("unseen.data.activations.cache.BLOCK", 8)
    monkeypatch.setattr("unseen.data.activations.file.BLOCK", 8)


@pytest.fixture
def make_cache(tmp_path, make_network, noise, shaken):
    def make(
        network="small_conv",
        layer="stage2",
        *,
        dataset=None,
        transform=None,
        cached_augmentations=1,
    ):
        net = make_network(network) if isinstance(network, str) else network
        cut = split_network(net, layer)
        dataset = noise(36) if dataset is None else dataset
        kept = Augmentations(dataset, transform or shaken(), cached_augmentations)
        return ActivationCache(tmp_path / "cache", cut.frozen, kept), cut, net

    return make


def calibrated(network):
    """Running statistics that fit the images, as a trained network has them."""
    network.train()
    for norm in batch_norms(network):
        norm.momentum = None
        torch.nn.init.ones_(norm.weight)  # timm lets residual branches start at 0
    with torch.no_grad():
        network(torch.rand(64, 3, 32, 32, generator=torch.Generator().manual_seed(0)) - 0.5)
    network.backbone.frozen_bn = "stats"
    return network.train()


def kept(cache, view=0):
    """The records of all items, whole."""
    records, lost = cache.files[view].read(ITEMS)
    assert not lost
    return records


def images_of(cache, indices, view=0):
    kept = cache.augmentations
    seeded = OneAugmentation(kept.transform, view)
    return torch.stack(
        [seeded(kept.dataset.image(i), np.random.default_rng((i,))) for i in indices]
    )


NETWORKS = [
    ("small_conv", "stage2"),
    ("small_conv", "pooled"),
    ("timm:test_resnet", "layer3"),
    ("timm:vit_tiny_patch16_224", "blocks.9"),
    ("timm:test_efficientnet", "blocks.3"),
]
CHOSEN = [3, 9, 4, 33, 12, 20]


def gradient_difference(cache, cut, net, seed):
    """Relative difference of the whole gradient, cached against uncached, and that of the layer
    where it is largest."""
    batch = next(cache.training_batches(Lists(CHOSEN), epoch=0, seed=0))
    weight = torch.randn(6, 8, generator=torch.Generator().manual_seed(seed))
    gradients = []
    for model, inputs in ((cut.rest, batch.images), (net, images_of(cache, CHOSEN))):
        net.zero_grad(set_to_none=True)
        model.train()
        (model(inputs).embeddings * weight).sum().backward()
        gradients.append({n: p.grad for n, p in net.named_parameters() if p.grad is not None})
    cached, uncached = gradients
    assert set(cached) == set(uncached)
    apart = {n: (cached[n] - g).norm() for n, g in uncached.items()}
    length = torch.stack([g.norm() for g in uncached.values()]).norm()
    worst = max(apart[n] / g.norm().clamp(min=1e-6) for n, g in uncached.items())
    return (torch.stack(list(apart.values())).norm() / length).item(), worst.item()


@pytest.mark.parametrize(("network", "layer"), NETWORKS)
def test_activations_are_kept_to_16_bits(make_cache, make_network, network, layer):
    """A step is the channel's largest value in that image over 32,767; half of it is lost."""
    cache, cut, _ = make_cache(calibrated(make_network(network)), layer)
    cache.build(ITEMS)
    batch = next(cache.training_batches(Lists(CHOSEN), epoch=0, seed=0))
    assert batch.indices.tolist() == CHOSEN
    assert batch.labels.tolist() == [3, 1, 0, 1, 0, 0]
    result = batch.images
    exact = cut.frozen(images_of(cache, CHOSEN))
    places = {4: (2, 3), 3: (1,), 2: (1,)}[exact.ndim]
    step = exact.abs().amax(places, keepdim=True) / 32767
    folding = 1e-5 * exact.abs().max()
    assert ((result - exact).abs() <= 0.5 * step + folding).all()


@pytest.mark.parametrize(("network", "layer"), NETWORKS)
def test_gradients_are_nearly_those_of_the_uncached_run(make_cache, make_network, network, layer):
    """1 % of the whole gradient, in spite of ReLUs whose validity checks flip."""
    cache, cut, net = make_cache(calibrated(make_network(network)), layer)
    cache.build(ITEMS)
    assert max(gradient_difference(cache, cut, net, seed)[0] for seed in range(5)) < 1e-2


def test_a_dark_channel_stays_dark(make_cache, make_network):
    network = make_network()
    network.backbone.body.stage2.refine_norm.weight.data[3] = 0
    network.backbone.body.stage2.refine_norm.bias.data[3] = 0
    cache, _, _ = make_cache(network)
    cache.build(ITEMS)
    values, scale = kept(cache)["values"], kept(cache)["scale"]
    assert scale.shape == (36, 128)
    assert np.isfinite(scale).all()
    assert values.any()


@pytest.mark.parametrize("stop_after", range(10))
def test_resumes_after_an_interruption_at_any_block(make_cache, shaken, stop_after):
    cached_augmentations = {"cached_augmentations": 2, "transform": shaken(0.5)}
    cache, _, _ = make_cache(**cached_augmentations)

    def interrupt(done, total):
        assert total == 72
        if done >= 8 * stop_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.build(ITEMS, progress=interrupt)
    again, _, _ = make_cache(**cached_augmentations)
    left = len(again.missing(ITEMS))
    assert 10 - left >= max(1, stop_after)
    if any(view == 0 for view, _ in again.missing(ITEMS)):
        with pytest.raises(ValueError, match="not built yet"):
            list(again.evaluation_batches(ITEMS, 4))
    again.augmentations.dataset.read.clear()
    message = []
    again.build(ITEMS, progress=lambda done, total: message.append(done))
    assert len(message) == left
    assert len(again.augmentations.dataset.read) <= 8 * left + 2
    for view in (0, 1):
        expected = again.prefix(images_of(again, ITEMS.tolist(), view))
        result = activation_cache._unpacked(kept(again, view))
        torch.testing.assert_close(result, expected, rtol=1e-2, atol=1e-2)


def test_a_block_that_was_not_finished_is_made_again(make_cache, monkeypatch):
    cache, _, _ = make_cache()
    put = ActivationFile._put

    def dies_before_the_mark(self, name, offset, content):
        if name == "done" and offset == 2 * 5:
            raise KeyboardInterrupt
        put(self, name, offset, content)

    monkeypatch.setattr(ActivationFile, "_put", dies_before_the_mark)
    with pytest.raises(KeyboardInterrupt):
        cache.build(ITEMS)
    monkeypatch.setattr(ActivationFile, "_put", put)
    assert cache.missing(ITEMS) == [(0, 2), (0, 3), (0, 4)]
    cache.build(ITEMS)
    assert not cache.missing(ITEMS)


def test_a_finished_cache_is_used_again(make_cache):
    cache, _, _ = make_cache()
    cache.build(ITEMS)
    again, _, _ = make_cache()
    assert again.files[0].folder == cache.files[0].folder
    assert again.plan(ITEMS).num_missing == 0
    assert "all 36 images have been through the frozen layers; " in str(again.plan(ITEMS))
    again.augmentations.dataset.read.clear()
    again.build(ITEMS)
    assert not again.augmentations.dataset.read


def test_more_views_and_other_items_share_what_is_there(make_cache, shaken):
    transform = shaken(0.5)
    cache, _, _ = make_cache(transform=transform)
    cache.build(np.arange(10, 20))
    assert cache.missing(ITEMS) == [(0, 0), (0, 3), (0, 4)], "blocks are computed as a whole"
    more, _, _ = make_cache(transform=transform, cached_augmentations=2)
    assert more.missing(np.arange(8, 24)) == [(1, 1), (1, 2)]
    assert more.plan(np.arange(8, 24)).num_missing == 16
    plan = cache.plan(np.arange(6, 12))  # a block has eight
    assert (plan.num_images, plan.num_missing) == (6, 2), "only those that are asked for"


def test_what_is_stored_does_not_depend_on_who_comes_first(make_cache, tmp_path):
    cache, _, _ = make_cache()
    cache.build(np.array([33]))
    cache.build(np.array([3, 17]))
    cache.build(ITEMS)
    by_parts = kept(cache)
    (tmp_path / "cache").rename(tmp_path / "old")
    cache.build(ITEMS)
    assert np.array_equal(kept(cache), by_parts)


def test_a_second_process_takes_what_the_first_has_left(make_cache, monkeypatch):
    """Between groups of blocks a process looks at what others have done."""
    monkeypatch.setattr(activation_cache, "GROUP", 1)
    first, _, _ = make_cache()
    second, _, _ = make_cache()
    counts = []

    def help_out(done, total):
        if not counts:
            counts.append(done)
            second.build(ITEMS)
        else:
            raise AssertionError("nothing was left")

    first.build(ITEMS, progress=help_out)
    assert not first.missing(ITEMS)


def test_anything_that_matters_makes_another_cache(make_cache, make_network, noise, shaken):
    base, _, _ = make_cache()
    base.build(ITEMS)
    changed = make_network()
    changed.backbone.body.stem.weight.data[0, 0, 0, 0] += 1e-4
    others = {
        "weights": make_cache(changed),
        "layer": make_cache(layer="stage1"),
        "data": make_cache(dataset=noise(36, contents=1)),
        "transform": make_cache(transform=shaken(0.1)),
    }
    folders = {base.files[0].folder} | {cache.files[0].folder for cache, _, _ in others.values()}
    assert len(folders) == 1 + len(others)
    for cache, _, _ in others.values():
        assert cache.plan(ITEMS).num_missing == cache.plan(ITEMS).num_images


def flip(path, place, bit=0):
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


@pytest.mark.parametrize("file", ["records", "done"])
def test_a_flipped_bit_costs_its_block_alone(make_cache, file):
    cache, _, _ = make_cache()
    cache.build(ITEMS)
    whole = [batch.images for batch in cache.evaluation_batches(ITEMS, 7)]
    size = (cache.files[0].folder / file).stat().st_size
    flip(cache.files[0].folder / file, size * 5 // 9)  # in the third of five blocks
    again, _, _ = make_cache()
    message = []
    again.warn = message.append
    again.augmentations.dataset.read.clear()
    result = [batch.images for batch in again.evaluation_batches(ITEMS, 7)]
    assert all(torch.equal(one, two) for one, two in zip(result, whole, strict=True))
    assert len(message) == 1
    assert message[0].startswith("1 of 5 blocks")
    assert set(range(16, 24)) <= set(again.augmentations.dataset.read) <= {0, 1, *range(16, 24)}
    third, _, _ = make_cache()
    third.warn = lambda text: pytest.fail("it was mended on the disk")
    assert torch.equal(next(third.evaluation_batches(ITEMS, 36)).images, torch.cat(whole))


@pytest.mark.parametrize("moment", ["between epochs", "while batches are read"])
def test_a_deleted_cache_is_made_again_while_it_is_used(make_cache, shaken, moment, monkeypatch):
    monkeypatch.setattr(activation_cache, "AHEAD", 0)
    cache, _, _ = make_cache(cached_augmentations=2, transform=shaken(0.5))
    message = []
    cache.warn = message.append
    cache.build(ITEMS)
    sampler = Lists(*ITEMS.reshape(6, 6).tolist())
    whole = [batch.images for batch in cache.training_batches(sampler, 1, seed=0)]
    batches = cache.training_batches(sampler, 1, seed=0)
    result = [next(batches).images] if moment == "while batches are read" else []
    shutil.rmtree(cache.root)
    result += [batch.images for batch in batches]
    assert all(torch.equal(one, two) for one, two in zip(result, whole, strict=True))
    assert len(message) == 2, "once for each view"
    assert not cache.missing(ITEMS)


def test_a_cache_deleted_while_it_is_built_is_built(make_cache):
    cache, _, _ = make_cache()

    def delete(done, total):
        if done == 16:
            shutil.rmtree(cache.root)

    cache.build(ITEMS, progress=delete)
    assert len(next(cache.evaluation_batches(ITEMS[16:], 36)).images) == 20


def test_what_never_stays_is_an_error(make_cache, monkeypatch):
    cache, _, _ = make_cache()
    cache.build(ITEMS)
    shutil.rmtree(cache.root)
    monkeypatch.setattr(ActivationFile, "write", lambda *_: None)
    cache.built[:] = True
    with pytest.raises(OSError, match="does not stay"):
        next(cache.evaluation_batches(ITEMS, 36))


@pytest.mark.parametrize("file", ["key.json", "done", "records"])
def test_what_does_not_fit_is_made_again(make_cache, file):
    cache, _, _ = make_cache()
    cache.build(ITEMS)
    path = cache.files[0].folder / file
    path.write_bytes(path.read_bytes()[:-1])
    assert len(cache.missing(ITEMS)) == 5
    cache.build(ITEMS)
    assert not cache.missing(ITEMS)


def test_views_differ_and_are_drawn_from_seed_epoch_and_batch(make_cache, shaken):
    cache, _, _ = make_cache(cached_augmentations=4, transform=shaken(0.5))
    cache.build(ITEMS)
    stored = torch.stack(
        [activation_cache._unpacked(kept(cache, v))[5] for v in range(len(cache.files))]
    )
    assert not torch.allclose(stored[0], stored[1])
    two = Lists([5] * 12, [5] * 12)
    drawn = [[b.images for b in cache.training_batches(two, epoch, 0)] for epoch in (0, 0, 1)]
    assert torch.equal(drawn[0][0], drawn[1][0])
    assert not torch.equal(drawn[0][0], drawn[2][0])
    assert not torch.equal(drawn[0][0], drawn[0][1])
    assert all(any(torch.equal(one, kept) for kept in stored) for one in drawn[0][0])
    (later,) = cache.training_batches(two, 0, 0, skip=1)
    assert torch.equal(later.images, drawn[0][1]), "a resumed epoch draws what it would have drawn"
    other = next(cache.training_batches(two, 0, 1))
    assert not torch.equal(other.images, drawn[0][0]), "the run's seed matters"


def test_evaluation_reads_the_first_view_in_order(make_cache):
    cache, cut, _ = make_cache()
    cache.build(ITEMS, workers=2)
    some = np.array([30, 2, 17])
    batches = list(cache.evaluation_batches(some, 2))
    assert [batch.indices.tolist() for batch in batches] == [[30, 2], [17]]
    result = torch.cat([batch.images for batch in batches])
    exact = cut.frozen(images_of(cache, [30, 2, 17]))
    torch.testing.assert_close(result, exact, rtol=0, atol=exact.abs().max().item() * 3e-5)
    assert result.is_contiguous(memory_format=torch.channels_last)


def test_values_that_are_no_numbers_are_refused(make_cache, make_network):
    network = make_network()
    network.backbone.body.stage2.refine_norm.weight.data.fill_(float("inf"))
    cache, _, _ = make_cache(network)
    with pytest.raises(ValueError, match="activations at stage2 are not finite"):
        cache.build(ITEMS)


def test_plan_tells_size_and_time_before_anything_is_written(make_cache, tmp_path):
    cache, _, _ = make_cache()
    plan = cache.plan(ITEMS)
    assert plan.num_bytes == 36 * (4 * 4 * 128 * 2 + 128 * 4)
    assert plan.num_missing == plan.num_images == 36
    assert plan.seconds > 0
    assert "0 of 36 images have been through the frozen layers, about" in str(plan)
    assert not (tmp_path / "cache").exists()


def test_the_time_of_a_plan_is_the_machines_own(make_cache, monkeypatch):
    """A second of the processor for three batches of eight, while hours pass by the clock."""
    cache, _, _ = make_cache()
    seconds, hours = itertools.count(), itertools.count(step=3600)
    monkeypatch.setattr("time.process_time", lambda: float(next(seconds)))
    monkeypatch.setattr("time.perf_counter", lambda: float(next(hours)))
    assert cache.plan(ITEMS).seconds == pytest.approx(36 / 24)
    assert cache.plan(ITEMS, processes=2).seconds == pytest.approx(36 / 48)


def test_too_little_space(make_cache, monkeypatch):
    cache, _, _ = make_cache()
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10}))
    with pytest.raises(OSError, match=r"needs 0\.0 GB where 0\.0 GB are free.*fewer views"):
        cache.build(ITEMS)


def test_bad_values(make_cache, noise, shaken):
    with pytest.raises(ValueError, match="cached_augmentations must be at least 1"):
        Augmentations(noise(), shaken(), 0)


def test_blocks_are_worth_writing():
    """The fixture above makes them small; in earnest they are not."""
    assert BLOCK == 64
