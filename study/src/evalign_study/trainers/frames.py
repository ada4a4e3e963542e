"""BtG Table 3: which of the people of a frame share a group, all pairs of the frame at once."""

import torch
from torch import Tensor, nn

from evalign.tables.split import three_way_split
from evalign_study.data import load
from evalign_study.data.standardizer import Standardizer
from evalign_study.records.made import Record
from evalign_study.records.run import Run
from evalign_study.trainers.methods import NETWORKS, make
from evalign_study.trainers.picks import fit_binary, flat


def train_frames(run: Run) -> Record:
    """Train a network over frames, of which 64% are for training, 16% for validation, 20% test.

    A frame is a row of 15 labels, and `run.batch_size` counts frames. Frames a moment apart are
    alike. The paper does not say that they were kept together, so both variants split single
    frames.
    """
    dataset = load(run.dataset)
    X, y = torch.as_tensor(dataset.X), torch.as_tensor(dataset.y)
    parts = [part[: run.rows] for part in three_way_split(dataset.y, seed=run.split_seed)]
    scale = Standardizer(X[parts[0]].flatten(0, 1))  # over people: each is a row
    X = scale(X.flatten(0, 1)).view_as(X)
    training, validation, test = ((X[rows], y[rows]) for rows in parts)
    method = make(run.method, training[1].flatten().bincount(minlength=2), run.dataset)

    def build() -> nn.Module:
        return _Pairs(NETWORKS[run.network](X.shape[-1], 2, run.dropout))

    method = method._replace(loss=_OverPairs(method.loss))
    return fit_binary(run, build, method, training, validation, test)


class _Pairs(nn.Module):
    """A network of one logit z for each pair, as two logits (0, z) of shape (N, 2, pairs)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, people: Tensor) -> Tensor:
        z = self.network(people)
        return torch.stack([torch.zeros_like(z), z], 1)


class _OverPairs(nn.Module):
    """A loss over all pairs of all frames of a batch."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return self.loss(flat(logits), target.flatten())
