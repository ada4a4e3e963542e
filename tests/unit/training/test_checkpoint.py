"""Checkpoints: whole at any moment, refused when damaged, and exact when resumed."""

import contextlib
import hashlib
import json
import math
import multiprocessing
import os
import random
import shutil
import signal

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from evalign.training import checkpoint
from evalign.training.checkpoint import CheckpointError
from evalign.training.loop import fit
from tests.unit.training.runs import bytes_of, everything, killable, mlp, rows, settings

WEIGHTS = torch.ones(4)
TREE = {
    "numbers": [1, 2.5, math.inf, True, None, "text"],
    "nested": {"empty": {}, "list": [{"weights": torch.arange(6.0).view(2, 3).T}]},
    "scalar": torch.tensor(0.2, dtype=torch.float64),
    "bytes": torch.tensor([1, 255], dtype=torch.uint8),
    "none": torch.zeros(0, 3),
    "shared": [WEIGHTS, WEIGHTS[:2]],
}


def flat(tree):
    if isinstance(tree, torch.Tensor):
        return ("tensor", tree.dtype, tree.tolist(), tuple(tree.shape))
    if isinstance(tree, dict):
        return {key: flat(value) for key, value in tree.items()}
    return [flat(value) for value in tree] if isinstance(tree, list) else tree


def test_round_trip(tmp_path):
    """Also of tensors that share memory, and into an empty folder."""
    (tmp_path / "a" / "run").mkdir(parents=True)
    checkpoint.save(tmp_path / "a" / "run", TREE)
    assert flat(checkpoint.load(tmp_path / "a" / "run")) == flat(TREE)
    names = sorted(path.name for path in (tmp_path / "a" / "run").iterdir())
    assert names == ["manifest.json", "state.json", "tensors.safetensors"]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["run"]
    with pytest.raises(TypeError, match="Keys in a checkpoint must be strings"):
        checkpoint.save(tmp_path / "run", {"state": {0: 1}})


def test_whole_at_any_moment(tmp_path, monkeypatch):
    """Before each step that touches the disk, a copy of what lies there is the old or the new."""
    place = tmp_path / "run"
    checkpoint.save(place, {"epoch": 1, "weights": torch.ones(3)})
    moments = []

    def watched(module, name):
        original = getattr(module, name)

        def step(*args, **kwargs):
            copy = tmp_path / f"moment{len(moments)}"
            copy.mkdir()
            for entry in tmp_path.glob("run*"):
                shutil.copytree(entry, copy / entry.name)
            moments.append(copy)
            return original(*args, **kwargs)

        monkeypatch.setattr(module, name, step)

    for module, name in [(os, "fsync"), (os, "rename"), (os, "unlink"), (os, "rmdir")]:
        watched(module, name)
    checkpoint.save(place, {"epoch": 2, "weights": torch.zeros(3)})
    monkeypatch.undo()
    assert len(moments) >= 8
    epochs = []
    for moment in moments:
        assert checkpoint.recovered(moment / "run").exists()
        epochs.append(checkpoint.load(moment / "run")["epoch"])
        checkpoint.save(moment / "run", {"epoch": 3})  # and one can go on from there
        assert checkpoint.load(moment / "run") == {"epoch": 3}
        assert [path.name for path in moment.iterdir()] == ["run"]
    assert set(epochs) == {1, 2}
    assert epochs == sorted(epochs)


def test_a_link_is_followed(tmp_path):
    (tmp_path / "disk").mkdir()
    link = tmp_path / "latest"
    link.symlink_to(tmp_path / "disk" / "run")
    for epoch in (1, 2):
        checkpoint.save(link, {"epoch": epoch})
        assert checkpoint.load(link) == checkpoint.load(tmp_path / "disk" / "run")
    assert link.is_symlink()
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["run"]


