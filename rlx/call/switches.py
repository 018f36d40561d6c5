"""JAX's switches as context managers and decorators, and properties of the machine."""

from __future__ import annotations

import gc
import os
import platform
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from rlx.array import is_concrete
from rlx.backends import backend_named, device_names, memories
from rlx.config import UserContext, config, scoped
from rlx.errors import SwitchError
from rlx.ir.program import Equation
from rlx.offered_names import offer_names
from rlx.trace.builder import Builder
from rlx.version import __version__

__all__ = [
    "allow_f16_reductions",
    "check_tracer_leaks",
    "checking_leaks",
    "debug_key_reuse",
    "default_prng_impl",
    "enable_checks",
    "enable_custom_prng",
    "explain_cache_misses",
    "legacy_prng_key",
    "live_arrays",
    "log_compiles",
    "make_user_context",
    "no_execution",
    "no_tracing",
    "numpy_dtype_promotion",
    "numpy_rank_promotion",
    "print_environment_info",
    "softmax_custom_jvp",
    "threefry_partitionable",
    "transfer_guard",
    "transfer_guard_device_to_device",
    "transfer_guard_device_to_host",
    "transfer_guard_host_to_device",
]

offer_names(globals())

Scope = AbstractContextManager[None]


def numpy_rank_promotion(new_val: str) -> Scope:
    """Set the reaction to rlx.numpy broadcasting operands of different ranks, in a `with` block.

    A number with an array is always allowed. Only functions and operators that the user calls are checked, not
    the functions that these call. Also a decorator.

    Args:
      new_val: "allow"; "warn": a UserWarning; "raise": ShapeError, which is a ValueError.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> with rlx.numpy_rank_promotion("raise"):
    ...     jnp.ones((2, 3)) + jnp.ones(3)
    Traceback (most recent call last):
        ...
    rlx.errors.ShapeError: add got operands of different numbers of axes, (2, 3) and (3,), while the sw...
    """
    return scoped(numpy_rank_promotion=new_val)


def numpy_dtype_promotion(new_val: str) -> Scope:
    """Set whether functions of rlx.numpy convert operands of different dtypes to one, in a `with` block.

    Only functions and operators that the user calls are checked, not functions that these call. Also a decorator.

    Args:
      new_val: "standard"; "strict": TypePromotionError, a ValueError. Python numbers still take the dtype of an array
        of their kind or a wider one.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> with rlx.numpy_dtype_promotion("strict"):
    ...     float((jnp.ones(3) * 2).sum())
    6.0
    """
    return scoped(numpy_dtype_promotion=new_val)


def legacy_prng_key(new_val: str) -> Scope:
    """Set the reaction of rlx.random to keys that are arrays of uint32, in a `with` block.

    Args:
      new_val: "allow"; "warn": a UserWarning; "error": InputTypeError.

    >>> import rlx
    >>> with rlx.legacy_prng_key("allow"):
    ...     rlx.random.split(rlx.random.PRNGKey(0)).shape
    (2, 2)
    """
    return scoped(legacy_prng_key=new_val)


def default_prng_impl(new_val: str) -> Scope:
    """The random number generator of new keys, in a `with` block. Raises ValueError for an unknown one.

    >>> import rlx
    >>> with rlx.default_prng_impl("rbg"):
    ...     rlx.random.key(0).dtype
    key<rbg>
    """
    return scoped(default_prng_impl=new_val)


def threefry_partitionable(new_val: bool = True) -> Scope:
    """Which of JAX's two orders of counters the generator "threefry2x32" uses, in a `with` block.

    Args: new_val: True, the default; False for the numbers of JAX before version 0.5.

    >>> import rlx
    >>> with rlx.threefry_partitionable(False):
    ...     int(rlx.random.bits(rlx.random.key(0)))
    1797259609
    """
    return scoped(threefry_partitionable=bool(new_val))


