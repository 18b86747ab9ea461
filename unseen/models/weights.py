"""Weights from a file: every tensor finds its place, or the message says which did not."""

import hashlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from unseen.core import read_limits
from unseen.core.names import few, near_path

State = dict[str, Tensor]
OWN_PREFIX = "backbone.body."  # how a backbone's tensors are called in the weights of a run
WRAPPERS = ("state_dict", "model", "teacher")  # what training programs keep weights under
PREFIXES = ("module.", "model.", "teacher.", "backbone.")  # and put before their names
SHOWN = 8  # names listed per kind of trouble
CHECKSUM = "sha256"
log = logging.getLogger("unseen.weights")


def load_weights(
    body: nn.Module,
    path: str | Path,
    classifiers: Sequence[str] = (),
    adapt: Callable[[State], State] | None = None,
) -> None:
    """Fills `body` from a file. `classifiers`: top names of layers it does not have on purpose.
    `adapt` turns the names or shapes of a known checkpoint into ours.

    Reads `.safetensors`, and `.pth`/`.pt` as plain tensors (`weights_only`: a file cannot run
    code). The weights of one of our own runs give their backbone; what other training programs pack
    around weights is taken off (`unwrapped`). Classifier layers of the pretraining are left out by
    name.

    Files of our own are safetensors with a checksum over names, types, shapes and values among
    their metadata, so that a flipped bit is an error and not another network.
    """
    state = read_state(Path(path), body.state_dict().keys())
    state = adapt(state) if adapt else state
    state = {k: v for k, v in state.items() if not _is_under(k, classifiers)}
    fill(body, state, str(path))


def packed(tensors: Mapping[str, Tensor]) -> bytes:
    """A safetensors file with its checksum."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return save(plain, {CHECKSUM: _digest(plain)})


def read_tensors(path: Path, is_ours: bool = False) -> State:
    """The tensors of a safetensors file, compared with its checksum if it has one, as ours do."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, RuntimeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no weights file that can be read: {error}") from error
    if (is_ours or CHECKSUM in metadata) and metadata.get(CHECKSUM) != _digest(state):
        raise ValueError(f"{path} is damaged: its checksum differs")
    return state


def is_whole(path: Path) -> bool:
    try:
        read_tensors(path, is_ours=True)
    except (ValueError, OSError):
        return False
    return True


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}\0{tensor.dtype}\0{list(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


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
    sentences = [
        f"{len(names)} {kind}: {few(names, SHOWN)}" for kind, names in troubles.items() if names
    ]
    if sentences:
        raise ValueError(f"the weights in {source} do not fit this network; {'; '.join(sentences)}")
    body.load_state_dict(state, strict=False)


def unwrapped(content: Any, names: Collection[str]) -> tuple[Any, list[str]]:
    """The weights inside what a training program has written, and in words what was taken off: the
    tables of `WRAPPERS`, and of `PREFIXES` those with which none of the network's own `names`
    begins. Beside tensors with a prefix, those without belong to other parts of that program."""
    notes: list[str] = []
    while isinstance(content, dict):
        inside = [each for each in WRAPPERS if isinstance(content.get(each), dict)]
        prefixes = [
            each
            for each in PREFIXES
            if any(str(key).startswith(each) for key in content)
            and not any(name.startswith(each) for name in names)
        ]
        if inside:
            notes.append(f"what is under {inside[0]!r}")
            content = content[inside[0]]
        elif prefixes:
            others = [key for key in content if not key.startswith(prefixes[0])]
            left = f" (without it: {few(others, SHOWN)})" if others else ""
            notes.append(f"what begins with {prefixes[0]!r}{left}")
            size = len(prefixes[0])
            content = {k[size:]: v for k, v in content.items() if k.startswith(prefixes[0])}
        else:
            break
    return content, notes


@cache  # a network is made several times in a command
def _say(path: Path, notes: tuple[str, ...]) -> None:
    log.warning("weights from %s: %s", path, ", of that ".join(notes))


def read_state(path: Path, names: Collection[str] = ()) -> State:
    """The tensors of a file by name. names: those of the network they are for."""
    if not path.is_file():
        near = near_path(path) or " (weights is none, imagenet or a file)"
        raise ValueError(f"no such weights file: {path}{near}")
    try:
        if path.suffix == ".safetensors":
            result: Any = read_tensors(path)
        else:
            with path.open("rb") as stream:
                read_limits.check_zip(stream, path)
                result = torch.load(stream, map_location="cpu", weights_only=True)
    except (UnpicklingError, RuntimeError, EOFError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path} is no weights file that can be read: {reason}") from error
    if isinstance(result, dict) and any(str(key).startswith(OWN_PREFIX) for key in result):
        return {
            k.removeprefix(OWN_PREFIX): v for k, v in result.items() if k.startswith(OWN_PREFIX)
        }
    result, notes = unwrapped(result, names)
    if notes:
        _say(path, tuple(notes))
    if not isinstance(result, dict) or not all(isinstance(v, Tensor) for v in result.values()):
        raise ValueError(f"{path} holds no dictionary of tensors")
    return dict(result)


def _is_under(key: str, tops: Sequence[str]) -> bool:
    return any(key == top or key.startswith(f"{top}.") for top in tops)
