"""A sampler makes whole batches, says what it covers, and goes on exactly after a stop.

python examples/04_batches_that_cover_every_class.py
"""

import numpy as np

from unseen import samplers

labels = np.repeat(np.arange(30), 5)  # 30 classes of 5 items
sampler = samplers.MPerClassSampler(np.arange(150), labels, batch_size=12, per_class=3)

sampler.set_epoch(0)
first = next(iter(sampler))
print("first batch:", first)
print("its classes:", sorted({int(labels[i]) for i in first}))
for name, value in sampler.describe().items():
    print(f"{name}: {value}")
