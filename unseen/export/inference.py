"""What is exported: pictures as they come out of a decoder to vectors as they are compared.

Input is uint8 [N, 3, size, size], RGB; the channels' mean and deviation, the network at the run's
descriptor and the unit length of the vectors are inside. Resizing and cropping are not: `describe`
says how.
"""

from typing import Any

import torch
from torch import Tensor, nn

from unseen.experiment.trained import Picture, Trained

INPUT, OUTPUT = "pictures", "vectors"
TOLERANCE = 1e-4


class Inference(nn.Module):
    """The network of a run between its normalisations."""

    def __init__(self, trained: Trained) -> None:
        super().__init__()
        if trained.transform is None:
            raise ValueError(f"{trained.folder.path} was trained on features: export has no use")
        self.network = trained.network
        self.normalise = trained.config.normalise
        mean, std = (255 * torch.tensor(v) for v in (trained.transform.mean, trained.transform.std))
        self.channel_mean: Tensor  # the exporter confuses `mean` with the operation
        self.channel_std: Tensor
        self.register_buffer("channel_mean", mean.view(3, 1, 1), persistent=False)
        self.register_buffer("channel_std", std.view(3, 1, 1), persistent=False)

    def forward(self, pictures: Tensor) -> Tensor:  # uint8 [N, 3, s, s] -> [N, d]
        images = (pictures.float() - self.channel_mean) / self.channel_std
        vectors: Tensor = self.network(images).embeddings
        if not self.normalise:
            return vectors
        return vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True).clamp(min=1e-12)


def inference(trained: Trained) -> Inference:
    """On the CPU, in evaluation mode."""
    return Inference(trained).cpu().eval()


def example(trained: Trained, count: int = 2) -> Tensor:  # uint8 [N, 3, s, s]
    """Grey noise of the right shape."""
    size = trained.transform.size
    generator = torch.Generator().manual_seed(0)
    shape = (count, 3, size, size)
    return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)


def as_input(trained: Trained, pictures: list[Picture]) -> Tensor:  # uint8 [N, 3, s, s]
    """Pictures resized and cropped as in evaluation, in 8 bits."""
    mean, std = (
        torch.tensor(v).view(3, 1, 1) for v in (trained.transform.mean, trained.transform.std)
    )
    made = [255 * (trained.prepared(picture) * std + mean) for picture in pictures]
    return torch.stack(made).round().clamp(0, 255).to(torch.uint8)


def describe(trained: Trained) -> dict[str, Any]:
    """How pictures become the input, in words and numbers that need no code of ours."""
    transform = trained.transform
    size = transform.size
    whole: dict[str, Any] = {"resize": "both sides", "to": size, "crop": None}
    if hasattr(transform, "crop"):  # the others squeeze a picture to the size
        squeezes = len(set(transform.crop(300, 200).size)) == 1
        side = min(transform.crop(300, 200).size)
        resize = "both sides" if squeezes else "short side"
        whole = {"resize": resize, "to": side, "crop": f"centre {size} x {size}"}
    kind = "Lanczos" if getattr(transform, "lanczos", False) else "bilinear"
    return whole | {
        "size": size,
        "interpolation": f"{kind}, antialiased",
        "channels": "RGB",
        "input": f"{INPUT}: uint8 [N, 3, {size}, {size}], 0 to 255",
        "output": f"{OUTPUT}: float32 [N, {trained.network.embedding_size}]",
        "compare": "dot product (unit vectors)" if trained.config.normalise else "distance",
        "inside": {"mean": list(transform.mean), "std": list(transform.std)},
    }


def require_close(difference: float, what: str) -> None:
    """Raises when an exported model does not say what PyTorch says."""
    if not difference <= TOLERANCE:
        raise ValueError(
            f"{what} differs from PyTorch by {difference:.2g}, more than {TOLERANCE:g}: not kept"
        )
