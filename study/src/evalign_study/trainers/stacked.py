"""Networks of one shape, stacked along a first dimension, and AdamW for all of them."""

import copy
from collections.abc import Iterable, Sequence
from itertools import accumulate, groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.optim.adamw import adamw

State = dict[str, Tensor]


@torch.no_grad()
def average_weights(means: Iterable[Tensor], weights: Iterable[Tensor], decay: Tensor) -> None:
    """Average as `average_network` does, by a decay that a CUDA graph reads again at each step."""
    share = 1 - decay
    for mean, weight in zip(means, weights, strict=True):
        mean.lerp_(weight, share.to(mean))


class Stacked:
    """Networks that are computed together.

    Args:
        networks: networks of one shape, without batch statistics.
        rates: a learning rate for each; where neighbours share one, they are updated together.
        averaged: whether an exponential moving average of the weights is kept.
    """

    def __init__(
        self, networks: Sequence[nn.Module], rates: Sequence[float], *, averaged: bool = False
    ) -> None:
        self.network = copy.deepcopy(networks[0]).to("meta")
        weights, self.buffers = stack_module_state(list(networks))
        self.weights = {name: w.detach().requires_grad_() for name, w in weights.items()}
        self.means, self.squares = (
            {name: torch.zeros_like(w) for name, w in self.weights.items()} for _ in range(2)
        )
        self.averages = {k: w.detach().clone() for k, w in self.weights.items() if averaged}
        self.rates = list(rates)
        # The factor of all learning rates and the decay of the average change from step to step.
        # They are tensors, as a CUDA graph would replay a number unchanged.
        device = next(iter(self.weights.values())).device
        self.factor = torch.ones((), device=device)
        self.decay = torch.zeros((), device=device, dtype=torch.float64)
        self._share_out(0)

    @property
    def kept(self) -> State:
        """The weights that are validated and kept: the averages, if there are any."""
        return self.averages or self.weights

    def logits(self, x: Tensor, weights: State | None = None) -> Tensor:
        """Compute logits (networks, rows, classes); each network has its own rows.

        Without `weights` the current weights are used.
        """

        def one(weights: State, buffers: State, x: Tensor) -> Tensor:
            return functional_call(self.network, (weights, buffers), (x,))

        return vmap(one, randomness="different")(weights or self.weights, self.buffers, x)

    def step(self, loss: Tensor, weight_decay: float, clip_norm: float | None) -> None:
        """Take a step of AdamW at `factor` times the learning rates; clip each network alone."""
        gradients = torch.autograd.grad(loss, list(self.weights.values()))
        # The fused step needs equal memory layouts, and a product's gradient may be transposed.
        gradients = [g.contiguous() for g in gradients]
        if clip_norm is not None:
            norm = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0).sqrt()
            scale = (clip_norm / (norm + 1e-6)).clamp(max=1)  # as clip_grad_norm_ does
            gradients = [g * scale.view(-1, *[1] * (g.ndim - 1)) for g in gradients]
        for part, weights, means, squares, steps in self.parts:
            adamw(
                weights,
                [g[part] for g in gradients],
                means,
                squares,
                [],
                steps,
                fused=True,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=self.rates[part.start] * self.factor,
                weight_decay=weight_decay,
                eps=1e-8,
                maximize=False,
            )
        if self.averages:
            average_weights(self.averages.values(), self.weights.values(), self.decay)

    def narrow(self, places: Sequence[int], steps: int) -> None:
        """Continue with these networks only, after so many steps."""
        index = torch.tensor(places, device=next(iter(self.weights.values())).device)
        self.weights = {k: w.detach()[index].requires_grad_() for k, w in self.weights.items()}
        self.means, self.squares, self.averages, self.buffers = (
            {name: tensor[index] for name, tensor in state.items()}
            for state in (self.means, self.squares, self.averages, self.buffers)
        )
        self.rates = [self.rates[i] for i in places]
        self._share_out(steps)

    def _share_out(self, steps: int) -> None:
        """Make, for each learning rate, the lists of tensors that AdamW takes."""
        self.parts = []
        for part in runs(self.rates):
            weights, means, squares = (
                [tensor.detach()[part] for tensor in state.values()]
                for state in (self.weights, self.means, self.squares)
            )
            taken = [torch.tensor(float(steps), device=w.device) for w in weights]
            self.parts.append((part, weights, means, squares, taken))


def runs(keys: Sequence[Any]) -> list[slice]:
    """Return the slices of equal neighbours."""
    ends = list(accumulate(len(list(same)) for _, same in groupby(keys)))
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


class _Dropout(nn.Module):
    """Dropout whose probability is a buffer, so that stacked networks may differ in it."""

    p: Tensor

    def __init__(self, p: float) -> None:
        super().__init__()
        self.register_buffer("p", torch.tensor(p))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        return x * ((torch.rand_like(x) >= self.p) / (1 - self.p))


def with_own_dropout(network: nn.Module, p: float) -> nn.Module:
    """Replace the network's dropout layers by ones that a stack can hold."""
    for parent in list(network.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Dropout):
                setattr(parent, name, _Dropout(p))
    return network
