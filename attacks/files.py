"""Damaged files of every stored format: flipped bits, cut ends, more behind the end."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from evalign_study.records.results import Results, ResultsError, ResultsWarning

from attacks import made
from attacks.judge import Case, one_sentence
from evalign import AlignedClassifier
from evalign.store import archive
from evalign.store.files import StoreError
from tests.ground.cli.commands import invoke

TIMES = 60


def damage(path: Path, rng: Any) -> str:
    """Damage one file, or one of a folder, and say how."""
    every = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    file = every[rng.integers(len(every))]
    content = bytearray(file.read_bytes())
    how = rng.choice(["flip", "cut", "extend", "empty", "zeros", "missing"])
    place = int(rng.integers(max(1, len(content))))
    if how == "flip":
        content[place] ^= 1 << int(rng.integers(8))
    elif how == "cut":
        del content[place:]
    elif how == "extend":
        content += rng.bytes(int(rng.integers(1, 100)))
    elif how == "empty":
        content.clear()
    elif how == "zeros":
        content[place : place + 16] = bytes(len(content[place : place + 16]))
    file.write_bytes(content)
    if how == "missing":
        file.unlink()
    return f"{how} {file.name} at {place}"


def damaged(
    source: Callable[[], Path], judge: Callable[[Path], str | None], times: int = TIMES
) -> Callable[[Any], Iterator[Case]]:
    def attack(rng: Any) -> Iterator[Case]:
        for number in range(times):
            copy = made.copy_of(source())
            how = damage(copy, rng)
            yield Case(f"{how} #{number}", lambda copy=copy: judge(copy))

    return attack


def load_state(path: Path) -> str | None:
    try:
        tree = archive.load(path)
    except (StoreError, FileNotFoundError) as error:
        return one_sentence(error)
    expected = archive.load(made.state())
    same = torch.equal(tree.pop("weights"), expected.pop("weights"))
    same = same and np.array_equal(tree.pop("counts"), expected.pop("counts")) and tree == expected
    return None if same else "another state was loaded"


def load_saved(path: Path) -> str | None:
    try:
        found = AlignedClassifier.load(path).predict_proba(made.X)
    except (StoreError, FileNotFoundError) as error:
        return one_sentence(error)
    expected = AlignedClassifier.load(made.saved()).predict_proba(made.X)
    return None if np.array_equal(found, expected) else "other probabilities"


def use_run(path: Path) -> str | None:
    """Predict with a run, whose answer must be that of the whole one."""
    out = path.parent / "out.csv"
    result = invoke("predict", path, made.data(), "--out", out)
    if result.code == 2:
        lines = result.err.splitlines()
        ok = len(lines) == 1 and not out.exists() and not result.out
        return None if ok else f"not one line: {result.err[:200]!r}"
    if result.code != 0:
        return f"code {result.code}: {result.err[:200]!r}"
    whole = made.Made.folder / "whole.csv"
    if not whole.exists():
        invoke("predict", made.run(), made.data(), "--out", whole)
    return None if out.read_bytes() == whole.read_bytes() else "other labels"


def read_records(path: Path) -> str | None:
    whole = Results(made.records()).records()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = Results(path).records()
    except ResultsError as error:
        return one_sentence(error)
    told = any(warning.category is ResultsWarning for warning in caught)
    if not path.exists() or path.stat().st_size == 0:
        return None if found == [] else "records of nothing"
    if found == whole:
        return None
    return None if told and found == whole[: len(found)] else f"{len(found)} records, untold"


ATTACKS = {
    "damaged checkpoint": damaged(made.state, load_state, 200),
    "damaged saved classifier": damaged(made.saved, load_saved),
    "damaged run": damaged(made.run, use_run),
    "damaged study records": damaged(made.records, read_records, 200),
}
