"""Save an object, or a tree of values, as one file: a zip archive without pickle.

Its members are `manifest.json` (the version of the format, the type of the object), `state.json`
(a tree, with {"$array": the name of its member} in the place of an array, and so on), an `.npy`
file for each array and, if there are tensors, `tensors.safetensors`. Each has a checksum. An object
is saved if its exact type, not that of a parent, is registered.
"""

import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from evalign.core import stairs
from evalign.store import files
from evalign.store.files import StoreError

MANIFEST = "manifest.json"
STATE = "state.json"
ARRAYS = "arrays/"  # the folder of the .npy files
TENSORS = "tensors.safetensors"
FORMAT = "evalign"
CHECKPOINT = "checkpoint"  # the type of a plain tree
NETWORK = "AlignedClassifier"  # the type that the upper floor registers
# Bytes of arrays and tensors that are packed, at most: a small file could otherwise fill any
# memory. The JSON, which becomes many small objects, is not packed.
MOST_PACKED = 2**29
# The header of an .npy file is read by a parser of Python, which deep nesting would crash.
LONGEST_HEADER = 1024
# An empty array takes no room in a file, whatever it claims. Code may count on its other sizes.
WIDEST_EMPTY = 2**20


@dataclass
class _Values:
    """The arrays and tensors of a tree, by the names that stand in their place."""

    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    tensors: dict[str, Any] = field(default_factory=dict)


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
        >>> save(path, {"epoch": 3, "weights": np.ones(2)})
        >>> load(path)
        {'epoch': 3, 'weights': array([1., 1.])}
    """
    path = Path(os.path.realpath(path))
    check_replaceable(path)
    values = _Values()
    state = _encode(thing, "", values)
    kind = CHECKPOINT if isinstance(thing, dict) else type(thing).__name__
    manifest = {"format": FORMAT, "version": files.VERSION, "kind": kind}
    members = {name: _npy_of(array) for name, array in values.arrays.items()}
    if values.tensors:
        members[TENSORS] = stairs.bytes_of_tensors(values.tensors)
    small = kind != CHECKPOINT and sum(map(len, members.values())) <= MOST_PACKED
    method = zipfile.ZIP_DEFLATED if small else zipfile.ZIP_STORED
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(path) as new, zipfile.ZipFile(new, "w") as archive:
        archive.writestr(zipfile.ZipInfo(MANIFEST), json.dumps(manifest))
        archive.writestr(zipfile.ZipInfo(STATE), json.dumps(state))
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, method, compresslevel=1)


def load(path: str | os.PathLike[str], expected: str | None = None, **arguments: Any) -> Any:
    """Open what `save` wrote, with tensors on the CPU, or raise a `StoreError`.

    The file need not be trusted. It must be of the `expected` type, if one is named; `rebuild` of
    the type is given the arguments. A file with tensors needs PyTorch.
    """
    path = Path(path)
    kind = kind_of(path)
    if expected not in (None, kind):
        raise StoreError(f"{path} holds no {expected}: it is of kind {kind!r}.")
    with files.reading(path):
        with _opened(path) as archive:
            state = _bytes_of(archive, STATE)
            values = _Values()
            for name in archive.namelist():
                if name.startswith(ARRAYS):
                    values.arrays[name] = _array_of(name, _bytes_of(archive, name))
                if name == TENSORS:
                    packed = _bytes_of(archive, TENSORS)
                    values.tensors = stairs.tensors_of_bytes(packed, _network_in(path))
        tree = json.loads(state)
        if kind == CHECKPOINT:
            return dict(_decode(tree, values, path))
        rebuild = _rebuild_of(kind, path)
        return rebuild(_decode(tree["state"], values, path), **arguments)


def kind_of(path: str | os.PathLike[str]) -> str:
    """The name of the type that was saved, or "checkpoint"."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    try:
        if not path.is_file():  # opening a pipe would wait
            raise ValueError("it is not a plain file")
        with _opened(path) as archive:
            about = dict(json.loads(_bytes_of(archive, MANIFEST)))
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


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """An archive whose members together claim no more bytes than the file can hold.

    Members may share bytes of the file, so that each alone could be plausible.
    """
    size = os.path.getsize(path)
    room = {zipfile.ZIP_STORED: size, zipfile.ZIP_DEFLATED: MOST_PACKED}
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            packed_json = member.compress_type and member.filename in (MANIFEST, STATE)
            left = 0 if packed_json else room.get(member.compress_type, 0)
            if member.file_size > left:
                claim = f"{member.filename} claims {member.file_size:,} bytes"
                raise ValueError(f"{claim} of a file of {size:,}")
            room[member.compress_type] = left - member.file_size
        yield archive


