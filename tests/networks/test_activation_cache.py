"""The activation cache: never stale, never lost, and how near it is to the uncached run."""

import numpy as np
import pytest
import torch
from torch import nn

from unseen.networks import activation_cache
from unseen.networks.activation_cache import ActivationCache, OneView, Views
from unseen.networks.activation_file import BLOCK, ActivationFile
from unseen.networks.frozen_batch_norm import batch_norms
from unseen.networks.split import cut_network

ITEMS = np.arange(2, 38)


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
    monkeypatch.setattr("unseen.networks.activation_cache.BLOCK", 8)
    monkeypatch.setattr("unseen.networks.activation_file.BLOCK", 8)


@pytest.fixture
def make_cache(tmp_path, make_network, noise, shaken):
    def make(
        network="small_conv",
        layer="stage2",
        *,
        dtype="float16",
        dataset=None,
        items=ITEMS,
        transform=None,
        views=1,
        seed=0,
    ):
        net = make_network(network) if isinstance(network, str) else network
        cut = cut_network(net, layer)
        dataset = noise() if dataset is None else dataset
        kept = Views(dataset, items, transform or shaken(), views, seed)
        return ActivationCache(tmp_path / "cache", cut.prefix, kept, dtype), cut, net

    return make


def calibrated(network):
    """Running statistics that fit the pictures, as a trained network has them."""
    network.train()
    for norm in batch_norms(network):
        norm.momentum = None
        torch.nn.init.ones_(norm.weight)  # timm lets residual branches start at 0
    with torch.no_grad():
        network(torch.rand(64, 3, 32, 32, generator=torch.Generator().manual_seed(0)) - 0.5)
    network.backbone.frozen_bn = "stats"
    return network.train()


def images_of(cache, indices, view=0):
    kept = cache.views
    seeded = OneView(kept.transform, kept.seed, view)
    return torch.stack(
        [seeded(kept.dataset.picture(i), np.random.default_rng((i,))) for i in indices]
    )


NETWORKS = [
    ("small_conv", "stage2"),
    ("small_conv", "pooled"),
    ("timm:resnet18", "layer3"),
    ("timm:vit_tiny_patch16_224", "blocks.9"),
    ("timm:efficientnet_b0", "blocks.4"),
]
CHOSEN = [3, 9, 4, 33, 12, 20]


def gradient_difference(cache, cut, net, seed):
    """Largest relative difference of a parameter's gradient, cached against uncached."""
    batch = next(cache.training_batches(Lists(CHOSEN), epoch=0))
    weight = torch.randn(6, 8, generator=torch.Generator().manual_seed(seed))
    gradients = []
    for model, inputs in ((cut.rest, batch.images), (net, images_of(cache, CHOSEN))):
        net.zero_grad(set_to_none=True)
        model.train()
        (model(inputs).embeddings * weight).sum().backward()
        gradients.append({n: p.grad for n, p in net.named_parameters() if p.grad is not None})
    cached, uncached = gradients
    assert set(cached) == set(uncached)
    ratios = [(cached[n] - g).norm() / g.norm().clamp(min=1e-6) for n, g in uncached.items()]
    return max(ratios).item()


@pytest.mark.parametrize(("network", "layer"), NETWORKS)
def test_float32_gives_the_gradients_of_the_uncached_run(make_cache, make_network, network, layer):
    cache, cut, net = make_cache(calibrated(make_network(network)), layer, dtype="float32")
    cache.build()
    batch = next(cache.training_batches(Lists(CHOSEN), epoch=0))
    assert batch.indices.tolist() == CHOSEN
    assert batch.labels.tolist() == [3, 1, 0, 1, 0, 0]
    assert max(gradient_difference(cache, cut, net, seed) for seed in range(3)) < 1e-4


