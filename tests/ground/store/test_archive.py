"""One file for anything fitted: whole at any moment, the same when opened, refused when damaged."""

import math
import os
import tracemalloc
import zipfile

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

import evalign
from evalign.store import archive, files
from evalign.store.archive import MANIFEST, STATE
from evalign.store.files import StoreError
from tests.forged import forge, members_of, npy, write_members

WEIGHTS = np.ones(4)
TREE = {
    "numbers": [1, 2.5, math.inf, True, None, "text", np.float32(0.5)],
    "nested": {"empty": {}, "list": [{"weights": np.arange(6.0, dtype="f4").reshape(2, 3).T}]},
    "scalar": np.array(0.2),
    "bytes": np.array([1, 255], dtype=np.uint8),
    "bools": np.array([[True, False]]),
    "halves": np.array([0.5, math.nan, -math.inf], dtype=np.float16),
    "high byte first": np.array([1, 258], dtype=">u4").astype("=u4"),
    "none": np.zeros((0, 3)),
    "shared": [WEIGHTS, WEIGHTS[:2], WEIGHTS[::-2]],
    "a/b": np.array([1]),
    "a": {"b": np.array([2])},
    "text": np.array(["x", 3], object),
    "keys": {0: "zero", "$array": "a column of this name"},
    "tuple": ("a", [1]),
}
FIRST = "arrays/0.npy"


def flat(tree):
    if isinstance(tree, np.ndarray):
        return (type(tree), tree.dtype, str(tree.tolist()), tuple(tree.shape))
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


def test_arrays_can_be_written_to_and_have_the_byte_order_of_the_machine(tmp_path):
    archive.save(tmp_path / "run", {"swapped": np.array([1, 258], dtype=">u4")})
    array = archive.load(tmp_path / "run")["swapped"]
    array += 1
    assert array.dtype == np.uint32
    assert array.dtype.isnative
    assert array.tolist() == [2, 259]


@pytest.mark.parametrize("dtype", ["complex128", "datetime64[s]", "V8", np.longdouble])
def test_other_arrays_are_not_saved(tmp_path, dtype):
    with pytest.raises(TypeError, match=r"only what it can check .*Got numpy.ndarray"):
        archive.save(tmp_path / "run", {"values": np.zeros(2, dtype)})
    assert not any(tmp_path.iterdir())


def test_text_takes_the_room_that_it_has_in_the_file(tmp_path):
    """numpy would give each text the room of the longest one, or of any that a file claims."""
    archive.save(tmp_path / "run", {"names": np.array(["b", "aa"])})
    names = np.array(["b", "aa"], dtype=object)
    assert flat(archive.load(tmp_path / "run")) == flat({"names": names})


def test_whole_at_any_moment(tmp_path, monkeypatch):
    """Before each step that touches the disk, what lies there is the old file or the new one."""
    path, epochs = tmp_path / "run", []
    archive.save(path, {"epoch": 1, "weights": np.ones(3)})

    def watched(name):
        original = getattr(os, name)

        def step(*args, **kwargs):
            epochs.append(archive.load(path)["epoch"])
            return original(*args, **kwargs)

        monkeypatch.setattr(os, name, step)

    for name in ("fsync", "replace", "unlink", "open"):
        watched(name)
    archive.save(path, {"epoch": 2, "weights": np.zeros(3)})
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
    tree, path = {"epoch": 1, "weights": np.ones(20)}, tmp_path / "run"
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
    (tmp_path / "other.json").write_text('{"format": "GeoJSON", "version": 12}')
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
        text = f"has format {version}.*, evalign now reads 12: fit again.$"
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


def npy_with(header, content=b"", version=b"\x01\x00"):
    """An .npy file whose header says anything."""
    text = header if isinstance(header, bytes) else repr(header).encode()
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text + content


def header(descr="<f8", shape=(2,), fortran_order=False):
    return {"descr": descr, "fortran_order": fortran_order, "shape": shape}


WRONG_ARRAYS = {
    "nothing": b"",
    "no .npy file": b"[1, 2, 3]",
    "cut": npy(np.ones(4))[:-1],
    "longer": npy(np.ones(4)) + b"0",
    "more than it holds": npy_with(header(shape=(2**20, 2**19))),
    "more than any memory": npy_with(header(shape=(2**62, 2**62)), bytes(16)),
    "hollow": npy_with(header(shape=(0, 10**12))),
    "two negative sizes": npy_with(header(shape=(-1, -2)), bytes(16)),
    "a size that is text": npy_with(header(shape=("2",)), bytes(16)),
    "objects": npy_with(header("|O"), bytes(16)),
    "objects, pickled": npy_with(header("|O", (1,)), b"\x80\x04]."),
    "fields": npy_with(header([("a", "<f8")]), bytes(16)),
    "fields of objects": npy_with(header([("a", "|O")]), bytes(16)),
    "an array in each element": npy_with(header(("<f8", (2**40,)), (0,))),
    "text": npy_with(header("<U2"), bytes(16)),
    "raw bytes": npy_with(header("|V8"), bytes(16)),
    "elements without size": npy_with(header("|V0", (2**62,))),
    "complex numbers": npy_with(header("<c8"), bytes(16)),
    "dates": npy_with(header("<M8[s]"), bytes(16)),
    "long doubles": npy_with(header("<f16", (1,)), bytes(16)),
    "by columns": npy_with(header(shape=(2, 1), fortran_order=True), bytes(16)),
    "truth values of 2": npy_with(header("|b1"), bytes([1, 2])),
    "another version": npy_with(header(), bytes(16), version=b"\x09\x00"),
    "a version with longer headers": npy_with(header(), bytes(16), version=b"\x02\x00"),
    "a header that nests": npy_with(b"(" * 10_000),
    "a header that is code": npy_with(b"__import__('os').abort()"),
    "a header that is long": npy_with(repr(header()).encode() + b" " * 2000, bytes(16)),
    "a header without a shape": npy_with({"descr": "<f8", "fortran_order": False}, bytes(16)),
    "a header with more": npy_with(header() | {"more": 1}, bytes(16)),
}


