"""What `unseen train` does, from Python: a run folder, a score on unseen classes, vectors.

python examples/07_a_whole_run_from_python.py
"""

import tempfile
from pathlib import Path

import unseen

few = {"name": "glyphs", "max_classes": 40, "size": 32}
margin = {"name": "margin", "preset": "revisit"}

with tempfile.TemporaryDirectory() as folder:
    run = unseen.fit(few, loss=margin, epochs=2, out=Path(folder) / "run")
    print(run)
    print(f"recall@1 {run.scores.loc['trained', 'recall@1']:.3f}")
    image = unseen.data.Glyphs(max_classes=40, size=32).image(0)
    print("one image as a vector of", run.embed([image]).shape[1], "numbers")
