"""Small networks, and a fitted run that is shared by all tests that only read it."""

from contextlib import contextmanager

import pytest

from evalign.training import fitting
from evalign.training.network import Size, size_of_members
from tests.ground.cli.commands import done, fit, table, written


# Of each module, because what lasts for the session would change the networks of other folders.
@pytest.fixture(autouse=True, scope="module")
def _small_networks():
    """Train few and small networks: most tests of the command line need no good ones."""
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
def said(data, tmp_path_factory):
    """What the command that makes `fitted` says."""
    out = tmp_path_factory.mktemp("fitted") / "run"
    with networks_as_usual():
        result = done(*fit(data, out, epochs=4, decision="tuned", model="network"))
    return out, result


@pytest.fixture(scope="session")
def fitted(said):
    """A run folder of a network."""
    return said[0]
