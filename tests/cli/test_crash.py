"""A fit that is stopped in any way continues with the same command and ends the same."""

import signal
from contextlib import ExitStack, contextmanager

import pytest

from evalign.cli import fit as command
from evalign.cli.run import METRICS, PREDICTIONS
from evalign.report import render
from evalign.store import archive
from evalign.store import files as store_files
from tests.cli.commands import done, fit, invoke, process, refused, small_disk
from tests.forged import opened

EPOCHS = 3


@pytest.fixture(scope="module")
def whole(tmp_path_factory, data):
    out = tmp_path_factory.mktemp("whole") / "run"
    done(*fit(data, out, epochs=EPOCHS))
    return out


def comparable(run):
    """Return what does not depend on the time: weights, predictions and scores."""
    names = ("model", "baseline")
    tensors = {name: opened(run / name)[1] for name in names if (run / name).exists()}
    weights = {name: {k: w.tolist() for k, w in tensors[name].items()} for name in tensors}
    scores = {name: (run / name).read_bytes() for name in (PREDICTIONS, METRICS)}
    return weights | scores


def interrupting(path, tree, save=archive.save):
    save(path, tree)
    signal.raise_signal(signal.SIGINT)


KILLING = """
import os, signal
from evalign.estimators import fitting, rows
from evalign.estimators.network import Size
from evalign.store import archive, files as store_files

fitting.size_of_members, rows.FOLDS = lambda *_: Size(2, 16), 2  # as in this process

def save(path, tree, save=archive.save):
    save(path, tree)
    if path.name == "baseline":
        os.kill(os.getpid(), signal.SIGKILL)

archive.save = save
"""


def test_interrupted_with_nothing_to_go_on_from(data, tmp_path, monkeypatch):
    def interrupt(*_):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(command, "_trained", interrupt)
    assert invoke(*fit(data, tmp_path / "run")).code == 130
    assert not list(tmp_path.iterdir())


def test_interrupted_and_killed(whole, data, tmp_path, monkeypatch):
    """It is stopped right after the first checkpoint of either model."""
    out, partial = tmp_path / "run", tmp_path / "run.partial"
    arguments = fit(data, out, epochs=EPOCHS)
    with monkeypatch.context() as patch:
        patch.setattr(archive, "save", interrupting)
        stopped = invoke(*arguments)
    assert stopped.code == 130
    assert stopped.err.splitlines()[-1] == "evalign: interrupted."
    assert partial.exists()
    text = invoke(*fit(data, out, epochs=EPOCHS + 1)).err
    assert "run.partial belongs to a command with another --epochs." in text

    killed = process(*arguments, "--json", before=KILLING)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert killed.stdout == ""
    assert "aligned: epoch 1/" not in killed.stderr  # it went on from the checkpoint
    assert "aligned: epoch 2/" in killed.stderr
    assert not out.exists()

    said = done(*arguments).err
    assert "aligned: epoch" not in said  # whose training was over
    assert "cross_entropy: epoch 1/" not in said
    assert comparable(out) == comparable(whole)
    assert not partial.exists()


def test_files_are_on_the_disk_before_the_run_gets_its_name(data, tmp_path, monkeypatch):
    out, synced = tmp_path / "run", []
    monkeypatch.setattr(store_files, "_sync", lambda path: synced.append((path, out.exists())))
    done(*fit(data, out, "--no-baseline", epochs=1))
    assert synced[-2:] == [(tmp_path / "run.partial" / "run", False), (tmp_path, True)]
    assert (tmp_path / "run.partial" / "run" / "model", False) in synced
    assert not (tmp_path / "run.partial").exists()


def test_a_partial_folder_of_others_is_not_touched(data, tmp_path):
    (tmp_path / "run.partial").mkdir()
    (tmp_path / "run.partial" / "mine.txt").write_text("mine")
    said = invoke(*fit(data, tmp_path / "run", "--no-baseline", epochs=1)).err
    assert "run.partial exists and is not a run of evalign" in said
    assert [path.name for path in (tmp_path / "run.partial").iterdir()] == ["mine.txt"]


@pytest.fixture
def no_room_for_the_report(monkeypatch):
    """A context in which the disk is full from the report on; the weights are larger than it."""

    @contextmanager
    def full():
        with ExitStack() as stack, monkeypatch.context() as patch:

            def render_and_fill(*given):
                page = render(*given)
                stack.enter_context(small_disk(len(page) // 2))
                return page

            patch.setattr(command, "render", render_and_fill)
            yield

    return full


def test_disk_full_at_the_end(whole, data, tmp_path, no_room_for_the_report):
    """The report does not fit on the disk, and the training is kept until there is room."""
    out, partial = tmp_path / "run", tmp_path / "run.partial"
    with no_room_for_the_report():
        assert "File too large" in refused(*fit(data, out, "--quiet", epochs=EPOCHS))
    assert not out.exists()
    assert sorted(path.name for path in partial.iterdir()) == ["checkpoints", "command.json"]
    assert "epoch" not in done(*fit(data, out, epochs=EPOCHS)).err
    assert comparable(out) == comparable(whole)


def test_a_damaged_checkpoint(data, tmp_path, no_room_for_the_report):
    out, partial = tmp_path / "run", tmp_path / "run.partial"
    with no_room_for_the_report():
        refused(*fit(data, out, "--quiet", epochs=1))
    file = partial / "checkpoints" / "model"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert f"{file} cannot be opened: BadZipFile: Bad CRC-32" in refused(
        *fit(data, out, "--quiet", epochs=1)
    )
