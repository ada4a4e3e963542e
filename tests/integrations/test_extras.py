"""Without its engine, an integration says what to install."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("name", "engine"), [("lightning", "lightning"), ("huggingface", "transformers")]
)
def test_a_missing_engine_is_one_line_with_the_cure(name, engine):
    script = f"import sys; sys.modules[{engine!r}] = None; import evalign.integrations.{name}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    cure = f"Run: pip install 'evalign[{name}]'"
    assert last == f"ImportError: evalign.integrations.{name} needs {engine}. {cure}"
