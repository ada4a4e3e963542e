"""A multilayer perceptron, the papers' network for tables."""

from collections.abc import Sequence

from torch import nn


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
