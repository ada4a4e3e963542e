"""A data set of images on a device: parts cut from them, or whole scenes with labelled pixels."""

from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

SIZE = 32  # of the images that networks see


class Places(NamedTuple):
    """Where images are cut, and which of them are mirrored: a column each."""

    top: Tensor
    left: Tensor
    mirrored: Tensor


class Images(NamedTuple):
    """A data set on a device.

    Args:
        pixels: bytes (N, height, width, 3), padded.
        y: a class for each image.
        training: row numbers, as are `validation` and `test`.
        classes: how many there are.
        center: what is taken from pixels between 0 and 1: (3, 1, 1), or a number for each pixel.
        scale: what the rest is divided by.
    """

    pixels: Tensor
    y: Tensor
    training: Tensor
    validation: Tensor
    test: Tensor
    classes: int
    center: Tensor | float = 0.0
    scale: Tensor | float = 1.0

    def draw(self, count: int, generator: torch.Generator | None = None) -> Places:
        """Draw places: any part of an image, one in two mirrored."""
        height, width = self.pixels.shape[1:3]
        shape, device = (count, 1), self.pixels.device
        return Places(
            torch.randint(height - SIZE + 1, shape, generator=generator, device=device),
            torch.randint(width - SIZE + 1, shape, generator=generator, device=device),
            torch.rand(shape, generator=generator, device=device) < 0.5,
        )

    def crops(self, rows: Tensor, places: Places | None = None) -> Tensor:
        """Cut images (rows, 3, SIZE, SIZE): where the places are, or the middle."""
        height, width = self.pixels.shape[1:3]
        count, device = len(rows), rows.device
        along = torch.arange(SIZE, device=device).expand(count, SIZE)
        top, left = (height - SIZE) // 2, (width - SIZE) // 2
        across = along
        if places is not None:
            top, left, mirrored = places
            across = torch.where(mirrored, SIZE - 1 - along, along)
        # One gather picks, crops and mirrors; channels stay last in memory, where they are wanted.
        index = rows[:, None, None], (top + along)[:, :, None], (left + across)[:, None, :]
        return (self.pixels[index].permute(0, 3, 1, 2) / 255 - self.center) / self.scale


class Scenes(NamedTuple):
    """A data set of images whose pixels have a class each, on a device.

    Args:
        pixels: bytes (N, height, width, 3).
        y: bytes (N, height, width): the class of each pixel, or `data.VOID`.
        training: row numbers, as are `validation` and `test`.
        classes: how many there are.
        center: what is taken from pixels between 0 and 1: (3, 1, 1).
        scale: what the rest is divided by.
        turned: whether an image may be turned and mirrored in every way, as one from a microscope.
    """

    pixels: Tensor
    y: Tensor
    training: Tensor
    validation: Tensor
    test: Tensor
    classes: int
    center: Tensor | float = 0.0
    scale: Tensor | float = 1.0
    turned: bool = False

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw how images are mirrored: across, down, along the diagonal; a row for each image."""
        device = self.pixels.device
        drawn = torch.rand(count, 3, generator=generator, device=device) < 0.5
        return drawn & torch.tensor([True, self.turned, self.turned], device=device)

    def crops(self, rows: Tensor, mirrored: Tensor | None = None) -> Tensor:
        """Images (rows, 3, height, width), whole."""
        x = self._mirrored(self.pixels[rows], mirrored)
        return (x.permute(0, 3, 1, 2) / 255 - self.center) / self.scale

    def labels(self, rows: Tensor, mirrored: Tensor | None = None) -> Tensor:
        """The classes (rows, height, width) of the same pixels, int64."""
        return self._mirrored(self.y[rows], mirrored).long()

    def _mirrored(self, x: Tensor, mirrored: Tensor | None) -> Tensor:
        if mirrored is None:
            return x
        across, down, diagonal = mirrored.view(len(x), 3, *[1] * (x.ndim - 1)).unbind(1)
        x = torch.where(across, x.flip(2), x)
        if self.turned:
            x = torch.where(down, x.flip(1), x)
            x = torch.where(diagonal, x.transpose(1, 2), x)
        return x


Stored = TypeVar("Stored", Images, Scenes)
