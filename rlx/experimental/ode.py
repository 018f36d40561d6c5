"""rlx.experimental.ode: ordinary differential equations with steps of adaptive length, and adjoint derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.array import Array
from rlx.errors import DtypeError, OptionError, ShapeError
from rlx.experimental.backward_differentiation import BackwardDifferentiation
from rlx.experimental.dormand_prince import error_ratio, first_length, interpolated, next_length, step
from rlx.ir.types import is_complex, is_float, is_inexact
from rlx.numpy.promotion import convert_to, operand, promote_inexact, result_of
from rlx.offered_names import offer_names
from rlx.trace.flat import as_array
from rlx.transforms.custom import custom_vjp
from rlx.transforms.functional import closure_convert
from rlx.transforms.reverse import vjp
from rlx.trees import tree

__all__ = ["odeint"]

offer_names(globals())

_INT32 = np.dtype("i4")


# ------------------------------------------------------------------ trees as vectors
class _Layout(NamedTuple):
    """The layout of a tree of arrays in one vector."""

    treedef: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]
    dtype: np.dtype

    @classmethod
    def of(cls, value: Any) -> _Layout:
        leaves, treedef = tree.flatten(value)
        dtype = result_of(*leaves)[0] if leaves else np.dtype("f4")
        return cls(treedef, tuple(x.shape for x in leaves), tuple(x.dtype for x in leaves), dtype)

    @property
    def size(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes)

    def vector(self, value: Any) -> Array:
        """The leaves in a row; ShapeError if their number of elements is not the state's."""
        leaves = [as_array(operand(x, "odeint")) for x in tree.leaves(value)]
        flat = [jnp.ravel(convert_to(x, self.dtype)) for x in leaves]
        if sum(x.size for x in leaves) != self.size:
            raise ShapeError(
                f"odeint's func returned arrays of shapes {[x.shape for x in leaves]} for a state of shapes"
                f" {list(self.shapes)}.",
                "Return a tree like the state: the rate of change of each number.",
            )
        return jnp.concatenate(flat) if flat else jnp.zeros(0, self.dtype)

    def tree(self, vectors: Array) -> Any:
        """The tree, of leaves with the leading axes of (..., size)."""
        leaves, start = [], 0
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            piece = vectors[..., start : start + math.prod(shape)]
            start += math.prod(shape)
            piece = jnp.real(piece) if is_complex(self.dtype) and not is_complex(dtype) else piece
            leaves.append(convert_to(jnp.reshape(piece, (*vectors.shape[:-1], *shape)), dtype))
        return tree.unflatten(self.treedef, leaves)


# ------------------------------------------------------------------ integration
class _Tolerance(NamedTuple):
    """The tolerance of a step, the maximum number of steps, and the longest one."""

    rtol: Any
    atol: Any
    mxstep: Any
    hmax: Any


class _Progress(NamedTuple):
    """The state of an integration: the last step's end, and the interpolation over that step."""

    state: Array
    slope: Array
    time: Array
    length: Array
    before: Array
    polynomial: Array


class _DormandPrince(NamedTuple):
    """The explicit method: how to begin, to attempt a step, and to interpolate."""

    rate: Callable[[Array, Array], Array]
    tolerance: _Tolerance

    def begin(self, start: Array, time: Array) -> _Progress:
        """The state at the start."""
        slope = self.rate(start, time)
        length = first_length(self.rate, start, slope, time, self.tolerance.rtol, self.tolerance.atol)
        length = convert_to(jnp.clip(length, 0, self.tolerance.hmax), time.dtype)
        standing = jnp.concatenate([jnp.zeros((4, *start.shape), start.dtype), start[None]])
        return _Progress(start, slope, time, length, time, standing)

    def attempt(self, now: _Progress) -> _Progress:
        """The state after a step, or after a failed one with another length."""
        found = step(self.rate, now.state, now.slope, now.time, now.length)
        ratio = error_ratio(found, now.state, self.tolerance.rtol, self.tolerance.atol)
        length = jnp.clip(next_length(now.length, ratio), 0, self.tolerance.hmax)
        taken = _Progress(found.end, found.slope, now.time + now.length, length, now.time, found.polynomial)
        kept = now._replace(length=length)
        return tree.map(lambda new, old: jnp.where(ratio <= 1, new, old), taken, kept)

    def at(self, now: _Progress, time: Array) -> Array:
        """The state at a time of the last step."""
        width = now.time - now.before
        return interpolated(now.polynomial, (time - now.before) / jnp.where(width > 0, width, 1))


