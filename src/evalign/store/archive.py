"""Save an object, or a tree of values, as one file: a zip archive without pickle.

Its members are `manifest.json` (the version of the format, the type of the object), `state.json`
(a tree, with {"$tensor": its name} in the place of a tensor, and so on) and `tensors.safetensors`.
Each has a checksum. An object is saved if its exact type, not that of a parent, is registered.
"""

import json
import math
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from evalign.store import files
from evalign.store.files import StoreError

MANIFEST, STATE, TENSORS = "manifest.json", "state.json", "tensors.safetensors"
FORMAT, CHECKPOINT = "evalign", "checkpoint"  # the latter is the type of a plain tree
# Bytes of tensors that are packed, at most: a small file could otherwise fill any memory. The JSON,
# which becomes many small objects, is not packed.
MOST_PACKED = 2**29
STATES: dict[type, Callable[[Any], Any]] = {}
REBUILT: dict[str, Callable[..., Any]] = {}


def register(
    kind: Any, state: Callable[[Any], Any] | None = None, rebuild: Callable[..., Any] | None = None
) -> None:
    """Make a type savable by a function to a tree of values, and by one back that checks it.

    The default is its `state_dict` and `from_state_dict`.
    """
    STATES[kind] = state or kind.state_dict
    REBUILT[kind.__name__] = rebuild or kind.from_state_dict


def save(path: str | os.PathLike[str], thing: Any) -> None:
    """Write a registered object, or a dict of plain values, arrays, tensors and such objects.

    A process killed at any moment leaves the old file or the new one, and perhaps a `.partial` one.

    Examples:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "checkpoint"
        >>> save(path, {"epoch": 3, "weights": torch.ones(2)})
        >>> load(path)
        {'epoch': 3, 'weights': tensor([1., 1.])}
    """
    path = Path(os.path.realpath(path))
    check_replaceable(path)
    tensors: dict[str, Tensor] = {}
    state = _encode(thing, "", tensors)
    kind = CHECKPOINT if isinstance(thing, dict) else type(thing).__name__
    manifest = {"format": FORMAT, "version": files.VERSION, "kind": kind}
    joined = safetensors.torch.save(tensors)
    small = kind != CHECKPOINT and len(joined) <= MOST_PACKED
    method = zipfile.ZIP_DEFLATED if small else zipfile.ZIP_STORED
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(path) as new, zipfile.ZipFile(new, "w") as archive:
        archive.writestr(zipfile.ZipInfo(MANIFEST), json.dumps(manifest))
        archive.writestr(zipfile.ZipInfo(STATE), json.dumps(state))
        archive.writestr(zipfile.ZipInfo(TENSORS), joined, method, compresslevel=1)


def load(path: str | os.PathLike[str], expected: str | None = None, **arguments: Any) -> Any:
    """Open what `save` wrote, with tensors on the CPU, or raise a `StoreError`.

    The file need not be trusted. It must be of the `expected` type, if one is named; `rebuild` of
    the type is given the arguments.
    """
    path, kind = Path(path), kind_of(path)
    if expected not in (None, kind):
        raise StoreError(f"{path} holds no {expected}: it is of kind {kind!r}.")
    with files.reading(path):
        with zipfile.ZipFile(path) as archive:
            state, packed = (_member(archive, name) for name in (STATE, TENSORS))
        tensors = safetensors.torch.load(packed)
        for name, tensor in tensors.items():  # an empty one may claim a huge dimension
            if math.prod(max(size, 1) for size in tensor.shape) > len(packed):
                raise ValueError(f"{name} has the shape {tuple(tensor.shape)}")
        tree = json.loads(state)
        if kind == CHECKPOINT:
            return dict(_decode(tree, tensors))
        return REBUILT[kind](_decode(tree["state"], tensors), **arguments)


def kind_of(path: str | os.PathLike[str]) -> str:
    """The name of the type that was saved, or "checkpoint"."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    try:
        if not path.is_file():  # opening a pipe would wait
            raise ValueError("it is not a plain file")
        with zipfile.ZipFile(path) as archive:
            about = dict(json.loads(_member(archive, MANIFEST)))
        form, version, kind = (about[name] for name in ("format", "version", "kind"))
    except Exception as error:
        raise files.nothing(path, files.reason(error)) from error
    if form != FORMAT:
        raise files.nothing(path, f"its format is {str(form)[:50]!r}")
    files.check_version(path, version)
    return str(kind)


def check_replaceable(path: str | os.PathLike[str]) -> None:
    """Refuse to replace a file or folder that `save` did not write."""
    try:
        kind_of(path)
    except FileNotFoundError:
        return
    except StoreError as error:
        raise FileExistsError(f"{error} Choose another path.") from error


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    """A member of an archive, if its size is plausible."""
    found, size = archive.getinfo(name), os.path.getsize(str(archive.filename))
    packed = MOST_PACKED if name == TENSORS else 0
    most = {zipfile.ZIP_STORED: size, zipfile.ZIP_DEFLATED: packed}.get(found.compress_type, 0)
    if found.compress_size > size or found.file_size > most:
        raise ValueError(f"{name} claims {found.file_size:,} bytes of a file of {size:,}")
    return archive.read(found)


def _encode(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """The tree as JSON holds it; its tensors and arrays are moved to `tensors`."""

    def each(items: Any) -> list[Any]:
        return [_encode(item, f"{name}/{place}", tensors) for place, item in enumerate(items)]

    match value:
        case None | bool() | int() | float() | str():
            return value
        case np.generic():
            return value.item()
        case Tensor():
            tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
            return {"$tensor": name}
        case np.ndarray() if value.dtype.kind in "biuf":
            native = value.astype(value.dtype.newbyteorder("="), order="C")
            tensors[name] = torch.from_numpy(native)
            return {"$array": name}
        case np.ndarray() if value.dtype.kind in "UO" and value.ndim == 1:
            return {"$labels": each(value.tolist())}
        case tuple():
            return {"$tuple": each(value)}
        case list():
            return each(value)
        case dict() if all(isinstance(key, str) and key[:1] != "$" for key in value):
            return {key: _encode(item, f"{name}/{key}", tensors) for key, item in value.items()}
        case dict():
            return {"$dict": each(value.items())}
        case np.random.Generator() | np.random.RandomState():
            return None
    kind = type(value)
    if kind not in STATES:
        allowed = "evalign saves only what it can check when it is opened"
        cure = "Keep it with joblib, and open such files only from people you trust."
        raise TypeError(f"{allowed}. Got {kind.__module__}.{kind.__qualname__}. {cure}")
    state = STATES[kind](value)
    if name and state.get("functions"):  # nobody could give them to `load`
        got = f"{state['functions']} of {kind.__name__}"
        raise TypeError(f"A model inside of another must be without functions. Got {got}.")
    return {"$object": kind.__name__, "state": _encode(state, f"{name}/state", tensors)}


def _decode(value: Any, tensors: dict[str, Tensor]) -> Any:
    match value:
        case list():
            return [_decode(item, tensors) for item in value]
        case {"$tensor": name}:
            return tensors.pop(name)  # once: a few names could stand for much memory
        case {"$array": name}:
            return tensors.pop(name).numpy()
        case {"$labels": items}:  # objects: in an array of text each takes what the longest does
            return np.array(_decode(items, tensors), dtype=object)
        case {"$tuple": items}:
            return tuple(_decode(items, tensors))
        case {"$dict": items}:
            return dict(_decode(items, tensors))
        case {"$object": name, "state": state}:
            return REBUILT[name](_decode(state, tensors))
        case dict():
            return {key: _decode(item, tensors) for key, item in value.items()}
    return value
