"""One file for anything fitted: whole at any moment, the same when opened, refused when damaged."""

import json
import math
import os
import zipfile

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler

import evalign
from evalign.store import archive, files
from evalign.store.archive import MANIFEST, STATE, TENSORS
from evalign.store.files import StoreError
from tests.forged import forge

WEIGHTS = torch.ones(4)
TREE = {
    "numbers": [1, 2.5, math.inf, True, None, "text", np.float32(0.5)],
    "nested": {"empty": {}, "list": [{"weights": torch.arange(6.0).view(2, 3).T}]},
    "scalar": torch.tensor(0.2, dtype=torch.float64),
    "bytes": torch.tensor([1, 255], dtype=torch.uint8),
    "none": torch.zeros(0, 3),
    "shared": [WEIGHTS, WEIGHTS[:2]],
    "arrays": [np.arange(6.0).reshape(2, 3).T, np.array(["x", 3], object)],
    "keys": {0: "zero", "$tensor": "a column of this name"},
    "tuple": ("a", [1]),
}


def flat(tree):
    if isinstance(tree, torch.Tensor | np.ndarray):
        return (type(tree), tree.dtype, tree.tolist(), tuple(tree.shape))
    if isinstance(tree, dict):
        return {key: flat(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(flat(value) for value in tree)
    return tree


def test_round_trip(tmp_path):
    path = tmp_path / "a" / "run"
    archive.save(path, TREE)
    assert flat(archive.load(path)) == flat(TREE)
    assert archive.kind_of(path) == "checkpoint"
    assert [each.name for each in path.parent.iterdir()] == ["run"]
    with pytest.raises(TypeError, match=r"only what it can check .*Got builtins.object"):
        archive.save(path, {"state": object()})
    assert flat(archive.load(path)) == flat(TREE)


def test_text_takes_the_room_that_it_has_in_the_file(tmp_path):
    """numpy would give each text the room of the longest one, or of any that a file claims."""
    archive.save(tmp_path / "run", {"names": np.array(["b", "aa"])})
    names = np.array(["b", "aa"], dtype=object)
    assert flat(archive.load(tmp_path / "run")) == flat({"names": names})


def test_whole_at_any_moment(tmp_path, monkeypatch):
    """Before each step that touches the disk, what lies there is the old file or the new one."""
    path, epochs = tmp_path / "run", []
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


def test_a_link_is_followed(tmp_path):
    (tmp_path / "disk").mkdir()
    link = tmp_path / "latest"
    link.symlink_to(tmp_path / "disk" / "run")
    for epoch in (1, 2):
        archive.save(link, {"epoch": epoch})
        assert archive.load(link) == archive.load(tmp_path / "disk" / "run") == {"epoch": epoch}
    assert link.is_symlink()


@pytest.mark.parametrize("folder", [False, True])
def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch, folder):
    path = tmp_path / "run"
    path.mkdir() if folder else path.write_text("old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"), files.replacing(path) as new:
        new.mkdir() if folder else new.write_text("new")
    monkeypatch.undo()
    if folder:  # one that somebody has filled is not replaced
        (path / "mine.txt").write_text("mine")
        with pytest.raises(OSError, match="not empty"), files.replacing(path) as new:
            new.mkdir()
    assert (path / "mine.txt" if folder else path).read_text() == ("mine" if folder else "old")
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_damage_is_found_anywhere(tmp_path, damage):
    """Each byte but those of dates and attributes, which nobody reads, is covered by a checksum."""
    tree, path = {"epoch": 1, "weights": torch.ones(20)}, tmp_path / "run"
    archive.save(path, tree)
    data = path.read_bytes()
    for place in range(0, len(data), 7):
        changed = bytearray(data if damage == "flipped" else data[:place])
        if damage == "flipped":
            changed[place] ^= 1 << place % 8
        path.write_bytes(b"" if damage == "empty" else changed)
        try:
            found = archive.load(path)
        except StoreError:
            continue
        assert damage == "flipped"
        assert flat(found) == flat(tree)


def test_what_is_no_saved_thing_says_so(tmp_path):
    """It is not called damaged, and an earlier version is told by its number."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "other.json").write_text('{"format": "GeoJSON", "version": 10}')
    with zipfile.ZipFile(tmp_path / "books.zip", "w") as other:
        other.writestr("book.txt", "text")
    for name in ("folder", "notes.txt", "list.json", "other.json", "books.zip"):
        with pytest.raises(StoreError, match=f"{name} holds nothing that evalign saved: [^\n]*$"):
            evalign.load(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="nosuch does not exist"):
        evalign.load(tmp_path / "nosuch")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text('{"format": "evalign run", "version": 6}')
    (tmp_path / "rule.json").write_text('{"format": "evalign rule", "version": 3}')
    for name, version in {"run": 6, "rule.json": 3}.items():
        text = f"has format {version}.*, evalign now reads 10: fit again.$"
        with pytest.raises(StoreError, match=text):
            evalign.load(tmp_path / name)
    archive.save(tmp_path / "training", {"epoch": 1})
    with pytest.raises(StoreError, match="a checkpoint is no model"):
        evalign.load(tmp_path / "training")
    with pytest.raises(StoreError, match="holds no AlignedEnsemble: it is of kind 'checkpoint'"):
        evalign.AlignedEnsemble.load(tmp_path / "training")


@pytest.mark.parametrize("kind", ["pipe", "huge", "device"])
def test_what_is_no_plain_file_is_not_read(tmp_path, kind):
    path = tmp_path / "run"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with open(path, "wb") as sparse:
            sparse.truncate(2**39)
    with pytest.raises(StoreError, match="holds nothing that evalign saved"):
        archive.load(path)


def test_wrong_contents_with_right_checksums(tmp_path):
    path, header = tmp_path / "run", {"dtype": "F32", "shape": [2**20, 2**19]}
    text = json.dumps({"/a": header | {"data_offsets": [0, 2**41]}}).encode()
    hollow = json.dumps({"/a": {"dtype": "F32", "shape": [0, 10**12], "data_offsets": [0, 0]}})
    for member in [
        {"state_json": b"[1, 2]"},
        {"state_json": b'{"a": {"$tensor": "nosuch"}}'},
        {"state_json": b'{"a": {"$tensor": []}}'},
        {"state_json": b'{"a": {"$object": "nosuch", "state": {}}}'},
        {"state_json": b'{"a": {"$labels": [1]}, "b": {"$array": 3}}'},
        {"state_json": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"},
        {"tensors_safetensors": len(text).to_bytes(8, "little") + text},  # more than it holds
        {"tensors_safetensors": len(hollow).to_bytes(8, "little") + hollow.encode()},
        {"manifest_json": b'{"format": "evalign", "version": 10, "kind": "nosuch"}'},
        {"manifest_json": b'{"format": "evalign", "version": 10, "kind": "Tree"}'},
    ]:
        archive.save(path, TREE)
        forge(path, **member)
        with pytest.raises(StoreError, match=r"cannot be opened: [^\n]*$"):
            archive.load(path)


@pytest.mark.parametrize("name", [STATE, TENSORS, MANIFEST])
@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_small_file_does_not_fill_the_memory(tmp_path, monkeypatch, name, method):
    """Sizes are looked at before a member is unpacked."""
    monkeypatch.setattr(archive, "MOST_PACKED", 10**6)
    archive.save(tmp_path / "run", TREE)
    with zipfile.ZipFile(tmp_path / "run") as whole:
        members = {each: whole.read(each) for each in (MANIFEST, STATE, TENSORS)}
    with zipfile.ZipFile(tmp_path / "run", "w") as bomb:
        for each, data in members.items():
            given = (b" " * 10**7, method) if each == name else (data,)
            bomb.writestr(each, *given)
    with pytest.raises(StoreError, match=f"{name} claims 10,000,000 bytes of a file of"):
        archive.load(tmp_path / "run")


def test_tensors_that_would_seem_too_large_are_not_packed(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MOST_PACKED", 10**6)
    model = StandardScaler()
    model.mean_ = np.zeros(10**6)
    archive.save(tmp_path / "zeros", model)
    assert archive.load(tmp_path / "zeros").mean_.shape == (10**6,)


@pytest.mark.parametrize("named", ["data.csv", "work/notes.txt", "run/run.json"])
def test_replaces_no_file_or_folder_of_others(tmp_path, named):
    path = tmp_path / named
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    with pytest.raises(FileExistsError, match=r"nothing that evalign saved: .*Choose another path"):
        archive.save(tmp_path / named.split("/")[0], TREE)
    assert path.read_text() == "mine"


def test_documents(tmp_path):
    path, tree = tmp_path / "rule.json", {"gain": [[1.0, math.nan]], "names": ["ä"]}
    files.write_json(path, "rule", tree)
    assert str(files.read_json(path, "rule")) == str(tree)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("1.0", "2.0"), encoding="utf-8")
    with pytest.raises(StoreError, match=r"is damaged: it has changed .* or fit again\.$"):
        files.read_json(path, "rule")
    with pytest.raises(StoreError, match="it is no run"):
        files.read_json(path, "run")
    (tmp_path / "copy.json").write_text(text[:-9], encoding="utf-8")
    with pytest.raises(StoreError, match=r"copy.json holds nothing that evalign saved"):
        files.read_json(tmp_path / "copy.json", "rule")
