"""LoRA: W x + (alpha / rank) B A x beside frozen layers, and the same as one layer when merged."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unseen.config import build
from unseen.config import schema as configs
from unseen.config.tables import Adapter
from unseen.models.backbone import Backbone, create_backbone
from unseen.models.body_spec import InputSpec
from unseen.models.descriptor import usual_layers
from unseen.models.freezing import split_network
from unseen.models.head import Head
from unseen.models.lora import LowRank, adapt, merge
from unseen.models.network import EmbeddingNetwork


class Attention(nn.Module):
    """Query, key and value in one layer, whose weight is read without a call, as in BEiT."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        query, key, value = F.linear(tokens, self.qkv.weight, self.qkv.bias).chunk(3, dim=-1)
        return tokens + self.proj(F.scaled_dot_product_attention(query, key, value))


class Body(nn.Module):
    """A convolution, one of single places with a stride and its norm, one in groups, attention."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.point = nn.Sequential(nn.Conv2d(4, 6, 1, stride=2), nn.BatchNorm2d(6), nn.ReLU())
        self.grouped = nn.Conv2d(6, 6, 1, groups=2)
        self.attn = Attention(6)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.grouped(self.point(self.stem(images)))
        return self.attn(maps.flatten(2).transpose(1, 2)).mean(dim=1)


ALL = ["point.0", "attn.qkv", "attn.proj"]


@pytest.fixture
def network() -> EmbeddingNetwork:
    body = Body()
    with torch.no_grad():
        body(torch.randn(8, 3, 8, 8))  # the norm has seen something
    return EmbeddingNetwork(Backbone(body, 6, InputSpec(8)), Head(6, 5)).double()


@pytest.fixture
def images() -> Tensor:
    return torch.randn(4, 3, 8, 8, dtype=torch.float64)


def trained(network: EmbeddingNetwork, images: Tensor, steps: int = 3) -> EmbeddingNetwork:
    """Some steps on what is to be trained."""
    network.train()
    moved = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(moved, lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        network(images).embeddings.square().sum().backward()
        optimizer.step()
    return network.eval()


def test_a_linear_layer_is_the_formula() -> None:
    torch.manual_seed(1)
    layer, rank, alpha = nn.Linear(5, 4).double(), 3, 7.0
    backbone = Backbone(nn.Sequential(layer), 4, InputSpec(0))
    W, b = layer.weight.tolist(), layer.bias.tolist()
    assert adapt(backbone, rank, alpha) == ["0"]
    added = layer.parametrizations.weight[0]
    added.B.data.normal_()
    A, B = added.A.tolist(), added.B.tolist()
    x = torch.randn(2, 5, dtype=torch.float64)
    expected = torch.zeros(2, 4, dtype=torch.float64)
    for n in range(2):
        inner = [sum(A[r][i] * float(x[n, i]) for i in range(5)) for r in range(rank)]
        for o in range(4):
            plain = sum(W[o][i] * float(x[n, i]) for i in range(5)) + b[o]
            low = sum(B[o][r] * inner[r] for r in range(rank))
            expected[n, o] = plain + alpha / rank * low
    assert torch.allclose(layer(x), expected, atol=1e-12)


def test_a_convolution_of_single_places_is_the_formula_at_each_place() -> None:
    torch.manual_seed(2)
    layer, rank, alpha = nn.Conv2d(3, 4, 1, stride=2).double(), 2, 5.0
    backbone = Backbone(nn.Sequential(layer), 4, InputSpec(0))
    W, b = layer.weight.detach().clone(), layer.bias.detach().clone()
    adapt(backbone, rank, alpha)
    added = layer.parametrizations.weight[0]
    added.B.data.normal_()
    x = torch.randn(2, 3, 5, 4, dtype=torch.float64)
    result = layer(x)
    assert result.shape == (2, 4, 3, 2)
    for n in range(2):
        for row in range(3):
            for column in range(2):
                place = x[n, :, 2 * row, 2 * column]
                low = added.B @ (added.A @ place)
                expected = W[:, :, 0, 0] @ place + b + alpha / rank * low
                assert torch.allclose(result[n, :, row, column], expected, atol=1e-12)


def test_it_starts_as_the_network_it_was_made_of(network: EmbeddingNetwork, images: Tensor) -> None:
    expected = network.eval()(images).embeddings
    assert adapt(network.backbone, rank=2) == ALL
    assert torch.equal(network(images).embeddings, expected)


def test_only_adapters_and_the_head_learn(network: EmbeddingNetwork, images: Tensor) -> None:
    before = copy.deepcopy(network.state_dict())
    adapt(network.backbone, rank=2, alpha=4.0)
    names = [name for name, p in network.named_parameters() if p.requires_grad]
    inside = [name for name in names if name.startswith("backbone.")]
    assert all(name.endswith((".A", ".B")) for name in inside)
    assert len(inside) == 2 * len(ALL)
    assert {name for name in names if name not in inside} == {"head.fc1.weight", "head.fc1.bias"}
    trained(network, images)
    with_gradient = {name for name, p in network.named_parameters() if p.grad is not None}
    assert with_gradient == set(names)  # what several processes exchange
    for name, value in network.state_dict().items():
        if not name.startswith("head.") and "weight.0." not in name:
            original = name.replace("parametrizations.weight.original", "weight")
            assert torch.equal(value, before[original]), name  # statistics of the norm too
    merge(network)
    for name in ALL:
        weight = network.backbone.body.get_submodule(name).weight
        change = (weight - before[f"backbone.body.{name}.weight"]).flatten(1)
        assert torch.linalg.matrix_rank(change) == 2


def test_there_are_rank_times_inputs_and_outputs_parameters(network: EmbeddingNetwork) -> None:
    adapt(network.backbone, rank=3)
    added = [p for p in network.backbone.parameters() if p.requires_grad]
    assert sum(p.numel() for p in added) == 3 * ((4 + 6) + (6 + 18) + (6 + 6))


def test_merged_it_is_the_same_network_of_plain_layers(
    network: EmbeddingNetwork, images: Tensor
) -> None:
    names = list(network.state_dict())
    adapt(network.backbone, rank=2)
    trained(network, images)
    expected = network(images).embeddings.detach()
    merge(network)
    assert torch.allclose(network(images).embeddings, expected, atol=1e-12)
    assert sorted(network.state_dict()) == sorted(names)
    plain = Body().double().eval()
    plain.load_state_dict(network.backbone.body.state_dict())
    assert torch.allclose(network.head(plain(images)), expected, atol=1e-12)


def test_layers_that_share_a_weight_are_merged_each_with_its_own(images: Tensor) -> None:
    body = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    body[1].weight = body[0].weight
    backbone = Backbone(body, 4, InputSpec(0))
    adapt(backbone, rank=1)
    for layer in body:
        layer.parametrizations.weight[0].B.data.normal_()
    x = torch.randn(3, 4)
    expected = body(x)
    merge(body)
    assert torch.equal(body(x), expected)


def test_a_warm_up_leaves_the_adapters_where_they_are(network: EmbeddingNetwork) -> None:
    adapt(network.backbone, rank=2)
    network.warm_up(True)
    assert not any(p.requires_grad for p in network.backbone.parameters())
    network.warm_up(False)
    assert sum(p.requires_grad for p in network.backbone.parameters()) == 2 * len(ALL)


@pytest.mark.parametrize(
    ("words", "names"),
    [(["attn"], ALL[1:]), (["qkv"], ["attn.qkv"]), (["point.0", "proj"], [ALL[0], ALL[2]])],
)
def test_layers_are_named_by_words_of_their_names(
    network: EmbeddingNetwork, words: list[str], names: list[str]
) -> None:
    assert adapt(network.backbone, layers=words) == names


def test_a_block_is_not_another_whose_number_begins_alike() -> None:
    body = nn.Sequential(*(nn.Linear(2, 2) for _ in range(12)))
    assert adapt(Backbone(body, 2, InputSpec(0)), layers=["1"]) == ["1"]


def test_wrong_names_and_networks_are_refused(network: EmbeddingNetwork) -> None:
    with pytest.raises(ValueError, match="no layer to adapt is named 'qvk': did you mean qkv"):
        adapt(network.backbone, layers=["qvk"])
    with pytest.raises(ValueError, match="there are none to train"):
        adapt(create_backbone("small_conv"))


def test_layers_before_the_cut_stay_plain(network: EmbeddingNetwork, images: Tensor) -> None:
    expected = network.eval()(images).embeddings
    frozen, rest = split_network(network, "point")
    fingerprint = frozen.fingerprint()
    assert adapt(network.backbone, rank=2, frozen=list(frozen.modules())) == ALL[1:]
    assert frozen.fingerprint() == fingerprint  # kept activations serve with and without
    assert torch.allclose(rest(frozen(images)).embeddings, expected, atol=1e-12)


def test_adapters_are_no_layers_to_read(network: EmbeddingNetwork, images: Tensor) -> None:
    layers, taps = network.layers(), usual_layers(network, images)
    adapt(network.backbone, rank=2)
    assert network.layers() == layers
    assert usual_layers(network, images) == taps


def resolved(*words: str) -> configs.ResolvedConfig:
    values = [
        "device=cpu",
        "threads=1",
        "workers=0",
        "weights=none",
        "pooling=own",
        "cached_augmentations=0",
    ]
    values += ["freeze_until=none", "embedding_size=8", "image_size=32", "transform=base"]
    values += ["miner=none", "batch_size=8", "epochs=1", "lr=0.1", "validation_fraction=0.5"]
    values += ["cpu_processes=1", "micro_batch=none", "depth=full", "relevance.kind=labels"]
    return configs.make_resolved(configs.override({}, [*values, "normalize=true", *words]))


@pytest.mark.parametrize(
    ("backbone", "layers"),
    [
        # qkv, proj, fc1, fc2 of twelve blocks
        pytest.param("timm:vit_tiny_patch16_224", 4 * 12, marks=pytest.mark.slow),
        ("efficientnet_lite0", 32),
    ],
)
def test_networks_of_the_field_are_adapted(backbone: str, layers: int) -> None:
    network = build.network(resolved(f"backbone={backbone}", "adapter=lora", "adapter.rank=4"))
    added = [module for module in network.modules() if isinstance(module, LowRank)]
    assert len(added) == layers
    assert all(len(module.A) == 4 for module in added)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["adapter=lore"], "adapter.name: .*'lora'"),
        (["adapter.rnk=4"], "unknown key of adapter 'rnk': did you mean rank"),
        (["adapter.rank=0"], "adapter.rank"),
        (["adapter=lora", "ensemble.num_heads=2"], "adapter does not go with ensemble: leave"),
        (["adapter=lora", "network=net_b"], "adapter does not go with network = net_b: leave"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configs.make(configs.override({}, words))


def test_the_table_is_stored_and_read() -> None:
    config = resolved("backbone=resnet50", "adapter.rank=4")
    assert config.model.adapter == Adapter(rank=4)
    assert configs.make_resolved(configs.parse(config.to_toml())) == config


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of libraries that peft imports
def test_it_is_what_peft_computes_and_learns(images: Tensor) -> None:
    from peft import LoraConfig, get_peft_model

    class Called(Attention):
        """peft replaces layers, and sees those only that are called."""

        def forward(self, tokens: Tensor) -> Tensor:
            query, key, value = self.qkv(tokens).chunk(3, dim=-1)
            return tokens + self.proj(F.scaled_dot_product_attention(query, key, value))

    body = Body().double().eval()
    called = Called(6).double()
    called.load_state_dict(body.attn.state_dict())
    theirs = copy.deepcopy(body)
    theirs.attn = called
    given = LoraConfig(r=3, lora_alpha=6, target_modules=ALL, lora_dropout=0.0)
    theirs = get_peft_model(theirs, given).eval()
    backbone = Backbone(body, 6, InputSpec(8)).eval()
    adapt(backbone, rank=3, alpha=6.0)
    for name in ALL:
        ours, other = body.get_submodule(name), theirs.base_model.model.get_submodule(name)
        added = ours.parametrizations.weight[0]
        added.A.data.copy_(other.lora_A["default"].weight.flatten(1))
        assert torch.all(other.lora_B["default"].weight == 0)
    optimizers = [
        torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=0.05)
        for module in (body, theirs)
    ]
    for _ in range(5):
        result = [module(images) for module in (body, theirs)]
        assert torch.allclose(result[0], result[1], atol=1e-10)
        for output, optimizer in zip(result, optimizers, strict=True):
            optimizer.zero_grad()
            output.square().sum().backward()
            optimizer.step()
    merge(body)
    merged = theirs.merge_and_unload()
    for name in ALL:
        ours, other = body.get_submodule(name).weight, merged.get_submodule(name).weight
        assert torch.allclose(ours, other, atol=1e-10)
