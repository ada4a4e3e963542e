"""On a GPU, many models are trained at once and replayed from CUDA graphs."""

import copy
from dataclasses import replace

import pytest
import torch
from evalign_study.refuted.counted import CountedLoss
from evalign_study.trainers.many import Member, fit_many
from torch import nn

from evalign import AlignedLoss, MetricLoss
from evalign.metrics import FBeta
from evalign.training import Settings, TemperatureAnnealing, fit
from tests import tolerances
from tests.ground.made import imbalanced

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore:All validation rows:evalign.training.TrainingWarning"),
]
X, Y = imbalanced(600, classes=3)


def test_many_models_are_as_if_trained_alone():
    """Batches differ in size, and members end at different times."""
    rows = torch.from_numpy(X).cuda().double(), torch.from_numpy(Y).cuda()
    split = [part.split([410, 190]) for part in rows]
    training, validation = (tuple(part[k] for part in split) for k in (0, 1))
    settings = Settings(12, 64, patience=4)
    f1, cooling = MetricLoss("f1_macro"), {"rate": 0.8, "patience": 2}
    members = [
        Member(nn.CrossEntropyLoss(), 1e-2, 0),
        Member(f1, 1e-2, 1, annealing=cooling),
        Member(f1, 1e-3, 2),
        Member(CountedLoss("f1_macro", rows[1].bincount()), 1e-2, 3),
        Member(AlignedLoss("f1_macro"), 1e-2, 3),
        # These numbers must be sent to the device once, and not while a graph is captured.
        Member(MetricLoss(FBeta(beta=[1, 2, 0.5], average="macro", labels=[0, 2])), 1e-2, 4),
    ]

    def network():
        layers = nn.Linear(rows[0].shape[1], 16), nn.ReLU(), nn.Linear(16, 3)
        return nn.Sequential(*layers).double()

    given = {"validation": validation, "metric": "f1_macro"}
    together = fit_many(network, members, *training, settings=settings, **given)
    for member, trained in zip(members, together, strict=True):
        torch.manual_seed(member.seed)
        model, loss = network().cuda(), copy.deepcopy(member.loss).cuda()
        own = replace(settings, learning_rate=member.learning_rate, seed=member.seed)
        annealing = member.annealing and TemperatureAnnealing(loss, **member.annealing)
        history = fit(model, loss, *training, settings=own, annealing=annealing, **given)
        assert [r["best"] for r in trained.history] == [r["best"] for r in history]
        for key, value in model.state_dict().items():
            torch.testing.assert_close(trained.weights[key], value, rtol=0, atol=tolerances.STACKED)
