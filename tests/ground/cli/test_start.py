"""Help and path errors load nothing slow, which is seen from the modules, not the clock."""

import json
import os
import subprocess
import sys
from typing import get_args

import pytest

from evalign.cli import options
from evalign.decisions import Decision

SLOW = {"torch", "sklearn", "pandas", "numpy", "scipy", "pyarrow", "plotly"}
# One process for all: what it has loaded in the end, none of the commands needed.
SCRIPT = """
import contextlib, io, json, runpy, sys
told = []
for line in sys.stdin:
    sys.argv[1:] = line.split()
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            runpy.run_module("evalign", run_name="__main__")
        except SystemExit as end:
            told.append([end.code or 0, said.getvalue()])
print(json.dumps([told, [name.split(".")[0] for name in sys.modules]]))
"""
COMMANDS = [
    ("--version", 0, "evalign 0."),
    ("--help", 0, "Train classifiers on the metric you report."),
    ("", 0, "Exit codes: 0 done, 1 a bug, 2 bad input, 130 interrupted, 141 broken pipe."),
    ("fit --help", 0, "evalign fit data.csv --target label --metric f1_macro --out run"),
    ("fit --help", 0, "A new folder for results."),
    ("fit --help", 0, "a weighted mean of several (blend)"),
    ("fit --nonsense", 2, "No such option: --nonsense"),
    ("fit nosuch.csv --target y", 2, "file 'nosuch.csv' does not exist."),
    ("fit data.csv --target y --out no/run", 2, "no does not exist. Create it first."),
    ("fit data.csv --target y --out run --test x.doc", 2, "file 'x.doc' does not exist."),
    ("fit data.csv --out run", 2, "Missing option '--target'"),
    ("metrics", 0, "f1_macro 2 tp / (2 tp + fp + fn)"),
    ("report nosuchfolder", 2, "'nosuchfolder' does not exist."),
]


def test_quick(tmp_path):
    (tmp_path / "data.csv").write_text("x,y\n1,a\n")
    given = "\n".join(arguments for arguments, *_ in COMMANDS)
    command = [sys.executable, "-c", SCRIPT]
    wide = os.environ | {"COLUMNS": "300"}  # a help text in one line
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, cwd=tmp_path, env=wide
    )
    assert done.returncode == 0, done.stderr
    told, loaded = json.loads(done.stdout)
    for (arguments, code, words), (found, said) in zip(COMMANDS, told, strict=True):
        assert found == code, arguments
        assert words in " ".join(said.split()), arguments
        assert "<bool>" not in said
    assert not SLOW & set(loaded)


@pytest.mark.parametrize("module", ["typer", "pandas"])  # of the program, and of the command
def test_interrupted_while_it_loads(module, tmp_path):
    (tmp_path / "data.csv").write_text("x,y\n1,a\n")
    (tmp_path / f"{module}.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    command = [sys.executable, "-m", "evalign", "compare", "data.csv", "--target", "y"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, "evalign: interrupted.\n")


@pytest.mark.parametrize("command", ["metrics", "metrics --json"])
def test_a_pipe_that_is_not_read_ends_it_without_a_word(command):
    """Text by rich and by print."""
    code = "import sys; from evalign.cli import main; main(sys.argv[1:])"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", code, *command.split()],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_options_are_the_librarys():
    assert get_args(options.DECISIONS) == get_args(Decision)