def _integrate(method: Any, start: Array, times: Array, mxstep: Any) -> Array:
    """The states at all times, (len(times), n); NaN at times that the steps did not reach."""

    def advance(progress: Any, target: Array) -> tuple[Any, Array]:
        def go_on(carry: Any) -> Array:
            count, now = carry
            return (now.time < target) & (count < mxstep) & (now.time + now.length > now.time)

        def proceed(carry: Any) -> Any:
            count, now = carry
            return count + 1, method.attempt(now)

        _, progress = lax.while_loop(go_on, proceed, (jnp.zeros((), _INT32), progress))
        reached = (progress.before <= target) & (target <= progress.time)
        return progress, jnp.where(reached, method.at(progress, target), np.nan)

    _, states = lax.scan(advance, method.begin(start, times[0]), times[1:])
    return jnp.concatenate([start[None], states])


def _explicitly(rate: Callable[[Array, Array], Array], start: Array, times: Array, tolerance: _Tolerance) -> Array:
    return _integrate(_DormandPrince(rate, tolerance), start, times, tolerance.mxstep)


def _implicitly(rate: Callable[[Array, Array], Array], start: Array, times: Array, tolerance: _Tolerance) -> Array:
    """The same by backward differentiation; complex numbers are pairs of real ones."""
    if not is_complex(start.dtype):
        method = BackwardDifferentiation(rate, start, times[0], tolerance)
        return _integrate(method, start, times, tolerance.mxstep)

    def parts(vector: Array) -> Array:
        return jnp.concatenate([jnp.real(vector), jnp.imag(vector)])

    def whole(pair: Array) -> Array:
        return lax.complex(pair[..., : start.size], pair[..., start.size :])

    return whole(_implicitly(lambda y, t: parts(rate(whole(y), t)), parts(start), times, tolerance))


def _differentiable(function: Callable[..., Array], tolerance: _Tolerance) -> Callable[..., Array]:
    """(start, times, *args) -> states, with the adjoint derivative: function(state, time, *args) is the rate."""

    @custom_vjp
    def solution(start: Array, times: Array, args: Any) -> Array:
        return _explicitly(lambda state, time: function(state, time, *args), start, times, tolerance)

    def forward(start: Array, times: Array, args: Any) -> Any:
        states = solution(start, times, args)
        return states, (states, times, args)

    def backward(residuals: Any, cotangents: Array) -> Any:
        states, times, args = residuals
        return _adjoint(function, tolerance, states, times, args, cotangents)

    solution.defvjp(forward, backward)
    return solution


def _adjoint(
    function: Callable[..., Array], tolerance: _Tolerance, states: Array, times: Array, args: Any, cotangents: Array
) -> Any:
    """The cotangents of start, times and args, by integrating them back in time (Chen et al. 2018, appendix B).

    The cotangent of the first time needs no integration: a later start is a start from the flow's state at that time.
    Derivatives of higher order go through the steps of this integration.
    """
    layout = _Layout.of((states[0], states[0], args))

    def rate(vector: Array, backwards: Array, *given: Any) -> Array:
        state, weight, _ = layout.tree(vector)
        change, pull = vjp(lambda y, *values: function(y, -backwards, *values), state, *given)
        moved, *shares = pull(convert_to(weight, change.dtype))
        return layout.vector((-change, moved, tuple(shares)))

    def interval(carry: Any, number: Array) -> tuple[Any, Array]:
        weight, shares = carry
        cotangent = cotangents[number]
        begin = layout.vector((states[number], weight + cotangent, shares))
        ends = -jnp.stack([times[number], times[number - 1]])
        found = _explicitly(lambda vector, time: rate(vector, time, *args), begin, ends, tolerance)[1]
        at_end = jnp.real(jnp.sum(function(states[number], times[number], *args) * cotangent))
        _, weight, shares = layout.tree(found)
        return (weight, shares), at_end

    nothing = (jnp.zeros_like(states[0]), tree.map(jnp.zeros_like, args))
    (weight, shares), later = lax.scan(interval, nothing, np.arange(times.shape[0] - 1, 0, -1))
    first = -jnp.real(jnp.sum(function(states[0], times[0], *args) * weight))
    moments = jnp.concatenate([convert_to(first, times.dtype)[None], convert_to(later, times.dtype)[::-1]])
    return weight + cotangents[0], moments, shares


