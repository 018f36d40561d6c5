"""Context managers of JAX's top level: switches for a `with` block, names, computing now."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rlx.config import scoped
from rlx.trace.at_once import AtOnce
from rlx.trace.builder import state

__all__ = [
    "debug_infs",
    "debug_nans",
    "default_matmul_precision",
    "enable_x64",
    "ensure_compile_time_eval",
    "named_call",
    "named_scope",
]


def enable_x64(new_val: bool = True) -> AbstractContextManager[None]:
    """Make 64-bit numbers the default of literals and creation functions inside a `with` block.

    64-bit arrays are available without it; inside enable_x64(False) they are narrowed on entry, as in JAX.

    >>> import rlx
    >>> with rlx.enable_x64():
    ...     rlx.numpy.zeros(2).dtype
    dtype('float64')
    """
    return scoped(enable_x64=bool(new_val))


def debug_nans(new_val: bool = True) -> AbstractContextManager[None]:
    """Raise NanError when an operation first produces a NaN, inside a `with` block.

    >>> import rlx
    >>> with rlx.debug_nans():
    ...     float(rlx.numpy.sqrt(4.0))
    2.0
    """
    return scoped(debug_nans=bool(new_val))


def debug_infs(new_val: bool = True) -> AbstractContextManager[None]:
    """Raise NanError when an operation first produces an infinity, inside a `with` block.

    >>> import rlx
    >>> with rlx.debug_infs():
    ...     float(1.0 / rlx.numpy.array(4.0))
    0.25
    """
    return scoped(debug_infs=bool(new_val))


def default_matmul_precision(new_val: Any) -> AbstractContextManager[None]:
    """Set the default precision of this thread's products inside a `with` block.

    "tensorfloat32", "high" and less exact ones let GPUs round float32 to tf32 (see rlx.lax.dot_general); without it,
    and with "float32" and "highest", products are in full float32. Jitted functions are compiled for each.
    Raises ValueError for an invalid precision.

    >>> import rlx
    >>> with rlx.default_matmul_precision("float32"):
    ...     float(rlx.numpy.ones(3) @ rlx.numpy.ones(3))
    3.0
    """
    return scoped(default_matmul_precision=new_val)


@contextmanager
def ensure_compile_time_eval() -> Generator[None]:
    """Run operations on known values immediately while a function is traced. Operations on
    traced values are part of the function's program as everywhere.

    >>> import rlx
    >>> @rlx.jit
    ... def f(x):
    ...     with rlx.ensure_compile_time_eval():
    ...         steps = int(rlx.numpy.ceil(rlx.numpy.ones(2).sum()))
    ...     return x * steps
    >>> float(f(3.0))
    6.0
    """
    if state.builder is None:
        yield
        return
    with AtOnce():
        yield


@contextmanager
def named_scope(name: str) -> Generator[None]:
    """A name for a part of a function: a `with` block or a decorator, for the reader of the source.

    Programs do not show it: each of their operations names its file, line and function already.
    Raises TypeError unless `name` is a string.

    >>> import rlx
    >>> with rlx.named_scope("attention"):
    ...     y = rlx.numpy.ones(2) * 2
    """
    if not isinstance(name, str):
        raise TypeError(f"named_scope takes a string, got a {type(name).__name__}: {name!r:.60}")
    yield


def named_call(fun: Callable[..., Any], *, name: str | None = None) -> Callable[..., Any]:
    """`fun` under a name, by default its __name__, which errors and printed programs use. See `named_scope`.

    >>> import rlx
    >>> rlx.named_call(lambda x: x + 1, name="increment").__name__
    'increment'
    """

    @functools.wraps(fun)
    def named(*args: Any, **kwargs: Any) -> Any:
        return fun(*args, **kwargs)

    if name is not None:
        named.__name__ = named.__qualname__ = name
    return named
