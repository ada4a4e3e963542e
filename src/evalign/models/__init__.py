"""The networks of the papers.

`tables` for rows of features, `darknet` and `resnet` for small images, `people` for a graph of
people. Plain modules that give logits; imports nothing of the project.
"""

from evalign.models.darknet import darknet19, tiny_darknet
from evalign.models.people import PeopleNetwork
from evalign.models.resnet import resnet18, resnet34
from evalign.models.tables import linear, mlp

__all__ = [
    "PeopleNetwork",
    "darknet19",
    "linear",
    "mlp",
    "resnet18",
    "resnet34",
    "tiny_darknet",
]
