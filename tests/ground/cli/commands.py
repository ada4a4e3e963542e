"""Run commands as a user would, on a made table."""

import contextlib
import io
import json
import os
import resource
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pandas as pd

from evalign.cli import main
from evalign.store.files import digest, write_json


class Result(NamedTuple):
    code: int
    out: str
    err: str


def invoke(*arguments, program=main):
    """Run `evalign`, or another program, with these arguments in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            program([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
    return Result(code, out.getvalue(), err.getvalue())


def process(*arguments, before=""):
    """Run `evalign` in a process of its own, after some other code."""
    code = f"{before}\nfrom evalign.cli import main\nmain()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        # As in this process, as the last bits depend on it.
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def done(*arguments, program=main):
    """Run a command that must succeed."""
    result = invoke(*arguments, program=program)
    assert result.code == 0, result.err
    return result


def refused(*arguments, program=main):
    """Return the one-line error that bad input gets."""
    result = invoke(*arguments, program=program)
    assert result.code == 2, result
    assert result.out == ""
    *notes, last = result.err.splitlines()
    names = ("evalign: ", "evalign-study: ")
    assert last.startswith(names), result.err
    assert not any(line.startswith(names) for line in notes), result.err
    return last


def fit(data, out, *more, target="label", epochs=2, decision="argmax", model="linear"):
    """Return the arguments of a quick fit, without a tuned decision, which would take longer."""
    options = ["--target", target, "--decision", decision, "--model", model]
    options += ["--epochs", epochs] if model == "network" else []
    return ["fit", data, "--out", out, *options, *more]


def table(rows=240, seed=0):
    """Make a table of two numbers (one with gaps), two categories, an id, a constant; three
    classes.
    """
    rng = np.random.default_rng(seed)
    age, income = rng.normal(50, 10, rows), rng.normal(size=rows)
    colour = rng.choice(["red", "green", "blue"], rows)
    score = (age - 50) / 10 + (colour == "red") + 0.3 * rng.normal(size=rows)
    return pd.DataFrame(
        {
            "person": np.arange(rows),
            "age": age.round(3),
            "income": np.where(rng.random(rows) < 0.1, np.nan, income),
            "colour": colour,
            "member": rng.choice(["yes", "no"], rows),
            "country": "NL",
            "label": np.select([score < -0.5, score < 1], ["low", "middle"], "high"),
        }
    )


def written(path, frame):
    frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)
    return path


@contextlib.contextmanager
def small_disk(size):
    """Limit files to so many bytes, which looks like a full disk to a program."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def sign(run, **changes):
    """Change `run.json`, and give it and all plain files their checksums."""
    about = json.loads((run / "run.json").read_text()) | changes
    for name in about["files"] if isinstance(about["files"], dict) else ():
        if os.path.isfile(run / name) and not os.path.islink(run / name):
            about["files"][name] = digest(run / name)
    tree = {name: about[name] for name in about if name not in ("format", "version", "sha256")}
    write_json(run / "run.json", "run", tree)


def files(folder):
    """Read all files below a folder."""
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
