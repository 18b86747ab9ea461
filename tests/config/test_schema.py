"""Configs go to TOML and back, overrides work, and mistakes are answered in one line."""

import re
from pathlib import Path
from typing import Any

import pytest

from unseen.config import keys
from unseen.config import schema as configs
from unseen.config.keys import GROUPS, SHORT, TABLES, WITH_TABLE
from unseen.config.schema import Config
from unseen.config.tables import Component, MixupSettings
from unseen.evaluation.metric_names import PRESETS


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["loss=margin", "loss.beta=0.6", "loss.preset=revisit", "miner=none", "seed=3"],
        ["miner=distance_weighted", "miner.upper=none", "miner.switch=0.35", "lr=1e-4"],
        ["optimizer=sgd", "optimizer.momentum=0.8", "optimizer.clip_norm=10.0", "ema=0.99"],
        ["schedule=step", "schedule.milestones=[5, 10]", "schedule.warm_up=1", "precision=bf16"],
        ["ensemble.num_heads=4", "freeze_until=layer1", "cached_augmentations=2", "weights=none"],
        ["manifold_mixup=true"],
        ['manifold_mixup.layers=["input", "stage1"]', "manifold_mixup.concentration=0.5"],
        ["data.max_classes=20", "epochs=2", "head.hidden=[64, 32]", 'metrics=["recall@1"]'],
    ],
)
def test_toml_round_trip(words: list[str], tmp_path: Path) -> None:
    config = configs.make(configs.override({}, words))
    (tmp_path / "config.toml").write_text(config.to_toml())
    assert configs.make(configs.load(tmp_path / "config.toml")) == config


def test_overrides() -> None:
    config = configs.make(configs.override({}, ["loss=margin", "loss.beta=0.6", "miner=none"]))
    assert config.loss == Component(name="margin", beta=0.6)
    assert config.miner is None
    config = configs.make(configs.override({}, ["loss.alpha=4.0"]))  # a value of the default loss
    assert config.loss == Component(name="multi_similarity", alpha=4.0)
    config = configs.make(configs.override({"loss": "margin"}, ["loss.beta=0.6"]))
    assert config.loss == Component(name="margin", beta=0.6)


def test_mixup_is_a_word_or_a_table() -> None:
    def of(*words: str) -> Any:
        return configs.make(configs.override({}, list(words))).training.manifold_mixup

    assert of() == of("manifold_mixup=false") == of("manifold_mixup=none") is False
    assert of("manifold_mixup=true") == MixupSettings()
    assert of("manifold_mixup.concentration=1.0") == MixupSettings(concentration=1.0)
    assert of("manifold_mixup=true", "manifold_mixup.layers=['input']") == MixupSettings(
        layers=["input"]
    )
    for word in ("manifold_mixup.concentration=0", "manifold_mixup.layers=[]", "manifold_mixup=3"):
        with pytest.raises(ValueError, match=r"^manifold_mixup"):
            of(word)


def test_stored_configs_that_say_true_or_false_of_mixup_are_read() -> None:
    old = configs.parse("manifold_mixup = true\nseed = 3")
    assert configs.make(old).training.manifold_mixup == MixupSettings()
    assert not configs.make(old | {"manifold_mixup": False}).training.manifold_mixup
    assert Config().flat()["manifold_mixup"] is False


def test_a_regularizer_by_its_name_alone() -> None:
    config = configs.make(configs.override({}, ["regularizers=density"]))
    assert [part.name for part in config.regularizers] == ["density"]


def test_the_metrics_of_a_source() -> None:
    config = configs.make(configs.override({}, ["metrics=revisit_code"]))
    assert config.evaluation.metrics == [
        *(f"recall@{k}" for k in (1, 2, 4, 8)),
        "f1",
        "revisit_map",
        "nmi",
    ]
    with pytest.raises(ValueError, match="unknown metric 'revisitt'"):
        configs.make({"metrics": "revisitt"})


@pytest.mark.parametrize("source", sorted(PRESETS))
def test_every_source_names_metrics_that_exist(source: str) -> None:
    assert configs.make({"metrics": source}).evaluation.metrics == PRESETS[source]


def test_values_for_the_usual_miner() -> None:
    config = configs.make(configs.override({}, ["loss=margin", "miner.switch=0.35"]))
    assert config.miner == Component(name="auto", switch=0.35)


