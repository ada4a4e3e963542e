"""What every test run shares: the skip rule, hypothesis' profile, threads, the real data."""

import os
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest
import torch

# What may be skipped in CI: the beginning of a test's id, and why.
ALLOWED_SKIPS: dict[str, str] = {
    "tests/device/": "CI has no GPU; `make gpu` runs them where there is one",
    "study/tests/device/": "as above",
}

# The same examples on every run, so that a failure in CI is the failure at home. No deadline: the
# first call of a compiled loss is slow. No database: with fixed examples it has nothing to tell.
hypothesis.settings.register_profile(
    "default", derandomize=True, deadline=None, database=None, max_examples=50
)
hypothesis.settings.load_profile("default")

# The parallelism is in the workers; threads on top of it would fight for the same cores.
torch.set_num_threads(1)

BESIDE = Path(__file__).parents[1] / "shared" / "data"  # a folder beside the repository
REAL = Path(os.environ.get("EVALIGN_DATA") or BESIDE)


@pytest.fixture
def real(monkeypatch):
    """The real files of the data sets."""
    if not REAL.is_dir():
        pytest.skip(f"needs the real files: there is no folder {REAL}; name one in EVALIGN_DATA")
    monkeypatch.setenv("EVALIGN_DATA", str(REAL))


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