@pytest.mark.parametrize(("network", "layer"), NETWORKS)
def test_float16_keeps_activations_to_its_rounding(make_cache, make_network, network, layer):
    cache, cut, _ = make_cache(calibrated(make_network(network)), layer)
    cache.build()
    found = next(cache.training_batches(Lists(CHOSEN), epoch=0)).images
    exact = cut.prefix(images_of(cache, CHOSEN))
    torch.testing.assert_close(found, exact, rtol=2**-10, atol=1e-4 * exact.abs().max().item())


@pytest.mark.parametrize(
    ("network", "layer"),
    [
        ("small_conv", "pooled"),
        ("timm:resnet18", "layer3"),
        ("timm:vit_tiny_patch16_224", "blocks.9"),
    ],
)
def test_float16_gradients_behind_smooth_activations(make_cache, make_network, network, layer):
    """Not so behind ReLU: rounding flips gates whose input is nearly 0 (see the module)."""
    net = make_network(network)
    for module in list(net.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.ReLU):
                setattr(module, name, nn.Softplus())
    cache, cut, net = make_cache(calibrated(net), layer)
    cache.build()
    assert max(gradient_difference(cache, cut, net, seed) for seed in range(5)) < 1e-2


@pytest.mark.parametrize("stop_after", range(10))
def test_resumes_after_an_interruption_at_any_block(make_cache, shaken, stop_after):
    views = {"views": 2, "transform": shaken(0.5)}
    cache, _, _ = make_cache(**views)

    def interrupt(done, total):
        assert total == 72
        if done >= 8 * stop_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.build(progress=interrupt)
    again, _, _ = make_cache(**views)
    left = len(again.file.missing())
    assert 10 - left >= max(1, stop_after)
    with pytest.raises(ValueError, match="not built yet") if left else does_not_raise():
        next(again.evaluation_batches(ITEMS, 4))
    again.views.dataset.read.clear()
    told = []
    again.build(progress=lambda done, total: told.append(done))
    assert len(told) == left
    assert len(again.views.dataset.read) <= 8 * left + 2
    values = again.file.values()
    for view in (0, 1):
        expected = again.prefix(images_of(again, ITEMS.tolist(), view)).permute(0, 2, 3, 1)
        np.testing.assert_allclose(values[view], expected.numpy(), rtol=1e-2, atol=1e-2)


class does_not_raise:  # noqa: N801 - reads as a phrase
    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return False


def test_a_block_that_was_not_finished_is_made_again(make_cache, monkeypatch):
    cache, _, _ = make_cache()
    put = ActivationFile._put

    def dies_before_the_mark(self, name, offset, content):
        if name == "done" and offset == 2:
            raise KeyboardInterrupt
        put(self, name, offset, content)

    monkeypatch.setattr(ActivationFile, "_put", dies_before_the_mark)
    with pytest.raises(KeyboardInterrupt):
        cache.build()
    monkeypatch.setattr(ActivationFile, "_put", put)
    assert cache.file.missing() == [(0, 2), (0, 3), (0, 4)]
    cache.build()
    assert not cache.file.missing()


def test_a_finished_cache_is_used_again(make_cache):
    cache, _, _ = make_cache()
    cache.build()
    again, _, _ = make_cache()
    assert again.file.folder == cache.file.folder
    assert again.plan().num_missing == 0
    assert "36 pictures are ready" in str(again.plan())
    again.views.dataset.read.clear()
    again.build()
    assert not again.views.dataset.read


def test_anything_that_matters_makes_another_cache(make_cache, make_network, noise, shaken):
    base, _, _ = make_cache()
    base.build()
    changed = make_network()
    changed.backbone.body.stem.weight.data[0, 0, 0, 0] += 1e-4
    others = {
        "weights": make_cache(changed),
        "layer": make_cache(layer="stage1"),
        "data": make_cache(dataset=noise(contents=1)),
        "items": make_cache(items=ITEMS[::-1].copy()),
        "transform": make_cache(transform=shaken(0.1)),
        "seed": make_cache(seed=1),
        "views": make_cache(views=2),
        "dtype": make_cache(dtype="float32"),
    }
    folders = {base.file.folder} | {cache.file.folder for cache, _, _ in others.values()}
    assert len(folders) == 1 + len(others)
    for cache, _, _ in others.values():
        assert cache.plan().num_missing == cache.plan().num_pictures


