"""Batch inference as Ray Data's documents advise: read_images, an actor pool, write_parquet.

python benchmarks/plain_ray.py RUN IMAGES OUT
"""

import sys

import ray
import torch

import unseen

run, images, out = sys.argv[1:]


class Embedder:
    def __init__(self) -> None:
        self.trained = unseen.load(run)

    def __call__(self, batch: dict) -> dict:
        pixels = torch.from_numpy(batch.pop("image")).permute(0, 3, 1, 2)
        images = self.trained.transform.on_pixels(pixels)
        batch["vector"] = self.trained.vectors(images).numpy()
        return batch


ray.init(num_cpus=2, object_store_memory=1 << 30, include_dashboard=False, log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False
result = ray.data.read_images(images, mode="RGB", include_paths=True, file_extensions=["jpg"])
pool = ray.data.ActorPoolStrategy(size=2)
vectors = result.map_batches(Embedder, batch_size=128, num_cpus=0.5, compute=pool)
vectors.write_parquet(out)
