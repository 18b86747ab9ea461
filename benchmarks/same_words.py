"""What `same_runs.py` uses of the project: its keys, names, modules and files, and the runs."""

from pathlib import Path
from typing import Any

Json = dict[str, Any]

CACHE = "UNSEEN_CACHE"  # environment variable of the folder for caches
STEP = ("unseen.training.trainer", "Trainer", "_backward")  # (batch) -> terms of the loss
INDICES, TOTAL = "indices", "total"  # of a batch; of the terms
CHECKPOINTS = ("unseen.runs.callbacks", "SECONDS_BETWEEN_CHECKPOINTS")
CATALOGUE, SAMPLERS = "unseen.core.registry", "samplers"  # .names(kind)
NAMED = {  # samplers -> what recordings call them; `domains` has the one that needs several
    "distance_matching": "sampler 1",
    "frechet_matching": "sampler 2",
    "greedy_coreset": "sampler 3",
    "hard_neighbors": "sampler 4",
    "random": "sampler 5",
    "random_with_pair": "sampler 6",
    "m_per_class": "sampler 7",
    "whole_classes": "sampler 8",
    "by_domain": "",
}

EVENT_LOG, VALIDATION = "events.jsonl", "validation"
EVENT, STEP_EVENT, TERMS = "event", "step", "terms"  # of a line of it
RESULT, SCORES = "result.json", "scores"
WEIGHTS, LOSS_WEIGHTS = "weights.safetensors", "objective.safetensors"
EMBEDDINGS, VECTORS, PER_QUERY = "embeddings/test.npz", "embeddings", "embeddings/per_query.npz"
ROWS = {  # rows and metrics of the per-query values -> what recordings call them
    "trained": "row a",
    "untrained": "row b",
    "principal": "row c",
    "pixels": "row d",
    "features": "row e",
    "recall@1": "metric 1",
    "recall@2": "metric 2",
    "recall@4": "metric 3",
    "recall@8": "metric 4",
    "map_at_r": "metric 5",
    "r_precision": "metric 6",
    "nmi": "metric 7",
}

GLYPHS = {"name": "glyphs", "max_classes": 30, "size": 16}
COMMON: Json = {
    "seed": 5,  # not the default: a seed that does not reach a component would show
    "device": "cpu",
    "threads": 1,
    "workers": 0,
    "cpu_processes": 1,
    "embedding_size": 16,
    "batch_size": 16,
    "epochs": 2,
}
STEPS = {"sampler": {"name": "m_per_class", "per_class": 4, "steps": 8}}
LITE = COMMON | STEPS | {"backbone": "efficientnet_lite0", "image_size": 32}
LAST = {"name": "last_layers", "freeze_until": "blocks.5", "epochs": 2, "lr": 0.003}
WHOLE = {"name": "full", "freeze_until": "none", "epochs": 1, "loss": "proxy_anchor"}
WHOLE |= {"miner": "none"}
HORDE = {"name": "horde", "dimension": 64, "num_orders": 3}
DOMAINS = {"name": "by_domain", "per_class": 4, "steps": 8}
RUNS: dict[str, tuple[Any, Json]] = {  # name -> data, settings
    "default loss": (GLYPHS, COMMON | STEPS),
    "horde": (GLYPHS, COMMON | STEPS | {"regularizers": [HORDE], "loss": "margin"}),
    "density": (GLYPHS, COMMON | STEPS | {"regularizers": [{"name": "density", "weight": 0.5}]}),
    "mixup": (GLYPHS, COMMON | STEPS | {"manifold_mixup": True, "loss": "proxy_anchor"}),
    "activations": ("images", LITE | {"freeze_until": "blocks.4", "cached_augmentations": 2}),
    "adapter": ("images", LITE | {"adapter": {"name": "lora", "rank": 2}}),
    "stages": ("images", LITE | {"freeze_until": "pooled", "stages": [LAST, WHOLE]}),
    "features": (
        "arrays",
        COMMON | {"lr": 0.02, "loss": "triplet", "label_noise": 0.2, "refit": True},
    ),
    "several": (
        GLYPHS,
        COMMON | STEPS | {"loss": "margin", "memory": {"size": 30}, "ema": 0.9},
    ),
    "domains": ("domains", COMMON | {"image_size": 16, "sampler": DOMAINS}),
}


def sampler_settings(name: str) -> Json:
    return COMMON | {"lr": 0.02, "sampler": {"name": name}}


def study_plan(features: Path) -> Json:
    settings = COMMON | {"data": {"name": "arrays", "root": str(features)}}
    settings = {k: v for k, v in settings.items() if k not in ("seed", "threads", "workers")}
    search = {
        "mode": "tpe",
        "trials": 3,
        "seed": 2,
        "parameters": [
            {"key": "lr", "low": 0.0005, "high": 0.02, "log": True},
            {"key": "head.dropout", "low": 0.0, "high": 0.5},
        ],
    }
    factors = {"loss": ["contrastive", "proxy_anchor"]}
    return {"name": "two", "seeds": [1, 2], "config": settings, "factors": factors} | {
        "search": search
    }


def fitted(data: Any, out: Path, settings: Json) -> Any:
    import unseen

    return unseen.fit(data, out=out, progress=False, **settings)


def studied(plan: Json, out: Path) -> list[Path]:
    """The folders of all runs, those of the search first."""
    import unseen

    results = unseen.study(plan, out, jobs=1)
    runs = [*results.searches, *results.runs]
    assert all(run.state in ("done", "pruned") for run in runs), [run.error for run in runs]
    return [run.folder for run in runs]


def searched(run: Any, images: Path, out: Path) -> dict[str, Any]:
    """Ids and similarities of the nearest ten of 50 images."""
    index = run.index(images, out)
    result = index.search(run.embed(sorted(images.rglob("*.png"))[:50]), 10)
    return {"ids": result.ids, "similarities": result.similarities}
