"""What the trainers that stack networks share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from evalign_study.records.run import Run
from evalign_study.trainers.many import Trained
from evalign_study.trainers.methods import NETWORKS
from evalign_study.trainers.prepared import Prepared, prepare

NUMBERS = 2**33 if torch.cuda.is_available() else 2**29  # the most in a stack: 32 or 2 GiB
BLOCK = 2**15  # rows at a time, where no gradient is needed


def rows_of(run: Run) -> Prepared:
    """Load the data of a run."""
    return prepare(run.dataset, run.variant, run.split_seed, run.imbalance)


def numbers(run: Run) -> int:
    """Count the numbers of a member: about ten copies of its weights, and a batch's activations."""
    prepared = rows_of(run)
    network = NETWORKS[run.network](prepared.training[0].shape[1], prepared.classes, run.dropout)
    weights = sum(p.numel() for p in network.parameters())
    width = sum(m.out_features for m in network.modules() if isinstance(m, nn.Linear))
    pairs = 4 * run.batch_size**2 if pairwise(run) else 0
    return 10 * weights + 8 * run.batch_size * width + pairs


def pairwise(run: Run) -> bool:
    """Tell whether a step holds numbers for all pairs of rows, far more than other losses do."""
    return run.method == "wmw"


@contextmanager
def tf32(device: str) -> Iterator[None]:
    """Compute matrix products in TF32 on a GPU."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if device == "cuda" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def best_epochs(trained: Trained) -> dict[str, Any]:
    """Look up the best epochs by every criterion; a diverged training has none."""
    return {name: epoch for epoch in trained.history for name in epoch["best_of"]}


@torch.no_grad()
def logits_of(network: nn.Module, weights: dict[str, Tensor], X: Tensor) -> Tensor:
    """Compute logits block by block, and return them on the CPU."""
    parts = [functional_call(network, weights, (x,)) for x in X.split(BLOCK)]
    return torch.cat(parts).cpu()
