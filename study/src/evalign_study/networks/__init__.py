"""The networks of the papers, and one for pixels.

`mlp` is for tables, `darknet` and `resnet` are for small images, `people` is for a graph of people,
and `unet` has logits for each pixel. All are plain modules that return logits. This folder may
import nothing else of the project.
"""

from evalign_study.networks.darknet import darknet19, tiny_darknet
from evalign_study.networks.mlp import mlp
from evalign_study.networks.people import PeopleNetwork
from evalign_study.networks.resnet import resnet18, resnet34
from evalign_study.networks.unet import UNet

__all__ = [
    "PeopleNetwork",
    "UNet",
    "darknet19",
    "mlp",
    "resnet18",
    "resnet34",
    "tiny_darknet",
]
