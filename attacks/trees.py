"""Crafted models in a saved ensemble: trees, nodes and numbers that no training made.

Each is opened in a process of its own, since what is attacked is memory: it has to be refused, or
to give probabilities.
"""

import os
import resource
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import torch

import evalign
from attacks import made
from attacks.judge import Case
from tests.forged import forge, opened

CASES, SECONDS, MEMORY = 60, 30, 4 * 2**30
HOSTILE = (-2, -1, 0, 1, 2**31 - 1, -(2**31), 2**40, 10**6)
ODD = (float("nan"), float("inf"), -1e308, 1e308)


@cache
def ensemble() -> Path:
    path = made.Made.folder / "ensemble"
    models = ["linear", "boosting", "forest"]
    evalign.AlignedEnsemble(candidates=models, cv=2, random_state=0).fit(made.X, made.Y).save(path)
    return path


def survives(path: Path) -> str | None:
    """Open and use a file in a child; None if it was refused or harmless."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY + _size(), MEMORY + _size()))
        signal.alarm(SECONDS)
        code = 0
        try:
            proba = evalign.load(path).predict_proba(made.X)
            code = 0 if np.isfinite(proba).all() else 3
        except ValueError:  # a StoreError, or rows that the model cannot score
            code = 0
        except BaseException:
            code = 4
        os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"killed by signal {os.WTERMSIG(status)}"
    said = {0: None, 3: "probabilities that are not finite", 4: "an error that is no refusal"}
    return said[os.WEXITSTATUS(status)]


def _size() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def crafted(change: Callable[[dict[str, torch.Tensor]], None]) -> Callable[[], str | None]:
    def act() -> str | None:
        path = made.copy_of(ensemble())
        state, tensors = opened(path)
        change(tensors)
        forge(path, state, tensors)
        return survives(path)

    return act


def numbers(rng: np.random.Generator) -> Iterator[Case]:
    """A hostile number in a random place of a tensor; tensors without or with other rows."""
    _, tensors = opened(ensemble())
    names = [name for name, tensor in tensors.items() if tensor.numel()]
    for number, name in enumerate(rng.choice(names, CASES).tolist()):
        tensor = tensors[name]
        place = int(rng.integers(tensor.numel()))
        whole = not tensor.is_floating_point()
        value = HOSTILE[rng.integers(len(HOSTILE))] if whole else ODD[rng.integers(len(ODD))]
        kind = ("number", "number", "none", "half", "twice")[int(rng.integers(5))]

        def change(
            found: dict[str, torch.Tensor],
            name: str = name,
            kind: str = kind,
            place: int = place,
            value: float = value,
        ) -> None:
            tensor = found[name]
            if kind == "number":
                flat = tensor.flatten().clone()
                if flat.dtype == torch.bool:
                    flat[place] = ~flat[place]
                else:
                    info = None if flat.is_floating_point() else torch.iinfo(flat.dtype)
                    given = value if info is None else int(min(max(value, info.min), info.max))
                    flat[place] = given
                found[name] = flat.view_as(tensor)
            elif tensor.ndim:
                rows = {"none": tensor[:0], "half": tensor[: len(tensor) // 2]}
                found[name] = rows.get(kind, torch.cat([tensor, tensor])).clone()

        yield Case(f"{name}: {kind} {value} ({number})", crafted(change))


ATTACKS = {"crafted models: trees, nodes, numbers": numbers}
