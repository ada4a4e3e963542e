"""The skip rule of conftest.py, tried on a small project, where it bites through xdist."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = (Path(__file__).parents[2] / "conftest.py").read_text(encoding="utf-8")

SKIPPED_TEST = """
    import pytest

    def test_passes(): pass

    @pytest.mark.skip(reason="no such device")
    def test_skipped(): pass

    @pytest.mark.xfail(reason="known")
    def test_expected_failure(): assert False
"""

SKIPPED_MODULE = """
    import pytest

    pytest.importorskip("no_such_package")
"""


@pytest.fixture
def project(pytester, monkeypatch):
    pytester.makeconftest(CONFTEST)
    monkeypatch.setenv("CI", "1")
    return pytester


def test_unexpected_skip_fails_in_ci(project):
    project.makepyfile(test_it=SKIPPED_TEST)
    result = project.runpytest_subprocess("-n", "1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines("*unexpected skip*test_it.py::test_skipped*no such device*")


def test_module_that_skips_itself_fails_in_ci(project):
    project.makepyfile(test_it=SKIPPED_MODULE)
    result = project.runpytest_subprocess("-n", "1")
    assert result.ret != pytest.ExitCode.OK
    result.stdout.fnmatch_lines("*unexpected skip*test_it.py*no_such_package*")


def test_allowed_skip_passes_in_ci(project):
    allowed = 'ALLOWED_SKIPS["test_it.py::test_skipped"] = "no such device in CI"'
    project.makeconftest(f"{CONFTEST}\n{allowed}\n")
    project.makepyfile(test_it=SKIPPED_TEST)
    result = project.runpytest_subprocess()
    result.assert_outcomes(passed=1, skipped=1, xfailed=1)
    assert result.ret == pytest.ExitCode.OK


def test_skip_passes_outside_ci(project, monkeypatch):
    monkeypatch.delenv("CI")
    project.makepyfile(test_it=SKIPPED_TEST)
    result = project.runpytest_subprocess()
    result.assert_outcomes(passed=1, skipped=1, xfailed=1)
    assert result.ret == pytest.ExitCode.OK
