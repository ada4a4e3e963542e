"""The network for tables, or the user's own: build, check and run it."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from evalign.core.checks import complaint, require
from evalign.store.files import StoreError
from evalign.training.classifier_rows import OWNER
from evalign.training.members import Members
from evalign.training.scaling import QuantileNormal

Factory = Callable[[int, int], nn.Module]
# Rows go through the network in blocks of one size, the last one padded. Matrix products of other
# shapes round differently, and the scores of a row would depend on the other rows.
BLOCK = 512
CPU = torch.device("cpu")
BATCHES = {2_800: 32, 4_500: 64, 6_400: 128, 32_000: 256}  # below these rows; 512 from there on
DROPOUT = 0.1
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Size(NamedTuple):
    """How large a `Members` network is."""

    members: int
    width: int


class Steps(NamedTuple):
    """How many steps of training are taken, and how large they are."""

    epochs: int
    batch_size: int
    learning_rate: float


def chosen(
    arguments: dict[str, Any],
    rows: int,
    device: torch.device = CPU,
    of_recipe: Mapping[str, Any] = NOTHING,
) -> Steps:
    """The steps by the arguments, or else by the recipe, or else by the number of training rows.

    Few rows need enough steps too, and many rows need fewer epochs.

    Examples:
        >>> nothing = dict.fromkeys(Steps._fields)
        >>> [chosen(nothing, rows)[:2] for rows in (500, 40_000, 10**6)]
        [(30, 32), (30, 512), (8, 512)]
    """
    batch = next((size for most, size in BATCHES.items() if rows < most), 512)
    passed = 1_280_000 if device.type == "cpu" else 5_000_000  # rows in all, as time allows
    usual = Steps(min(max(8, passed // rows), 30), batch, 2e-3)
    given = {name: arguments[name] for name in Steps._fields if arguments[name] is not None}
    return usual._replace(**{**of_recipe, **given})


def size_of_members(device: torch.device) -> Size:
    """The size of a network of members: a CPU has no time for its authors' 32 and 512."""
    return Size(8, 256) if device.type == "cpu" else Size(32, 512)


def build(
    kind: str | Factory,
    scaler: QuantileNormal,
    n_classes: int,
    *,
    size: Size,
    seed: int,
    multilabel: bool,
) -> nn.Module:
    """A new network for the scaler's output, with weights drawn from the seed.

    If multilabel, each label has a logit.
    """
    cure = "Give a function that makes the module: every fit starts with a new one."
    require(not isinstance(kind, nn.Module), OWNER, "network", "be a function", "a module", cure)
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(seed)
        if callable(kind):
            network = kind(scaler.n_features, n_classes)
        else:
            how = {**size._asdict(), "dropout": DROPOUT, "multilabel": multilabel}
            network = Members(scaler.edges, n_classes, **how)
    if not isinstance(network, nn.Module):
        got = type(network).__name__
        raise TypeError(complaint(OWNER, "network", "return a Module", got))
    return network


def saved_network(
    weights: dict[str, Tensor],
    kind: str | Factory,
    scaler: QuantileNormal,
    n_features: int,
    n_classes: int,
    **how: Any,
) -> nn.Module:
    """A network from untrusted weights, which say its size: numbers could ask for any memory.

    Args:
        weights: what its `state_dict` gave.
        kind: see `build`.
        scaler: what was saved of it.
        n_features: the columns that come to the scaler.
        n_classes: the number of logits.
        how: the other arguments of `build`.
    """
    own = callable(kind)
    require(own or kind == "auto", "state", "network", 'be "auto" or a function', repr(kind))
    ok = type(scaler) is QuantileNormal and scaler.n_features == n_features
    allowed = f"be a QuantileNormal of {n_features} columns"
    require(ok, "state", "scaler", allowed, type(scaler).__name__)
    size = Size(0, 0)
    if not own:
        shapes = {name: tuple(w.shape) for name, w in weights.items()}
        size = Size(*shapes["head.weight"][:2])
        hidden = shapes.get("backbone.blocks.1.0.weight"), shapes.get("backbone.blocks.0.0.r", ())
        ok = hidden[0] == (size.width, size.width) and hidden[1][:1] == (size.members,)
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
    """A GPU if there is one and the name is "auto", else the device of this name."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.empty(0, device=name).device
