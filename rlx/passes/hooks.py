"""The hooks of the pipeline, in a file of their own: they are filled before the pipeline is loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["observer", "regions"]


class _Observer:
    """`compiled(stages, directory)` receives the stages of every compiled program under RLX_DUMP."""

    compiled: Callable[..., Any]


class _Regions:
    """`executable(program, backend, memory_limit)` compiles a program with regions on devices of their own."""

    executable: Callable[..., Any]


observer = _Observer()
regions = _Regions()
