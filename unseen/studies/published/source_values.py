"""What each source trains with, as keys of a config, and where our runs have something else.

    differing(ROTH, "cub200", results)    ["epochs: 8; the source has 150.", ...]

Compared with the settled configs of finished runs, so what stands on a page is what was run. A
table of values holds one for each data set. What a source does not say is left out.

ROTH      K. Roth et al. 2020, supplement A: Adam at a constant 1e-5, decay 4e-4, SPC-2, batches of
          112, 150 epochs (SOP 100) of the whole ResNet-50; the epoch chosen on test classes
PSOMAS    B. Psomas' thesis: AdamW 1e-4 (SOP 6e-4), decay 1e-4, steps, 100 epochs
LI        X. Li et al., density adaptivity: Adam, 128-d, 10 of a class in batches of 100
JACOB     P. Jacob et al. 2019: Adam at a constant 1e-5, 8 of a class in batches of 40, 512-d
VO_HAYS   N. Vo, J. Hays 2019: SGD 0.01 in steps, decay 5e-4, 2 of a class in batches of 32
"""

from collections.abc import Iterable, Mapping
from typing import Any

from unseen import config as configs
from unseen.samplers.samples_per_class import SamplesPerClass
from unseen.studies.plan import Values
from unseen.studies.results import Results
from unseen.training.checksums import checked

WHOLE: Values = {"weights": "imagenet", "freeze_until": "none"}
ROTH = WHOLE | {
    "backbone": "resnet50", "frozen_bn": "stats", "picture_size": 224, "embedding_size": 128,
    "optimiser": "adam", "lr": 1e-5, "weight_decay": 4e-4, "schedule": "constant",
    "sampler": "2 of a class", "batch_size": 112, "select": "test",
    "epochs": {"cub200": 150, "cars196": 150, "online_products": 100},
}  # fmt: skip
PSOMAS = WHOLE | {
    "backbone": "resnet50", "picture_size": 224, "optimiser": "adamw", "weight_decay": 1e-4,
    "schedule": "step", "batch_size": 100, "epochs": 100, "select": "test",
    "lr": {"cub200": 1e-4, "cars196": 1e-4, "online_products": 6e-4},
}  # fmt: skip
LI = WHOLE | {
    "backbone": "googlenet", "embedding_size": 128, "optimiser": "adam", "sampler": "10 of a class",
    "batch_size": 100, "lr": {"cub200": 1e-5, "cars196": 5e-4, "online_products": 3e-5},
}  # fmt: skip
JACOB = WHOLE | {
    "backbone": "googlenet", "embedding_size": 512, "optimiser": "adam", "lr": 1e-5,
    "schedule": "constant", "sampler": "8 of a class", "batch_size": 40,
}  # fmt: skip
VO_HAYS = WHOLE | {
    "backbone": "vgg16_bn", "picture_size": 224, "embedding_size": 512, "optimiser": "sgd",
    "lr": 0.01, "weight_decay": 5e-4, "schedule": "step", "sampler": "2 of a class",
    "batch_size": 32,
}  # fmt: skip
SHOWN = 4  # values of a key that runs have


def differing(source: Values, data: str, results: Iterable[Results]) -> list[str]:
    """A line for each key in which no finished run has the source's value."""
    files = [
        checked(run.folder, "config.toml")
        for found in results
        for run in found.runs
        if run.state == "done"
    ]
    settled = [configs.load(file) for file in files]
    sentences = []
    for key, value in source.items() if settled else ():
        theirs = value[data] if isinstance(value, Mapping) else value
        ours = list(dict.fromkeys(_value(config, key) for config in settled))
        if theirs not in ours:
            shown = ", ".join(map(_text, ours[:SHOWN])) + (" ..." if len(ours) > SHOWN else "")
            sentences.append(f"{key}: {shown}; the source has {_text(theirs)}.")
    return sentences


def _value(config: Values, key: str) -> Any:
    """A key's value; of a part its name, of a sampler how many of a class it draws."""
    value = config[key]
    if key == "sampler" and value["name"] == "samples_per_class":
        usual = {"per_class": 4} | SamplesPerClass.PRESETS.get(value["preset"], {})
        return f"{value.get('per_class', usual['per_class'])} of a class"
    found = value["name"] if isinstance(value, Mapping) else value
    return "none" if found is None else found


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
