"""A bundle: a folder with everything somebody needs to use a run, in formats of other people.

    weights.safetensors   config.toml   preprocessing.json   calibration.json (threshold, rates)
    load_image.py         an image file to the input of both programs, as the toolkit does it
    model.pt2             runs with torch alone              result.json (scores)
    model.onnx            runs with onnxruntime alone (if the `onnx` extra is installed)
    README.md             the model card: what it is, on what it was evaluated, how to call it

It is made aside and renamed: a folder of that name is whole.
"""

import hashlib
import importlib.util
import re
import shutil
from pathlib import Path

from torch import Tensor

from unseen.core.files import new_folder
from unseen.data.images import load_image
from unseen.evaluation.calibration import Calibration
from unseen.export.agreement import EXAMPLE, agreement
from unseen.export.inference import INPUT, OUTPUT, describe
from unseen.export.onnx_file import write_onnx
from unseen.export.torch_program import write_program
from unseen.reports.score_tables import incomplete
from unseen.runs.calibrate_run import read_calibration
from unseen.runs.trained_run import Trained
from unseen.training.nested import row_at
from unseen.training.result import Result, result_of
from unseen.training.run_folder import RunFolder

LOADER = Path(load_image.__file__)


def write_bundle(trained: Trained, out: Path, images: Tensor) -> tuple[dict[str, float], float]:
    """Writes the folder; returns the largest difference from PyTorch of each program in it, and the
    smallest cosine between the vectors that its code and `Trained.embed` make of image files."""
    if out.exists():
        raise ValueError(f"{out} exists already: choose another folder")
    with new_folder(out) as aside:
        made = RunFolder(aside)
        made.write_text("config.toml", trained.config.to_toml())  # of stages, the kept stage's
        for name in ("weights.safetensors", "result.json"):
            if trained.folder.file(name).exists():
                shutil.copyfile(trained.folder.checked(name), aside / name)
        made.write_json("preprocessing.json", describe(trained))
        calibration = read_calibration(trained)
        if calibration is not None:
            made.write_json("calibration.json", calibration.to_dict())
        differences = {"model.pt2": write_program(trained, aside / "model.pt2", images)}
        if importlib.util.find_spec("onnx") and importlib.util.find_spec("onnxruntime"):
            differences["model.onnx"] = write_onnx(trained, aside / "model.onnx", images)
        shutil.copyfile(LOADER, aside / LOADER.name)
        code = _code("model.onnx" in differences)
        cosine = agreement(trained, aside, code, images)
        made.write_text("README.md", card(trained, calibration, code))
        made.write_text("SHA256SUMS", _sums(aside))
    return differences, cosine


def card(trained: Trained, calibration: Calibration | None, code: str) -> str:
    """The model card. code: from files to vectors."""
    config, metadata = trained.config, describe(trained)
    scores = result_of(trained.folder.path)
    crop = f", then a {metadata['crop']} crop" if metadata["crop"] else ""
    return f"""# {_as_text(trained.folder.path.resolve().name)}

Turns an image into {trained.network.embedding_size} numbers such that images of one class lie
together, also of classes it was not trained on. Backbone {_as_text(config.model.backbone)}, loss
{_as_text(config.loss_name)}, descriptor `{_as_text(trained.descriptor)}`.{_sizes(trained, scores)}

## Use

`load_image.py` turns a file upright (EXIF), lays transparency over white and brings grey, palettes,
CMYK and 16 bits to RGB of 8 bits; then it resizes {metadata["resize"]} to {metadata["to"]}
({metadata["interpolation"]}){crop}.
Normalisation is inside the model. Compare vectors by {metadata["compare"]}. In this folder:

```python
{code}
```

With PyTorch instead: `torch.export.load("model.pt2").module()(torch.from_numpy({INPUT}))`.

## How it was evaluated

{_scores(scores, trained.network.embedding_size)}

## Threshold

{_threshold(calibration)}

## Limits

Scores hold for classes like the test classes; a very different kind of image needs its own
check. Trained with seed {config.training.seed}; `config.toml` holds every setting.
"""


def _as_text(name: str) -> str:
    """A name in Markdown that is neither HTML nor Markdown, whoever chose it."""
    plain = " ".join(name.split())
    return re.sub(r"[<>&\[\]*`|\\\"']", lambda sign: f"&#{ord(sign[0])};", plain)


def _code(has_onnx: bool) -> str:
    """From files to vectors, to be run in the folder of the bundle."""
    needed = "from onnxruntime import InferenceSession" if has_onnx else "import torch"
    run = f'torch.export.load("model.pt2").module()(torch.from_numpy({INPUT})).detach().numpy()'
    if has_onnx:
        run = f'InferenceSession("model.onnx").run(["{OUTPUT}"], {{"{INPUT}": {INPUT}}})[0]'
    return f"""import json
import numpy as np
{needed}
from load_image import load_image  # the file in this folder: Pillow and NumPy alone

files = {EXAMPLE}
with open("preprocessing.json") as stream:
    preprocessing = json.load(stream)
{INPUT} = np.stack([load_image(file, preprocessing) for file in files])  # [N, 3, s, s]
{OUTPUT} = {run}  # [N, d]"""


def _sizes(trained: Trained, result: Result | None) -> str:
    """What part of a nested embedding this is, and which smaller ones are in it."""
    size, nested = trained.network.embedding_size, trained.config.model.nested_sizes
    smaller = [each for each in nested if each < size]
    message = (
        f"\nThese are the first {size} of {nested[-1]}." if nested and size < nested[-1] else ""
    )
    if not smaller:
        return message
    named = []
    for each in smaller:
        score = result.score(row_at("trained", each), "recall@1") if result else None
        named.append(f"{each} (recall@1 {score.value:.4f})" if score else str(each))
    again = ", made unit vectors again" if trained.config.evaluation.normalize else ""
    return f"{message}\nSmaller descriptors are inside: the first {', '.join(named)}{again}."


def _scores(result: Result | None, size: int) -> str:
    if result is None:
        return "The run was not evaluated on test classes."
    split = result.split
    lines = [
        f"Trained on {split.train_classes} classes, selected on "
        f"{split.validation_classes}, evaluated on {split.test_classes} classes that "
        "neither contains: every test image asks for its nearest among the others.",
        *([f"\n{_as_text(missing)}"] if (missing := incomplete(result)) else []),
        "",
        "| metric | value | 95 % interval |",
        "|---|---|---|",
    ]
    rows = result.scores
    for name, score in rows.get(row_at("trained", size), rows["trained"]).metrics.items():
        interval = f"{score.low:.4f} to {score.high:.4f}" if score.has_interval else ""
        lines.append(f"| {_as_text(name)} | {score.value:.4f} | {interval} |")
    return "\n".join(lines)


def _threshold(made: Calibration | None) -> str:
    if made is None:
        return "Not calibrated."
    return (
        f"Two images count as one class from similarity {made.threshold:.6f} on. On "
        f"{made.classes} validation classes {made.measured_fmr:.3g} of the pairs of different "
        f"classes reach it; on other new classes at most {made.bound:.3g}, with "
        f"{made.confidence:.0%} confidence (classes are the sample). {made.fnmr:.3g} of the pairs "
        "of one class stay below it. In a search among many images each is a chance to be wrong: "
        "choose a smaller rate for a larger collection."
    )


def _sums(folder: Path) -> str:
    files = sorted(file for file in folder.iterdir() if file.is_file())
    return "".join(f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.name}\n" for f in files)
