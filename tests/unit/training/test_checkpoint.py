"""Checkpoints: exact when resumed, also by a run that was killed, and refused by another run."""

import contextlib
import multiprocessing
import random
import signal

import pytest
import torch
from torch import nn

from evalign import MetricLoss
from evalign.store import archive
from evalign.store.files import StoreError
from evalign.training.annealing import TemperatureAnnealing
from evalign.training.loop import fit
from tests.unit.training.runs import bytes_of, everything, killable, mlp, rows, settings


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
    assert len(history) == len(archive.load(tmp_path / "run")["history"]) == 2


@pytest.mark.parametrize(("every", "precision"), [(1000, "float32"), (0, "float16")])
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
    assert len(archive.load(tmp_path / "run")["history"]) == 12
    resumed, history = everything(tmp_path / "run", **how)
    assert (bytes_of(resumed), plain(history)) == (bytes_of(expected), plain(whole))


def test_moments_shorter_than_their_parameter_are_refused(tmp_path):
    """The fused optimizer would read and write beyond them."""
    everything(tmp_path / "run", settings=settings(epochs=1))
    tree = archive.load(tmp_path / "run")
    tree["optimizer"]["0"]["exp_avg_sq"] = torch.zeros(1)
    archive.save(tmp_path / "run", tree)
    with pytest.raises(StoreError, match="parameter 0 has moments of another shape"):
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
    with pytest.raises(StoreError, match=f"belongs to another run: {text}"):
        everything(tmp_path / "run", **given)


@pytest.mark.parametrize(
    ("annealed", "name"), [(False, "loss.temperature"), (True, "annealing.start")]
)
def test_another_temperature_is_refused(tmp_path, annealed, name):
    def train(temperature):
        loss = MetricLoss("f1_macro", temperature=temperature)
        annealing = TemperatureAnnealing(loss, start=temperature) if annealed else None
        how = {"settings": settings(epochs=1), "validation": rows(100, seed=1)}
        how |= {"checkpoint": tmp_path / "run", "annealing": annealing}
        return fit(mlp(), loss, *rows(), metric="f1_macro", resume=True, **how)

    assert train(0.2)[-1]["temperature"] == train(0.2)[-1]["temperature"] == pytest.approx(0.2)
    with pytest.raises(StoreError, match=f"{name} was 0.2.* and is now 0.1"):
        train(0.1)


def test_killed_at_six_random_moments(tmp_path, uninterrupted):
    """SIGKILL to a real process, resumed by the same call: the last weights are the same bytes."""
    # A server imports once what many processes need; an optimiser imports torch._dynamo.
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["evalign.training.loop", "torch._dynamo"])
    moments = random.Random(0)
    epoch = sum(record["seconds"] for record in uninterrupted[1]) / len(uninterrupted[1])
    folder, result = tmp_path / "run", tmp_path / "weights"
    kills, finished, reached = 0, 0, set()
    while kills < 6 or not finished:
        ready, tell = processes.Pipe(duplex=False)
        process = processes.Process(target=killable, args=(folder, result, tell))
        process.start()
        tell.close()  # the process has its own: when it ends, so does what there is to receive
        if kills < 6:
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
            folder.unlink()
        else:
            kills += 1
            if folder.exists():
                reached.add(len(archive.load(folder)["history"]))
    assert len(reached) >= 3  # the kills were spread over the run


@pytest.mark.parametrize("part", ["call", "network", "optimizer", "rng", "stopping"])
@pytest.mark.parametrize("value", ["missing", 3, {"x": 1}])
def test_a_training_of_another_shape_is_refused(tmp_path, part, value):
    data = rows(60)
    given = {"validation": data, "metric": "f1_macro", "settings": settings(epochs=1)}
    given["checkpoint"] = tmp_path / "run"
    fit(mlp(), nn.CrossEntropyLoss(), *data, **given)
    tree = archive.load(tmp_path / "run")
    tree.pop(part) if value == "missing" else tree.update({part: value})
    archive.save(tmp_path / "run", tree)
    with pytest.raises(StoreError):
        fit(mlp(), nn.CrossEntropyLoss(), *data, **given, resume=True)


def test_a_folder_of_others_is_refused_before_training(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    epochs, data = [], rows()
    how = {"validation": data, "metric": "f1_macro", "settings": settings(epochs=2)}
    with pytest.raises(FileExistsError, match="nothing that evalign saved"):
        fit(mlp(), nn.CrossEntropyLoss(), *data, **how, checkpoint=tmp_path, on_epoch=epochs.append)
    assert not epochs
