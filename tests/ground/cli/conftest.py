"""A fitted run that is shared by all tests that only read it."""

import pytest

from tests.ground.cli.commands import done, fit, table, written


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return written(tmp_path_factory.mktemp("data") / "data.csv", table())


@pytest.fixture(scope="session")
def command(data, tmp_path_factory):
    """Return the command that makes `fitted`."""
    out = tmp_path_factory.mktemp("fitted") / "run"
    return fit(data, out, decision="tuned")


@pytest.fixture(scope="session")
def said(command):
    """What the command says."""
    return done(*command)


@pytest.fixture(scope="session")
def fitted(command, said):
    """Make a run folder. Tests that change it copy it first."""
    return command[command.index("--out") + 1]
