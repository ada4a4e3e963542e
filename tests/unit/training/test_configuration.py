"""Descriptions of settings: equal for equal settings, in every process, and no others."""

import functools
import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from torch import nn

from evalign import AlignedLoss, metrics
from evalign.training.configuration import configuration


class Shown(nn.Module):
    """A module with an attribute of any kind."""

    def __init__(self, setting):
        super().__init__()
        self.setting = setting
        self._own_business = object()


# From a number to a setting.
WAYS = {
    "number": float,
    "nan": lambda n: float("nan") if n == 2 else 0.0,
    "text": str,
    "tuple": lambda n: (1, n),
    "set": lambda n: {"a", n},
    "mapping": lambda n: {"beta": n, 7: 7},
    "dtype": lambda n: {2: torch.float32, 3: torch.float64}[n],
    "tensor": lambda n: torch.tensor([1.0, n]),
    "long tensor": lambda n: torch.cat([torch.zeros(64), torch.tensor([float(n)])]),
    "sparse tensor": lambda n: torch.tensor([0.0, n]).to_sparse(),
    "array": lambda n: np.array([1, n])[::-1],
    "metric": lambda n: metrics.FBeta(beta=n),
    "partial": lambda n: functools.partial(pow, exp=n),
    "type": lambda n: {2: nn.ReLU, 3: nn.GELU}[n],
    "function": lambda n: {2: torch.relu, 3: configuration}[n],
    "module in a list": lambda n: [nn.Dropout(1 / n)],
}


def differences(one, other):
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


@pytest.mark.parametrize("way", WAYS)
def test_settings_of_any_kind(way):
    first, again, other = (configuration("x", Shown(WAYS[way](n))) for n in (2, 2, 3))
    assert json.loads(json.dumps(first, allow_nan=False)) == first == again
    assert differences(first, other) == ["x.setting"]
    assert "0x" not in str(first)  # addresses


def test_state_is_left_out():
    loss = AlignedLoss("f1_macro")
    before = configuration("loss", loss)
    loss(torch.randn(9, 3, requires_grad=True), torch.arange(9) % 3).backward()
    loss.set_temperature(0.1)
    assert configuration("loss", loss.eval()) == before
    network = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    before = configuration("network", network)
    network(torch.randn(9, 3))
    nn.init.zeros_(network[0].weight)
    assert configuration("network", network) == before


@pytest.mark.slow  # runs that were killed are resumed by other processes in every run
def test_another_process_finds_the_same(capsys):
    """Addresses, and the order of a set, differ from process to process."""
    program = """
        import json
        from evalign import MetricLoss
        from evalign.training.configuration import configuration

        loss = MetricLoss(lambda c: c.tp.sum(), heaviside=lambda p, t: p.new_ones(()) * (p > t))
        loss.names = frozenset(map(str, range(50)))
        print(json.dumps(configuration("loss", loss)))
    """
    program = textwrap.dedent(program)
    command = [sys.executable, "-c", program]
    there = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    assert there == capsys.readouterr().out
