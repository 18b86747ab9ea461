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
    print(f"recall@1 {run.scores['recall@1']:.3f}")
    picture = unseen.data.Glyphs(max_classes=40, size=32).picture(0)
    print("one picture as a vector of", run.embed([picture]).shape[1], "numbers")
