"""The function of jax that computes what a primitive of rlx does: by the primitive's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as special
import numpy as np
from jax import lax

from rlx.ops.families import Elementwise
from rlx.trace.primitive import registry

__all__ = ["RENAMED", "SAME", "counterpart", "in_jax"]

_ROUNDING = {"even": lax.RoundingMethod.TO_NEAREST_EVEN, "away": lax.RoundingMethod.AWAY_FROM_ZERO}
_MODES = {
    "clip": lax.GatherScatterMode.CLIP, "fill": lax.GatherScatterMode.FILL_OR_DROP,
    "drop": lax.GatherScatterMode.FILL_OR_DROP, "promise_in_bounds": lax.GatherScatterMode.PROMISE_IN_BOUNDS,
}  # fmt: skip
_MONOIDS: dict[str, tuple[Callable[..., Any], Callable[[np.dtype], Any]]] = {
    "add": (lax.add, lambda dtype: 0),
    "mul": (lax.mul, lambda dtype: 1),
    "max": (lax.max, lambda dtype: -np.inf if jnp.issubdtype(dtype, jnp.floating) else np.iinfo(dtype).min),
    "min": (lax.min, lambda dtype: np.inf if jnp.issubdtype(dtype, jnp.floating) else np.iinfo(dtype).max),
}


def _dimensions(kind: type, numbers: Any) -> Any:
    """Dimension numbers as jax's."""
    return kind(*(getattr(numbers, field) for field in kind._fields))


def _gather(x: Any, indices: Any, dimension_numbers: Any, slice_sizes: Any, mode: str, fill_value: Any) -> Any:
    numbers = _dimensions(lax.GatherDimensionNumbers, dimension_numbers)
    return lax.gather(x, indices, numbers, slice_sizes, mode=_MODES[mode], fill_value=fill_value)


def _scatter(function: Callable[..., Any]) -> Callable[..., Any]:
    def scatter(x: Any, indices: Any, updates: Any, dimension_numbers: Any, mode: str, **promises: Any) -> Any:
        numbers = _dimensions(lax.ScatterDimensionNumbers, dimension_numbers)
        return function(x, indices, updates, numbers, mode=_MODES[mode], **promises)

    return scatter


def _reduce_window(x: Any, op: str, window: Any, strides: Any, padding: Any, base_dilation: Any,
                   window_dilation: Any) -> Any:  # fmt: skip
    function, start = _MONOIDS[op]
    first = np.array(start(x.dtype), x.dtype)
    return lax.reduce_window(x, first, function, window, strides, padding, base_dilation, window_dilation)


def _extreme_window(select: str, **spec: Any) -> Callable[[Any], Any]:
    """The windows' extremes, whose derivatives select."""
    return lambda x: _reduce_window(x, {">=": "max", "<=": "min"}[select], **spec)


def _fft(x: Any, kind: str, lengths: tuple[int, ...]) -> Any:
    return lax.fft(x, getattr(lax.FftType, kind.upper()), lengths)


def _dot_general(x: Any, y: Any, dimension_numbers: Any, preferred_dtype: Any) -> Any:
    return lax.dot_general(x, y, dimension_numbers, preferred_element_type=preferred_dtype)


def _cholesky(a: Any) -> Any:
    """Of the lower triangle, which alone the primitive reads."""
    mirrored = jnp.swapaxes(jnp.tril(a, -1), -1, -2)
    return lax.linalg.cholesky(jnp.tril(a) + jnp.conj(mirrored), symmetrize_input=False)


def _convolution(x: Any, y: Any, dimension_numbers: Any, **spec: Any) -> Any:
    numbers = _dimensions(lax.ConvDimensionNumbers, dimension_numbers)
    return lax.conv_general_dilated(x, y, dimension_numbers=numbers, **spec)


