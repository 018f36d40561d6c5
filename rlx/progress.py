"""Progress bars of loops that run inside programs: scan, fori_loop and while_loop with a bar of tqdm."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import OptionError, UnsupportedError
from rlx.forks import reopen_after_fork
from rlx.installation import install_command
from rlx.ir.types import is_integer
from rlx.offered_names import offer_names
from rlx.ops.callback import HostFunction, debug_callback
from rlx.trace.tracing import known_value
from rlx.transforms.custom_batching import custom_vmap
from rlx.trees import tree

__all__ = ["fori_loop", "scan", "while_loop"]

offer_names(globals())

_UPDATES = 20  # of a bar whose total is known


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    *,
    label: str = "scan",
    **options: Any,
) -> tuple[Any, Any]:
    """`lax.scan` with a progress bar.

    Args:
      f, init, xs, length, reverse, unroll: as for `lax.scan`.
      label: the text in front of the bar.
      options: of tqdm: `leave=False`, `file=...`, `disable=True`, for instance.

    The bar has at most 20 updates. Under vmap and grad there is one bar: the forward loop's. An exception in the loop
    removes the bar.

    Returns: as `lax.scan`. Raises UnsupportedError if tqdm is not installed, and the errors of `lax.scan`.

    >>> import rlx, io
    >>> from rlx import progress
    >>> total, _ = rlx.jit(lambda xs: progress.scan(lambda c, x: (c + x, c), 0.0, xs, file=io.StringIO()))(
    ...     rlx.numpy.ones(100)
    ... )
    >>> total.item()
    100.0
    """
    leaves = tree.leaves(xs)
    count = length if not leaves or length is not None else next(iter(np.shape(leaves[0])), None)
    bar = _Bar(label, None if count is None else int(count), options)

    def body(carry: tuple[Any, Any], x: Any) -> tuple[tuple[Any, Any], Any]:
        done, inner = carry
        inner, y = f(inner, x)
        return (bar.tick(done + 1), inner), y

    with bar:
        (done, carry), ys = lax.scan(body, (jnp.int32(0), init), xs, length, reverse, unroll)
        bar.finish(done)
    return carry, ys


def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
    *,
    label: str = "fori_loop",
    **options: Any,
) -> Any:
    """`lax.fori_loop` with a progress bar, as `progress.scan`. Traced bounds give a bar without a total.

    Raises UnsupportedError if tqdm is not installed, and the errors of `lax.fori_loop`.

    >>> import io
    >>> from rlx import progress
    >>> progress.fori_loop(0, 5, lambda i, total: total + i, 0, file=io.StringIO()).item()
    10
    """
    first, last = _known_integer(lower), _known_integer(upper)
    total = None if first is None or last is None else max(last - first, 0)
    bar = _Bar(label, total, options)

    def body(i: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        done, value = carry
        value = body_fun(i, value)
        return bar.tick(done + 1), value

    with bar:
        done, value = lax.fori_loop(lower, upper, body, (jnp.int32(0), init_val))
        bar.finish(done)
    return value


def while_loop(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    *,
    total: int | None = None,
    label: str = "while_loop",
    **options: Any,
) -> Any:
    """`lax.while_loop` with a progress bar, as `progress.scan`.

    total: the largest number of steps, if it is known; otherwise the bar counts steps, with an update after 1, 2, 4,
    8, ... of them. Under vmap it counts the steps of the element that takes the most.

    Raises UnsupportedError if tqdm is not installed, and the errors of `lax.while_loop`.

    >>> import io
    >>> from rlx import progress
    >>> progress.while_loop(lambda x: x < 100, lambda x: 2 * x, 3, file=io.StringIO()).item()
    192
    """
    bar = _Bar(label, total, options)

    @wraps(cond_fun)
    def condition(carry: tuple[Any, Any]) -> Any:
        return cond_fun(carry[1])

    def body(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        done, value = carry
        value = body_fun(value)
        return bar.tick(done + 1), value

    with bar:
        done, value = lax.while_loop(condition, body, (jnp.int32(0), init_val))
        bar.finish(done)
    return value


class _Bar:
    """The bar of one loop in a program: each run of the loop begins it again.

    A `with` block traces the loop, or runs it: an exception removes the bar.
    """

    def __init__(self, label: str, total: int | None, options: dict[str, Any]) -> None:
        self._tqdm = _tqdm()
        renamed = sorted({"desc", "description"} & options.keys())
        if renamed:
            name = renamed[0]
            raise OptionError(f"A progress bar got {name}={options[name]!r}.", f"Write label= instead of {name}=.")
        self._options = {"desc": label, "total": total, **options}
        self._every = None if total is None else max(-(-total // _UPDATES), 1)
        self._bar: Any = None
        self._lock = threading.RLock()
        reopen_after_fork(self)

    def __enter__(self) -> None:
        self._call(self._begin)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self._remove()

    def tick(self, done: Array) -> Array:
        """Count a step of the loop; returns the number of steps."""
        self._once_for_a_batch(self._tick_of, done)
        return done

    def finish(self, done: Array) -> None:
        """Close the bar after the loop."""
        self._once_for_a_batch(lambda count: self._call(self._end, count), done)

    def _tick_of(self, done: Array) -> None:
        """Update the bar if it is time to."""
        due = (done & (done - 1)) == 0 if self._every is None else done % self._every == 0
        lax.cond(due, lambda: self._call(self._advance, done), lambda: None)

    def _once_for_a_batch(self, function: Callable[[Array], None], done: Array) -> None:
        """Call a function with the number of steps; under vmap, once with the largest number."""

        @custom_vmap
        def call(count: Array) -> Array:
            function(count)
            return jnp.int32(0)

        @call.def_vmap
        def call_batch(size: int, batched: list[bool], count: Array) -> tuple[Array, bool]:
            return call(count.max()), False

        call(done)

    def _call(self, function: Callable[..., None], *operands: Any) -> None:
        """Call a function of this bar when the program gets here."""

        def call(*arrays: np.ndarray) -> tuple[()]:
            with self._lock:
                function(*(int(array) for array in arrays))
            return ()

        host = HostFunction(call, (), "a progress bar", self._remove)
        debug_callback(*operands, function=host, ordered=True)

    # ------------------------------------------------------------- while the program runs
    def _begin(self) -> None:
        self._remove()
        self._bar = self._tqdm(**self._options)

    def _advance(self, done: int) -> None:
        if self._bar is not None and done > self._bar.n:
            self._bar.update(done - self._bar.n)

    def _end(self, done: int) -> None:
        self._advance(done)
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.close()

    def _remove(self) -> None:
        """Take an unfinished bar off the screen."""
        with self._lock:
            bar, self._bar = self._bar, None
            if bar is not None:
                bar.leave = False
                bar.close()


def _known_integer(bound: Any) -> int | None:
    """The value of a bound; None if it is traced, or not an integer."""
    found = known_value(jnp.asarray(bound))
    return int(found.numpy()) if found is not None and is_integer(found.dtype) and found.ndim == 0 else None


def _tqdm() -> Any:
    try:
        return importlib.import_module("tqdm.auto").tqdm
    except ImportError:
        raise UnsupportedError(
            "Progress bars need the package tqdm, which is not installed.",
            f"Install it: {install_command('progress')}",
        ) from None
