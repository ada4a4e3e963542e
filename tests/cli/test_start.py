"""Help and path errors load nothing slow, which is seen from the modules, not the clock."""

import json
import os
import subprocess
import sys
from typing import get_args

import pytest

from evalign.cli import options
from evalign.decisions import Decision
from evalign.recipes import RECIPES

SLOW = {"torch", "sklearn", "pandas", "numpy", "scipy", "pyarrow", "plotly", "skops"}
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
    ("fit --help", 0, "--recipe"),
    ("fit --help", 0, "A new folder for the results."),
    ("fit --help", 0, "several models, whose probabilities are averaged (blend)"),
    ("fit --help", 0, "From probabilities to labels: the most probable class (argmax)"),
    ("fit --nonsense", 2, "No such option: --nonsense"),
    ("compare --seed 1", 2, "It is one of `evalign fit`. See `evalign compare --help`."),
    ("fit nosuch.csv --target y", 2, "nosuch.csv cannot be read: No such file or directory."),
    ("fit data.csv --target y --out no/run", 2, "no does not exist. Create it first."),
    ("fit data.csv --target y --out run --test x.doc", 2, "x.doc must end in .csv"),
    ("compare nosuch.csv --target y", 2, "nosuch.csv cannot be read"),
    ("predict nosuchfolder data.csv", 2, "nosuchfolder is not a run of evalign"),
    ("fit data.csv --out run", 2, "Missing option '--target'. See `evalign fit --help`."),
    ("report nosuchfolder", 2, "nosuchfolder is not a run of evalign"),
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
    assert not SLOW & set(loaded)


@pytest.mark.parametrize("module", ["typer", "torch"])  # of the program, and of the command
def test_interrupted_while_it_loads(module, tmp_path):
    (tmp_path / "data.csv").write_text("x,y\n1,a\n")
    (tmp_path / f"{module}.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    command = [sys.executable, "-m", "evalign", "compare", "data.csv", "--target", "y"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, "evalign: interrupted.\n")


@pytest.mark.parametrize("command", ["metrics", "metrics --json", "fit nosuch.csv"])
def test_a_pipe_that_is_not_read_ends_it_without_a_word(command):
    """Text by rich and by print, and an error where both streams are the pipe."""
    code = "import sys; from evalign.cli import main; main(sys.argv[1:])"
    reading, writing = os.pipe()
    os.close(reading)
    both = command.startswith("fit")
    done = subprocess.run(
        [sys.executable, "-c", code, *command.split()],
        stdout=writing,
        stderr=writing if both else subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    assert (done.returncode, done.stderr or "") == (141, "")


@pytest.mark.parametrize(
    ("ended", "code", "said"),
    [
        ("sys.exit(3)", 3, ""),
        ("sys.exit('a text')", 1, "a text\n"),
        ("sys.exit()", 0, ""),
        ("raise typer.Exit(5)", 5, ""),
    ],
)
@pytest.mark.parametrize("early", [False, True])
def test_an_exit_has_the_code_that_it_gives(ended, code, said, early):
    """In a command, and in the callback of an option."""
    program = f"""
import sys, typer
from evalign.cli.app import run
app = typer.Typer()
def end(wanted):
    if wanted: {ended}
@app.command()
def command(early: bool = typer.Option(False, callback=end)):
    end(True)
sys.exit(run(["--early"] if {early} else ["--no-early"], program=app))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, said)


def test_options_are_the_librarys():
    assert sorted(options.RECIPES) == sorted(RECIPES)
    assert get_args(options.DECISIONS) == get_args(Decision)