def test_naming_another_method_forgets_the_old_values() -> None:
    values: dict[str, Any] = {"loss": {"name": "margin", "beta": 0.6}}
    assert configs.make(configs.override(values, ["loss=multi_similarity"])).loss.values == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["learning_rate=0.1"], "unknown key 'learning_rate': did you mean lr?"),
        (["epoch=3"], "unknown key 'epoch': did you mean epochs"),
        (["loss=marginn"], "unknown loss 'marginn': did you mean margin"),
        (
            ["loss=margin", "loss.bta=1"],
            "unknown parameter of loss margin 'bta': did you mean beta",
        ),
        (["lr=fast"], "lr: Input should be a valid number, got 'fast'"),
        (["lr=-1"], "lr: Input should be greater than 0, got -1"),
        (["epochs=0"], "epochs: Input should be greater than or equal to 1, got 0"),
        (["loss.alpha=high"], "alpha of loss multi_similarity must be float, got 'high'"),
        (
            ["data.max_classes=many"],
            "max_classes of data set glyphs must be int | None, got 'many'",
        ),
        (["epochs"], "expected key=value, got 'epochs'"),
        (["losss.beta=1"], "unknown key 'losss': did you mean loss"),
        (
            ["schedule=cosin"],
            "schedule.name: Input should be 'constant', 'cosine' or 'step', got 'cosin'",
        ),
        (["schedule=step"], "schedule=step needs milestones"),
        (["schedule.milestones=[3]"], "schedule=step needs milestones"),
        (["schedule=step", "schedule.milestones=[0]"], "Input should be greater than or equal"),
        (["epochs=2", "schedule.warm_up=2"], "schedule.warm_up must be below epochs=2, got 2"),
        (["optimizer.momentum=0.9"], "momentum is a value of optimizer=sgd, not of adamw"),
        (["optimizer=sdg"], "optimizer.name: Input should be 'adamw', 'adam' or 'sgd', got 'sdg'"),
        (["optimizer.clip_norm=0"], "optimizer.clip_norm: Input should be greater than 0"),
        (["optimizer.clip=1"], "unknown key of optimizer 'clip': did you mean clip_norm"),
        (["ema=1.0"], "ema: Input should be less than 1, got 1.0"),
        (["precision=half"], "precision: Input should be 'float32', 'bf16' or 'fp16', got 'half'"),
        (["patience=0"], "patience: Input should be greater than or equal to 1, got 0"),
        (['metrics=["recal@1"]'], "unknown metric 'recal': did you mean recall"),
        (["data=glyps"], "unknown data set 'glyps': did you mean glyphs"),
        (["head.droput=0.1"], "unknown key of head 'droput': did you mean dropout"),
        (["head.dropout=1.0"], "head.dropout: Input should be less than 1, got 1.0"),
        (["ensemble.num_head=4"], "unknown key of ensemble 'num_head': did you mean num_heads"),
        (["manifold_mixup=true", "mirror=true"], "mirror and manifold_mixup exclude each other"),
        (
            ["freeze_until=pooled", "manifold_mixup=true"],
            "freeze_until and manifold_mixup exclude each other, what is mixed would run only once",
        ),
        (
            ["freeze_until=pooled", "training_sizes=[16, 32]"],
            "freeze_until and training_sizes exclude each other",
        ),
        (
            ["freeze_until=none", "cached_augmentations=2"],
            "cached_augmentations needs freeze_until = <layer>, got cached_augmentations = 2",
        ),
        (["lr=0.1", "optimizer=adam", "optimizer.momentum=0.9"], "momentum is a value of"),
        (["training=3"], "training is a table, e.g. training.seed; got training=3"),
        (["training.epoch=3"], "unknown key of training 'epoch': did you mean epochs"),
        (["model.kind=custom"], "kind=custom: the other keys are of kind=plain, leave it out"),
    ],
)
def test_mistakes_are_answered_in_one_line(words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        configs.make(configs.override({}, words))
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such config file"):
        configs.load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("lr = = 3")
    with pytest.raises(ValueError, match="not valid TOML"):
        configs.load(tmp_path / "bad.toml")


def test_the_hash_sees_every_value() -> None:
    assert Config().hash() == Config().hash()
    assert Config().hash() != configs.make({"seed": 1}).hash()
    assert Config().hash() != Config(loss=Component(name="multi_similarity", alpha=3.0)).hash()


def test_protocols_and_what_does_not_go_together() -> None:
    configs.make({"protocol": "k_fold", "folds": 5, "fold": 4})
    with pytest.raises(ValueError, match="fold must be below folds = 5, got 5"):
        configs.make({"protocol": "k_fold", "folds": 5, "fold": 5})
    with pytest.raises(ValueError, match="0 unless protocol = k_fold"):
        configs.make({"fold": 1})
    with pytest.raises(ValueError, match="does not go with"):
        configs.make({"protocol": "k_fold", "select": "test"})
    with pytest.raises(ValueError, match="set folds, not validation_fraction"):
        configs.make({"protocol": "k_fold", "validation_fraction": 0.2})
    with pytest.raises(ValueError, match="select"):
        configs.make({"select": "train"})


def test_a_memory_is_a_table_or_nothing() -> None:
    config = configs.make(configs.override({}, ["memory.size=64", "micro_batch=8"]))
    assert config.training.memory is not None
    assert (
        config.training.memory.size,
        config.training.memory.start_step,
        config.training.machine.micro_batch,
    ) == (64, 0, 8)
    assert configs.make(configs.override({}, ["memory=none"])).training.memory is None
    for words in (["memory.size=0"], ["memory.sise=9"], ["micro_batch=0"]):
        with pytest.raises(ValueError, match=r"memory|micro_batch"):
            configs.make(configs.override({}, words))


@pytest.mark.parametrize(
    ("network", "words"),
    [
        ("network = net_e", ["network=net_e"]),
        ("ensemble", ["ensemble={}"]),
        ("network = ./mine.py:Net", ["network=./mine.py:Net"]),
        ("backbone = features:64", ["backbone=features:64"]),
    ],
)
def test_a_kind_of_network_refuses_the_keys_that_it_does_not_have(
    network: str, words: list[str]
) -> None:
    kind = configs.make(configs.override({}, words)).model.kind
    has_not = {
        "preset": {"pooling", "mirror", "adapter", "head", "ensemble"},
        "ensemble": {"mirror", "adapter", "head", "nested"},
        "custom": {"pooling", "mirror", "head", "ensemble"},
        "features": {"mirror"},
    }[kind]
    values: dict[str, Any] = {"pooling": "avg", "mirror": True, "adapter": "lora"}
    values |= {"head": {"bias": False}, "nested": [8, 16], "ensemble": {"num_heads": 2}}
    if kind == "features":  # with an ensemble, it would be of that kind
        del values["ensemble"]
    for key, value in values.items():
        given = configs.override({}, words) | {key: value}
        if key in has_not:
            with pytest.raises(ValueError, match=re.escape(f"{key} does not go with {network}: ")):
                configs.make(given)
        elif (kind, key) != ("features", "pooling"):
            configs.make(given)


def test_none_of_what_a_network_does_not_have_is_no_mistake() -> None:
    """Configurations of a study differ in it."""
    configs.make({"network": "net_e", "adapter": None, "mirror": False, "ensemble": None})


KEYS = [key for key, path in SHORT.items() if path not in GROUPS]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_the_same_with_its_table_and_without(key: str) -> None:
    path = SHORT[key]
    value = Config().flat()[key]
    nested: Any = value
    for name in reversed(path.split(".")):
        nested = {name: nested}
    assert keys.short(nested) == {key: value}
    assert configs.by_table({key: value}) == nested
    assert configs.make(nested) == configs.make({key: value})
    if not isinstance(value, dict | list) and value is not None:
        word = str(value).lower() if isinstance(value, bool) else value
        assert configs.override({}, [f"{path}={word}"]) == {key: value}


def test_there_are_few_keys_and_each_is_unique() -> None:
    """The methods of a run, and the keys of five tables, some of which are tables themselves."""
    tables = [path for path in GROUPS if "." not in path]
    assert tables == ["data", "model", "optimizer", "training", "evaluation"]
    methods = [key for key in Config.model_fields if key not in GROUPS]
    assert methods == ["loss", "miner", "sampler", "regularizers"]
    keys = [
        key
        for path in tables
        for key in GROUPS[path].model_fields
        if key not in ("kind", "preset")  # which follow from the name
    ]
    assert len(keys) <= 45
    alone = [
        key for table in GROUPS.values() for key in table.model_fields if key not in WITH_TABLE
    ]
    assert len(set(alone)) == len(alone)
    inner = {key for table in TABLES.values() for key in table.model_fields}
    assert not inner & {"lr", "epochs", "seed"}


def test_a_key_that_is_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"lr is given twice: 0\.1 and 0\.2"):
        configs.make({"lr": 0.1, "optimizer": {"lr": 0.2}})
    assert configs.make({"lr": 0.1, "optimizer": {"lr": 0.1}}).optimizer.lr == 0.1


def test_a_word_goes_over_the_table_of_a_file() -> None:
    values = configs.parse('[optimizer]\nname = "sgd"\nlr = 0.1\n[training.validation]\npatience=3')
    config = configs.make(configs.override(values, ["lr=0.2", "patience=4"]))
    assert (config.optimizer.name, config.optimizer.lr) == ("sgd", 0.2)
    assert config.training.validation.patience == 4


def test_the_keys_that_somebody_has_set() -> None:
    words = ["optimizer=sgd", "lr=0.1", "mirror=true", "loss=margin", "data.size=20", "fold=0"]
    assert configs.make(configs.override({}, words)).user_keys() == {
        *("optimizer", "lr", "mirror", "loss", "data", "fold"),
    }
    changed = Config().with_values({"epochs": 3, "data": Component(name="glyphs", size=20)})
    assert changed.user_keys() == {"epochs", "data"}
    assert (changed.training.epochs, changed.data.values) == (3, {"size": 20})
    assert changed.data.image_size == "auto"
