"""What stands out in an embedding space, in words with the likely remedy.

`findings` compares the numbers of training and unseen classes (`diagnose.py` measures them). Limits
are rules of thumb, named below with their reasons; the numbers behind every sentence are kept
beside it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

COLLAPSED = -0.5  # uniformity; 0 is one point, random directions have -3.9 in 128 dimensions
STEEP = (0.25, 0.5)  # rho; the best losses on CUB have 0.13 to 0.2, the worst 0.46 (Roth et al.)
IDLE = 2.0  # rho that only directions near 0 can make
HUBS = (1.0, 2.0)  # skewness of how often an item is somebody's neighbour
GAP = 0.25  # recall@1 on training classes less that on unseen ones
LEARNED = 0.6  # recall@1 on training classes from which they count as learned
BETTER_LAYER = 0.01
NOISY = 0.01  # share of label issues
FEW = (10, 100)  # classes and images below which a recall is known to ten points at best

Level = Literal["good", "note", "warning"]
Numbers = Mapping[str, float]


@dataclass(frozen=True)
class Finding:
    """One thing seen: a sentence, or a head and its detail; `remedy` is empty if nothing is to be
    done."""

    about: str
    level: Level
    head: str
    remedy: str = ""
    detail: str = ""

    @property
    def text(self) -> str:
        return f"{self.head}: {self.detail}" if self.detail else self.head


def findings(train: Numbers, test: Numbers, layers: Numbers, descriptor: str) -> list[Finding]:
    """What stands out; `layers`: recall@1 by layer on classes to select on, if known."""
    if train.get("broken") or test.get("broken"):
        remedy = "Lower lr, or clip gradients (optimizer.clip_norm=1)."
        return [Finding("collapse", "warning", "Some embeddings are NaN or infinite.", remedy)]
    sentences = [
        _few(test),
        _collapse(train),
        _spectrum(train),
        _hubness(test),
        _gap(train, test),
        _layer(layers, descriptor),
        _noise(train, "training"),
        _noise(test, "test"),
    ]
    return [finding for finding in sentences if finding is not None]


def _few(test: Numbers) -> Finding | None:
    classes, items = test.get("classes", math.inf), test.get("items", math.inf)
    if classes >= FEW[0] and items >= FEW[1]:
        return None
    text = f"Only {items:.0f} images of {classes:.0f} unseen classes: what follows is rough."
    remedy = f"More classes: at least {FEW[0]} to test on, with {FEW[1]} images in all."
    return Finding("sample", "warning", text, remedy)


def _collapse(train: Numbers) -> Finding | None:
    if "uniformity" not in train:
        return None
    rank, size = train["effective_rank"], train["size"]
    used = f"the embeddings use about {rank:.0f} of {size:.0f} directions"
    if train["uniformity"] > COLLAPSED:
        text = f"The space has nearly collapsed: {used}, uniformity {train['uniformity']:.2f}."
        remedy = "Lower lr, a miner that is less hard (semi_hard), or schedule.warm_up=1."
        return Finding("collapse", "warning", text, remedy)
    text = f"No collapse: {used}, uniformity {train['uniformity']:.2f}."
    return Finding("collapse", "good", text)


def _spectrum(train: Numbers) -> Finding | None:
    rho = train.get("rho", math.nan)
    if math.isnan(rho):
        return None
    text = f"Spectral decay rho is {rho:.2f} on training classes"
    if rho > IDLE:
        remedy = "A smaller embedding_size, or hidden layers at least as wide as the embedding."
        text += ": some directions of the embedding are hardly used at all."
        return Finding("spectrum", "warning", text, remedy)
    if rho <= STEEP[0]:
        return Finding("spectrum", "good", f"{text}: many directions are in use.")
    remedy = (
        "Fewer directions in use go with poorer generalisation: try miner.switch=0.2 to 0.4 "
        "(rho-regularisation) with triplet losses, another loss, or more classes per batch."
    )
    level: Level = "warning" if rho > STEEP[1] else "note"
    return Finding("spectrum", level, f"{text}: a few directions carry most.", remedy)


def _hubness(test: Numbers) -> Finding | None:
    if "skewness" not in test:
        return None
    text = (
        f"Hubness on unseen classes: skewness {test['skewness']:.1f}; the largest hub is a near "
        f"neighbour {test['largest']:.0f} times as often as an average image, "
        f"{test['orphans']:.0%} of images are never one."
    )
    if test["skewness"] <= HUBS[0]:
        return Finding("hubness", "good", text)
    remedy = (
        "Look at the hubs (odd images, empty backgrounds); whitening or re-ranking of the search "
        "index lowers it."
    )
    return Finding("hubness", "warning" if test["skewness"] > HUBS[1] else "note", text, remedy)


def _gap(train: Numbers, test: Numbers) -> Finding | None:
    if "recall@1" not in train or "recall@1" not in test:
        return None
    seen, unseen = train["recall@1"], test["recall@1"]
    text = f"Recall@1 is {seen:.1%} on training classes and {unseen:.1%} on unseen ones"
    if seen < LEARNED:
        remedy = "Train longer, raise lr, or take a larger (pretrained) backbone."
        return Finding("gap", "warning", f"{text}: the training classes are not learned.", remedy)
    if seen - unseen > GAP:
        remedy = (
            "The classes are learned by heart: more classes or stronger augmentation, fewer epochs "
            "(patience), a frozen prefix, a regularizer (density, horde), or an earlier layer "
            "(descriptor=best)."
        )
        return Finding("gap", "warning", f"{text}: a wide gap.", remedy)
    return Finding("gap", "good", f"{text}: no wide gap.")


def _layer(layers: Numbers, descriptor: str) -> Finding | None:
    if descriptor not in layers:
        return None
    best = max(layers, key=lambda name: layers[name])
    gain = layers[best] - layers[descriptor]
    if gain < BETTER_LAYER:
        return Finding("layer", "good", f"No other layer serves better than {descriptor}.")
    text = (
        f"Layer {best} serves better than {descriptor}: recall@1 {layers[best]:.1%} instead of "
        f"{layers[descriptor]:.1%} on classes it was not trained on."
    )
    return Finding("layer", "note", text, "Train with descriptor=best.")


def _noise(numbers: Numbers, classes: str) -> Finding | None:
    if "label_issues" not in numbers:
        return None
    count = int(numbers["label_issues"])
    if not count:
        return Finding("labels", "good", f"No suspected wrong labels in the {classes} classes.")
    text = (
        f"Neighbours suggest another class for {count:,} of the {classes} images "
        f"({numbers['label_issue_fraction']:.1%})."
    )
    remedy = "Look through them: wrong labels, duplicates across classes, or hard images."
    level: Level = "warning" if numbers["label_issue_fraction"] > NOISY else "note"
    return Finding("labels", level, text, remedy)
