"""Darknet-19 (Redmon and Farhadi, YOLO9000, CVPR 2017, Table 6) and the published Tiny Darknet.

Darknet-19 halves an image five times and Tiny Darknet four times, so that a side needs at least 32
or 16 pixels.
"""

from torch import nn

# Widths of the layers between two poolings.
DARKNET_19 = [
    [32],
    [64],
    [128, 64, 128],
    [256, 128, 256],
    [512, 256, 512, 256, 512],
    [1024, 512, 1024, 512, 1024],
]
TINY = [[16], [32], [16, 128, 16, 128], [32, 256, 32, 256], [64, 512, 64, 512, 128]]


def darknet19(n_classes: int, *, dropout: float = 0.0) -> nn.Sequential:
    """Build EAST's network for images (E.3.1).

    The paper does not say where its dropout is. Here it is before the last layer.
    """
    return _darknet(DARKNET_19, n_classes, dropout)


def tiny_darknet(n_classes: int, *, dropout: float = 0.0) -> nn.Sequential:
    """Build BtG's network for images (Table 2)."""
    return _darknet(TINY, n_classes, dropout)


def _darknet(stages: list[list[int]], n_classes: int, dropout: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    width = 3
    for i, stage in enumerate(stages):
        layers += [nn.MaxPool2d(2)] if i else []
        for wide in stage:
            kernel = 1 if wide < width else 3  # a 1×1 layer compresses, a 3×3 layer widens
            layers += [
                nn.Conv2d(width, wide, kernel, padding=kernel // 2, bias=False),
                nn.BatchNorm2d(wide),
                nn.LeakyReLU(0.1, inplace=True),
            ]
            width = wide
    logits = [nn.Dropout(dropout), nn.Conv2d(width, n_classes, 1), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*layers, *logits, nn.Flatten())
