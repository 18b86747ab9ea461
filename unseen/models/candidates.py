"""Backbones that can be compared here: installed, cached, named, or worth a download."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from unseen.core import custom_components
from unseen.data.images import table_file
from unseen.models.backbone import IMAGENET, TIMM, has_weights, names

UNKNOWN_LICENCE = "not stated"
PUBLISHED = "published_backbones.csv"  # beside this file
PUBLISHED_ON = ("cub200", "cars196", "online_products")


@dataclass(frozen=True)
class Candidate:
    """A backbone and its weights: "imagenet", the published ones, or a file."""

    backbone: str
    weights: str = IMAGENET

    @classmethod
    def of(cls, word: str) -> "Candidate":
        """From `name` or `name=weights`."""
        backbone, _, weights = word.partition("=")
        return cls(backbone, weights or IMAGENET)

    @property
    def title(self) -> str:
        name = custom_components.short_name(self.backbone)
        return name if self.weights == IMAGENET else f"{name} ({Path(self.weights).name})"

    @property
    def settings(self) -> dict[str, str]:
        """As keys of a config."""
        return {"backbone": self.backbone, "weights": self.weights}

    @property
    def licence(self) -> str:
        """As the table of published backbones says it, or timm; of a file nobody knows it."""
        if self._row or self.weights != IMAGENET or not self.backbone.startswith(TIMM):
            return self._row.get("licence", UNKNOWN_LICENCE)
        from timm.models import get_pretrained_cfg  # noqa: PLC0415 - slow to import

        metadata = get_pretrained_cfg(self.backbone.removeprefix(TIMM))
        return getattr(metadata, "license", None) or UNKNOWN_LICENCE

    @property
    def published(self) -> dict[str, float]:
        """Published recall@1 in percent, by data set."""
        return {name: float(self._row[name]) for name in PUBLISHED_ON if self._row.get(name)}

    @property
    def _row(self) -> dict[str, str]:
        return _published().get(self.backbone, {}) if self.weights == IMAGENET else {}


def candidates_of(named: Sequence[Candidate], download: bool = False) -> list[Candidate]:
    """Those whose weights are installed or cached, those that are named and, with download, those
    of the recommended list; each once."""
    result = [Candidate(name) for name in names() if has_weights(name)]
    result += [Candidate(name) for name in cached_backbones()]
    result += [*named, *(recommended() if download else [])]
    unique = {(each.backbone, each.weights): each for each in result}
    if not unique:
        raise ValueError(
            "no weights are installed or cached: name candidates (resnet50=resnet50.pth), or "
            "download the recommended ones"
        )
    return list(unique.values())


def from_words(words: Sequence[str]) -> tuple[list[Candidate], list[str]]:
    """Candidates among words (`resnet50`, `resnet50=FILE`), and the settings (`key=value`)."""
    known = {*names()}
    parts = [(word.partition("="), word) for word in words]
    settings = [w for (name, sign, _), w in parts if sign and ":" not in name and name not in known]
    return [Candidate.of(word) for word in words if word not in settings], settings


def cached_backbones() -> list[str]:
    """Backbones whose published weights lie in torch's or the hub's cache on this disk."""
    cached = []
    if (folder := Path(torch.hub.get_dir()) / "checkpoints").is_dir():
        from torchvision.models import get_model_weights, list_models  # noqa: PLC0415 - slow

        for name in set(names()) & {*list_models()}:
            url = get_model_weights(name).IMAGENET1K_V1.url
            cached += [name] * (folder / Path(url).name).exists()
    from huggingface_hub.constants import HF_HUB_CACHE  # noqa: PLC0415 - seldom needed

    files = Path(HF_HUB_CACHE).glob("models--*/snapshots/*/*.*")
    suffixes = (".safetensors", ".bin")
    if repositories := {path.parents[2].name for path in files if path.suffix in suffixes}:
        import timm  # noqa: PLC0415 - slow

        for name in timm.list_pretrained():
            repository = getattr(timm.get_pretrained_cfg(name), "hf_hub_id", None) or ""
            is_here = f"models--{repository.replace('/', '--')}" in repositories
            cached += [f"{TIMM}{name}"] * is_here
    return sorted(cached)


def recommended() -> list[Candidate]:
    """The backbones that are worth a download."""
    return [Candidate(row["backbone"]) for row in _published().values() if row["download"]]


@cache
def _published() -> dict[str, dict[str, str]]:
    columns = table_file.read(Path(__file__).with_name(PUBLISHED))
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return {row["backbone"]: row for row in rows if row["backbone"]}
