"""An ONNX file of a run, for any number of images at once, checked with onnxruntime."""

import json
import warnings
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unseen.core.extras import install_command
from unseen.core.files import replacing
from unseen.export.inference import INPUT, OUTPUT, describe, example, inference, require_close
from unseen.runs.calibrate_run import read_calibration
from unseen.runs.trained_run import Trained


def write_onnx(trained: Trained, out: Path, images: Tensor) -> float:
    """Writes the file if it says what PyTorch says; returns the largest difference of any number
    of a vector of `images` [N, 3, s, s] uint8, asked one by one and all at once."""
    try:
        import onnx  # noqa: PLC0415
        import onnxruntime  # noqa: F401, PLC0415
    except ImportError as error:
        raise ValueError(f"ONNX needs its packages: {install_command('onnx')}") from error
    module = inference(trained)
    with replacing(out) as aside:
        with torch.no_grad(), warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")  # of the exporter, about itself
            with redirect_stderr(StringIO()):
                torch.onnx.export(
                    module,
                    (example(trained),),
                    str(aside),
                    input_names=[INPUT],
                    output_names=[OUTPUT],
                    dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
                    dynamo=True,
                    external_data=False,
                )
        model = onnx.load(str(aside))
        onnx.helper.set_model_props(model, _metadata(trained))
        onnx.save(model, str(aside))
        difference = compared(aside, module, images)
        require_close(difference, "the ONNX file")
    return difference


def compared(path: Path, module: torch.nn.Module, images: Tensor) -> float:
    """The largest difference between onnxruntime and PyTorch."""
    import onnxruntime  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    with torch.inference_mode():
        expected = module(images).numpy()
    whole = session.run([OUTPUT], {INPUT: images.numpy()})[0]
    first = session.run([OUTPUT], {INPUT: images[:1].numpy()})[0]
    return float(max(np.abs(whole - expected).max(), np.abs(first - expected[:1]).max()))


def _metadata(trained: Trained) -> dict[str, str]:
    calibration = read_calibration(trained)
    metadata = {
        "made_by": "unseen",
        "model": trained.fingerprint,
        "backbone": trained.config.model.backbone,
        "descriptor": trained.descriptor,
        "preprocessing": json.dumps(describe(trained)),
    }
    if calibration is not None:
        metadata["calibration"] = json.dumps(calibration.to_dict())
    return metadata
