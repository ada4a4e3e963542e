"""skorch: the loss as a criterion, and probabilities that include its offsets."""

import numpy as np
import torch
from skorch import NeuralNetClassifier
from torch import nn

from evalign import AlignedLoss, fit_decision
from tests import tolerances
from tests.integrations.engines import made_rows


class WithOffsets(NeuralNetClassifier):
    def evaluation_step(self, batch, training=False):
        return super().evaluation_step(batch, training) + self.criterion_.offsets


def test_probabilities_include_the_offsets_of_the_loss():
    x, y = (part.numpy() for part in made_rows(300))
    torch.manual_seed(0)
    net = WithOffsets(
        nn.Linear(4, 3).double(),
        criterion=AlignedLoss,
        criterion__metric="f1_macro",
        predict_nonlinearity=nn.Softmax(-1),
        max_epochs=10,
        lr=0.5,
        verbose=0,
    )
    net.fit(x, y)
    with torch.no_grad():
        logits = net.module_(torch.as_tensor(x))
    offsets = net.criterion_.offsets
    probabilities = net.predict_proba(x)
    expected = (logits + offsets).softmax(1).numpy()
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=tolerances.FLOAT32)

    how = {"metric": "f1_macro", "decision": "expected"}
    of_logits = fit_decision(logits, offsets=offsets, **how)
    of_probabilities = fit_decision(probabilities=probabilities, **how)
    assert np.array_equal(of_probabilities(probabilities=probabilities), of_logits(logits.numpy()))
