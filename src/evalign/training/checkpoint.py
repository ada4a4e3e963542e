"""Save the state of a run now and then."""

import math
import os
import time
from collections.abc import Callable
from typing import Any

from evalign.store import archive


class Saver:
    """Saves the first state, then at most one `every` so many seconds, and the last at `close`.

    Without a path nothing is saved. A path that cannot be replaced is refused at once.
    """

    def __init__(self, path: str | os.PathLike[str] | None, every: float) -> None:
        if path is not None:
            archive.check_replaceable(path)
        self.path = path
        self.every = every
        self.next = -math.inf
        self.unsaved: dict[str, Any] | None = None

    def give(self, state: Callable[[], dict[str, Any]]) -> None:
        """Take a state, and save it if it is due."""
        if self.path is None:
            return
        self.unsaved = state()
        if time.monotonic() >= self.next:
            self.close()
            self.next = time.monotonic() + self.every

    def close(self) -> None:
        """Save the last state."""
        if self.path is not None and self.unsaved is not None:
            archive.save(self.path, self.unsaved)
            self.unsaved = None
