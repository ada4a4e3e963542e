"""ResNet-18 and -34 (He et al., CVPR 2016) for small images, as in SurF.

The stem is one 3×3 layer without pooling; the four stages are those of the published networks.
"""

from collections.abc import Sequence

from torch import Tensor, nn

WIDTHS = (64, 128, 256, 512)


def resnet18(n_classes: int) -> nn.Sequential:
    """Build the network with two blocks in each stage."""
    return _resnet((2, 2, 2, 2), n_classes)


def resnet34(n_classes: int) -> nn.Sequential:
    """Build the network with 3, 4, 6 and 3 blocks."""
    return _resnet((3, 4, 6, 3), n_classes)


class Block(nn.Module):
    """ReLU(x + two 3×3 layers of x); a 1×1 layer takes the place of x where the shape changes."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *_layer(before, width, 3, stride), nn.ReLU(inplace=True), *_layer(width, width, 3)
        )
        same = before == width and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*_layer(before, width, 1, stride))
        self.activation = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.shortcut(x) + self.layers(x))


def _resnet(depths: Sequence[int], n_classes: int) -> nn.Sequential:
    blocks: list[nn.Module] = []
    before = WIDTHS[0]
    for width, depth in zip(WIDTHS, depths, strict=True):
        for i in range(depth):
            halved = i == 0 and width > WIDTHS[0]
            blocks.append(Block(before, width, 2 if halved else 1))
            before = width
    stem = [*_layer(3, WIDTHS[0], 3), nn.ReLU(inplace=True)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, n_classes)]
    return nn.Sequential(*stem, *blocks, *head)


def _layer(before: int, width: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(before, width, kernel, stride, kernel // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return [convolution, nn.BatchNorm2d(width)]