def _bytes_of(archive: zipfile.ZipFile, name: str) -> bytes:
    """The bytes of a member, at most as many as it claims: packed bytes could hold any number."""
    member = archive.getinfo(name)
    with archive.open(member) as file:
        return file.read(member.file_size)


def _is_plain(dtype: np.dtype) -> bool:
    """Whether arrays of this dtype hold numbers or truth values of the same size everywhere."""
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def _npy_of(array: np.ndarray) -> bytes:
    """An array as an .npy file, by rows and with the low byte first."""
    ordered = array.astype(array.dtype.newbyteorder("<"), order="C")
    file = io.BytesIO()
    npy.write_array(file, ordered, version=(1, 0), allow_pickle=False)
    return file.getvalue()


def _array_of(name: str, data: bytes) -> np.ndarray:
    """The array of an .npy file whose header describes exactly the bytes behind it."""
    file = io.BytesIO(data)
    if npy.read_magic(file) != (1, 0):
        raise ValueError(f"{name} is of another version of the .npy format")
    shape, by_columns, dtype = npy.read_array_header_1_0(file, max_header_size=LONGEST_HEADER)
    if by_columns or not _is_plain(dtype):
        raise ValueError(f"{name} holds no plain numbers by rows")
    content = data[file.tell() :]
    count = math.prod(shape)
    fits = count * dtype.itemsize == len(content) and min(shape, default=0) >= 0
    if not fits or (count == 0 and max(shape) > WIDEST_EMPTY):
        raise ValueError(f"{name} claims the shape {shape} of {len(content):,} bytes")
    array = np.frombuffer(content, dtype)
    if dtype.kind == "b" and array.view(np.uint8).max(initial=0) > 1:
        raise ValueError(f"{name} holds truth values other than 0 and 1")
    return array.reshape(shape).astype(dtype.newbyteorder("="))  # a copy, which can be written to


def _network_in(path: Path) -> str:
    """What an error says of a file that cannot be opened without PyTorch."""
    return f"{path} holds a network, which"


def _rebuild_of(kind: str, path: Path) -> Callable[..., Any]:
    """The function that rebuilds a type; the upper floor registers its own when they are needed."""
    if kind == NETWORK and kind not in REBUILT:
        stairs.register_networks(_network_in(path))
    return REBUILT[kind]


def _encode(value: Any, name: str, values: _Values) -> Any:
    """The tree as JSON holds it; its arrays and tensors are moved to `values`."""

    def encoded(item: Any, place: object) -> Any:
        return _encode(item, f"{name}/{place}", values)

    def all_encoded(items: Any) -> list[Any]:
        return [encoded(item, place) for place, item in enumerate(items)]

    if stairs.is_tensor(value):
        values.tensors[name] = value
        return {"$tensor": name}
    match value:
        case None | bool() | int() | float() | str():
            return value
        case np.generic():
            return value.item()
        case np.ndarray() if _is_plain(value.dtype):
            member = f"{ARRAYS}{len(values.arrays)}.npy"
            values.arrays[member] = value
            return {"$array": member}
        case np.ndarray() if value.dtype.kind in "UO" and value.ndim == 1:
            return {"$labels": all_encoded(value.tolist())}
        case tuple():
            return {"$tuple": all_encoded(value)}
        case list():
            return all_encoded(value)
        case dict() if all(isinstance(key, str) and key[:1] != "$" for key in value):
            return {key: encoded(item, key) for key, item in value.items()}
        case dict():
            return {"$dict": all_encoded(value.items())}
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
    return {"$object": kind.__name__, "state": encoded(state, "state")}


def _decode(value: Any, values: _Values, path: Path) -> Any:
    """The inverse of `_encode`.

    Each array or tensor is given once: a few names could stand for much memory.
    """

    def decoded(item: Any) -> Any:
        return _decode(item, values, path)

    match value:
        case list():
            return [decoded(item) for item in value]
        case {"$array": name}:
            return values.arrays.pop(name)
        case {"$tensor": name}:
            return values.tensors.pop(name)
        case {"$labels": items}:  # objects: in an array of text each takes what the longest does
            return np.array(decoded(items), dtype=object)
        case {"$tuple": items}:
            return tuple(decoded(items))
        case {"$dict": items}:
            return dict(decoded(items))
        case {"$object": name, "state": state}:
            rebuild = _rebuild_of(name, path)
            return rebuild(decoded(state))
        case dict():
            return {key: decoded(item) for key, item in value.items()}
    return value