def odeint(
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    *args: Any,
    rtol: Any = 1.4e-8,
    atol: Any = 1.4e-8,
    mxstep: Any = np.inf,
    hmax: Any = np.inf,
    method: str = "dopri5",
) -> Any:
    """The solution of dy/dt = func(y, t, *args) with y(t[0]) = y0, with steps of variable length, also in jit.

    Args:
      func: func(y, t, *args) returns the rate of change of y, a tree like y.
      y0: the state at t[0]: an array, or a tree of arrays.
      t: ascending times, (n,), of a floating dtype.
      args: arrays, or trees of them.
      rtol, atol: the error of a step may be atol + rtol * abs(y) in each number.
      mxstep: the maximum number of steps from one time to the next.
      hmax: longest step.
      method: "dopri5", the explicit method of Dormand and Prince, or "bdf" for stiff systems: backward differentiation
        of orders 1 to 5, whose Newton steps solve with the Jacobian of func. The Jacobian is sparse if its pattern,
        which is found in the program of func, has at most a tenth of the places of a large matrix; `rlx.sparse.spsolve`
        then solves with it on the host. rtol is at least 100 times the dtype's epsilon.

    Returns: a tree like y0 with a leading axis for the times. NaN at times that the steps did not reach.
    Differentiable with respect to y0, t, args and the values that func closes over: with "dopri5" in reverse mode, by
    integrating the adjoint equation backwards; with "bdf" in both modes, by the derivatives of the steps, where
    lengths, orders and Newton's iterations count as constants: each step's system is differentiated instead.
    Raises: DtypeError for times that are not floats, ShapeError unless the times are a vector, and if func
    returns more or fewer numbers than the state has, OptionError for another method.

    >>> import rlx, rlx.numpy as jnp
    >>> from rlx.experimental.ode import odeint
    >>> odeint(lambda y, t: -y, 1.0, jnp.array([0.0, 1.0, 2.0])).round(4)
    Array([1.    , 0.3679, 0.1353], dtype=float32)
    >>> stiff = lambda y, t, rate: -rate * (y - jnp.cos(t))
    >>> odeint(stiff, 0.0, jnp.array([0.0, 1.0]), 1e4, rtol=1e-5, atol=1e-5, method="bdf").round(2)
    Array([0.  , 0.54], dtype=float32)
    """
    if method not in ("dopri5", "bdf"):
        raise OptionError(f"odeint has no method {method!r}.", 'There are "dopri5" and "bdf", for stiff systems.')
    times = as_array(operand(t, "odeint"))
    if not is_float(times.dtype):
        raise DtypeError(f"odeint got times of {times.dtype}.", "Write t as floats.")
    if times.ndim != 1 or times.size == 0:
        raise ShapeError(f"odeint got times of shape {times.shape}.", "Pass a 1-d array, the time of y0 first.")
    start = tree.map(lambda x: promote_inexact("odeint", x)[0], y0)
    layout = _Layout.of(start)
    flat, args_tree = tree.flatten(tree.map(lambda x: as_array(operand(x, "odeint")), args))
    moving = [is_inexact(x.dtype) for x in flat]
    fixed = [x for x, m in zip(flat, moving, strict=True) if not m]

    def rate(state: Array, time: Array, *values: Any) -> Array:
        changing, constant = iter(values), iter(fixed)
        leaves = [next(changing) if m else next(constant) for m in moving]
        return layout.vector(func(layout.tree(state), time, *tree.unflatten(args_tree, leaves)))

    begin = layout.vector(start)
    values = [x for x, m in zip(flat, moving, strict=True) if m]
    tolerance = _Tolerance(rtol, atol, mxstep, hmax)
    if method == "bdf":
        return layout.tree(_implicitly(lambda y, time: rate(y, time, *values), begin, times, tolerance))
    converted, held = closure_convert(rate, begin, times[0], *values)
    solution = _differentiable(converted, tolerance)
    return layout.tree(solution(begin, times, (*values, *held)))
