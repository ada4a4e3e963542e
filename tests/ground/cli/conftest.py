"""Small networks, and a fitted run that is shared by all tests that only read it."""

from contextlib import contextmanager

import pytest

from evalign.training import fitting
from evalign.training.network import Size, size_of_members
from tests.ground.cli.commands import done, fit, table, written


# Of each module, because what lasts for the session would change the networks of other folders.
@pytest.fixture(autouse=True, scope="module")
def _small_networks():
    """Train few and small networks: the tests of the command line need no good ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "size_of_members", lambda *_: Size(2, 16))
        yield


@contextmanager
def networks_as_usual():
    """Train networks that are large enough to learn in a few epochs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "size_of_members", size_of_members)
        yield


@pytest.fixture
def usual_networks():
    with networks_as_usual():
        yield


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return written(tmp_path_factory.mktemp("data") / "data.csv", table())


@pytest.fixture(scope="session")
def command(data, tmp_path_factory):
    """Return the command that makes `fitted`."""
    out = tmp_path_factory.mktemp("fitted") / "run"
    return fit(data, out, epochs=4, decision="tuned")


@pytest.fixture(scope="session")
def said(command):
    """What the command says."""
    with networks_as_usual():
        return done(*command)


@pytest.fixture(scope="session")
def fitted(command, said):
    """Make a run folder. Tests that change it copy it first."""
    return command[command.index("--out") + 1]
