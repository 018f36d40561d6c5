"""The hooks of calls, in a file of their own: they are filled before the rest is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlx.errors import OutOfMemoryError
    from rlx.ir.kernels import Plan
    from rlx.ir.program import Program

__all__ = ["chooser", "reports", "sharding_hooks"]


class _Chooser:
    """`compiled(program, arguments, policy, memory)` compiles a program for the device that a policy chooses, the
    environment's if it is None; memory: where arguments are that were put on a device. `decided` gives the decision."""

    compiled: Callable[..., Any]  # a CompiledProgram
    decided: Callable[..., Any]


class _Reports:
    """Reports to the user: `announced(name, size)` of long compilations, and the error for a plan without memory."""

    announced: Callable[[str, int], AbstractContextManager[None]]
    memory_exhausted: Callable[[Program, Plan | None], OutOfMemoryError]


class _ShardingHooks:
    """Functions of rlx.sharding, by their names there; and `jitted`, the class of functions with in_shardings."""

    check_described: Callable[[Any, Sequence[int]], None]
    default_sharding: Callable[[], Any]
    device_put: Callable[[Any, Any], Any]
    explained: Callable[[str, Sequence[Any]], str]
    jitted: Callable[..., Any]
    propagated: Callable[[Program, Sequence[Any], Mapping[Any, Any]], tuple[list[Any], list[Any]]]
    resolve: Callable[[str, Any], Any]
    stated: Callable[[Program, Sequence[Any], Mapping[Any, Any], Sequence[Any]], Any]
    traced_sharding: Callable[[Any], Any]


chooser = _Chooser()
reports = _Reports()
sharding_hooks = _ShardingHooks()
