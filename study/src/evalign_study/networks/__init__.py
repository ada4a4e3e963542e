"""The networks of the papers.

`darknet` and `resnet` are for small images, `people` is for a graph of people. All are plain
modules that return logits. This folder may import nothing else of the project.
"""

from evalign_study.networks.darknet import darknet19, tiny_darknet
from evalign_study.networks.people import PeopleNetwork
from evalign_study.networks.resnet import resnet18, resnet34

__all__ = [
    "PeopleNetwork",
    "darknet19",
    "resnet18",
    "resnet34",
    "tiny_darknet",
]
