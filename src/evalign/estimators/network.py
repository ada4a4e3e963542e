"""The networks for tables: build, check and run them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from evalign.core.checks import complaint, require
from evalign.estimators.members import Members
from evalign.estimators.rows import OWNER
from evalign.estimators.scaling import QuantileNormal, Standardizer
from evalign.store.files import StoreError
from evalign.training.settings import usual_batch_size

Factory = Callable[[int, int], nn.Module]
# Rows go through the network in blocks of one size, the last one padded. Matrix products of other
# shapes round differently, and the scores of a row would depend on the other rows.
BLOCK = 512
CPU = torch.device("cpu")
NAMES = ("auto", "mlp", "linear")
BATCHES = {2_800: 32, 4_500: 64, 6_400: 128, 32_000: 256}  # of members, below these rows


class Size(NamedTuple):
    """How large a `Members` network is."""

    members: int
    width: int


class Defaults(NamedTuple):
    """The default settings of training a network."""

    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    dropout: float = 0.2
    epochs: int = 100
    batch_size: int = 32


def wanted(kind: str | Factory, rows: int = 1, device: torch.device = CPU) -> Defaults:
    """The default settings of a network, for a number of training rows.

    Of a network of members, few rows need enough steps too, and many rows need fewer epochs.

    Examples:
        >>> [wanted("auto", rows)[3:] for rows in (500, 40_000, 10**6)]
        [(30, 32), (30, 512), (8, 512)]
    """
    if kind == "auto":
        batch = next((size for most, size in BATCHES.items() if rows < most), 512)
        passed = 1_280_000 if device.type == "cpu" else 5_000_000  # rows in all, as time allows
        return Defaults(2e-3, 3e-4, 0.1, min(max(8, passed // rows), 30), batch)
    usual = Defaults(batch_size=usual_batch_size(rows))
    return usual._replace(learning_rate=1e-2) if kind == "linear" else usual


def chosen(arguments: dict[str, Any], rows: int = 1, device: torch.device = CPU) -> Defaults:
    """The settings of training: the arguments that were given, or else the network's defaults."""
    given = {name: arguments[name] for name in Defaults._fields if arguments[name] is not None}
    return wanted(arguments["network"], rows, device)._replace(**given)


def size_of_members(device: torch.device) -> Size:
    """The size of a network of members: a CPU has no time for its authors' 32 and 512."""
    return Size(8, 256) if device.type == "cpu" else Size(32, 512)


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
    kind: str | Factory,
    scaler: Standardizer | QuantileNormal,
    n_classes: int,
    *,
    size: Size,
    dropout: float,
    seed: int,
    multilabel: bool,
) -> nn.Module:
    """A new network for the scaler's output, with weights drawn from the seed.

    If multilabel, each label has a logit.
    """
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(seed)
        if isinstance(scaler, QuantileNormal):
            how = {**size._asdict(), "dropout": dropout, "multilabel": multilabel}
            return Members(scaler.edges, n_classes, **how)
        network = plain(kind, scaler.n_features, n_classes, dropout)
    if not isinstance(network, nn.Module):
        got = type(network).__name__
        raise TypeError(complaint(OWNER, "network", "return a Module", got))
    return network


def plain(kind: str | Factory, n_features: int, n_classes: int, dropout: float) -> nn.Module:
    """A network without members, by its name or by the user's function."""
    if callable(kind):
        return kind(n_features, n_classes)
    hidden = {"mlp": (512, 256, 128), "linear": ()}[kind]
    return mlp(n_features, n_classes, hidden=hidden, dropout=dropout)


def saved_network(
    weights: dict[str, Tensor],
    kind: str | Factory,
    scaler: Standardizer | QuantileNormal,
    n_features: int,
    n_classes: int,
    **how: Any,
) -> nn.Module:
    """A network from untrusted weights, which say its size: numbers could ask for any memory.

    Args:
        weights: what its `state_dict` gave.
        kind: see `build`, as for the next; both must fit together.
        scaler: what was saved of it.
        n_features: the columns that come to the scaler.
        n_classes: the number of logits.
        how: the other arguments of `build`.
    """
    known = callable(kind) or kind in NAMES
    require(known, "state", "network", f"be one of {', '.join(NAMES)} or a function", repr(kind))
    wanted = QuantileNormal if kind == "auto" else Standardizer
    ok, got = type(scaler) is wanted and scaler.n_features == n_features, type(scaler).__name__
    require(ok, "state", "scaler", f"be a {wanted.__name__} of {n_features} columns", got)
    shapes = {name: tuple(w.shape) for name, w in weights.items()}
    size = Size(*shapes["head.weight"][:2]) if kind == "auto" else Size(0, 0)
    hidden = [shapes.get("backbone.blocks.1.0.weight"), shapes.get("backbone.blocks.0.0.r", ())[:1]]
    ok = kind != "auto" or hidden == [(size.width, size.width), (size.members,)]
    require(ok, "state", "network", "be of one size", "weights of other sizes")
    network = build(kind, scaler, n_classes, size=size, **how)
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        why = " ".join(str(error).split())[:200]
        raise StoreError(f"The saved weights belong to another network: {why}") from None
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
