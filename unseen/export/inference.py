"""What is exported: images as they come out of a decoder to vectors as they are compared.

Input is uint8 [N, 3, size, size], RGB; the channels' mean and deviation, the network at the run's
descriptor and the unit length of the vectors are inside. Resizing and cropping are not: `describe`
says how.
"""

from typing import Any

import torch
from torch import Tensor, nn

from unseen.data.images.transforms import SmallEvaluation, UserTransform
from unseen.runs.trained_run import ImageLike, Trained

INPUT, OUTPUT = "images", "vectors"
TOLERANCE = 1e-4


class Inference(nn.Module):
    """The network of a run between its normalisations."""

    def __init__(self, trained: Trained) -> None:
        super().__init__()
        if trained.transform is None:
            raise ValueError(f"{trained.folder.path} was trained on features: export has no use")
        if isinstance(trained.transform, UserTransform):
            raise ValueError(
                f"{trained.folder.path} was trained on tensors of a data set's own transform, "
                "which it does not know: train without one to export"
            )
        self.network = trained.network
        self.normalize = trained.config.evaluation.normalize
        mean, std = (255 * torch.tensor(v) for v in (trained.transform.mean, trained.transform.std))
        self.channel_mean: Tensor  # the exporter confuses `mean` with the operation
        self.channel_std: Tensor
        self.register_buffer("channel_mean", mean.view(3, 1, 1), persistent=False)
        self.register_buffer("channel_std", std.view(3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:  # [N, 3, s, s] -> [N, d]
        scaled = (images.float() - self.channel_mean) / self.channel_std
        vectors: Tensor = self.network(scaled).embeddings
        if not self.normalize:
            return vectors
        return vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True).clamp(min=1e-12)


def inference(trained: Trained) -> Inference:
    """On the CPU, in evaluation mode."""
    return Inference(trained).cpu().eval()


def example(trained: Trained) -> Tensor:  # [2, 3, s, s]
    """What an exporter traces the network with."""
    size = trained.transform.size
    return torch.zeros(2, 3, size, size, dtype=input_dtype(trained))


def input_dtype(trained: Trained) -> torch.dtype:
    """Levels are floats where evaluation resizes without rounding, else 8-bit integers."""
    return torch.float32 if isinstance(trained.transform, SmallEvaluation) else torch.uint8


def as_input(trained: Trained, images: list[ImageLike]) -> Tensor:  # [N, 3, s, s]
    """Images resized and cropped as in evaluation, as levels from 0 to 255."""
    mean, std = (
        torch.tensor(v).view(3, 1, 1) for v in (trained.transform.mean, trained.transform.std)
    )
    levels = torch.stack([255 * (trained.prepared(image) * std + mean) for image in images])
    dtype = input_dtype(trained)
    return levels if dtype.is_floating_point else levels.round().clamp(0, 255).to(dtype)


def describe(trained: Trained) -> dict[str, Any]:
    """How images become the input, in words and numbers that need no code of ours."""
    transform = trained.transform
    size, dtype = transform.size, str(input_dtype(trained)).removeprefix("torch.")
    whole: dict[str, Any] = {"resize": "both sides", "to": size, "crop": None}
    if hasattr(transform, "crop"):  # the others squeeze an image to the size
        squeezes = len(set(transform.crop(300, 200).size)) == 1
        side = min(transform.crop(300, 200).size)
        resize = "both sides" if squeezes else "short side"
        whole = {"resize": resize, "to": side, "crop": f"centre {size} x {size}"}
    kind = getattr(transform, "interpolation", "bilinear")
    return whole | {
        "size": size,
        "interpolation": f"{kind}, antialiased",
        "channels": "RGB",
        "dtype": dtype,
        "input": f"{INPUT}: {dtype} [N, 3, {size}, {size}], 0 to 255",
        "output": f"{OUTPUT}: float32 [N, {trained.network.embedding_size}]",
        "compare": "dot product (unit vectors)"
        if trained.config.evaluation.normalize
        else "distance",
        "inside": {"mean": list(transform.mean), "std": list(transform.std)},
    }


def require_close(difference: float, what: str) -> None:
    """Raises when an exported model does not say what PyTorch says."""
    if not difference <= TOLERANCE:
        raise ValueError(
            f"{what} differs from PyTorch by {difference:.2g}, more than {TOLERANCE:g}: not kept"
        )
