"""Write and read a tree of tensors and plain values as a folder, atomically and without pickle.

| file                  | holds                                                              |
| --------------------- | ------------------------------------------------------------------ |
| `manifest.json`       | format, version, SHA-256 of the other two                          |
| `state.json`          | the tree, with {"$tensor": its name} in the place of each tensor   |
| `tensors.safetensors` | the tensors                                                        |
"""

import errno
import hashlib
import json
import math
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from evalign.core.errors import InputError

FORMAT = "evalign checkpoint"
VERSION = 1
# In bytes. A folder may come from anyone, so files are measured before they are read.
MAX_BYTES = {"manifest.json": 2**20, "state.json": 2**30, "tensors.safetensors": 2**38}
# Errors from reading a tree of an unexpected shape.
WRONG_TREE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError)


class CheckpointError(InputError):
    """The folder is not a checkpoint that this version can read, or it is damaged."""


class Saver:
    """Saves the first state, then at most one `every` so many seconds, and the last at `close`.

    Without a folder nothing is saved. A folder that cannot be replaced is refused at once.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, every: float) -> None:
        if folder is not None:
            _refuse_others(recovered(folder))
        self.folder = folder
        self.every = every
        self.next = -math.inf
        self.unsaved: dict[str, Any] | None = None

    def give(self, state: Callable[[], dict[str, Any]]) -> None:
        """Take a state, and save it if it is due."""
        if self.folder is None:
            return
        self.unsaved = state()
        if time.monotonic() >= self.next:
            self.close()
            self.next = time.monotonic() + self.every

    def close(self) -> None:
        """Save the last state."""
        if self.folder is not None and self.unsaved is not None:
            save(self.folder, self.unsaved)
            self.unsaved = None


def save(folder: str | os.PathLike[str], tree: dict[str, Any]) -> None:
    """Write a tree of dicts, lists, tensors, numbers, strings, bools and None (string keys only).

    A process killed at any moment leaves the old checkpoint or the new one.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp()) / "checkpoint"
        >>> save(folder, {"epoch": 3, "weights": torch.ones(2)})
        >>> load(folder)
        {'epoch': 3, 'weights': tensor([1., 1.])}
    """
    tensors: dict[str, Tensor] = {}
    state = json.dumps(_take_tensors(tree, "", tensors), indent=1).encode()
    files = {"state.json": state, "tensors.safetensors": safetensors.torch.save(tensors)}
    manifest = {"format": FORMAT, "version": VERSION}
    manifest["sha256"] = {name: _digest(data) for name, data in files.items()}
    files["manifest.json"] = json.dumps(manifest, indent=1).encode()

    with replacing(folder) as new:
        for name, data in files.items():
            (new / name).write_bytes(data)


@contextmanager
def replacing(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a new folder beside this one that replaces it at the end, whole or not at all.

    No system renames onto a folder that holds files, so the old one is renamed first, and
    `recovered` finds it if the process is killed in between. A file is refused, and so is a folder
    with contents that evalign did not write.
    """
    folder, new, old = _places(recovered(folder))
    _refuse_others(folder)
    _discard(old, new)
    try:
        new.mkdir(parents=True)
        yield new
        for path in sorted(new.rglob("*")):
            if path.is_file():
                with open(path, "rb+") as file:
                    os.fsync(file.fileno())
            else:
                sync_folder(path)
        sync_folder(new)
    except BaseException:  # disk full, Ctrl-C: the old folder is untouched
        shutil.rmtree(new, ignore_errors=True)
        raise
    if folder.exists():
        os.rename(folder, old)
    os.rename(new, folder)
    sync_folder(folder.parent)
    _discard(old, new)


def load(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the tree that `save` wrote, with tensors on the CPU, or raise a `CheckpointError`."""
    folder = recovered(folder)
    name = "manifest.json"
    if not (folder / name).exists():
        raise CheckpointError(f"{folder} is not a checkpoint of evalign: it has no {name}.")
    try:
        manifest = json.loads(read_plain(folder / name, MAX_BYTES[name]))
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise CheckpointError(f"{folder} is not a checkpoint of evalign: see its {name}.")
        if manifest.get("version") != VERSION:
            cure = "Load it with the version of evalign that wrote it."
            got = manifest.get("version")
            raise CheckpointError(f"{folder} has format version {got}, this is {VERSION}. {cure}")
        files = {}
        for name in ("state.json", "tensors.safetensors"):
            files[name] = read_plain(folder / name, MAX_BYTES[name])
            if manifest["sha256"].get(name) != _digest(files[name]):
                raise ValueError("its checksum differs from the manifest's")
        tensors = safetensors.torch.load(files[name])
        name = "state.json"
        return _give_tensors(dict(json.loads(files[name])), tensors)
    except CheckpointError:
        raise
    except (OSError, safetensors.SafetensorError, *WRONG_TREE) as error:
        why = getattr(error, "strerror", None) or error
        cure = "Take it from a copy, or delete the folder to start afresh."
        text = f"Checkpoint {folder} cannot be read: {name}: {why}. {cure}"
        raise CheckpointError(text) from error


def recovered(folder: str | os.PathLike[str]) -> Path:
    """The folder, put back if a process was killed between the two renames that replace it."""
    folder, new, old = _places(folder)
    if old.exists() and not folder.exists():
        os.rename(old, folder)
    elif old.exists():  # killed right after the renames
        _discard(old, new)
    return folder


def read_plain(path: Path, most: int) -> bytes:
    """The contents of a plain file of at most so many bytes; an OSError for a pipe or a device."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a plain file")
    if found.st_size > most:
        raise OSError(errno.EFBIG, f"it has {found.st_size:,} bytes, more than {most:,}")
    return path.read_bytes()


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    if os.name == "nt":  # Windows cannot open a folder; NTFS keeps entries in its journal
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _places(folder: str | os.PathLike[str]) -> tuple[Path, Path, Path]:
    """The folder, and where its replacement and its old version are meanwhile."""
    folder = Path(os.path.realpath(folder))
    new, old = (folder.with_name(f"{folder.name}.evalign-{age}") for age in ("new", "old"))
    return folder, new, old


def _discard(old: Path, new: Path) -> None:
    """Delete both, the old one under the name of the new.

    A half-deleted folder under the old name would be taken for a checkpoint once the folder itself
    is gone; one under the new name never is.
    """
    if new.exists():
        shutil.rmtree(new)
    if old.exists():
        os.rename(old, new)
        shutil.rmtree(new)


def _refuse_others(folder: Path) -> None:
    """Refuse to replace a folder of others, which would delete its contents."""
    if not folder.exists():
        return
    found = {path.name for path in folder.iterdir()} if folder.is_dir() else {"it is a file"}
    ensemble = (folder / "ensemble" / "manifest.json").is_file()
    others = sorted(found - {".DS_Store"} - ({"ensemble", "models"} if ensemble else {*MAX_BYTES}))
    if others:
        text = f"{folder} exists and holds what evalign did not write: {', '.join(others[:3])}"
        raise FileExistsError(f"{text}. Choose another path.")


def _take_tensors(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Move every tensor of the tree into `tensors`, and leave its name in its place."""
    if isinstance(value, Tensor):
        tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"$tensor": name}
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"Keys in a checkpoint must be strings. Got {[*value]} in {name!r}.")
        return {key: _take_tensors(item, f"{name}/{key}", tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_take_tensors(item, f"{name}/{i}", tensors) for i, item in enumerate(value)]
    return value


def _give_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"$tensor"}:
            return tensors[value["$tensor"]]
        return {key: _give_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, list):
        return [_give_tensors(item, tensors) for item in value]
    return value


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
