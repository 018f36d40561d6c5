"""Data sets that worker processes import."""

from __future__ import annotations

import os
import signal
import time
from typing import Any


class Squares:
    """Numbers and their squares; some samples fail as the test asks."""

    def __init__(self, count: int, failing: int = -1, how: str = "raise") -> None:
        self.count, self.failing, self.how = count, failing, how

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self.failing:
            if self.how == "raise":
                raise LookupError("the sample is broken")  # the line of the error
            if self.how == "unpicklable":
                raise Unpicklable(lambda: None)
            if self.how == "sleep":
                time.sleep(1000)
            os.kill(os.getpid(), signal.SIGKILL)
        return {"x": float(index), "y": [index * index], "pid": os.getpid()}


class Unpicklable(Exception):
    """An error that stays in its process."""
