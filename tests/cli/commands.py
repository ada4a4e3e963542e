"""Commands run as a user would run them, and a made table for them."""

import contextlib
import io
import os
import resource
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pandas as pd

from evalign.cli import main


class Result(NamedTuple):
    code: int
    out: str
    err: str


def invoke(*arguments, program=main):
    """`evalign` with these arguments, in this process, or another program."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            program([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
    return Result(code, out.getvalue(), err.getvalue())


def process(*arguments, before=""):
    """`evalign` in a process of its own, after some other code."""
    code = f"{before}\nfrom evalign.cli import main\nmain()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # as here, and bits depend on it
    )


def done(*arguments, program=main):
    """The same, which must go well."""
    result = invoke(*arguments, program=program)
    assert result.code == 0, result.err
    return result


def refused(*arguments, program=main):
    """The one line that bad input gets."""
    result = invoke(*arguments, program=program)
    assert result.code == 2, result
    assert result.out == ""
    lines = result.err.splitlines()
    assert len(lines) == 1, result.err
    assert lines[0].startswith(("evalign: ", "evalign-study: "))
    return lines[0]


def fit(data, out, *more, target="label", epochs=2, decision="argmax"):
    """Arguments of a quick fit. (A tuned decision takes longer than these epochs.)"""
    options = ["--target", target, "--epochs", epochs, "--decision", decision]
    return ["fit", data, "--out", out, *options, *more]


def table(rows=240, seed=0):
    """Two numbers (one with gaps), two categories, an id, a constant; three classes."""
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
    """No file grows beyond so many bytes: what a full disk looks like to a program."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def files(folder):
    """Everything below a folder, with contents."""
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
