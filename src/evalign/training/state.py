"""Everything the rest of a run depends on, in one place: what a checkpoint holds."""

import copy
import hashlib
import re
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from evalign.training.annealing import TemperatureAnnealing
from evalign.training.batches import Data
from evalign.training.checkpoint import CheckpointError
from evalign.training.settings import Settings

History = list[dict[str, Any]]


def describe(thing: object) -> str:
    """A loss or metric as text. Addresses differ between processes, and a temperature is state."""
    return re.sub(r" at 0x[0-9a-f]+|temperature=[^,)]+", "", repr(thing))


def fingerprint(*data: Data) -> str:
    """Of all rows, as bytes; a loader's cannot be looked at."""
    digest = hashlib.blake2b(digest_size=16)
    for part in data:
        for tensor in () if isinstance(part, DataLoader) else part:
            digest.update(
                tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data
            )
    return digest.hexdigest()


@dataclass
class RunState:
    """The moving parts of `fit`.

    `averaged` is the network itself where no average is kept; `best` holds the weights of the best
    epoch, and `call` what must be the same when the run is resumed.
    """

    settings: Settings
    call: dict[str, Any]
    network: nn.Module
    averaged: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    loss: object
    annealing: TemperatureAnnealing | None
    generators: dict[str, torch.Generator]
    history: History = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)

    def _parts(self) -> dict[str, Any]:
        parts = {"network": self.network, "scaler": self.scaler, "annealing": self.annealing}
        parts["averaged"] = None if self.averaged is self.network else self.averaged
        parts["loss"] = self.loss if isinstance(self.loss, nn.Module) else None
        return {name: part for name, part in parts.items() if part is not None}

    def _call(self) -> dict[str, Any]:
        """What must be the same when the run is resumed."""
        parts = {"parts": sorted(self._parts()), "generators": sorted(self.generators)}
        return asdict(self.settings) | self.call | parts

    def state_dict(self) -> dict[str, Any]:
        """A copy, as training goes on in place."""
        live: dict[str, Any] = {name: part.state_dict() for name, part in self._parts().items()}
        live["optimizer"] = {str(k): v for k, v in self.optimizer.state_dict()["state"].items()}
        live["rng"] = {name: source.get_state() for name, source in self.generators.items()}
        never_changed = {"history": list(self.history), "best": self.best}
        return {"call": self._call(), **copy.deepcopy(live), **never_changed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly where the state was taken."""
        now, then = self._call(), state["call"]
        for name in {**then, **now}:
            if now.get(name) != then.get(name):
                got = f"{name} was {then.get(name)!r} and is now {now.get(name)!r}"
                cure = "Resume with the same call, or delete the checkpoint to start afresh."
                raise CheckpointError(f"The checkpoint belongs to another run: {got}. {cure}")
        try:
            for name, part in self._parts().items():
                part.load_state_dict(state[name])
        except RuntimeError as error:
            raise CheckpointError(f"The checkpoint belongs to another network: {error}") from error
        slots = {int(k): v for k, v in state["optimizer"].items()}
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": slots, "param_groups": groups})
        for name, source in self.generators.items():
            source.set_state(state["rng"][name])
        self.history.extend(state["history"])
        self.best = state["best"]
