"""A run is written whole or not at all."""

import signal
from contextlib import ExitStack, contextmanager

import pytest

from evalign.cli import fit as command
from evalign.report import render
from evalign.store import files as store_files
from tests.ground.cli.commands import done, fit, invoke, refused, small_disk


def test_interrupted(data, tmp_path, monkeypatch):
    def interrupt(*_):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(command, "_tested", interrupt)
    assert invoke(*fit(data, tmp_path / "run")).code == 130
    assert not list(tmp_path.iterdir())


def test_files_are_on_the_disk_before_the_run_gets_its_name(data, tmp_path, monkeypatch):
    out, synced = tmp_path / "run", []
    monkeypatch.setattr(store_files, "_sync", lambda path: synced.append((path, out.exists())))
    done(*fit(data, out))
    (aside, before), last = synced[-2:]
    assert (aside.parent, aside.suffix, before) == (tmp_path, ".partial", False)
    assert last == (tmp_path, True)
    assert (aside / "model", False) in synced
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


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


def test_disk_full_at_the_end(data, tmp_path, no_room_for_the_report):
    """The report does not fit on the disk."""
    with no_room_for_the_report():
        refused_fit = refused(*fit(data, tmp_path / "run", "--quiet"))
    assert "File too large" in refused_fit
    assert not list(tmp_path.iterdir())
