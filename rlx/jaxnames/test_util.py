"""jax.test_util's names: derivatives checked against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.ir.types import is_complex
from rlx.offered_names import offer_names
from rlx.testing.compare import assert_close
from rlx.testing.grads import Tolerance, by_dtype, paired, wide
from rlx.testing.grads import check_grads as checked
from rlx.trace.primitive import to_numpy, type_of
from rlx.trees import tree

__all__ = ["check_grads", "check_jvp", "check_vjp"]

offer_names(globals())

STEP = 1e-4
# for float32: between the steps of JAX and of rlx.testing, whose second-order error shows for strongly curved functions
_SINGLE_STEP = 2.0**-11


def _random_like(generator: np.random.Generator, values: Any) -> Any:
    """A random tree of the shapes and dtypes of another."""

    def draw(x: Any) -> np.ndarray:
        array = to_numpy(x)
        drawn: Any = generator.normal(size=array.shape)
        if is_complex(array.dtype):
            drawn = drawn + 1j * generator.normal(size=array.shape)
        return np.asarray(drawn).astype(array.dtype)

    return tree.map(draw, values)


def _slope(f: Callable[..., Any], args: Any, direction: Any, step: float) -> list[np.ndarray]:
    """The central difference of `f` along a direction."""

    def moved(sign: float) -> Any:
        go = lambda x, t: np.asarray(wide(x) + sign * step * wide(t)).astype(to_numpy(x).dtype)  # noqa: E731
        return tree.map(go, args, direction)

    ahead, behind = (map(wide, tree.leaves(f(*moved(sign)))) for sign in (1.0, -1.0))
    with np.errstate(invalid="ignore"):  # the difference of equal infinities is 0
        return [np.where(a == b, 0, a - b) / (2 * step) for a, b in zip(ahead, behind, strict=True)]


def _compare(actual: Any, expected: Any, atol: Tolerance, rtol: Tolerance, message: str) -> None:
    for x, y in zip(tree.leaves(actual), tree.leaves(expected), strict=True):
        dtype = to_numpy(x).dtype
        assert_close(x, y, by_dtype(rtol)(dtype), by_dtype(atol)(dtype), check_dtype=False, message=message)


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int,
    modes: Sequence[str] = ("fwd", "rev"),
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
) -> None:
    """As rlx.testing.check_grads, with a shorter step for float32 functions, as tests written for JAX need.

    >>> import rlx
    >>> rlx.test_util.check_grads(lambda x: rlx.numpy.sin(x) * x, (rlx.numpy.ones(2),), order=1)
    """
    widest = max((type_of(x).dtype for x in tree.leaves(tuple(args))), key=lambda t: t.itemsize, default=None)
    step = _SINGLE_STEP if eps is None and widest == np.float32 else eps
    checked(f, args, order, modes, atol, rtol, step)


def check_jvp(
    f: Callable[..., Any],
    f_jvp: Callable[..., Any],
    args: Sequence[Any],
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float = STEP,
    err_msg: str = "",
) -> None:
    """Compare a jvp of `f` with finite differences along one random direction.

    Args:
      f: a function of trees of floats.
      f_jvp: takes primals and tangents, tuples both, to (value, tangent): partial(rlx.jvp, f).
      args: the point.
      atol, rtol: tolerances, or a dict of tolerances by dtype; by default the dtype's.
      eps: the step of the central difference.
      err_msg: the beginning of an error's message.

    Raises AssertionError if they differ.

    >>> from functools import partial
    >>> import numpy as np, rlx
    >>> rlx.test_util.check_jvp(rlx.numpy.sin, partial(rlx.jvp, rlx.numpy.sin), (np.array([1.0, 2.0]),))
    """
    direction = _random_like(np.random.default_rng(0), tuple(args))
    value, tangent = f_jvp(tuple(args), direction)
    _compare(value, f(*args), atol, rtol, f"{err_msg} primal".strip())
    _compare(tangent, _slope(f, tuple(args), direction, eps), atol, rtol, f"{err_msg} tangent".strip())


def check_vjp(
    f: Callable[..., Any],
    f_vjp: Callable[..., Any],
    args: Sequence[Any],
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float = STEP,
    err_msg: str = "",
) -> None:
    """Compare a vjp of `f` with finite differences along one random direction: ct . (J t) = (ct J) . t.

    Args:
      f: a function of trees of floats.
      f_vjp: takes the arguments to (value, function from cotangents to a tuple): partial(rlx.vjp, f).
      args, atol, rtol, eps, err_msg: as for check_jvp.

    Raises AssertionError if they differ.

    >>> from functools import partial
    >>> import numpy as np, rlx
    >>> rlx.test_util.check_vjp(rlx.numpy.sin, partial(rlx.vjp, rlx.numpy.sin), (np.array([1.0, 2.0]),))
    """
    generator = np.random.default_rng(0)
    direction = _random_like(generator, tuple(args))
    value, pull = f_vjp(*args)
    _compare(value, f(*args), atol, rtol, f"{err_msg} primal".strip())
    cotangent = _random_like(generator, value)
    pulled = pull(cotangent)
    expected = paired(tree.leaves(cotangent), _slope(f, tuple(args), direction, eps))
    found = paired(tree.leaves(pulled), tree.leaves(direction))
    size = sum(np.abs(wide(c)).sum() for c in tree.leaves(cotangent))
    dtypes = [to_numpy(x).dtype for x in tree.leaves(args)]
    np.testing.assert_allclose(
        found,
        expected,
        rtol=max(map(by_dtype(rtol), dtypes), default=0.0),
        atol=max(map(by_dtype(atol), dtypes), default=0.0) * max(1.0, float(size)),
        err_msg=f"{err_msg} cotangent projection".strip(),
    )
