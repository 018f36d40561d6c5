"""jax.extend.linear_util: functions with transformations around them (flax, dm-haiku, distrax, numpyro)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import lru_cache, wraps
from typing import Any

from rlx.errors import UnsupportedError

__all__ = ["Store", "WrappedFun", "cache", "transformation", "transformation_with_aux", "wrap_init"]


class Store:
    """What a transformation leaves beside the result, once the function has been called.

    >>> from rlx.jaxnames.linear_util import Store
    >>> store = Store()
    >>> store.store(3)
    >>> store()
    3
    """

    def __init__(self) -> None:
        self._values: list[Any] = []

    def store(self, value: Any) -> None:
        """Leave a value in place of an earlier one."""
        self._values = [value]

    def __call__(self) -> Any:
        """The value. Raises UnsupportedError before there is one."""
        if not self._values:
            raise UnsupportedError("The function has not been called yet.", "Call it before you ask for this.")
        return self._values[0]

    val = property(__call__)


class WrappedFun:
    """A function, and the transformations around it.

    >>> from rlx.jaxnames.linear_util import wrap_init
    >>> wrap_init(lambda x: x + 1).call_wrapped(2)
    3
    """

    def __init__(self, f: Callable[..., Any], run: Callable[..., Any], debug_info: Any = None) -> None:
        self.f = f
        self._run = run
        self.debug_info = debug_info

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the function with all transformations."""
        return self._run(*args, **kwargs)

    def wrap(self, around: Callable[..., Any]) -> WrappedFun:
        """The same function with one more transformation: around(run, *args, **kwargs)."""
        run = self._run
        return WrappedFun(self.f, lambda *args, **kwargs: around(run, *args, **kwargs), self.debug_info)

    @property
    def __name__(self) -> str:
        return getattr(self.f, "__name__", "f")


def wrap_init(f: Callable[..., Any], params: dict[str, Any] | None = None, *, debug_info: Any = None) -> WrappedFun:
    """A function without transformations; `params` are keyword arguments of it."""
    return WrappedFun(f, (lambda *args: f(*args, **params)) if params else f, debug_info)


def _finish(steps: Generator[Any, Any, Any], run: Callable[..., Any]) -> Any:
    """Run a function between the two halves of a generator: it yields (args, kwargs), then the result."""
    args, kwargs = next(steps)
    result = steps.send(run(*args, **kwargs))
    steps.close()
    return result


def transformation(generator: Callable[..., Generator[Any, Any, Any]]) -> Callable[..., WrappedFun]:
    """The function that puts a transformation around a WrappedFun.

    >>> from rlx.jaxnames.linear_util import transformation, wrap_init
    >>> @transformation
    ... def doubled(x):
    ...     y = yield (2 * x,), {}
    ...     yield 2 * y
    >>> doubled(wrap_init(lambda x: x + 1)).call_wrapped(3)
    14
    """

    @wraps(generator)
    def put(fun: WrappedFun, *given: Any) -> WrappedFun:
        return fun.wrap(lambda run, *args, **kwargs: _finish(generator(*given, *args, **kwargs), run))

    return put


def transformation_with_aux(
    generator: Callable[..., Generator[Any, Any, Any]],
) -> Callable[..., tuple[WrappedFun, Store]]:
    """As transformation, for one that yields (result, something else): that is in the Store afterwards.

    >>> from rlx.jaxnames.linear_util import transformation_with_aux, wrap_init
    >>> @transformation_with_aux
    ... def counted(*args):
    ...     y = yield args, {}
    ...     yield y, len(args)
    >>> fun, count = counted(wrap_init(lambda x, y: x + y))
    >>> fun.call_wrapped(1, 2), count()
    (3, 2)
    """

    @wraps(generator)
    def put(fun: WrappedFun, *given: Any) -> tuple[WrappedFun, Store]:
        store = Store()

        def around(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            result, left = _finish(generator(*given, *args, **kwargs), run)
            store.store(left)
            return result

        return fun.wrap(around), store

    return put


def cache(call: Callable[..., Any]) -> Callable[..., Any]:
    """Remember results by the function and the arguments."""
    return lru_cache(maxsize=256)(call)
