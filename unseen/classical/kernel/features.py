"""Kernel features: any linear metric becomes a non-linear one on the principal components of a
kernel (kernel PCA), where the kernel's distances are Euclidean.

scikit-learn does the work. A Gaussian kernel without a width takes 1 over the median squared
distance of the items.
"""

import torch
from sklearn.decomposition import KernelPCA
from torch import Tensor

from unseen.core.geometry import squared_distance

KERNELS = ("gaussian", "polynomial")


class KernelFeatures:
    """kernel: gaussian or polynomial. size: components kept. width: of the Gaussian, exp(-width
    d^2). landmarks: items the components are fitted on, chosen at random by `seed`."""

    def __init__(
        self,
        kernel: str = "gaussian",
        size: int = 128,
        width: float | None = None,
        landmarks: int = 2000,
        seed: int = 0,
    ) -> None:
        if kernel not in KERNELS:
            raise ValueError(f"kernel must be one of {', '.join(KERNELS)}, got {kernel!r}")
        if size < 1 or landmarks < size:
            raise ValueError(
                f"size must be at least 1 and landmarks no fewer, got {size} and {landmarks}"
            )
        self.kernel, self.size, self.width = kernel, size, width
        self.landmarks, self.seed = landmarks, seed

    def fit(self, features: Tensor) -> "KernelFeatures":  # [N, D]
        """Components of a random part of the items."""
        generator = torch.Generator().manual_seed(self.seed)
        chosen = torch.randperm(len(features), generator=generator)[: self.landmarks]
        landmarks = features[chosen.to(features.device)].double()
        width = self.width or 1 / squared_distance(landmarks).median().clamp(min=1e-12).item()
        name = {"gaussian": "rbf", "polynomial": "poly"}[self.kernel]
        self.components = KernelPCA(self.size, kernel=name, gamma=width, random_state=self.seed)
        self.components.fit(landmarks.cpu().numpy())
        return self

    def transform(self, features: Tensor) -> Tensor:  # [N, D] -> [N, size]
        moved = self.components.transform(features.double().cpu().numpy())
        return torch.from_numpy(moved).to(features)
