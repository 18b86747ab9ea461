"""What Vo and Hays claim of layers: which is higher, on which classes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from unseen.models.network import EMBEDDING, POOLED
from unseen.reproductions.claims import Claim, mean_finding
from unseen.reproductions.numbers import table
from unseen.reproductions.request import Ask
from unseen.studies.results import Results

NETS = {f"Net{letter.upper()}": f"net_{letter}" for letter in "abcdef"}
CLASSIFIED = "NetA, classification"
CONVOLUTIONS = [f"pool{block}.{place}" for block, count in enumerate((2, 2, 3, 3, 3), start=1)
                for place in range(1, count + 1)]  # fmt: skip
BEFORE, HEADS = "pool5.3", ("fc6", "fc7", "fc8")
RATES = ("train", "test")
CLAIMS: dict[str, Sequence[str]] = {  # which is to be higher; gap: training less test classes
    "V01": ["test: NetA pool5.3 > NetA fc6"],
    "V02": ["train: NetA fc6 > NetA pool5.3"],
    "V03": ["gap: NetA fc6 > NetA pool5.3"],
    "V04": ["train: NetA pool5.3 > NetA pool5.2", "train: NetA fc6 > NetA pool5.3"],
    "V05": [f"train: {CLASSIFIED} {layer} > NetA {layer}" for layer in ("pool5.3", "fc6")],
    "V06": [f"test: NetA {layer} > {CLASSIFIED} {layer}" for layer in ("pool5.3", "fc6")],
    "V07": [f"test: {CLASSIFIED} pool5.2 > {CLASSIFIED} fc6"],
    "V08": ["test: NetB pool5.3 > NetB fc6"],
    "V09": ["test: NetB pool5.3 > NetA fc6"],
    "V10": ["test: NetB pool5.2 > NetA pool5.2"],
    "V11": ["test: NetB pool5.3 > NetB pool5.2"],
    "V12": ["test: NetA pool5.3 > NetB pool5.3", "test: NetB pool5.3 > NetC pool5.3"],
    "V13": ["test: NetA pool5.3 > NetD pool5.3"],
    "V14": ["train: NetD pool5.3 > NetA pool5.3"],
    "V15": ["test: NetE fc6 > NetA fc6"],
    "V18": ["test: NetA fc6 > NetD pool5.3"],
    "V19": ["test: NetE pool5.3 > NetE fc6", "test: NetE fc6 > NetE fc7"],
    "V21": ["test: NetA pool5.3 > NetE pool5.3"],
}
ByRun = Mapping[str, Any]  # key of a run -> what `measure` says of it
Recalls = dict[tuple[str, str, str], dict[int, float]]  # net, layer, split -> seed -> percent


def claims(ask: Ask, results: Mapping[str, Results], measured: dict[str, Any]) -> list[Claim]:
    ours = recalls_of(results["layers_nets"], measured)
    before = recalls_of(results["layers_nets"], measured, "start")
    theirs = {key: {0: value} for key, value in published(ask).items()}
    claims = []
    for name, texts in CLAIMS.items():
        findings = [
            mean_finding(text, _differences(ours, text), first_of(_differences(theirs, text)))
            for text in texts
        ]
        if name == "V01":
            text = texts[0]
            start = mean_finding(f"{text}, before training", _differences(before, text))
            findings.append(start)
        claims.append(Claim(name, findings))
    foreign = results["layers_foreign"]
    own = recalls_of(foreign, measured)
    outputs = [
        mean_finding(f"{model}, layer before the output over it", [
            own[model, BEFORE, "test"][seed] - value
            for seed, value in own.get((model, "output", "test"), {}).items()
        ], _published_foreign(ask).get(model, math.nan))
        for model in foreign.methods()
    ]  # fmt: skip
    return [*claims, Claim("V23", outputs)]


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
    if net not in (*NETS, CLASSIFIED):
        return result | {"output": rows[-1]}
    return result | dict(zip(HEADS, rows[place + 1 :], strict=False))


def recalls_of(results: Results, measured: ByRun, at: str = "trained") -> Recalls:
    """By net, layer, split and seed; pool5.3 and the last layer at equal size."""
    recalls: Recalls = {}
    for run in results.runs:
        outcome = measured.get(run.planned.key)
        if outcome is None:
            continue
        net = run.planned.labels[results.plan.compared]
        layers = named_layers(outcome["layers"], net)
        last = list(layers)[-1]
        for split in RATES:
            known = {name: row[split] for name, row in layers.items()} if at == "trained" else {}
            equal = outcome["equal"][at][split]
            known |= {BEFORE: equal[BEFORE]} | ({last: equal[EMBEDDING]} if last != BEFORE else {})
            for name, value in known.items():
                recalls.setdefault((net, name, split), {})[run.replicate[0]] = 100 * value
    return recalls


def _differences(recalls: Recalls, text: str) -> list[float]:
    """What a line of `CLAIMS` says, by seed."""
    split, _, sides = text.partition(": ")
    values = [_side(recalls, side, split) for side in sides.split(" > ")]
    return [values[0][seed] - values[1][seed] for seed in values[0].keys() & values[1].keys()]


def _side(recalls: Recalls, side: str, split: str) -> dict[int, float]:
    net, _, layer = side.rpartition(" ")
    if split != "gap":
        return recalls.get((net, layer, split), {})
    train, test = (recalls.get((net, layer, each), {}) for each in RATES)
    return {seed: train[seed] - test[seed] for seed in train.keys() & test.keys()}


def first_of(values: Sequence[float]) -> float:
    return values[0] if values else math.nan


def published(ask: Ask) -> dict[tuple[str, str, str], float]:
    """Net, layer, split -> percent, of tables 2 and 3."""
    data = ask.published_data
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


def _published_foreign(ask: Ask) -> dict[str, float]:
    """Model -> what the layer before the output has over it on test classes."""
    values: dict[str, dict[str, float]] = {}
    for row in table("vo_hays_table3"):
        value = row.get(f"{ask.published_data}_test")
        if isinstance(value, float):
            title = str(row["model"]).replace("lifted-", "lifted structure, ")
            values.setdefault(title, {})[str(row["layer"])] = value
    return {
        model: each["penultimate"] - each["output"]
        for model, each in values.items()
        if {"penultimate", "output"} <= each.keys()
    }
