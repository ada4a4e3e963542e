"""Descriptions of settings: different for different settings, equal for equal ones."""

import enum
import functools
import json
import subprocess
import sys
import textwrap
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from evalign import MetricLoss, metrics
from evalign.training.configuration import SMALL, configuration


class Kind(enum.Enum):
    ONE = 1
    TWO = 2


@dataclass(frozen=True, slots=True)
class Slotted:
    beta: float


class Shown(nn.Module):
    """A module with an attribute of any kind."""

    def __init__(self, setting):
        super().__init__()
        self.setting = setting
        self._own_business = object()


class Counter:
    """A callable that is not a function."""

    def __init__(self, power):
        self.power = power

    def __call__(self, confusion):
        return confusion.tp.sum() ** self.power

    def score(self, confusion):
        return self(confusion)


def closed_over(power):
    return lambda x: x**power


def by_default(power):
    def function(x, *, power=power):
        return x**power

    return function


def constant(power):
    return {2: lambda x: x**2, 3: lambda x: x**3}[power]


def long_tensor(last):
    return torch.cat([torch.zeros(SMALL), torch.tensor([float(last)])])


# Functions from a number to a setting, and the path at which the settings of 2 and 3 differ.
WAYS = {
    "number": (float, "x.setting"),
    "text": (str, "x.setting"),
    "tuple": (lambda n: (1, n), "x.setting"),
    "set": (lambda n: {"a", n}, "x.setting"),
    "range": (range, "x.setting"),
    "mapping": (lambda n: {"beta": n, 7: 7}, "x.setting.beta"),
    "enum": (lambda n: Kind(n - 1), "x.setting"),
    "dtype": (lambda n: {2: torch.float32, 3: torch.float64}[n], "x.setting"),
    "tensor": (lambda n: torch.tensor([1.0, n]), "x.setting"),
    "long tensor": (long_tensor, "x.setting"),
    "sparse tensor": (lambda n: torch.tensor([0.0, n]).to_sparse(), "x.setting"),
    "array": (lambda n: np.array([1, n])[::-1], "x.setting"),
    "metric": (lambda n: metrics.FBeta(beta=n), "x.setting.beta"),
    "slots": (Slotted, "x.setting.beta"),
    "objects in a list": (lambda n: [Slotted(1), Slotted(n)], "x.setting.1.beta"),
    "closure": (closed_over, "x.setting.power"),
    "default": (by_default, "x.setting.power"),
    "constant": (constant, "x.setting.code"),
    "partial": (lambda n: functools.partial(pow, exp=n), "x.setting.exp"),
    "callable": (Counter, "x.setting.power"),
    "method": (lambda n: Counter(n).score, "x.setting.self.power"),
    "type": (lambda n: {2: nn.ReLU, 3: nn.GELU}[n], "x.setting"),
    "torch's function": (lambda n: {2: torch.relu, 3: torch.sigmoid}[n], "x.setting"),
    "module in a list": (lambda n: [nn.Dropout(1 / n)], "x.setting.0.p"),
}


def differences(one, other):
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


@pytest.mark.parametrize("way", WAYS)
def test_settings_of_any_kind(way):
    make, named = WAYS[way]
    first, again, other = (configuration("x", Shown(make(n))) for n in (2, 2, 3))
    stored = json.loads(json.dumps(first, allow_nan=False))
    assert stored == first == again
    assert differences(first, other)[0] == named
    assert not any("0x" in str(value) for value in first.values())  # addresses


def test_an_attribute_of_a_function():
    def function(x):
        return x

    before = configuration("metric", function)
    function.greater_is_better = False
    assert differences(before, configuration("metric", function)) == ["metric.greater_is_better"]


def test_a_nan_is_a_nan():
    values = (float("nan"), torch.tensor([1, float("nan")]))
    one, two = (configuration("x", Shown(values)) for _ in range(2))
    assert one == two
    assert one["x.setting"] == ["nan", [1.0, "nan"]]


def test_circles_end():
    parent, child = Shown(1), Shown(2)
    parent.setting, child.setting = [child], [parent]
    assert "x.setting.0" in configuration("x", parent)

    def itself():
        return itself

    assert configuration("x", itself)["x"].endswith("itself")


def test_state_is_left_out():
    loss = MetricLoss("f1_macro", statistics="running")
    before = configuration("loss", loss)
    loss(torch.randn(9, 3, requires_grad=True), torch.arange(9) % 3).backward()
    loss.set_temperature(0.1)
    assert configuration("loss", loss.eval()) == before
    network = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    before = configuration("network", network)
    network(torch.randn(9, 3))
    nn.init.zeros_(network[0].weight)
    assert configuration("network", network) == before


@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel])
def test_wrapped_networks_are_known_too(wrap):
    def make(p):
        return configuration("network", wrap(nn.Sequential(nn.Linear(2, 2), nn.Dropout(p))))

    assert make(0.1) == make(0.1)
    json.dumps(make(0.1))
    assert any(name.endswith(".p") for name in differences(make(0.1), make(0.2)))


def test_another_process_finds_the_same(capsys):
    """The order of a set and the addresses of objects differ from process to process."""
    program = """
        import json, torch
        from torch import nn
        from evalign import MetricLoss
        from evalign.training.configuration import configuration

        # So many that no two processes are likely to have them in one order.
        def metric(c, names=frozenset(map(str, range(50)))):
            return c.tp.sum() if c.total in {"a", "b", "c", "d", "e", "f", "g", "h"} else c.total

        loss = MetricLoss(metric, heaviside=lambda p, t: p.new_ones(()) * (p > t))
        print(json.dumps([configuration("loss", loss), configuration("f", metric)]))
    """
    program = textwrap.dedent(program)
    command = [sys.executable, "-c", program]
    there = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    assert there == capsys.readouterr().out
