"""A fit that is stopped, by whatever, goes on with the same command and ends the same."""

import signal

import pytest

from tests.cli.commands import done, files, fit, process, refused, small_disk

EPOCHS = 6


@pytest.fixture(scope="module")
def whole(tmp_path_factory, data):
    out = tmp_path_factory.mktemp("whole") / "run"
    done(*fit(data, out, epochs=EPOCHS))
    return out


def comparable(run):
    """What does not tell the time: weights, predictions and scores."""
    return {
        path: content
        for path, content in files(run).items()
        if path.name in ("tensors.safetensors", "test_predictions.parquet", "metrics.json")
    }


STOP = """
import os
from evalign.training import checkpoint

def save(folder, tree, save=checkpoint.save):
    save(folder, tree)
    if folder.name == {name!r}:
        os.kill(os.getpid(), {how:d})

checkpoint.save = save
"""


def stopped(arguments, name, how):
    """The command in a process of its own, sent a signal right after it saved a checkpoint."""
    result = process(*arguments, before=STOP.format(name=name, how=how))
    return result.returncode, result.stderr


def test_interrupted_and_killed(whole, data, tmp_path):
    out, partial = tmp_path / "run", tmp_path / "run.partial"
    arguments = fit(data, out, epochs=EPOCHS)
    code, said = stopped(arguments, "model", signal.SIGINT)
    assert code == 130
    assert "Interrupted. The same command goes on where this one was." in said
    assert "Traceback" not in said
    assert partial.exists()
    text = refused(*fit(data, out, epochs=EPOCHS + 1))
    assert f"run.partial belongs to another command: --epochs was {EPOCHS}" in text

    code, said = stopped(arguments, "baseline", signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert "anchored: epoch 1/" not in said  # it went on from the checkpoint
    assert "anchored: epoch 2/" in said
    assert not out.exists()

    said = done(*arguments).err
    assert "anchored: epoch" not in said  # whose training was over
    assert "cross_entropy: epoch 1/" not in said
    assert comparable(out) == comparable(whole)
    assert not partial.exists()


def no_room_for_the_report(run):
    return small_disk((run / "report.html").stat().st_size - 200_000)


def test_disk_full_at_the_end(whole, data, tmp_path):
    """The report does not fit: the training is kept for when there is room."""
    out, partial = tmp_path / "run", tmp_path / "run.partial"
    with no_room_for_the_report(whole):
        assert "File too large" in refused(*fit(data, out, "--quiet", epochs=EPOCHS))
    assert not out.exists()
    assert sorted(path.name for path in partial.iterdir()) == ["checkpoints", "command.json"]
    assert "epoch" not in done(*fit(data, out, epochs=EPOCHS)).err
    assert comparable(out) == comparable(whole)


def test_a_damaged_checkpoint(whole, data, tmp_path):
    out, partial = tmp_path / "run", tmp_path / "run.partial"
    with no_room_for_the_report(whole):
        refused(*fit(data, out, "--quiet", epochs=1))
    file = partial / "checkpoints" / "model" / "tensors.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    text = refused(*fit(data, out, "--quiet", epochs=1))
    assert "checksum differs" in text
    assert "Delete the folder to start afresh." in text
