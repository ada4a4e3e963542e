"""A data set of images on a device: parts cut from them, or whole scenes with labelled pixels."""

from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

SIZE = 32  # of the images that networks see
ZOOM = 4 / 3  # of a scene's views, at most, and as much in the other direction
LIGHT = 0.3  # how far their contrast and colours differ, at most


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


class Views(NamedTuple):
    """How images are looked at.

    Args:
        places: (N, 2, 3), from a view's coordinates to the image's, both between −1 and 1.
        contrast: (N, 1, 1, 1), what standardised colours are multiplied by.
        light: (N, 3, 1, 1), what is then added.
    """

    places: Tensor
    contrast: Tensor
    light: Tensor


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

    def draw(self, count: int, generator: torch.Generator) -> Views:
        """Draw views: mirrored, smaller or larger by a third, in other light.

        Parts that lie outside of an image have no class.
        """
        device = self.pixels.device

        def uniform(*shape: int) -> Tensor:
            """Between −1 and 1."""
            return 2 * torch.rand(count, *shape, generator=generator, device=device) - 1

        across, down, diagonal = uniform(3, 1).unbind(1)
        size = torch.where(across < 0, -1.0, 1.0) * ZOOM ** uniform(1)
        height = torch.where((down < 0) & self.turned, -1.0, 1.0) * size.abs()
        straight = torch.stack([size, torch.zeros_like(size), torch.zeros_like(size), height], 1)
        turned = straight.view(-1, 2, 2)
        turned = torch.where((diagonal < 0)[:, :, None] & self.turned, turned.flip(1), turned)
        middle = (1 - size.abs()).unsqueeze(1) * uniform(2, 1)
        return Views(
            torch.cat([turned, middle], 2),
            1 + LIGHT * uniform(1, 1, 1),
            LIGHT * uniform(3, 1, 1),
        )

    def crops(self, rows: Tensor, views: Views | None = None) -> Tensor:
        """Images (rows, 3, height, width), whole, or the views of them."""
        x = self.pixels[rows].permute(0, 3, 1, 2)
        if views is None:
            return (x / 255 - self.center) / self.scale
        seen = _seen(x.float(), views.places, "bilinear")
        return (seen / 255 - self.center) / self.scale * views.contrast + views.light

    def labels(self, rows: Tensor, views: Views | None = None) -> Tensor:
        """The classes (rows, height, width) of the same pixels, int64."""
        y = self.y[rows]
        if views is None:
            return y.long()
        outside_is_void = (y + 1).unsqueeze(1).float()  # bytes: VOID becomes 0, as outside is
        return (_seen(outside_is_void, views.places, "nearest").squeeze(1).byte() - 1).long()


def _seen(images: Tensor, places: Tensor, mode: str) -> Tensor:
    """Sample images where the places say; 0 outside of them."""
    grid = nn.functional.affine_grid(places, list(images.shape), align_corners=False)
    return nn.functional.grid_sample(images, grid, mode, "zeros", align_corners=False)


Stored = TypeVar("Stored", Images, Scenes)
