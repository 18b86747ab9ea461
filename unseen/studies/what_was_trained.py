"""What finished runs trained, in words, read off their resolved configs."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from unseen.config import schema as configs
from unseen.config.keys import short
from unseen.models.backbone import FEATURES
from unseen.models.layer_outputs import POOLED
from unseen.studies.results import Results
from unseen.studies.study_file import Values
from unseen.training.checksums import checked


def resolved_configs(results: Iterable[Results]) -> list[Values]:
    """The resolved configs of finished runs."""
    done = [run for result in results for run in result.runs if run.state == "done"]
    return [short(configs.load(checked(run.folder, "config.toml"))) for run in done]


def trained(ours: Sequence[Values]) -> list[str]:
    """What the runs trained, in words: the head, the layers after a cut, or the whole network."""
    counts = Counter(_trained(config) for config in ours)
    return [f"{number} run{'s' * (number != 1)} trained {what}." for what, number in counts.items()]


def _trained(config: Values) -> str:
    backbone, weights, cut = (
        plain_value(config[k]) for k in ("backbone", "weights", "freeze_until")
    )
    if str(backbone).startswith(FEATURES):
        return "a head on given features; the network behind them did not change"
    start = "random weights" if weights == "none" else f"{weights} weights"
    if plain_value(config["adapter"]) != "none":
        return f"adapters in {backbone} ({start}), whose own layers stay as they are, and a head"
    if cut == POOLED:
        return f"a head on frozen {backbone} ({start})"
    deeper = [plain_value(stage["name"]) for stage in config["stages"]]
    deeper_text = f", then deeper where that gained ({', '.join(deeper)})" if deeper else ""
    if cut == "none":
        return f"the whole of {backbone} from {start}{deeper_text}"
    return f"{backbone} ({start}) from {cut} on, the layers before it frozen{deeper_text}"


def plain_value(value: Any) -> Any:
    return "none" if value is None else value
