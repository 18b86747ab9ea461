"""What `unseen train` does, from Python: settings, a run folder, a score on unseen classes.

python examples/07_a_whole_run_from_python.py
"""

import tempfile
from pathlib import Path

import unseen
from unseen import config as configs
from unseen.experiment.run import train_and_judge
from unseen.experiment.setting import prepare

words = ["data.max_classes=40", "data.size=32", "epochs=2", "loss=margin", "loss.preset=revisit"]
setting = prepare(configs.make(configs.override({}, words)))
for reason in setting.reasons:
    print(reason)

with tempfile.TemporaryDirectory() as folder:
    result = train_and_judge(setting, Path(folder) / "run", "examples/07")
    for name, score in result["scores"].items():
        print(f"{name}: recall@1 {score['metrics']['recall@1']['value']:.3f}")
    trained = unseen.load(Path(folder) / "run")
    picture = setting.dataset.picture(0)
    print("one picture as a vector of", trained.embed([picture]).shape[1], "numbers")
