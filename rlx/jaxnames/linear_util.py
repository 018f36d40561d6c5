"""jax.extend.linear_util: functions with transformations applied (flax, dm-haiku, distrax, numpyro)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import lru_cache, wraps
from typing import Any

from rlx.errors import UnsupportedError

__all__ = [
    "Store",
    "StoreException",
    "WrappedFun",
    "cache",
    "merge_linear_aux",
    "transformation",
    "transformation2",
    "transformation_with_aux",
    "transformation_with_aux2",
    "wrap_init",
]


class StoreException(UnsupportedError):
    """Raised if a Store is read before its function has been called."""


class Store:
    """An auxiliary output of a transformation, available once the function has been called.

    >>> from rlx.jaxnames.linear_util import Store
    >>> store = Store()
    >>> store.store(3)
    >>> store()
    3
    """

    def __init__(self) -> None:
        self._values: list[Any] = []

    def store(self, value: Any) -> None:
        """Store a value, replacing an earlier one."""
        self._values = [value]

    def __call__(self) -> Any:
        """The value. Raises StoreException if there is none yet."""
        if not self:
            raise StoreException("The function has not been called yet.", "Call it before you read this.")
        return self._values[0]

    def __bool__(self) -> bool:
        """Whether there is a value."""
        return bool(self._values)

    val = property(__call__)


class WrappedFun:
    """A function, and the transformations applied to it.

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
    """A function without transformations; `params` are keyword arguments for it."""
    return WrappedFun(f, (lambda *args: f(*args, **params)) if params else f, debug_info)


def _finish(steps: Generator[Any, Any, Any], run: Callable[..., Any]) -> Any:
    """Run a function between the two halves of a generator: it yields (args, kwargs), then the result."""
    args, kwargs = next(steps)
    result = steps.send(run(*args, **kwargs))
    steps.close()
    return result


def transformation(gen: Callable[..., Generator[Any, Any, Any]]) -> Callable[..., WrappedFun]:
    """The function that adds a transformation to a WrappedFun.

    >>> from rlx.jaxnames.linear_util import transformation, wrap_init
    >>> @transformation
    ... def doubled(x):
    ...     y = yield (2 * x,), {}
    ...     yield 2 * y
    >>> doubled(wrap_init(lambda x: x + 1)).call_wrapped(3)
    14
    """

    def around(run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return _finish(gen(*args, **kwargs), run)

    return transformation2(wraps(gen)(around))


def transformation_with_aux(
    gen: Callable[..., Generator[Any, Any, Any]],
) -> Callable[..., tuple[WrappedFun, Store]]:
    """As transformation, for a generator that yields (result, auxiliary): the Store contains the latter afterwards.

    >>> from rlx.jaxnames.linear_util import transformation_with_aux, wrap_init
    >>> @transformation_with_aux
    ... def counted(*args):
    ...     y = yield args, {}
    ...     yield y, len(args)
    >>> fun, count = counted(wrap_init(lambda x, y: x + y))
    >>> fun.call_wrapped(1, 2), count()
    (3, 2)
    """

    def around(run: Callable[..., Any], store: Store, /, *args: Any, **kwargs: Any) -> Any:
        result, left = _finish(gen(*args, **kwargs), run)
        store.store(left)
        return result

    return transformation_with_aux2(wraps(gen)(around))


def transformation2(gen: Callable[..., Any]) -> Callable[..., WrappedFun]:
    """As transformation, for a function of the inner function: gen(run, *given, *args, **kwargs) -> result.

    >>> from rlx.jaxnames.linear_util import transformation2, wrap_init
    >>> doubled = transformation2(lambda run, x: 2 * run(2 * x))
    >>> doubled(wrap_init(lambda x: x + 1)).call_wrapped(3)
    14
    """

    put = transformation_with_aux2(lambda run, _, /, *args, **kwargs: gen(run, *args, **kwargs))
    return wraps(gen)(lambda fun, *given: put(fun, *given)[0])


def transformation_with_aux2(gen: Callable[..., Any]) -> Callable[..., tuple[WrappedFun, Store]]:
    """As transformation2, for gen(run, store, *given, *args, **kwargs), which sets the Store.

    >>> from rlx.jaxnames.linear_util import transformation_with_aux2, wrap_init
    >>> @transformation_with_aux2
    ... def counted(run, store, *args):
    ...     store.store(len(args))
    ...     return run(*args)
    >>> fun, count = counted(wrap_init(lambda x, y: x + y))
    >>> fun.call_wrapped(1, 2), count()
    (3, 2)
    """

    @wraps(gen)
    def put(fun: WrappedFun, *given: Any) -> tuple[WrappedFun, Store]:
        store = Store()
        return fun.wrap(lambda run, /, *args, **kwargs: gen(run, store, *given, *args, **kwargs)), store

    return put


def merge_linear_aux(aux1: Store, aux2: Store) -> tuple[bool, Any]:
    """Which of two stores has a value, True for the first, and the value.

    Raises StoreException if neither does.

    >>> from rlx.jaxnames.linear_util import Store, merge_linear_aux
    >>> store = Store()
    >>> store.store(3)
    >>> merge_linear_aux(Store(), store)
    (False, 3)
    """
    return (True, aux1()) if aux1 else (False, aux2())


def cache(call: Callable[..., Any], *, explain: Any = None) -> Callable[..., Any]:
    """Remember results by the function and the arguments."""
    return lru_cache(maxsize=256)(call)