def test_a_failed_write_leaves_the_old_one(tmp_path, monkeypatch):
    checkpoint.save(tmp_path / "run", {"epoch": 1})

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(tmp_path / "run", {"epoch": 2})
    assert checkpoint.load(tmp_path / "run") == {"epoch": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


FILES = ["manifest.json", "state.json", "tensors.safetensors"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["missing", "cut", "flipped"])
def test_damage(tmp_path, name, damage):
    checkpoint.save(tmp_path / "run", {"epoch": 1, "weights": torch.ones(100)})
    file = tmp_path / "run" / name
    data = bytearray(file.read_bytes())
    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(data[: len(data) // 2])
    else:
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(tmp_path / "run")
    assert "run" in str(caught.value)


def test_texts(tmp_path):
    place = tmp_path / "run"
    with pytest.raises(CheckpointError, match="is not a checkpoint of evalign: it has no manifest"):
        checkpoint.load(place)
    checkpoint.save(place, {})
    manifest = json.loads((place / "manifest.json").read_text())
    for changed, text in [
        (manifest | {"version": 2}, r"has format version 2, this is 1\. Load it with the version"),
        ([], "is not a checkpoint of evalign"),
        (manifest | {"sha256": {}}, r"checksum differs from the manifest's\. Take it from"),
    ]:
        (place / "manifest.json").write_text(json.dumps(changed))
        with pytest.raises(CheckpointError, match=text):
            checkpoint.load(place)


@pytest.fixture(scope="module")
def uninterrupted():
    network, history = everything()
    return bytes_of(network), history


def plain(history):
    return [{k: v for k, v in record.items() if k != "seconds"} for record in history]


def test_a_checkpoint_changes_nothing_and_a_finished_run_is_not_run_again(tmp_path, uninterrupted):
    seen = []
    for _ in range(2):
        network, history = everything(tmp_path / "run", on_epoch=seen.append)
        assert (bytes_of(network), plain(history)) == (uninterrupted[0], plain(uninterrupted[1]))
        assert len(seen) == len(history)
    history = everything(tmp_path / "run", resume=False, settings=settings(epochs=2))[1]
    assert len(history) == len(checkpoint.load(tmp_path / "run")["history"]) == 2


@pytest.mark.parametrize(
    ("every", "precision"), [(0, "float32"), (1000, "float32"), (0, "float16")]
)
def test_ctrl_c_saves_and_resumes_exactly(tmp_path, every, precision):
    """Ctrl-C in epoch 13 leaves the checkpoint of epoch 12, with the scale of float16 gradients."""
    how, network, calls = {"settings": settings(precision=precision)}, mlp(), 0
    expected, whole = everything(**how)

    def interrupt(module, *_):
        nonlocal calls
        calls += module.training
        if calls == 12 * 5 + 3:
            raise KeyboardInterrupt

    network.register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        everything(tmp_path / "run", network=network, checkpoint_every=every, **how)
    assert len(checkpoint.load(tmp_path / "run")["history"]) == 12
    resumed, history = everything(tmp_path / "run", **how)
    assert (bytes_of(resumed), plain(history)) == (bytes_of(expected), plain(whole))


def test_moments_shorter_than_their_parameter_are_refused(tmp_path):
    """The fused optimizer would read and write beyond them."""
    everything(tmp_path / "run", settings=settings(epochs=1))
    tree = checkpoint.load(tmp_path / "run")
    tree["optimizer"]["0"]["exp_avg_sq"] = torch.zeros(1)
    checkpoint.save(tmp_path / "run", tree)
    with pytest.raises(CheckpointError, match="parameter 0 has moments of another shape"):
        everything(tmp_path / "run", settings=settings(epochs=1))


def frozen():
    network = mlp()
    network[0].weight.requires_grad_(False)
    return network


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"settings": settings(epochs=1, learning_rate=0.5)}, "learning_rate was 0.01 and is now"),
        ({"settings": settings(epochs=1, batch_size=32)}, "batch_size was 64 and is now 32"),
        ({"validation": rows(50)}, "the checksum of the rows was"),
        ({"network": mlp(dropout=0.5)}, "network.3.p was 0.2 and is now 0.5"),
        ({"network": mlp(4)}, "network.4.out_features was 3 and is now 4"),
        ({"network": frozen()}, r"frozen was \[\] and is now \['0.weight'\]"),
        ({"undecayed": True}, r"undecayed was \[\] and is now \['0.weight'\]"),
    ],
)
def test_another_call_is_refused(tmp_path, changes, text):
    """With the moments of another parameter the fused optimizer would end the process."""
    everything(tmp_path / "run", settings=settings(epochs=1))
    network = mlp()
    given = {"settings": settings(epochs=1), "network": network} | changes
    if "undecayed" in given:
        given["undecayed"] = [network[0].weight]
    with pytest.raises(CheckpointError, match=f"belongs to another run: {text}"):
        everything(tmp_path / "run", **given)


@pytest.mark.parametrize("own_generator", [False, True])
def test_a_data_loader_resumes_exactly(tmp_path, own_generator):
    class Stop(Exception):
        pass

    def go(stop_at=None, **changes):
        generator = torch.Generator().manual_seed(1) if own_generator else None
        loader = DataLoader(TensorDataset(*rows()), 64, shuffle=True, generator=generator)

        def on_epoch(record):
            if record["epoch"] == stop_at:
                raise Stop

        network = mlp()
        fit(
            network,
            nn.CrossEntropyLoss(),
            loader,
            validation=rows(100, seed=1),
            metric="f1_macro",
            settings=settings(epochs=6),
            on_epoch=on_epoch,
            **changes,
        )
        return bytes_of(network)

    expected = go()
    with pytest.raises(Stop):
        go(stop_at=4, checkpoint=tmp_path / "run")
    assert go(checkpoint=tmp_path / "run", resume=True) == expected


