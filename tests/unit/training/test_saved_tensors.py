"""Saved files that hold tensors: the same when opened, and refused when forged or without torch."""

import json
import math
import os

import numpy as np
import pytest
import torch

from evalign.store import archive
from evalign.store.files import StoreError
from tests.forged import forge

WEIGHTS = torch.ones(4)
TREE = {
    "nested": {"empty": {}, "list": [{"weights": torch.arange(6.0).view(2, 3).T}]},
    "scalar": torch.tensor(0.2, dtype=torch.float64),
    "bytes": torch.tensor([1, 255], dtype=torch.uint8),
    "halves": torch.tensor([0.5, math.inf], dtype=torch.bfloat16),
    "none": torch.zeros(0, 3),
    "shared": [WEIGHTS, WEIGHTS[:2]],
    "arrays": [np.arange(6.0).reshape(2, 3).T],
    "parameter": torch.nn.Parameter(torch.ones(2)),
    "keys": {0: "zero", "$tensor": "a column of this name"},
}


def flat(tree):
    if isinstance(tree, torch.Tensor):
        return ("tensor", tree.dtype, tree.tolist(), tuple(tree.shape), tree.requires_grad)
    if isinstance(tree, np.ndarray):
        return ("array", tree.dtype, tree.tolist(), tree.shape)
    if isinstance(tree, dict):
        return {key: flat(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [flat(value) for value in tree]
    return tree


def test_round_trip(tmp_path):
    archive.save(tmp_path / "run", TREE)
    assert flat(archive.load(tmp_path / "run")) == flat(TREE | {"parameter": torch.ones(2)})


def test_whole_at_any_moment(tmp_path, monkeypatch):
    """Before each step that touches the disk, what lies there is the old file or the new one."""
    path = tmp_path / "run"
    epochs = []
    archive.save(path, {"epoch": 1, "weights": torch.ones(3)})

    def watched(name):
        original = getattr(os, name)

        def step(*args, **kwargs):
            epochs.append(archive.load(path)["epoch"])
            return original(*args, **kwargs)

        monkeypatch.setattr(os, name, step)

    for name in ("fsync", "replace", "unlink", "open"):
        watched(name)
    archive.save(path, {"epoch": 2, "weights": torch.zeros(3)})
    monkeypatch.undo()
    assert set(epochs) == {1, 2}
    assert epochs == sorted(epochs)


def test_damage_is_found_anywhere(tmp_path):
    """Each byte but those of dates and attributes, which nobody reads, is covered by a checksum."""
    tree = {"epoch": 1, "weights": torch.ones(20)}
    path = tmp_path / "run"
    archive.save(path, tree)
    data = path.read_bytes()
    for place in range(0, len(data), 7):
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        try:
            found = archive.load(path)
        except StoreError:
            continue
        assert flat(found) == flat(tree)


def safetensors_with(header):
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


F32 = {"dtype": "F32", "data_offsets": [0, 2**41], "shape": [2**20, 2**19]}
HOLLOW = {"dtype": "F32", "data_offsets": [0, 0], "shape": [0, 10**12]}


@pytest.mark.parametrize(
    "members",
    [
        {"state_json": b'{"a": {"$tensor": "nosuch"}}'},
        {"state_json": b'{"a": {"$tensor": []}}'},
        {"state_json": b'{"a": {"$array": "/scalar"}}'},
        {"state_json": b'{"a": {"$tensor": "/scalar"}, "b": {"$tensor": "/scalar"}}'},
        {"tensors_safetensors": b""},
        {"tensors_safetensors": b"[1, 2, 3]"},
        {"tensors_safetensors": safetensors_with({"/a": F32})},  # more than it holds
        {"tensors_safetensors": safetensors_with({"/a": HOLLOW})},
    ],
    ids=str,
)
def test_wrong_contents_with_right_checksums(tmp_path, members):
    archive.save(tmp_path / "run", TREE)
    forge(tmp_path / "run", **members)
    with pytest.raises(StoreError, match=r"cannot be opened: [^\n]*$"):
        archive.load(tmp_path / "run")


def test_tensors_of_a_model_are_packed_if_they_are_few(tmp_path, monkeypatch):
    """Those of a checkpoint are not, because training would wait for it."""

    class Model:
        pass

    def state_of(_):
        return {"weights": torch.zeros(10**5)}

    monkeypatch.setattr(archive, "STATES", {Model: state_of})
    monkeypatch.setattr(archive, "REBUILT", {"Model": dict})
    archive.save(tmp_path / "model", Model())
    archive.save(tmp_path / "checkpoint", state_of(Model()))
    assert (tmp_path / "model").stat().st_size < 10**5
    assert (tmp_path / "checkpoint").stat().st_size > 4 * 10**5
    monkeypatch.setattr(archive, "MOST_PACKED", 10**5)
    archive.save(tmp_path / "large", Model())
    assert archive.load(tmp_path / "large")["weights"].shape == (10**5,)
