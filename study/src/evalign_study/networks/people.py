"""A message-passing network over the people of a frame (BtG Table 3)."""

import torch
from torch import Tensor, nn

from evalign_study.networks.mlp import mlp


class PeopleNetwork(nn.Module):
    """A network that says who belongs together: one logit for each pair i < j of a frame.

    A graph network (Battaglia et al. 2018) on the complete graph: an edge starts as the distance
    between its two people. In each round an edge is updated from its two people, and a person from
    the mean of its edges. The order of the people does not matter. BtG took the sizes of Thompson
    et al. 2021 and does not print them; the sizes here are ours.

    Args:
        n_features: the number of features of a person; the first two are the position.
        width: the width of the states and of the hidden layers.
        rounds: the number of rounds of messages.
        dropout: the dropout of the hidden layers.

    Examples:
        >>> PeopleNetwork()(torch.zeros(2, 6, 4)).shape
        torch.Size([2, 15])
    """

    def __init__(
        self, n_features: int = 4, *, width: int = 32, rounds: int = 2, dropout: float = 0.0
    ) -> None:
        super().__init__()
        people, edges = [n_features] + [width] * rounds, [1] + [width] * rounds

        def network(inputs: int, outputs: int) -> nn.Module:
            return mlp(inputs, outputs, hidden=(width,), dropout=dropout)

        self.edges = nn.ModuleList(network(edges[i] + 2 * people[i], width) for i in range(rounds))
        self.people = nn.ModuleList(network(people[i] + width, width) for i in range(rounds))
        self.logit = network(edges[-1] + 2 * people[-1], 1)

    def forward(self, people: Tensor) -> Tensor:
        """Map (N, people, features) to (N, pairs), the pairs in the order of `triu_indices`."""
        count = people.shape[1]
        positions = people[..., :2]
        apart = positions[:, :, None] - positions[:, None, :]
        edges = torch.linalg.vector_norm(apart, dim=-1, keepdim=True)
        others = 1 - torch.eye(count, dtype=people.dtype, device=people.device)
        for edge, person in zip(self.edges, self.people, strict=True):
            edges = edge(_with_ends(edges, people))
            heard = torch.einsum("ij,nijf->nif", others / (count - 1), edges)
            people = person(torch.cat([people, heard], -1))
        logits = self.logit(_with_ends(edges, people)).squeeze(-1)
        i, j = torch.triu_indices(count, count, 1, device=people.device)
        return (logits[:, i, j] + logits[:, j, i]) / 2


def _with_ends(edges: Tensor, people: Tensor) -> Tensor:
    """Put each edge beside its two people."""
    shape = *edges.shape[:-1], people.shape[-1]
    ends = people[:, :, None].expand(shape), people[:, None].expand(shape)
    return torch.cat([edges, *ends], -1)
