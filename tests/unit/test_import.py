"""`import evalign` loads what it needs and nothing of the extras."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_import_loads_no_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {
        name.split("[")[0].split(">")[0].replace("-", "_")
        for extra in project["optional-dependencies"].values()
        for name in extra
    } - {"evalign"}  # an extra may take in another
    script = "import sys, evalign; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "torch" in loaded
    assert not extras & set(loaded)
    assert "sklearn" not in loaded


def test_public_names_are_there():
    import evalign

    for name in evalign.__all__:
        assert getattr(evalign, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = evalign.Nothing


def test_version_is_the_projects():
    import evalign

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert evalign.__version__ == project["version"]
