"""A bundle: a folder with everything somebody needs to use a run, in formats of other people.

    weights.safetensors   config.toml   preprocessing.json   calibration.json (threshold, rates)
    model.pt2             runs with torch alone              result.json (scores)
    model.onnx            runs with onnxruntime alone (if the `onnx` extra is installed)
    README.md             the model card: what it is, on what it was judged, how to call it

It is made aside and renamed: a folder of that name is whole.
"""

import hashlib
import importlib.util
import shutil
from pathlib import Path
from typing import Any

from torch import Tensor

from unseen.evaluation.calibrate import Calibration
from unseen.experiment.calibration import read_calibration
from unseen.experiment.trained import Trained
from unseen.export.inference import INPUT, OUTPUT, describe
from unseen.export.onnx_file import write_onnx
from unseen.export.torch_program import write_program
from unseen.files import new_folder
from unseen.nested import row_at
from unseen.reports.tables import incomplete
from unseen.training.result import Result, result_of
from unseen.training.run_folder import RunFolder


def write_bundle(trained: Trained, out: Path, pictures: Tensor) -> dict[str, float]:
    """Writes the folder; returns the largest difference from PyTorch of each program in it."""
    if out.exists():
        raise ValueError(f"{out} exists already: choose another folder")
    with new_folder(out) as aside:
        made = RunFolder(aside)
        made.write_text("config.toml", trained.config.to_toml())  # of a ladder, the kept rung's
        for name in ("weights.safetensors", "result.json"):
            if trained.folder.file(name).exists():
                shutil.copyfile(trained.folder.checked(name), aside / name)
        made.write_json("preprocessing.json", describe(trained))
        calibration = read_calibration(trained)
        if calibration is not None:
            made.write_json("calibration.json", calibration.to_dict())
        differences = {"model.pt2": write_program(trained, aside / "model.pt2", pictures)}
        if importlib.util.find_spec("onnx") and importlib.util.find_spec("onnxruntime"):
            differences["model.onnx"] = write_onnx(trained, aside / "model.onnx", pictures)
        made.write_text("README.md", card(trained, calibration))
        made.write_text("SHA256SUMS", _sums(aside))
    return differences


def card(trained: Trained, calibration: Calibration | None) -> str:
    """The model card."""
    config, facts = trained.config, describe(trained)
    scores = result_of(trained.folder.path)
    crop = f", then a {facts['crop']} crop" if facts["crop"] else ""
    return f"""# {trained.folder.path.resolve().name}

Turns a picture into {trained.network.embedding_size} numbers such that pictures of one class lie
together, also of classes it was not trained on. Backbone {config.backbone}, loss
{config.loss.name}, descriptor `{trained.descriptor}`.{_sizes(trained, scores)}

## Use

Resize {facts["resize"]} to {facts["to"]} ({facts["interpolation"]}){crop}; RGB, 8 bits.
Normalisation is inside. Compare vectors by {facts["compare"]}. With Pillow and onnxruntime alone:

```python
{_code(facts)}
```

With PyTorch instead: `torch.export.load("model.pt2").module()(torch.from_numpy({INPUT}))`.

## How it was judged

{_scores(scores, trained.network.embedding_size)}

## Threshold

{_threshold(calibration)}

## Limits

Scores hold for classes like the test classes; a very different kind of picture needs its own
check. Trained with seed {config.seed}; `config.toml` holds every setting.
"""


def _code(facts: dict[str, Any]) -> str:
    """From a file to its vector, to the pixel as the network was judged: sides are cut to whole
    pixels, not rounded, and the middle is rounded to even."""
    side, size = facts["to"], facts["size"]
    how = "LANCZOS" if facts["interpolation"].startswith("Lanczos") else "BILINEAR"
    lines = [
        "import numpy as np",
        "from onnxruntime import InferenceSession",
        "from PIL import Image, ImageOps",
        "",
        'picture = ImageOps.exif_transpose(Image.open("picture.jpg")).convert("RGB")',
    ]
    if facts["resize"] == "short side":
        lines += [
            "w, h = picture.size",
            f"w, h = ({side}, int({side} * h / w)) if w <= h else (int({side} * w / h), {side})",
        ]
    else:
        lines += [f"w = h = {side}"]
    lines += [f"picture = picture.resize((w, h), Image.Resampling.{how})"]
    if facts["crop"]:
        lines += [
            f"left, top = round((w - {size}) / 2), round((h - {size}) / 2)",
            f"picture = picture.crop((left, top, left + {size}, top + {size}))",
        ]
    return "\n".join(
        [
            *lines,
            f"{INPUT} = np.asarray(picture).transpose(2, 0, 1)[None]  # [1, 3, {size}, {size}]",
            'session = InferenceSession("model.onnx")',
            f'{OUTPUT} = session.run(["{OUTPUT}"], {{"{INPUT}": {INPUT}}})[0]  # [1, numbers]',
        ]
    )


def _sizes(trained: Trained, result: Result | None) -> str:
    """What part of a nested embedding this is, and which smaller ones are in it."""
    size, nested = trained.network.embedding_size, trained.config.nested
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
    again = ", made unit vectors again" if trained.config.normalise else ""
    return f"{message}\nSmaller descriptors are inside: the first {', '.join(named)}{again}."


def _scores(result: Result | None, size: int) -> str:
    if result is None:
        return "The run was not judged on test classes."
    split = result.split
    lines = [
        f"Trained on {split.train_classes} classes, selected on "
        f"{split.validation_classes}, judged on {split.test_classes} classes that "
        "neither contains: every test picture asks for its nearest among the others.",
        *([f"\n{said}"] if (said := incomplete(result)) else []),
        "",
        "| metric | value | 95 % interval |",
        "|---|---|---|",
    ]
    rows = result.scores
    for name, score in rows.get(row_at("trained", size), rows["trained"]).metrics.items():
        interval = f"{score.low:.4f} to {score.high:.4f}" if score.has_interval else ""
        lines.append(f"| {name} | {score.value:.4f} | {interval} |")
    return "\n".join(lines)


def _threshold(made: Calibration | None) -> str:
    if made is None:
        return "Not calibrated."
    return (
        f"Two pictures count as one class from similarity {made.threshold:.6f} on. On "
        f"{made.classes} validation classes {made.measured_fmr:.3g} of the pairs of different "
        f"classes reach it; on other new classes at most {made.bound:.3g}, with "
        f"{made.confidence:.0%} confidence (classes are the sample). {made.fnmr:.3g} of the pairs "
        "of one class stay below it. In a search among many pictures each is a chance to be wrong: "
        "choose a smaller rate for a larger collection."
    )


def _sums(folder: Path) -> str:
    files = sorted(file for file in folder.iterdir() if file.is_file())
    return "".join(f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.name}\n" for f in files)