RENAMED: dict[str, Callable[..., Any]] = {
    "subtract": lax.sub,
    "multiply": lax.mul,
    "divide": lax.div,
    "remainder": lax.rem,
    "negative": lax.neg,
    "absolute": lax.abs,
    "maximum": lax.max,
    "minimum": lax.min,
    "power": lax.pow,
    "equal": lax.eq,
    "not_equal": lax.ne,
    "less": lax.lt,
    "less_equal": lax.le,
    "greater": lax.gt,
    "greater_equal": lax.ge,
    "bitwise_not": lax.bitwise_not,
    "count_leading_zeros": lax.clz,
    "trunc": jnp.trunc,
    "copysign": jnp.copysign,
    "select": jnp.where,
    "logaddexp": jnp.logaddexp,
    "integer_power": lambda x, exponent: lax.integer_pow(x, exponent),
    "round": lambda x, mode: lax.round(x, _ROUNDING[mode]),
    "convert": lambda x, dtype: lax.convert_element_type(x, dtype),
    "bitcast": lambda x, dtype: lax.bitcast_convert_type(x, dtype),
    "reduce_sum": lambda x, axes: lax.reduce_sum(x, axes),
    "reduce_prod": lambda x, axes: lax.reduce_prod(x, axes),
    "reduce_max": lambda x, axes: lax.reduce_max(x, axes),
    "reduce_min": lambda x, axes: lax.reduce_min(x, axes),
    "reduce_and": lambda x, axes: lax.reduce_and(x, axes),
    "reduce_or": lambda x, axes: lax.reduce_or(x, axes),
    "reduce_xor": lambda x, axes: lax.reduce_xor(x, axes),
    "argmax": lambda x, axis, index_dtype: lax.argmax(x, axis, index_dtype),
    "argmin": lambda x, axis, index_dtype: lax.argmin(x, axis, index_dtype),
}
SAME = set(
    "add sign floor ceil clamp nextafter square is_finite real imag conj complex bitwise_and"
    " bitwise_or bitwise_xor shift_left shift_right_logical shift_right_arithmetic population_count"
    " exp exp2 expm1 log log1p sqrt rsqrt cbrt sin cos tan asin acos atan atan2 sinh cosh tanh asinh"
    " acosh atanh logistic erf erfc erf_inv lgamma digamma polygamma zeta igamma igammac"
    " igamma_grad_a random_gamma_grad betainc bessel_i0e bessel_i1e cumsum cumprod cummax cummin"
    " cumlogsumexp".split()
)
# what is compared at the lattice only: movements, products, factorisations, functions of jax.numpy and jax.scipy
FURTHER: dict[str, Callable[..., Any]] = {
    "stop_gradient": lax.stop_gradient,
    "copy": jnp.copy,
    "checkpoint_name": lambda x, name: x,
    "optimization_barrier": lambda *xs: lax.optimization_barrier(xs),
    "broadcast_in_dim": lambda x, shape, dims: lax.broadcast_in_dim(x, shape, dims),
    "reshape": lambda x, shape: lax.reshape(x, shape),
    "transpose": lambda x, permutation: lax.transpose(x, permutation),
    "reverse": lambda x, axes: lax.rev(x, axes),
    "slice": lambda x, starts, limits, strides: lax.slice(x, starts, limits, strides),
    "pad": lambda x, value, config: lax.pad(x, value, config),
    "concatenate": lambda *xs, axis: lax.concatenate(xs, axis),
    "dynamic_slice": lambda x, *starts, sizes: lax.dynamic_slice(x, starts, sizes),
    "dynamic_update_slice": lambda x, update, *starts: lax.dynamic_update_slice(x, update, starts),
    "gather": _gather,
    "scatter": _scatter(lax.scatter),
    "scatter_add": _scatter(lax.scatter_add),
    "scatter_mul": _scatter(lax.scatter_mul),
    "scatter_min": _scatter(lax.scatter_min),
    "scatter_max": _scatter(lax.scatter_max),
    "sort": lambda *xs, axis, keys: lax.sort(xs, dimension=axis, num_keys=keys, is_stable=True),
    "top_k": lambda x, k, axis: lax.top_k(x, k, axis=axis),
    "dot_general": _dot_general,
    "conv_general_dilated": _convolution,
    "reduce_window": _reduce_window,
    "select_and_gather_add": lambda t, x, select, **spec: jax.jvp(_extreme_window(select, **spec), (x,), (t,))[1],
    "select_and_scatter_add": lambda ct, x, select, **spec: jax.vjp(_extreme_window(select, **spec), x)[1](ct)[0],
    "fft": _fft,
    "triangular_solve": lambda a, b, **how: lax.linalg.triangular_solve(a, b, **how),
    "tridiagonal_solve": lax.linalg.tridiagonal_solve,
    "cholesky": _cholesky,
    "lu": lax.linalg.lu,
    "pivots_to_permutation": lambda pivots, rows: lax.linalg.lu_pivots_to_permutation(pivots, rows),
    "qr": lambda a, full_matrices: lax.linalg.qr(a, full_matrices=full_matrices),
    "gamma": special.gamma,
    "pochhammer": special.poch,
    "beta": special.beta,
    "log_beta": special.betaln,
    "bessel_i0": special.i0,
    "bessel_i1": special.i1,
    "erfcx": special.erfcx,
    "dawson": special.dawsn,
    "expint_i": special.expi,
    "expint_one": special.exp1,
    "spence": special.spence,
    "xlogy": special.xlogy,
    "xlog1py": special.xlog1py,
    "entr": special.entr,
    "logit": special.logit,
    "ndtri": special.ndtri,
    "log_ndtr": special.log_ndtr,
    "owens_t": special.owens_t,
    "sine_integral": lambda x: special.sici(x)[0],
    "cosine_integral": lambda x: special.sici(x)[1],
    "fresnel_sine": lambda x: special.fresnel(x)[0],
    "fresnel_cosine": lambda x: special.fresnel(x)[1],
}


def counterpart(name: str) -> Callable[..., Any] | None:
    """The function of jax that does the same, without broadcasting."""
    return RENAMED.get(name) or FURTHER.get(name) or (getattr(lax, name) if name in SAME else None)


def in_jax(name: str, /, *arrays: Any, **params: Any) -> Any:
    """Call JAX's counterpart; elementwise operands are broadcast first."""
    function = counterpart(name)
    assert function is not None
    if isinstance(registry[name], Elementwise):
        arrays = tuple(jnp.broadcast_arrays(*arrays))
    return function(*arrays, **params)