def test_killed_at_ten_random_moments(tmp_path, uninterrupted):
    """SIGKILL to a real process, resumed by the same call: the last weights are the same bytes."""
    # A server imports once what ten processes need; an optimiser imports torch._dynamo.
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["evalign.training.loop", "torch._dynamo"])
    moments = random.Random(0)
    epoch = sum(record["seconds"] for record in uninterrupted[1]) / len(uninterrupted[1])
    folder, result = tmp_path / "run", tmp_path / "weights"
    kills, finished, reached = 0, 0, set()
    while kills < 10 or not finished:
        ready, tell = processes.Pipe(duplex=False)
        process = processes.Process(target=killable, args=(folder, result, tell))
        process.start()
        tell.close()  # the process has its own: when it ends, so does what there is to receive
        if kills < 10:
            with contextlib.suppress(EOFError):  # it finished before
                for _ in range(moments.randrange(10)):
                    ready.recv()  # epochs are counted, for a busy machine may take long to begin
            process.join(moments.uniform(0, epoch))
            process.kill()  # SIGKILL
        process.join(60)
        assert process.exitcode in (0, -signal.SIGKILL)
        if process.exitcode == 0:
            assert result.read_bytes() == uninterrupted[0]
            finished += 1
            shutil.rmtree(folder)
        else:
            kills += 1
            if checkpoint.recovered(folder).exists():
                reached.add(len(checkpoint.load(folder)["history"]))
    assert len(reached) >= 5  # the kills were spread over the run


def test_deleting_the_folder_starts_afresh(tmp_path, monkeypatch):
    """Killed while it deletes the old checkpoint: what is left of that is never loaded."""
    folder = tmp_path / "run"
    checkpoint.save(folder, {"epoch": 1})

    def killed(path):
        (path / "tensors.safetensors").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            checkpoint.save(folder, {"epoch": 2})
    assert checkpoint.load(folder) == {"epoch": 2}
    shutil.rmtree(folder)
    assert not checkpoint.recovered(folder).exists()


def forged(folder, name, data):
    """Replace a file, and its checksum in the manifest."""
    (folder / name).write_bytes(data)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"][name] = hashlib.sha256(data).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["pipe", "huge"])
def test_what_is_no_plain_file_is_not_read(tmp_path, name, kind):
    checkpoint.save(tmp_path / "run", TREE)
    file = tmp_path / "run" / name
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    else:
        with open(file, "wb") as sparse:
            sparse.truncate(2**39)
    words = "it has 549,755,813,888 bytes, more" if kind == "huge" else "it is not a plain file"
    with pytest.raises(CheckpointError, match=f"{name}: {words}"):
        checkpoint.load(tmp_path / "run")


def test_wrong_contents_with_right_checksums(tmp_path):
    header = {"/a": {"dtype": "F32", "shape": [2**20, 2**19], "data_offsets": [0, 2**41]}}
    text = json.dumps(header).encode()
    for name, data in [
        ("state.json", b"[1, 2]"),
        ("state.json", b'{"a": {"$tensor": "nosuch"}}'),
        ("state.json", b'{"a": {"$tensor": []}}'),
        ("state.json", b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        ("tensors.safetensors", len(text).to_bytes(8, "little") + text),  # more than the file holds
    ]:
        checkpoint.save(tmp_path / "run", TREE)
        forged(tmp_path / "run", name, data)
        with pytest.raises(CheckpointError, match=name):
            checkpoint.load(tmp_path / "run")


@pytest.mark.parametrize("part", ["call", "network", "optimizer", "rng", "stopping"])
@pytest.mark.parametrize("value", ["missing", 3, {"x": 1}])
def test_a_training_of_another_shape_is_refused(tmp_path, part, value):
    data = rows(60)
    given = {"validation": data, "metric": "f1_macro", "settings": settings(epochs=1)}
    given["checkpoint"] = tmp_path / "run"
    fit(mlp(), nn.CrossEntropyLoss(), *data, **given)
    tree = checkpoint.load(tmp_path / "run")
    tree.pop(part) if value == "missing" else tree.update({part: value})
    checkpoint.save(tmp_path / "run", tree)
    with pytest.raises(CheckpointError):
        fit(mlp(), nn.CrossEntropyLoss(), *data, **given, resume=True)


@pytest.mark.parametrize("named", ["data.csv", "work/notes.txt", "work/ensemble/mine.txt"])
def test_replaces_no_file_or_folder_of_others(tmp_path, named):
    path = tmp_path / named
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    with pytest.raises(FileExistsError, match=r"did not write: .*Choose another path"):
        checkpoint.save(tmp_path / named.split("/")[0], TREE)
    assert path.read_text() == "mine"


def test_a_folder_of_others_is_refused_before_training(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    epochs, data = [], rows()
    how = {"validation": data, "metric": "f1_macro", "settings": settings(epochs=2)}
    with pytest.raises(FileExistsError, match=r"did not write: notes\.txt"):
        fit(mlp(), nn.CrossEntropyLoss(), *data, **how, checkpoint=tmp_path, on_epoch=epochs.append)
    assert not epochs
