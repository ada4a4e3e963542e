"""Sums that come in parts."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Self


@dataclass(frozen=True, eq=False)
class Summed:
    """Sums of rows, which may come in parts."""

    def __add__(self, other: Any) -> Self:
        mine, theirs = self._arrays(), other._arrays()
        return replace(self, **{k: mine[k] + theirs[k] if k in theirs else None for k in mine})

    def map(self, function: Callable[[Any], Any]) -> Self:
        """Apply a function to every array."""
        return replace(self, **{name: function(value) for name, value in self._arrays().items()})

    def tensors(self) -> list[Any]:
        """The arrays in the order of `map`."""
        return list(self._arrays().values())

    def _arrays(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {k: v for k, v in values.items() if v is not None and not isinstance(v, bool)}