@pytest.mark.parametrize("file", ["key.json", "done", "activations"])
def test_what_does_not_fit_is_made_again(make_cache, file):
    cache, _, _ = make_cache()
    cache.build()
    path = cache.file.folder / file
    path.write_bytes(path.read_bytes()[:-1])
    assert len(cache.file.missing()) == 5
    with pytest.raises(ValueError, match="not built yet"):
        cache.file.values()
    cache.build()
    assert not cache.file.missing()


def test_views_differ_and_are_drawn_from_seed_and_epoch(make_cache, shaken):
    cache, _, _ = make_cache(views=4, transform=shaken(0.5), dtype="float32")
    cache.build()
    values = cache.file.values()
    assert not np.allclose(values[0], values[1])
    drawn = []
    for epoch in (0, 0, 1):
        (batch,) = cache.training_batches(Lists([5] * 12), epoch)
        drawn.append(batch.images)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    stored = torch.from_numpy(np.array(values[:, 3])).permute(0, 3, 1, 2)
    assert all(any(torch.equal(one, kept) for kept in stored) for one in drawn[0])
    assert len({one.sum().item() for one in drawn[0]}) > 1


def test_evaluation_reads_the_first_view_in_order(make_cache):
    cache, cut, _ = make_cache(dtype="float32")
    cache.build(workers=2)
    some = np.array([30, 2, 17])
    batches = list(cache.evaluation_batches(some, 2))
    assert [batch.indices.tolist() for batch in batches] == [[30, 2], [17]]
    found = torch.cat([batch.images for batch in batches])
    torch.testing.assert_close(found, cut.prefix(images_of(cache, [30, 2, 17])))
    assert found.is_contiguous(memory_format=torch.channels_last)
    with pytest.raises(ValueError, match=r"items \[0\] are not in this cache"):
        list(cache.evaluation_batches(np.array([0]), 2))


def test_float16_refuses_what_it_cannot_hold(make_cache, make_network):
    network = make_network()
    network.backbone.body.stage2.refine_norm.weight.data.fill_(1e6)
    cache, _, _ = make_cache(network)
    with pytest.raises(ValueError, match=r"activations at stage2 reach .*float32"):
        cache.build()
    cache, _, _ = make_cache(network, dtype="float32")
    cache.build()


def test_plan_tells_size_and_time_before_anything_is_written(make_cache, tmp_path):
    cache, _, _ = make_cache()
    plan = cache.plan()
    assert plan.num_bytes == 36 * 4 * 4 * 128 * 2
    assert plan.num_missing == plan.num_pictures == 36
    assert plan.seconds > 0
    assert "0 of 36 pictures are ready, about" in str(plan)
    assert not (tmp_path / "cache").exists()


def test_too_little_space(make_cache, monkeypatch):
    cache, _, _ = make_cache()
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10}))
    with pytest.raises(OSError, match=r"needs 0\.0 GB where 0\.0 GB are free.*fewer views"):
        cache.build()


def test_bad_values(make_cache, noise, shaken):
    with pytest.raises(ValueError, match="dtype must be one of float16, float32, got 'int8'"):
        make_cache(dtype="int8")
    with pytest.raises(ValueError, match="at least 1 view"):
        Views(noise(), ITEMS, shaken(), 0)
    with pytest.raises(ValueError, match="must not repeat"):
        Views(noise(), np.array([1, 1]), shaken())


def test_blocks_are_worth_writing():
    """The fixture above makes them small; in earnest they are not."""
    assert BLOCK == 64
    assert activation_cache.DTYPES == ("float16", "float32")
