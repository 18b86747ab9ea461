"""Weights from a file: every tensor finds its place, or the message says which did not.

Reads `.safetensors`, and `.pth`/`.pt` as plain tensors (`weights_only`: a file cannot run code). A
file may hold the state dict itself or keep it under "state_dict"; the weights of one of our own
runs give their backbone. Classifier layers of the pretraining are left out by name, nothing else
is.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

State = dict[str, Tensor]
OWN_PREFIX = "backbone.body."  # how a backbone's tensors are called in the weights of a run
SHOWN = 8  # names listed per kind of trouble


def load_weights(
    body: nn.Module,
    path: str | Path,
    classifiers: Sequence[str] = (),
    adapt: Callable[[State], State] | None = None,
) -> None:
    """Fills `body` from a file. `classifiers`: top names of layers it does not have on purpose.
    `adapt` turns the names or shapes of a known checkpoint into ours."""
    state = read_state(Path(path))
    own = {k.removeprefix(OWN_PREFIX): v for k, v in state.items() if k.startswith(OWN_PREFIX)}
    if own:
        state = own
    else:
        state = {k: v for k, v in state.items() if not _is_under(k, classifiers)}
        state = adapt(state) if adapt else state
    fill(body, state, str(path))


def fill(body: nn.Module, state: State, source: str) -> None:
    """Loads a state dict whole or not at all; counters of old batch norms may be missing."""
    wanted = body.state_dict()
    missing = [k for k in wanted if k not in state and not k.endswith("num_batches_tracked")]
    unexpected = [k for k in state if k not in wanted]
    misshapen = [
        f"{k} {list(state[k].shape)} instead of {list(wanted[k].shape)}"
        for k in wanted
        if k in state and state[k].shape != wanted[k].shape
    ]
    troubles = {"missing": missing, "unexpected": unexpected, "of another shape": misshapen}
    told = [f"{len(names)} {kind}: {_some(names)}" for kind, names in troubles.items() if names]
    if told:
        raise ValueError(f"the weights in {source} do not fit this backbone; {'; '.join(told)}")
    body.load_state_dict(state, strict=False)


def read_state(path: Path) -> State:
    """The tensors of a file by name."""
    if not path.is_file():
        raise ValueError(f"no such weights file: {path} (weights is none, imagenet or a file)")
    try:
        if path.suffix == ".safetensors":
            found: Any = load_file(path)
        else:
            found = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, UnpicklingError, RuntimeError, EOFError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path} is no weights file that can be read: {reason}") from error
    if isinstance(found, dict) and isinstance(found.get("state_dict"), dict):
        found = found["state_dict"]
    if not isinstance(found, dict) or not all(isinstance(v, Tensor) for v in found.values()):
        raise ValueError(f"{path} holds no dictionary of tensors")
    return dict(found)


def _is_under(key: str, tops: Sequence[str]) -> bool:
    return any(key == top or key.startswith(f"{top}.") for top in tops)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
