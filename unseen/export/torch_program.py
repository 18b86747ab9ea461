"""A torch.export program of a run: opens with torch alone, `torch.export.load(FILE).module()`."""

import warnings
from pathlib import Path

import torch
from torch import Tensor

from unseen.core.files import replacing
from unseen.export.inference import example, inference, require_close
from unseen.runs.trained_run import Trained


def write_program(trained: Trained, out: Path, images: Tensor) -> float:
    """Writes the file if it says what PyTorch says; returns the largest difference on `images`
    [N, 3, s, s] uint8."""
    module = inference(trained)
    with replacing(out) as aside:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporter, about itself
            shapes = ({0: torch.export.Dim("batch", min=1)},)
            program = torch.export.export(module, (example(trained),), dynamic_shapes=shapes)
            torch.export.save(program, str(aside))
            opened = torch.export.load(str(aside)).module()
        with torch.inference_mode():
            expected = module(images)
            parts = [(opened(images), expected), (opened(images[:1]), expected[:1])]
        difference = max(float((made - known).abs().max()) for made, known in parts)
        require_close(difference, "the torch program")
    return difference
