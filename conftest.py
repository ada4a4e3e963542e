"""What every test run shares: the skip rule, hypothesis' profile, threads, real data, a browser."""

import gc
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# What may be skipped in CI: the beginning of a test's id, and why.
ALLOWED_SKIPS: dict[str, str] = {
    "tests/device/": "CI has no GPU; `make gpu` runs them where there is one",
    "study/tests/device/": "as above",
    "tests/ground/decisions/test_rule_file.py::test_applied_by_the_program": "there may be no node",
}

# The same examples on every run, so that a failure in CI is the failure at home. No deadline: the
# first call of a compiled loss is slow. No database: with fixed examples it has nothing to tell.
hypothesis.settings.register_profile(
    "default", derandomize=True, deadline=None, database=None, max_examples=50
)
hypothesis.settings.load_profile("default")

# The parallelism is in the workers; threads on top of it would fight for the same cores. Said
# before torch and scikit-learn are imported, and to the processes that tests start.
os.environ["OMP_NUM_THREADS"] = "1"

BESIDE = Path(__file__).parents[1] / "shared" / "data"  # a folder beside the repository
REAL = Path(os.environ.get("EVALIGN_DATA") or BESIDE)
LEFT_OUT = pytest.StashKey[int]()  # how many tests of the real files are not run


@pytest.fixture
def real(monkeypatch):
    """The real files of the data sets. A test that asks for them is marked `real_data`."""
    monkeypatch.setenv("EVALIGN_DATA", str(REAL))


# Before pytest's own, which picks by marker.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of the real files, and leave them out where there are none.

    They are not skipped: in CI a skip is a failure, and a machine without the files can do
    nothing about it. The last lines of a run tell how many they were.
    """
    for item in items:
        if "real" in getattr(item, "fixturenames", ()):
            item.add_marker("real_data")
    absent = [] if REAL.is_dir() else [x for x in items if x.get_closest_marker("real_data")]
    if absent:
        items[:] = [item for item in items if not item.get_closest_marker("real_data")]
        config.hook.pytest_deselected(items=absent)
        config.stash[LEFT_OUT] = len(absent)


# What is imported by now stays; the collector need not look through it again and again.
def pytest_collection_finish() -> None:
    gc.freeze()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    count = config.stash.get(LEFT_OUT, 0)
    if count:
        where = f"no folder {REAL} (name another in EVALIGN_DATA)"
        terminalreporter.write_line(f"{count} tests of the real files not run: {where}")


# Under xdist the workers collect, each of them everything, and the controller tells.
def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


@pytest.fixture(scope="module")
def browser():
    """A real browser, without a network."""
    from tests.chromium import started  # here, because few tests need it

    with started() as browser:
        yield browser


def fail_unexpected_skip(report):
    """In CI a skip that nobody allowed is a failure: a test that never runs protects nothing."""
    allowed = report.nodeid.startswith(tuple(ALLOWED_SKIPS))
    expected_failure = hasattr(report, "wasxfail")
    if os.environ.get("CI") and report.skipped and not (allowed or expected_failure):
        report.outcome = "failed"
        report.longrepr = f"unexpected skip (see ALLOWED_SKIPS): {report.nodeid}: {report.longrepr}"
    return report


# The reports are changed where they are made, in the worker, so xdist needs no special care.
@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return fail_unexpected_skip((yield))


# A module that skips itself (importorskip) makes a report at collection.
@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return fail_unexpected_skip((yield))
