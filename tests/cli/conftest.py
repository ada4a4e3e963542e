"""A fitted run, shared by all tests that only read it."""

import pytest

from tests.cli.commands import done, fit, table, written


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return written(tmp_path_factory.mktemp("data") / "data.csv", table())


@pytest.fixture(scope="session")
def command(data, tmp_path_factory):
    """Return the command that makes `fitted`."""
    out = tmp_path_factory.mktemp("fitted") / "run"
    return fit(data, out, epochs=4, decision="tuned")


@pytest.fixture(scope="session")
def fitted(command):
    """Make a run folder. Tests that change it copy it first."""
    done(*command)
    return command[command.index("--out") + 1]