@pytest.mark.parametrize("kind", WRONG_ARRAYS)
def test_a_forged_array(tmp_path, kind):
    path = tmp_path / "run"
    archive.save(path, TREE)
    forge(path, **{FIRST: WRONG_ARRAYS[kind]})
    with pytest.raises(StoreError, match=r"cannot be opened: [^\n]*$"):
        archive.load(path)


def test_wrong_contents_with_right_checksums(tmp_path):
    path = tmp_path / "run"
    for member in [
        {"state_json": b"[1, 2]"},
        {"state_json": b'{"a": {"$array": "nosuch"}}'},
        {"state_json": b'{"a": {"$array": "state.json"}}'},
        {"state_json": b'{"a": {"$array": []}}'},
        {"state_json": b'{"a": {"$tensor": "arrays/0.npy"}}'},
        {"state_json": b'{"a": {"$array": "arrays/0.npy"}, "b": {"$array": "arrays/0.npy"}}'},
        {"state_json": b'{"a": {"$object": "nosuch", "state": {}}}'},
        {"state_json": b'{"a": {"$labels": [1]}, "b": {"$array": 3}}'},
        {"state_json": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"},
        {"manifest_json": b'{"format": "evalign", "version": 12, "kind": "nosuch"}'},
        {"manifest_json": b'{"format": "evalign", "version": 12, "kind": "Tree"}'},
    ]:
        archive.save(path, TREE)
        forge(path, **member)
        with pytest.raises(StoreError, match=r"cannot be opened: [^\n]*$"):
            archive.load(path)


@pytest.mark.parametrize("name", [STATE, FIRST, MANIFEST])
@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_small_file_does_not_fill_the_memory(tmp_path, monkeypatch, name, method):
    """Sizes are looked at before a member is unpacked."""
    monkeypatch.setattr(archive, "MOST_PACKED", 10**6)
    archive.save(tmp_path / "run", TREE)
    members = members_of(tmp_path / "run")
    with zipfile.ZipFile(tmp_path / "run", "w") as bomb:
        for each, data in members.items():
            given = (b" " * 10**7, method) if each == name else (data,)
            bomb.writestr(each, *given)
    with pytest.raises(StoreError, match=f"{name} claims 10,000,000 bytes of a file of"):
        archive.load(tmp_path / "run")


def test_many_small_members_do_not_fill_the_memory(tmp_path, monkeypatch):
    """Together they may unpack to as much as one of them."""
    monkeypatch.setattr(archive, "MOST_PACKED", 10**6)
    archive.save(tmp_path / "run", {"arrays": [np.zeros(0)] * 20})
    members = members_of(tmp_path / "run")
    zeros = {name: npy(np.zeros(10**4)) for name in members if name.startswith("arrays/")}
    with zipfile.ZipFile(tmp_path / "run", "w") as bomb:
        for name, data in (members | zeros).items():
            bomb.writestr(name, data, zipfile.ZIP_DEFLATED if name in zeros else zipfile.ZIP_STORED)
    assert (tmp_path / "run").stat().st_size < 10**4
    with pytest.raises(StoreError, match=r"arrays/12.npy claims 80,128 bytes of a file of"):
        archive.load(tmp_path / "run")


def test_members_that_share_their_bytes(tmp_path):
    """A file could else hold itself many times over."""
    archive.save(tmp_path / "run", {"arrays": [np.zeros(10**5)] * 2})
    with zipfile.ZipFile(tmp_path / "run", "a") as shared:
        first = shared.getinfo(FIRST)
        shared.getinfo("arrays/1.npy").header_offset = first.header_offset
        for number in range(2, 20):
            copy = zipfile.ZipInfo(f"arrays/{number}.npy")
            for field in ("header_offset", "file_size", "compress_size", "CRC"):
                setattr(copy, field, getattr(first, field))
            shared.filelist.append(copy)
            shared.NameToInfo[copy.filename] = copy
        shared._didModify = True
    with pytest.raises(StoreError, match=r"claims 800,128 bytes of a file of 1,6"):
        archive.load(tmp_path / "run")


def test_a_member_that_holds_more_than_it_claims(tmp_path):
    """No more than that is unpacked."""
    archive.save(tmp_path / "run", {"weights": np.zeros(10)})
    members = members_of(tmp_path / "run") | {FIRST: npy(np.zeros(10**6))}
    write_members(tmp_path / "run", members, zipfile.ZIP_STORED)
    with zipfile.ZipFile(tmp_path / "run", "w") as bomb:
        for name, data in members.items():
            method = zipfile.ZIP_DEFLATED if name == FIRST else zipfile.ZIP_STORED
            bomb.writestr(name, data, method)
        bomb.getinfo(FIRST).file_size = 208
    tracemalloc.start()
    with pytest.raises(StoreError, match="cannot be opened: "):
        archive.load(tmp_path / "run")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10**6


def test_arrays_that_would_seem_too_large_are_not_packed(tmp_path, monkeypatch):
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
