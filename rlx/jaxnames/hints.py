"""JAX's hints about where and in which order XLA computes. They change no values, and rlx ignores them.

jax.experimental.compute_on, scheduling_groups, shard_alike, control_deps and custom_partitioning.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import update_wrapper
from typing import Any

from rlx.errors import OptionError, TreeMismatchError
from rlx.trees import tree

__all__ = [
    "compute_on",
    "compute_on2",
    "control_dep",
    "custom_partitioning",
    "schedule",
    "scheduling_group",
    "shard_alike",
    "xla_metadata_call",
]

_PLACES = ("device_host", "device", "tpu_sparsecore")


def _checked_place(compute_type: str) -> None:
    if compute_type not in _PLACES and not str(compute_type).startswith("gpu_stream:"):
        raise OptionError(
            f"compute_on got compute_type={compute_type!r}.", f"It must be one of {', '.join(_PLACES)}, gpu_stream:#."
        )


@contextmanager
def compute_on(compute_type: str) -> Generator[None]:
    """A `with` block whose operations XLA would run on another device. rlx runs them where their arrays are.

    Raises OptionError for an unknown device.

    >>> from rlx.jaxnames.hints import compute_on
    >>> with compute_on("device_host"):
    ...     2 + 2
    4
    """
    _checked_place(compute_type)
    yield


def compute_on2(
    f: Callable[..., Any] | None = None, *, compute_type: str, out_memory_spaces: Any, compiler_options: Any = None
) -> Callable[..., Any]:
    """The function, which XLA would run on another device. Raises OptionError for an unknown one."""
    _checked_place(compute_type)
    return (lambda g: g) if f is None else f


def xla_metadata_call(f: Callable[..., Any] | None = None, **meta: Any) -> Callable[..., Any]:
    """The function: rlx's compiler reads no metadata."""
    return (lambda g: g) if f is None else f


def scheduling_group(name: Any) -> Callable[..., Any]:
    """A decorator that returns the function: rlx schedules without groups."""
    return xla_metadata_call(scheduling_group=name)


def shard_alike(x: Any, y: Any) -> tuple[Any, Any]:
    """Both trees: results of rlx's operations have the sharding that is computed for them.

    Raises TreeMismatchError for trees of different structures.

    >>> from rlx.jaxnames.hints import shard_alike
    >>> shard_alike(1.0, 2.0)
    (1.0, 2.0)
    """
    if tree.structure(x) != tree.structure(y):
        raise TreeMismatchError("shard_alike got trees of different structures.", "Pass two trees of one structure.")
    return x, y


def control_dep(src: Any, dst: Any) -> None:
    """Accepted: the order of operations follows from their operands and effects."""


def schedule(ops: Sequence[Any]) -> None:
    """Accepted, as control_dep."""


class custom_partitioning:
    """A function with rules that tell XLA how to divide it over devices. rlx divides its operations instead.

    >>> from rlx.jaxnames.hints import custom_partitioning
    >>> twice = custom_partitioning(lambda x: 2 * x)
    >>> twice.def_partition(partition=None)
    >>> twice(3)
    6
    """

    def __init__(self, fun: Callable[..., Any], static_argnums: Sequence[int] = ()) -> None:
        update_wrapper(self, fun)
        self.fun = fun

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fun(*args, **kwargs)

    def def_partition(self, partition: Any, *rules: Any, **named_rules: Any) -> None:
        """Accepted: the rules are not used."""