def enable_custom_prng(new_val: bool = True) -> Scope:
    """Let random.PRNGKey, and functions that convert raw keys, return typed keys, in a `with` block.

    >>> import rlx
    >>> with rlx.enable_custom_prng():
    ...     rlx.random.PRNGKey(0).dtype
    key<fry>
    """
    return scoped(enable_custom_prng=new_val)


def debug_key_reuse(new_val: bool = True) -> Scope:
    """Track random keys: not supported, so only False is accepted, and True raises ValueError.

    >>> import rlx
    >>> with rlx.debug_key_reuse(False):
    ...     rlx.random.key(0).shape
    ()
    """
    return scoped(debug_key_reuse=new_val)


def softmax_custom_jvp(new_val: bool = True) -> Scope:
    """Accepted for compatibility with JAX: softmax always has its custom derivative.

    >>> import rlx
    >>> with rlx.softmax_custom_jvp(True):
    ...     float(rlx.nn.softmax(rlx.numpy.zeros(2))[0])
    0.5
    """
    return scoped(softmax_custom_jvp=new_val)


def allow_f16_reductions(new_val: bool = True) -> Scope:
    """Accepted: sums of 16-bit floats are computed in float32 and rounded once.

    >>> import rlx
    >>> with rlx.allow_f16_reductions(False):
    ...     float(rlx.numpy.sum(rlx.numpy.ones(1000, "bfloat16")))
    1000.0
    """
    return scoped(allow_f16_reductions=bool(new_val))


def make_user_context(default_value: Any = None) -> UserContext:
    """A user-defined value that jitted functions may depend on: they are traced again for another value.

    Args: default_value: hashable, like all its values. Returns: an object with the current `.value`. Calling it
    with a value gives a `with` block (or decorator) for this thread; `get_global` and `set_global` access the value
    outside such blocks.

    >>> import rlx
    >>> factor = rlx.make_user_context(1.0)
    >>> scaled = rlx.jit(lambda x: x * factor.value)
    >>> with factor(2.0):
    ...     float(scaled(3.0))
    6.0
    >>> float(scaled(3.0))
    3.0
    """
    return UserContext(default_value)


def enable_checks(new_val: bool = True) -> Scope:
    """Verify programs after every pass of the compiler, in a `with` block: the switch `check`.

    >>> import rlx
    >>> with rlx.enable_checks():
    ...     float(rlx.jit(lambda x: x * 2.0)(3.0))
    6.0
    """
    return scoped(check=bool(new_val))


def check_tracer_leaks(new_val: bool = True) -> Scope:
    """Raise UnexpectedTracerError as soon as a function has been traced whose traced values are still referenced.

    Without it, the error is raised when such a value is used. Tracing takes longer. Also a decorator.

    >>> import rlx
    >>> held = []
    >>> with rlx.check_tracer_leaks():
    ...     rlx.jit(lambda x: held.append(x) or x)(1.0)
    Traceback (most recent call last):
        ...
    rlx.errors.UnexpectedTracerError: Leaked: a traced weak float32[] of lambda is still held after the functi...
    """
    return scoped(check_tracer_leaks=bool(new_val))


def checking_leaks() -> Scope:
    """check_tracer_leaks(True).

    >>> import rlx
    >>> with rlx.checking_leaks():
    ...     float(rlx.jit(lambda x: x + 1.0)(1.0))
    2.0
    """
    return check_tracer_leaks(True)


def log_compiles(new_val: bool = True) -> Scope:
    """Log compilations with the logger "rlx" at level WARNING, in a `with` block.

    >>> import rlx
    >>> with rlx.log_compiles(False):
    ...     float(rlx.jit(lambda x: x + 1.0)(1.0))
    2.0
    """
    return scoped(log_compiles=bool(new_val))


def explain_cache_misses(new_val: bool = True) -> Scope:
    """Report on standard error why a jitted function is traced again, in a `with` block: the switch `explain`.

    >>> import rlx
    >>> with rlx.explain_cache_misses():
    ...     float(rlx.jit(lambda x: x + 1.0)(1.0))
    2.0
    """
    return scoped(explain=bool(new_val))


