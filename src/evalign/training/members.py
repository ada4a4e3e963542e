"""The default network for tables, TabM, which is several in one."""

import math
from collections.abc import Sequence

import torch
from rtdl_num_embeddings import PiecewiseLinearEmbeddings
from tabm import EnsembleView, LinearEnsemble, make_tabm_backbone
from torch import Tensor, nn

from evalign.training.averaging import UsesOffsets
from evalign.training.validation import loss_of

DIMENSIONS = 16  # of the embedding of a number
MAX_WIDTH = 1024  # of all embeddings together; more columns have fewer dimensions each
MIN_DIMENSIONS = 4  # with fewer, columns are not embedded


class Members(UsesOffsets):
    """A TabM network: `members` networks that differ in scales and biases, each with its own head.

    In training it gives the logits of every member, (n, members, n_classes), and the loss takes
    them as rows (`MembersAsRows`). In evaluation it gives logits (n, n_classes) such that
    softmax(logits + offsets) is the mean of the members' probabilities, softmax(their logits +
    offsets): the best epoch, the rule and `predict` all use that mean. If multilabel, sigmoid takes
    the place of softmax.

    Args:
        edges: for each column the bin edges of its piecewise-linear embedding; None for a column
            that is not embedded.
        n_classes: the number of logits.
        members: the number of networks.
        width: of the hidden layers.
        dropout: after each of them.
        multilabel: whether each logit is of a label of its own.
    """

    numbers: Tensor
    others: Tensor

    def __init__(
        self,
        edges: Sequence[Tensor | None],
        n_classes: int,
        *,
        members: int,
        width: int,
        dropout: float,
        multilabel: bool = False,
    ) -> None:
        super().__init__(n_classes)
        self.multilabel = multilabel
        bins = [each for each in edges if each is not None]
        dimensions = min(DIMENSIONS, MAX_WIDTH // max(len(bins), 1))
        if dimensions < MIN_DIMENSIONS:
            bins, edges = [], [None] * len(edges)
        for name, embedded in (("numbers", True), ("others", False)):
            places = [i for i, each in enumerate(edges) if (each is not None) is embedded]
            self.register_buffer(name, torch.tensor(places, dtype=torch.int64), persistent=False)
        self.embedding = (
            PiecewiseLinearEmbeddings(bins, dimensions, activation=False, version="B")
            if bins
            else None
        )
        sizes = [dimensions] * len(bins) + [1] * len(self.others)
        self.view = EnsembleView(k=members)
        self.backbone = make_tabm_backbone(
            d_in=sum(sizes),
            n_blocks=2 if bins else 3,
            d_block=width,
            dropout=dropout,
            k=members,
            start_scaling_init="normal" if bins else "random-signs",
            start_scaling_init_chunks=sizes,
        )
        self.head = LinearEnsemble(width, n_classes, k=members)

    @property
    def undecayed(self) -> list[nn.Parameter]:
        """The parameters without weight decay: biases, and embeddings."""
        embedding = set() if self.embedding is None else set(self.embedding.parameters())
        named = self.named_parameters()
        return [p for name, p in named if p in embedding or name.endswith("bias")]

    def forward(self, x: Tensor) -> Tensor:
        columns = x[:, self.others]
        if self.embedding is not None:
            columns = torch.cat([self.embedding(x[:, self.numbers]).flatten(1), columns], 1)
        logits = self.head(self.backbone(self.view(columns)))
        if self.training:
            return logits
        each = logits + self.offsets
        if self.multilabel:  # the log-odds of the mean
            present, absent = (nn.functional.logsigmoid(z).logsumexp(1) for z in (each, -each))
            return present - absent - self.offsets
        return each.log_softmax(2).logsumexp(1) - math.log(logits.shape[1]) - self.offsets


class MembersAsRows(nn.Module):
    """The mean loss of several networks, each of whose rows counts as one.

    It is never the loss of their mean: each network must be good by itself.
    """

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        if logits.ndim == 3:  # in training
            members = logits.shape[1]
            logits, target = logits.flatten(0, 1), target.repeat_interleave(members, 0)
            if sample_weight is not None:
                sample_weight = sample_weight.repeat_interleave(members)
        return loss_of(self.loss, logits, target, sample_weight)
