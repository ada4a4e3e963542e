"""A small run that the tests of this folder share; a killed process runs it too."""

from contextlib import contextmanager

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from evalign import AlignedLoss
from evalign.training.annealing import TemperatureAnnealing
from evalign.training.averaging import UsesOffsets
from evalign.training.loop import fit
from evalign.training.settings import Settings


def rows(number=300, *, classes=3, seed=0):
    """Make features and labels of which a network can learn something, but not everything."""
    random = torch.Generator().manual_seed(seed)
    X = torch.randn(number, 6, generator=random)
    noisy = X[:, :classes] + 0.5 * torch.randn(number, classes, generator=random)
    return X, noisy.argmax(1)


class Layers(UsesOffsets, nn.Sequential):
    """Layers that are told the offsets."""


def mlp(classes=3, *, seed=0, dropout=0.2):
    """Make a network with dropout (randomness) and batch normalisation (buffers)."""
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(seed)
        hidden = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(dropout)
        return Layers(classes).extend([*hidden, nn.Linear(16, classes)])


def settings(**changes):
    given = {"epochs": 20, "batch_size": 64, "learning_rate": 0.01, "patience": None, "seed": 3}
    return Settings(**{**given, "ema_decay": 0.9, **changes})


def everything(folder=None, *, network=None, **changes):
    """Make a run with every moving part: dropout, averaging, annealing, a loss with state."""
    network, loss = network or mlp(), AlignedLoss("f1_macro")
    annealing = TemperatureAnnealing(loss, rate=0.7, patience=2, coolings=100)
    wanted = {"settings": settings(), "checkpoint": folder, "resume": folder is not None}
    wanted |= {"validation": rows(100, seed=1), "checkpoint_every": 0}
    history = fit(
        network,
        loss,
        *rows(),
        metric="f1_macro",
        annealing=annealing,
        **{**wanted, **changes},
    )
    return network, history


def bytes_of(network):
    return b"".join(value.numpy().tobytes() for value in network.state_dict().values())


@contextmanager
def steps_noted():
    """Yield a list that grows by the parameters after every step of any optimizer."""
    steps = []

    def note(optimizer, *_):
        steps.append([p.detach().clone() for p in optimizer.param_groups[0]["params"]])

    handle = register_optimizer_step_post_hook(note)
    yield steps
    handle.remove()


def averaged(steps, ema_decay):
    """Average weights: step s = 0, 1, ... moves the average by 1 − min(decay, s / (s + 10))."""
    means = steps[0]
    for s, weights in enumerate(steps):
        decay = min(ema_decay, s / (s + 10))
        means = [decay * m + (1 - decay) * w for m, w in zip(means, weights, strict=True)]
    return means


def killable(folder, result, tell):
    """Do what the killed process does: resume, tell each epoch, finish, write the weights."""
    torch.set_num_threads(1)
    network, _ = everything(folder, on_epoch=lambda record: tell.send(record["epoch"]))
    result.write_bytes(bytes_of(network))