def no_tracing(new_val: bool = True) -> Scope:
    """Raise SwitchError if a jitted function would be traced, in a `with` block.

    >>> import rlx
    >>> f = rlx.jit(lambda x: x + 1.0)
    >>> _ = f(1.0)
    >>> with rlx.no_tracing():
    ...     float(f(2.0))
    3.0
    """
    return scoped(no_tracing=bool(new_val))


class _Refusing(Builder):
    """A builder where nothing may run: operations here are refused, operations of inner traces are not."""

    def append(self, equation: Equation) -> None:
        """Raise SwitchError."""
        name = equation.params.get("name", equation.primitive.name)
        raise SwitchError(
            f"{name} would run, which the switch no_execution forbids.",
            "Trace or compile the function here, and call it outside of the `with` block.",
        )


@contextmanager
def no_execution(new_val: bool = True) -> Generator[None]:
    """Raise SwitchError if an operation or a compiled function would run, in a `with` block; tracing is allowed.

    >>> import rlx
    >>> with rlx.no_execution():
    ...     rlx.numpy.ones(3) + 1.0
    Traceback (most recent call last):
        ...
    rlx.errors.SwitchError: broadcast_in_dim would run, which the switch no_execution forbids...
    """
    if not new_val:
        yield
        return
    with _Refusing("no_execution"):
        yield


def transfer_guard(new_val: str) -> Scope:
    """Accepted for compatibility with JAX: nothing is transferred in one memory. Raises ValueError for invalid levels.

    >>> import rlx
    >>> with rlx.transfer_guard("disallow"):
    ...     float(rlx.numpy.ones(()))
    1.0
    """
    return scoped(transfer_guard=new_val)


def transfer_guard_host_to_device(new_val: str) -> Scope:
    """As transfer_guard.

    >>> import rlx
    >>> with rlx.transfer_guard_host_to_device("disallow"):
    ...     float(rlx.numpy.ones(()))
    1.0
    """
    return scoped(transfer_guard_host_to_device=new_val)


def transfer_guard_device_to_device(new_val: str) -> Scope:
    """As transfer_guard.

    >>> import rlx
    >>> with rlx.transfer_guard_device_to_device("disallow"):
    ...     float(rlx.numpy.ones(()))
    1.0
    """
    return scoped(transfer_guard_device_to_device=new_val)


def transfer_guard_device_to_host(new_val: str) -> Scope:
    """As transfer_guard.

    >>> import rlx
    >>> with rlx.transfer_guard_device_to_host("disallow"):
    ...     float(rlx.numpy.ones(()))
    1.0
    """
    return scoped(transfer_guard_device_to_host=new_val)


# ------------------------------------------------------------- the machine
def live_arrays(platform: str | None = None) -> list[Any]:
    """The arrays with values that something in this process still refers to.

    Args: platform: a device's name; DeviceError for an unknown one.

    >>> import rlx
    >>> kept = rlx.numpy.ones(3)
    >>> any(x is kept for x in rlx.live_arrays())
    True
    """
    backend_named(platform)
    live = [x for x in gc.get_objects() if is_concrete(x) and not x.is_deleted()]
    return live if platform is None else [x for x in live if any(d.platform == platform for d in x.devices())]


def print_environment_info(return_string: bool = False) -> str | None:
    """Print, or return as a text, the versions and settings that a report of a bug should name.

    >>> import rlx
    >>> rlx.print_environment_info(return_string=True).splitlines()[0].startswith("rlx:")
    True
    """
    lines = [
        f"rlx:    {__version__}",
        f"numpy:  {np.__version__}",
        f"python: {' '.join(sys.version.split())}",
        f"devices: {', '.join(device_names())}; the default is {config.device}",
        f"platform: {platform.platform()}, {os.cpu_count()} processors",
        *[f"memory: of {memory.device.name}, {said}" for memory in memories() if (said := memory.limits())],
        *[f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("RLX_")],
    ]
    if return_string:
        return "\n".join(lines)
    print("\n".join(lines))
    return None
