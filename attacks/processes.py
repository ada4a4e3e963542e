"""Signals, commands that get in each other's way, and names that are more than names."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from attacks import made
from attacks.judge import Case
from evalign.core.text import visible
from tests.forged import opened
from tests.ground.cli.commands import fit, invoke, table, written

KILLING = """
import os, signal
from evalign.store import archive

def save(folder, tree, save=archive.save):
    if {halfway}:
        import threading
        threading.Timer({delay}, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    save(folder, tree)
    if not {halfway}:
        os.kill(os.getpid(), signal.SIGKILL)

archive.save = save
"""


def start(arguments: list[Any], before: str = "") -> subprocess.Popen[str]:
    code = f"{before}\nfrom evalign.cli import main\nmain()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def comparable(run: Path) -> dict[str, Any]:
    """The weights, predictions and scores, which do not depend on the time."""
    weights = {name: w.tolist() for name, w in opened(run / "model")[1].items()}
    names = ("test_predictions.parquet", "metrics.json")
    return weights | {name: (run / name).read_bytes() for name in names}


def killed(rng: Any) -> Iterator[Case]:
    """A fit that is killed while or after it saves its model leaves nothing in its way."""
    folder = made.Made.folder / "killed"
    folder.mkdir()
    whole = folder / "whole"
    assert invoke(*fit(made.data(), whole, epochs=6, model="network")).code == 0
    for number in range(5):
        halfway, delay = bool(number % 2), float(rng.uniform(0, 0.02))
        before = KILLING.format(halfway=halfway, delay=delay)

        def act(before: str = before, out: Path = folder / f"run{number}") -> str | None:
            arguments = fit(made.data(), out, epochs=6, model="network")
            first = start(arguments, before)
            _, said = first.communicate()
            if first.returncode != -signal.SIGKILL:
                return f"code {first.returncode}: {said[-300:]!r}"
            if out.exists():
                return "half a run is there"
            again = invoke(*arguments)
            if again.code:
                return f"not fitted again: {again.err[-300:]!r}"
            return None if comparable(out) == comparable(whole) else "it ended otherwise"

        yield Case(f"{'while' if halfway else 'after'} it saves #{number}", act)


def two_writers(rng: Any) -> Iterator[Case]:
    """Two `predict` with one --out: the file is wholly that of one of them."""
    folder = made.Made.folder / "two"
    folder.mkdir()
    sources = [written(folder / f"{i}.csv", table(60 + 40 * i, seed=i)) for i in range(2)]
    expected = []
    for i, source in enumerate(sources):
        assert invoke("predict", made.run(), source, "--out", folder / f"alone{i}.csv").code == 0
        expected.append((folder / f"alone{i}.csv").read_bytes())
    for number in range(3):

        def act(out: Path = folder / f"out{number}.csv") -> str | None:
            both = [start(["predict", made.run(), source, "--out", out]) for source in sources]
            said = [one.communicate()[1] for one in both]
            if any(one.returncode for one in both):
                return f"one failed: {said}"
            if out.read_bytes() not in expected:
                return "the file is neither's"
            left = list(out.parent.glob("*.partial"))
            return f"left behind: {left}" if left else None

        yield Case(f"#{number}", act)


def interrupts(rng: Any) -> Iterator[Case]:
    """Ctrl-C at any moment, mostly while modules are loaded."""
    for number in range(12):
        delay = float(rng.uniform(0, 3))

        def act(delay: float = delay) -> str | None:
            # It counts from `main` on: before, Python itself loads its library and this package.
            mark = "from evalign.cli import main; print('up', flush=True)"
            arguments = ["evaluate", made.run(), made.data(), "--quiet"]
            one = start(arguments, mark)
            assert one.stdout is not None
            one.stdout.readline()
            time.sleep(delay)
            one.send_signal(signal.SIGINT)
            _, said = one.communicate()
            if one.returncode == 130 and said.splitlines()[-1] == "evalign: interrupted.":
                return "a traceback" if "Traceback" in said else None
            return None if one.returncode == 0 else f"code {one.returncode}: {said[-300:]!r}"

        yield Case(f"after {delay:.2f} s #{number}", act)


NAMES = [
    ["=1+1", "@SUM(A1)", "-2"],
    ["\x1b[31mred", "\x07bell", "back\x08space"],
    ["a,b", 'quo"te', "semi;colon"],
    ["<script>alert(1)</script>", "&amp;", "'; DROP TABLE"],
    ["\u202eright", "\u200bzero", "nul\u2400"],
    ["[bold]markup[/bold]", "[red]", "$x^2$"],
    ["x" * 3000, "é", "e\u0301"],
    ["line\nbreak", "tab\there", "car\rriage"],
]


def names(rng: Any) -> Iterator[Case]:
    """Class names come back as they went in; terminal and page show no control characters."""
    folder = made.Made.folder / "names"
    folder.mkdir()
    for number, chosen in enumerate(NAMES):

        def act(chosen: list[str] = chosen, place: Path = folder / str(number)) -> str | None:
            place.mkdir()
            frame = table(120)
            frame["label"] = frame["label"].map(
                dict(zip(("low", "middle", "high"), chosen, strict=True))
            )
            source, run = written(place / "data.parquet", frame), place / "run"
            new = written(place / "new.parquet", frame.drop(columns="label"))
            said = [invoke(*fit(source, run, epochs=1, model="network"))]
            if said[0].code == 2:
                return None if len(said[0].err.splitlines()) == 1 else said[0].err[-300:]
            said += [invoke("evaluate", run, source)]
            said += [invoke("predict", run, new, "--out", place / "out.parquet")]
            if any(one.code for one in said):
                return f"{[one.code for one in said]}: {said[-1].err[-300:]!r}"
            found = set(pd.read_parquet(place / "out.parquet")["prediction"])
            if not found <= set(chosen):
                return f"other names: {found}"
            shown = "".join(one.out + one.err for one in said)
            odd = {c for c in shown if c != "\n" and visible(c) != c}
            if odd:
                return f"control characters on the terminal: {odd}"
            page = (run / "report.html").read_text(encoding="utf-8")
            return "a script in the page" if "<script>alert" in page else None

        yield Case(f"{chosen[0][:20]!r}", act)


ATTACKS = {
    "killed fits": killed,
    "two predicts to one file": two_writers,
    "Ctrl-C": interrupts,
    "class names": names,
}
