"""The skip rule of conftest.py, tried on a small project, where it must work through xdist."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = (Path(__file__).parents[2] / "conftest.py").read_text(encoding="utf-8")
ALLOWED = 'ALLOWED_SKIPS["test_it.py::test_allowed"] = "no such device in CI"'

TESTS = """
    import pytest

    def test_passes(): pass

    @pytest.mark.skip(reason="no such device")
    def test_skipped(): pass

    @pytest.mark.skip(reason="allowed")
    def test_allowed(): pass

    @pytest.mark.slow
    @pytest.mark.skip(reason="a marker is not an excuse")
    def test_slow(): pass

    @pytest.mark.xfail(reason="known")
    def test_expected_failure(): assert False

    def test_real_files(real): assert False
"""

SKIPPED_MODULE = """
    import pytest

    pytest.importorskip("no_such_package")
"""


@pytest.fixture
def project(pytester, monkeypatch):
    pytester.makeconftest(f"{CONFTEST}\n{ALLOWED}\n")
    pytester.makeini("[pytest]\nmarkers =\n    slow\n    real_data\n")
    pytester.makepyfile(test_it=TESTS)
    monkeypatch.setenv("CI", "1")
    monkeypatch.setenv("EVALIGN_DATA", str(pytester.path / "nowhere"))
    return pytester


# One run for all that CI must tell: a worker takes seconds to start.
@pytest.mark.slow
def test_in_ci_through_xdist(project):
    result = project.runpytest_subprocess("-n", "1")
    result.assert_outcomes(passed=1, errors=2, skipped=1, xfailed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    for line in (
        "*unexpected skip*test_it.py::test_skipped*no such device*",
        "*unexpected skip*test_it.py::test_slow*a marker is not an excuse*",
        "1 tests of the real files not run: no folder *nowhere*",
    ):
        result.stdout.fnmatch_lines(line)


def test_module_that_skips_itself_fails_in_ci(project):
    project.makepyfile(test_it=SKIPPED_MODULE)
    result = project.runpytest_inprocess("-p", "no:xdist")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines("*unexpected skip*test_it.py*no_such_package*")


def test_skip_passes_outside_ci(project, monkeypatch):
    monkeypatch.delenv("CI")
    result = project.runpytest_inprocess("-p", "no:xdist")
    result.assert_outcomes(passed=1, skipped=3, xfailed=1, deselected=1)
    assert result.ret == pytest.ExitCode.OK


def test_real_files_are_tested_where_they_are(project, monkeypatch):
    monkeypatch.setenv("EVALIGN_DATA", str(project.path))
    result = project.runpytest_inprocess("-p", "no:xdist", "-m", "real_data")
    result.assert_outcomes(failed=1, deselected=5)
    result.stdout.no_fnmatch_line("*not run*")
