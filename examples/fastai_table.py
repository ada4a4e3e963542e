"""Train a fastai `Learner` with `AlignedLoss`, whose offsets turn predictions into probabilities.

fastai is not a dependency of evalign, and installs torchvision. Run it with

    pip install fastai    # beside evalign
    python examples/fastai_table.py
"""

import torch
from fastai.data.core import DataLoaders
from fastai.learner import Learner
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from evalign import AlignedLoss, fit_decision, score

CLASSES = 3


class FastaiLoss(nn.Module):
    """A loss with the methods that fastai expects, `activation` and `decodes`."""

    def __init__(self, loss: AlignedLoss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        # fastai's tensor subclasses cannot be mixed.
        return self.loss(logits.as_subclass(Tensor), target.as_subclass(Tensor))

    def activation(self, logits: Tensor) -> Tensor:
        return (logits.as_subclass(Tensor) + self.loss.offsets).softmax(-1)

    def decodes(self, probabilities: Tensor) -> Tensor:
        return probabilities.argmax(-1)


def made_rows(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Make synthetic rows of three classes, the last one rare."""
    generator = torch.Generator().manual_seed(seed)
    shares = torch.tensor([0.8, 0.15, 0.05])
    y = torch.multinomial(shares, count, replacement=True, generator=generator)
    x = torch.randn(count, 8, generator=generator) + 1.2 * nn.functional.one_hot(y, 8)
    return x, y


def main() -> None:
    torch.manual_seed(0)
    train, validation, test = (made_rows(2000, seed) for seed in range(3))
    parts = [TensorDataset(*rows) for rows in (train, validation)]
    loaders = DataLoaders.from_dsets(*parts, bs=100, device="cpu")
    network = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    loss = AlignedLoss("f1_macro")
    learner = Learner(loaders, network, loss_func=FastaiLoss(loss))
    learner.fit(5, 1e-2)

    def probabilities(rows: tuple[Tensor, Tensor]) -> Tensor:
        return learner.get_preds(dl=loaders.valid.new(TensorDataset(*rows)))[0]

    rule = fit_decision(y=validation[1], probabilities=probabilities(validation), metric="f1_macro")
    given = probabilities(test)
    argmax = score("f1_macro", y_true=test[1], y_pred=given.argmax(1))
    print(f"most probable class  {argmax:.3f}")
    by_rule = score("f1_macro", y_true=test[1], y_pred=rule(probabilities=given))
    print(f"rule for macro-F1    {by_rule:.3f}")


if __name__ == "__main__":
    main()
