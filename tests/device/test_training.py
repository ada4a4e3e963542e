"""Training on a GPU: the loop, the estimator, checkpoints. `make gpu` runs this folder."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn

from evalign import MetricLoss, exact_backward
from evalign.estimators import AlignedClassifier
from evalign.estimators.candidates import RECIPES
from evalign.training import Settings, fit
from tests import dtype_tolerances, tolerances
from tests.estimator.models import SmallNetwork
from tests.ground.made import imbalanced

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore:All validation rows:evalign.training.TrainingWarning"),
]
X, Y = imbalanced(600, classes=3)


def classifier(**arguments):
    settings = {"network": SmallNetwork(), "epochs": 15, "batch_size": 64, "learning_rate": 0.02}
    return AlignedClassifier(random_state=0, **(settings | arguments))


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_learns(recipe):
    clf = classifier(recipe=recipe).fit(X[:400], Y[:400])
    assert next(clf.network_.parameters()).is_cuda  # device="auto"
    assert clf.score(X[400:], Y[400:]) > 0.6
    assert np.allclose(clf.predict_proba(X).sum(1), 1)


@pytest.mark.parametrize("constraint", ["recall[1] >= 0.8", "gap(recall[1]) <= 0.2"])
def test_a_constraint_is_met(constraint):
    groups = {"constraint_groups": np.arange(600) % 2} if "gap" in constraint else {}
    clf = classifier(constraint=constraint, epochs=5).fit(X, Y, **groups)
    assert min(clf.rule_.slacks.values()) >= -tolerances.SAME


def test_the_default_network(tmp_path):
    clf = AlignedClassifier(epochs=5, random_state=0).fit(X, Y)
    assert clf.score(X, Y) > 0.6
    clf.save(tmp_path / "model")
    again = AlignedClassifier.load(tmp_path / "model", device="cpu")
    difference = np.abs(again.predict_proba(X) - clf.predict_proba(X)).max()
    assert difference < tolerances.FLOAT32_GRADIENT


def test_a_model_goes_where_there_is_no_gpu(tmp_path):
    clf = classifier(epochs=3).fit(X, Y)
    assert not next(pickle.loads(pickle.dumps(clf)).network_.parameters()).is_cuda
    clf.save(tmp_path / "model")
    again = AlignedClassifier.load(tmp_path / "model", network=SmallNetwork(), device="cpu")
    difference = np.abs(again.predict_proba(X) - clf.predict_proba(X)).max()
    assert difference < tolerances.FLOAT32_GRADIENT  # TF32 is off: float32 on both


def test_a_stopped_fit_goes_on(tmp_path):
    class Stop(Exception):
        pass

    def stop(record):
        if record["epoch"] == 3:
            raise Stop

    with pytest.raises(Stop):
        classifier(epochs=6, on_epoch=stop).fit(X, Y, checkpoint=tmp_path / "training")
    clf = classifier(epochs=6).fit(X, Y, checkpoint=tmp_path / "training")
    assert [record["epoch"] for record in clf.history_] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_mixed_precision_learns(precision):
    torch.manual_seed(0)
    x, y = (torch.from_numpy(part).cuda() for part in (X.astype(np.float32), Y))
    network = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3)).cuda()
    settings = Settings(epochs=20, batch_size=64, learning_rate=0.02, precision=precision)
    history = fit(
        network,
        MetricLoss("f1_macro").cuda(),
        x[:400],
        y[:400],
        validation=(x[400:], y[400:]),
        metric="f1_macro",
        settings=settings,
    )
    assert max(record["validation_metric"] for record in history) > 0.6


def test_exact_backward_replays_dropout():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.5), nn.Linear(32, 3)).cuda().double()
    x, y = (torch.from_numpy(part).cuda() for part in (X, Y))
    loss = MetricLoss("f1_macro").cuda()
    parts = list(zip(x.split(100), y.split(100), strict=True))
    torch.manual_seed(1)
    loss(torch.cat([model(part) for part, _ in parts]), y).backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    torch.manual_seed(1)
    exact_backward(loss, model, parts)
    atol = dtype_tolerances.RANKS[torch.float64]
    for p, wanted in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, wanted, rtol=0, atol=atol)


def test_one_rank_over_nccl(tmp_path):
    """With one GPU only this can be tested of NCCL: the sum over a group of one changes nothing."""
    meeting = f"file://{tmp_path / 'meeting'}"
    torch.distributed.init_process_group("nccl", init_method=meeting, rank=0, world_size=1)
    try:
        logits = torch.randn(64, 3, device="cuda", requires_grad=True)
        y = torch.randint(3, (64,), device="cuda")
        assert MetricLoss("f1_macro").cuda()(logits, y) == MetricLoss(
            "f1_macro", ranks="own"
        ).cuda()(logits, y)
    finally:
        torch.distributed.destroy_process_group()
