"""What Vo and Hays claim of layers: which is higher, on which classes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from unseen.models.network import EMBEDDING, POOLED
from unseen.reproductions.claims import Claim
from unseen.reproductions.effects import BySeed, Finding, less, of_seeds
from unseen.reproductions.numbers import table
from unseen.reproductions.published_study import Evidence
from unseen.studies.results import Results
from unseen.studies.validity_checks import MethodRuns

NETS = {f"Net{letter.upper()}": f"net_{letter}" for letter in "abcdef"}
CLASSIFIED = "NetA, classification"
FRACTIONS = {  # NetA by the part of the training classes it is trained on -> the part that selects
    "NetA, 1/8 of the classes": 0.875, "NetA, 1/4 of the classes": 0.75,
    "NetA, 1/2 of the classes": 0.5, "NetA, 9/10 of the classes": 0.1,
}  # fmt: skip
CONVOLUTIONS = [f"pool{block}.{place}" for block, count in enumerate((2, 2, 3, 3, 3), start=1)
                for place in range(1, count + 1)]  # fmt: skip
BEFORE, HEADS = "pool5.3", ("fc6", "fc7", "fc8")
RATES = ("train", "test")
HIGHER = table("vo_hays_claims")  # which layer is to be higher; gap: training less test classes
ALIKE = {"V17": 2.0}  # points within which a claim calls two layers alike: ours, none is printed
OFF = {"pool5.3": ("NetD", "NetA"), "fc6": ("NetA", "NetE"), "fc7": ("NetE", "NetF")}
ByRun = Mapping[str, Any]  # key of a run -> what `measure` says of it
Place = tuple[str, str, str]  # net, layer, split
Recalls = Mapping[Place, BySeed]  # in percent


def claims(evidence: Evidence) -> list[Claim]:
    nets, measured = evidence.results["layers_nets"], evidence.measured
    ours, before = (recalls_of(nets, measured, at) for at in ("trained", "start"))
    theirs: Recalls = {key: {(0, 0): value} for key, value in published(evidence.data).items()}
    by_claim: dict[str, list[Finding]] = {}
    for row in HIGHER:
        name, split, net, layer, other_net, other_layer = map(str, row.values())
        pair = ((net, layer, split), (other_net, other_layer, split))
        sides = [MethodRuns(nets, "", each) for each in (other_net, net)]
        title = f"{split}: {net} {layer} over {other_net} {other_layer}"
        known = _ahead(theirs, *pair).get((0, 0), math.nan)
        finding = of_seeds(title, _ahead(ours, *pair), sides, known)
        by_claim.setdefault(name, []).append(replace(finding, alike=ALIKE.get(name, 0.0)))
        if name == "V01":
            values = _ahead(before, *pair)
            by_claim[name].append(of_seeds(f"{title}, before training", values, sides))
    return [
        *(Claim(name, findings) for name, findings in by_claim.items()),
        Claim("V16", _one_layer_off(nets, ours)),
        Claim("V20", _by_classes(evidence.results["layers_classes"], measured)),
        Claim("V23", _foreign(evidence)),
    ]


def _one_layer_off(nets: Results, ours: Recalls) -> list[Finding]:
    """What a layer gains where the loss sits one layer later instead of on it."""
    gains = {layer: _ahead(ours, (later, layer, "test"), (on, layer, "test"))
             for layer, (on, later) in OFF.items()}  # fmt: skip
    sides = {layer: [MethodRuns(nets, "", net) for net in pair] for layer, pair in OFF.items()}
    first, second, last = OFF
    smaller = of_seeds(f"gain of {first} less that of {second}", less(gains[first], gains[second]),
                       [*sides[first], *sides[second]])  # fmt: skip
    none = of_seeds(f"gain of {last}", gains[last], sides[last])
    return [smaller, replace(none, alike=ALIKE["V17"])]


def _by_classes(results: Results, measured: ByRun) -> list[Finding]:
    """How the gain of the earlier layer changes with the number of training classes."""
    ours = recalls_of(results, measured)
    gains = {net: _ahead(ours, (net, BEFORE, "test"), (net, HEADS[0], "test"))
             for net in results.methods()}  # fmt: skip
    *few, most = gains
    return [
        of_seeds(f"{BEFORE} over {HEADS[0]}: {most} less {net}", less(gains[most], gains[net]),
                 [MethodRuns(results, "", each) for each in (net, most)], expected=-1)
        for net in few
    ]  # fmt: skip


def _foreign(evidence: Evidence) -> list[Finding]:
    results, printed = evidence.results["layers_foreign"], _published_foreign(evidence.data)
    ours = recalls_of(results, evidence.measured)
    return [
        of_seeds(f"{model}, layer before the output over it",
                 _ahead(ours, (model, BEFORE, "test"), (model, "output", "test")),
                 [MethodRuns(results, "", model)], printed.get(model, math.nan))
        for model in results.methods()
    ]  # fmt: skip


def named_layers(rows: Sequence[Mapping[str, Any]], net: str) -> dict[str, Mapping[str, Any]]:
    """Layers by the paper's names, each once: the last map pooled is pool5.3, and so is the
    embedding of NetD. A network of other blocks keeps their names."""
    names = [row["layer"] for row in rows]
    place = names.index(POOLED)
    blocks = CONVOLUTIONS if place == len(CONVOLUTIONS) else names[:place]
    if blocks is not CONVOLUTIONS and place > 1:  # the one before the last stands for pool5.2
        blocks = [*names[: place - 2], "pool5.2", names[place - 1]]
    result = dict(zip(blocks[:-1], rows[: place - 1], strict=True)) | {BEFORE: rows[place]}
    if net == "NetD":
        return result
    if net not in (*NETS, CLASSIFIED, *FRACTIONS):
        return result | {"output": rows[-1]}
    return result | dict(zip(HEADS, rows[place + 1 :], strict=False))


def recalls_of(results: Results, measured: ByRun, at: str = "trained") -> Recalls:
    """pool5.3 and the last layer at equal size."""
    recalls: dict[Place, dict[tuple[int, int], float]] = {}
    for run in results.runs:
        outcome = measured.get(run.planned.key)
        if outcome is None or run.state != "done":
            continue
        net = run.planned.labels[results.plan.compared]
        layers = named_layers(outcome["layers"], net)
        last = list(layers)[-1]
        for split in RATES:
            known = {name: row[split] for name, row in layers.items()} if at == "trained" else {}
            equal = outcome["equal"][at][split]
            known |= {BEFORE: equal[BEFORE]} | ({last: equal[EMBEDDING]} if last != BEFORE else {})
            for name, value in known.items():
                recalls.setdefault((net, name, split), {})[run.replicate] = 100 * value
    return recalls


def _ahead(recalls: Recalls, first: Place, second: Place) -> BySeed:
    """What a layer has over another one, by seed."""
    return less(_side(recalls, first), _side(recalls, second))


def _side(recalls: Recalls, place: Place) -> BySeed:
    net, layer, split = place
    if split != "gap":
        return recalls.get(place, {})
    train, test = (recalls.get((net, layer, each), {}) for each in RATES)
    return less(train, test)


def published(data: str) -> dict[Place, float]:
    """Net, layer, split -> percent, of tables 2 and 3."""
    result = {
        (str(r["net"]), str(r["layer"]), "test"): value
        for r in table("vo_hays_table2")
        if isinstance(value := r.get(data), float)
    }
    layers = {"output": "fc6", "penultimate": BEFORE}
    for row in table("vo_hays_table3"):
        value = row.get(f"{data}_train")
        if row["model"] == "NetA" and isinstance(value, float):
            result["NetA", layers[str(row["layer"])], "train"] = value
    return result


def _published_foreign(data: str) -> dict[str, float]:
    """Model -> what the layer before the output has over it on test classes."""
    values: dict[str, dict[str, float]] = {}
    for row in table("vo_hays_table3"):
        value = row.get(f"{data}_test")
        if isinstance(value, float):
            title = str(row["model"]).replace("lifted-", "lifted structure, ")
            values.setdefault(title, {})[str(row["layer"])] = value
    return {
        model: each["penultimate"] - each["output"]
        for model, each in values.items()
        if {"penultimate", "output"} <= each.keys()
    }
