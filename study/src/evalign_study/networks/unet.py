"""A small U-Net (Ronneberger et al., MICCAI 2015): a logit of each class for each pixel.

It differs in what makes it cheap: it works on blocks of 2 × 2 pixels, as networks for photographs
do, and answers for the four of a block at once. Layers are normalised, and keep the size.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

WIDTHS = (32, 64, 128, 256)


class UNet(nn.Module):
    """From images (N, 3, H, W) to logits (N, classes, H, W); H and W are multiples of 16.

    Args:
        classes: how many there are.
        widths: the channels at each scale, of which each is half the one before.
    """

    def __init__(self, classes: int, widths: Sequence[int] = WIDTHS) -> None:
        super().__init__()
        first, *rest = widths
        self.stem = nn.Conv2d(3, first, 2, stride=2)
        before = [first, *widths[:-1]]
        pairs = zip(before, widths, strict=True)
        self.down = nn.ModuleList(_block(old, new) for old, new in pairs)
        steps = [*zip(rest, widths[:-1], strict=True)][::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(old, new, 2, stride=2) for old, new in steps)
        self.merge = nn.ModuleList(_block(2 * new, new) for _, new in steps)
        self.head = nn.Sequential(nn.Conv2d(first, 4 * classes, 1), nn.PixelShuffle(2))

    def forward(self, x: Tensor) -> Tensor:
        x, seen = self.stem(x), []
        for number, block in enumerate(self.down):
            x = block(x if number == 0 else nn.functional.max_pool2d(x, 2))
            seen.append(x)
        for up, merge, skipped in zip(self.up, self.merge, seen[-2::-1], strict=True):
            x = merge(torch.cat([up(x), skipped], 1))
        return self.head(x)


def _block(before: int, width: int) -> nn.Sequential:
    """Two layers of 3 × 3."""
    layers: list[nn.Module] = []
    for channels in (before, width):
        convolution = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
        layers += [convolution, nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)
