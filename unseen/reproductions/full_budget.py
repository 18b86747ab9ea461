"""What the full budget of a published study needs: data, memory and time on a GPU, a line a plan.

    for line in needs(find("losses"), Ask("cub200", "full")): print(line)

Memory   of the largest run: weights, gradients, the two moments of Adam, and what the forward pass
         keeps for the backward pass, counted on the CPU (`activation_size.py`); float32. Losses,
         regularizers and the heads of ensembles are not counted
Time     3 x the operations of a forward pass for every image of every step, twice with a refit, at
         10 TFLOP/s: an assumption, for nothing of it was executed on CUDA; without evaluation
"""

from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from unseen.config import schema as configs
from unseen.core import registry
from unseen.models.activation_size import bytes_per_image
from unseen.models.backbone import create_backbone
from unseen.reproductions.published_study import PublishedStudy
from unseen.reproductions.request import Ask
from unseen.studies.study_file import Plan, Values
from unseen.studies.tuning import tuning_runs

TERAFLOPS, COPIES = 10, 4  # weights, gradients and two moments


def needs(study: PublishedStudy, ask: Ask) -> list[str]:
    return [_need(plan, ask) for plan in study.plans(ask)]


def _need(plan: Plan, ask: Ask) -> str:
    images = registry.find("data", ask.set_up_data).expected.train
    runs, memory, seconds = 0, 0.0, 0.0
    for configuration in plan.configurations():
        config = configs.make(configuration.values).flat()
        folds = config["folds"] if config["protocol"] == "k_fold" else 1
        searched = len(tuning_runs(plan, configuration))
        weights, operations = _size(config["backbone"], config["image_size"])
        saved = bytes_per_image(config["backbone"], config["image_size"], config["frozen_bn"])
        memory = max(memory, 4 * COPIES * weights + config["batch_size"] * saved)
        count = len(plan.seeds) * folds + searched
        passes = 3 * (1 + bool(config["refit"])) * _images_of(config, images)
        runs, seconds = runs + count, seconds + count * passes * operations / (1e12 * TERAFLOPS)
    return (
        f"{plan.name}: {ask.set_up_data} ({images:,} training images), {runs} runs, "
        f"{memory / 1e9:.0f} GB, about {seconds / 3600:,.0f} GPU hours"
    )


def _images_of(config: Values, images: int) -> int:
    """That a run is trained on, over all epochs."""
    steps = config["sampler"].get("steps") or images // config["batch_size"]
    return int(config["epochs"] * steps * config["batch_size"])


@cache
def _size(backbone: str, image_size: int) -> tuple[int, int]:
    """Weights, and operations of a forward pass of one image."""
    network = create_backbone(backbone, image_size).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, 3, image_size, image_size))
    return sum(each.numel() for each in network.parameters()), counter.get_total_flops()
