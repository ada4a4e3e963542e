"""A network for tables: how it is built, checked and run."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from evalign.core.checks import complaint, require
from evalign.estimator.rows import OWNER

Factory = Callable[[int, int], nn.Module]
# Rows go through the network in blocks of one size, the last one filled up. Matrix products of
# another shape round differently, and the answer for a row would depend on the rows beside it.
BLOCK = 512


def mlp(
    n_features: int,
    n_classes: int,
    *,
    hidden: Sequence[int] = (512, 256, 128),
    dropout: float = 0.2,
) -> nn.Sequential:
    """Linear, ReLU and dropout for each hidden width, then the logits.

    The default widths are those of EAST (E.3.2); BtG's are (32, 16), with one logit.

    Examples:
        >>> sum(p.numel() for p in mlp(22, 1, hidden=(32, 16)).parameters())
        1281
    """
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(n_features, width), nn.ReLU(), nn.Dropout(dropout)]
        n_features = width
    return nn.Sequential(*layers, nn.Linear(n_features, n_classes))


def build(
    factory: Factory | None, n_features: int, n_classes: int, *, dropout: float, seed: int
) -> nn.Module:
    """A new network, its weights drawn from the seed alone."""
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(seed)
        if factory is None:
            return mlp(n_features, n_classes, dropout=dropout)
        network = factory(n_features, n_classes)
    if not isinstance(network, nn.Module):
        got = type(network).__name__
        raise TypeError(complaint(OWNER, "network", "return a Module", got))
    return network


@torch.no_grad()
def check_logits(network: nn.Module, X: Tensor, n_classes: int) -> None:
    network.eval()
    logits = network(X[:2])
    got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
    shape = (len(X[:2]), n_classes)
    ok = isinstance(logits, Tensor) and logits.shape == shape
    allowed = f"give logits of shape {shape} for {len(X[:2])} rows and {n_classes} classes"
    require(ok, OWNER, "network", allowed, got)


@torch.inference_mode()
def blockwise(network: nn.Module, X: Tensor, device: torch.device) -> Tensor:
    """Logits in float64 on the CPU, block by block (see `BLOCK`)."""
    outputs = []
    for block in X.split(BLOCK):
        full = nn.functional.pad(block.to(device), (0, 0, 0, BLOCK - len(block)))
        outputs.append(network(full)[: len(block)].double().cpu())
    return torch.cat(outputs)


def find_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, TypeError) as error:
        allowed = 'be "auto" or a device that torch finds here, such as "cpu"'
        raise ValueError(complaint(OWNER, "device", allowed, repr(name))) from error
