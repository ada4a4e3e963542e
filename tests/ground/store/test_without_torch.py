"""What needs PyTorch says so in one line where there is none."""

import json
import sys
import zipfile

import pytest

import evalign
from evalign.store import archive
from evalign.store.files import VERSION
from tests.forged import write_members

CURE = r"needs PyTorch: pip install 'evalign\[torch\]'$"


@pytest.fixture(autouse=True)
def without_torch(monkeypatch):
    """Where torch is installed it cannot be imported."""
    for name in [*sys.modules]:
        if name.startswith("evalign.training"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)


def made(path, kind, state, **members):
    """A saved file."""
    about = {"format": "evalign", "version": VERSION, "kind": kind}
    parts = {archive.MANIFEST: json.dumps(about), archive.STATE: json.dumps(state)}
    write_members(path, parts | members)
    return path


def test_a_file_with_tensors(tmp_path):
    path = made(tmp_path / "run", "checkpoint", {}, **{archive.TENSORS: b""})
    with pytest.raises(ImportError, match=f"^{path} holds a network, which {CURE}"):
        archive.load(path)


def test_a_network(tmp_path, monkeypatch):
    monkeypatch.delitem(archive.REBUILT, "AlignedClassifier", raising=False)
    state = {"arguments": {}, "functions": [], "fitted": None}
    network = {"$object": "AlignedClassifier", "state": state}
    path = made(tmp_path / "model", "AlignedClassifier", network)
    with pytest.raises(ImportError, match=f"^{path} holds a network, which {CURE}"):
        evalign.load(path)
    inside = made(tmp_path / "inside", "checkpoint", {"models": [network]})
    with pytest.raises(ImportError, match=f"^{inside} holds a network, which {CURE}"):
        archive.load(inside)


def test_a_checkpoint_of_torch(tmp_path):
    path = tmp_path / "last.ckpt"
    with zipfile.ZipFile(path, "w") as whole:
        whole.writestr("last/data.pkl", b"")
    with pytest.raises(ImportError, match=f"^Opening the checkpoint {path} {CURE}"):
        evalign.load(path)
