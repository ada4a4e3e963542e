"""The networks of several folds, trained side by side: every row is held out once."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from evalign.estimators.members import Members, mean_of_members
from evalign.training.averaging import UsesOffsets


class Folds(UsesOffsets):
    """The networks of the folds of a table, each of which is trained on the other folds.

    A row of the table has the number of its fold in a last column. In training it gives the logits
    of all networks but its own fold's, (n, members, n_classes), as `Members` does. In evaluation it
    gives those of the one network that was not trained on it.

    A new row has no such column. In evaluation softmax(logits + offsets) is the mean of the
    networks' probabilities. If multilabel, sigmoid takes the place of softmax.

    Args:
        networks: one for each fold.
        n_features: the columns of a new row.
        n_classes: the number of logits.
        multilabel: whether each logit is of a label of its own.
    """

    def __init__(
        self,
        networks: Sequence[nn.Module],
        n_features: int,
        n_classes: int,
        *,
        multilabel: bool = False,
    ) -> None:
        super().__init__(n_classes)
        self.multilabel = multilabel
        self.networks = nn.ModuleList(networks)
        self.n_features = n_features

    def keep(self, members: int) -> None:
        """Keep the first members of each network, see `Members.keep`."""
        for network in self.networks:
            cast(Members, network).keep(members)

    def forward(self, x: Tensor) -> Tensor:
        folded = x.shape[1] > self.n_features
        rows = x[:, : self.n_features]
        if folded and not self.training:
            return self._held_out(rows, x[:, -1])
        each = torch.stack([network(rows) for network in self.networks], 1)
        if not self.training:
            return mean_of_members(each, self.offsets, multilabel=self.multilabel)
        each = each.view(*each.shape[:2], -1, each.shape[-1])  # (n, folds, members, n_classes)
        if folded:
            others = torch.arange(len(self.networks) - 1, device=x.device)
            others = others + (others >= x[:, -1:])
            each = each.gather(1, others[:, :, None, None].expand(-1, -1, *each.shape[2:]))
        return each.flatten(1, 2)

    def _held_out(self, rows: Tensor, fold: Tensor) -> Tensor:
        places = [(fold == i).nonzero().squeeze(1) for i in range(len(self.networks))]
        logits = [network(rows[p]) for network, p in zip(self.networks, places, strict=True)]
        return torch.cat(logits)[torch.cat(places).argsort()]
