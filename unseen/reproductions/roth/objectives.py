"""The objectives of Roth et al. 2020 by their published names, and their published scores.

Values are those of their paper (`preset = "revisit"`). In short runs class parameters learn at
`CLASS_LR`: their rates are for 150 epochs and would leave proxies where they started.
"""

import re

from unseen.reproductions.numbers import as_number, rows_of
from unseen.reproductions.source_values import THREE, Each
from unseen.studies.study_file import Values

NODES = Each(cub200={}, cars196={}, online_products={"nodes": 11})  # of the histogram loss
CLASS_LR = 1e-2
UNTRAINED = "Imagenet"  # the source's name of the network before training
COLUMNS = {"recall@1": "r1", "recall@2": "r2", "f1": "f1", "revisit_map": "map", "nmi": "nmi"}


def objectives(is_short: bool = True, data: str = "cub200") -> dict[str, Values]:
    """Published name -> settings on one of their data sets; without the switch."""
    of_classes = {"lr": CLASS_LR} if is_short else {}
    triplet, distance = _loss("triplet"), _miner("distance_weighted")
    return {
        "Angular": _loss("angular"),
        "ArcFace": _loss("arcface", **of_classes),
        "Contrastive (D)": _loss("contrastive") | distance,
        "GenLifted": _loss("generalized_lifted"),
        "Histogram": _loss("histogram", **NODES.of(data)),
        "Multisimilarity": _loss("multi_similarity"),
        "Margin (D, beta = 0.6)": _loss("margin", beta=0.6) | distance,
        "Margin (D, beta = 1.2)": _loss("margin", beta=1.2) | distance,
        "Npair": _loss("n_pair"),
        "ProxyNCA": _loss("proxy_nca", **of_classes),
        "Quadruplet (D)": _loss("quadruplet") | distance,
        "SNR (D)": _loss("snr") | distance,
        "SoftTriple": _loss("soft_triple", **of_classes),
        "Softmax": _loss("normalized_softmax", **of_classes),
        "Triplet (D)": triplet | distance,
        "Triplet (R)": triplet | _miner("random"),
        "Triplet (S)": triplet | _miner("semi_hard"),
        "Triplet (H)": triplet | _miner("soft_hard"),
    }


def switched(data: str, is_short: bool = True) -> dict[str, tuple[str, Values]]:
    """Published name with the rho switch on one of their data sets (CUB-200 for any other) -> (its
    name without, settings): "R-SNR (D, p = 0.3)" -> "SNR (D)" with the chance they took there."""
    known = objectives(is_short, data)
    return {
        tidy(str(row["approach"])): (
            plain,
            with_switch(known[plain], float(as_number(row["chance"]))),
        )
        for row in rows_of("revisit_objectives", data if data in THREE else THREE[0])
        if (plain := str(row["plain"] or ""))
    }


def with_switch(settings: Values, chance: float) -> Values:
    return settings | {"miner": settings["miner"] | {"switch": chance}}


def published(data: str) -> dict[str, dict[str, float]]:
    """Approach -> metric -> percent, of one of their data sets; the untrained row as ours is
    called."""
    result = {
        tidy(str(row["approach"])): {
            metric: value
            for metric, column in COLUMNS.items()
            if isinstance(value := row[column], float)
        }
        for row in rows_of("revisit_objectives", data)
    }
    return result | {"untrained": result.get(UNTRAINED, {})}


def tidy(name: str) -> str:
    """A published name without the blanks before its signs: "(D, beta = 0.6 )" -> "0.6)"."""
    return re.sub(r" +([,)])", r"\1", name)


def _loss(name: str, **values: float) -> Values:
    return {"loss": {"name": name, "preset": "revisit"} | values}


def _miner(name: str) -> Values:
    return {"miner": {"name": name, "preset": "revisit"}}
