"""The normal distribution and distributions derived from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx import lax
from rlx.array import Array
from rlx.config import config
from rlx.errors import DtypeError
from rlx.ir.types import is_complex, is_inexact
from rlx.lax.operands import as_dtype
from rlx.ops.conversion import float_dtype_of
from rlx.random.compiled import compiled_when_large
from rlx.random.functions import erf_inv
from rlx.random.keys import single_key, split_key
from rlx.random.placing import placeable
from rlx.random.uniform import (
    float_dtype,
    parameter,
    rademacher,
    sample_shape,
    uniform_between,
)
from rlx.trace.flat import as_array

__all__ = ["double_sided_maxwell", "lognormal", "maxwell", "normal", "truncated_normal", "wald"]


def _inexact_dtype(name: str, dtype: Any) -> np.dtype:
    found = config.default_float if dtype is None else as_dtype(dtype)
    if not is_inexact(found):
        raise DtypeError(f"random.{name} got dtype {found.name}.", "Pass a floating or complex dtype.")
    return found


@placeable
def normal(key: Any, shape: Sequence[int] = (), dtype: Any = None) -> Array:
    """Numbers from the normal distribution of mean 0 and variance 1.

    >>> import rlx
    >>> rlx.random.normal(rlx.random.key(0), (2, 3)).shape
    (2, 3)
    """
    found = _inexact_dtype("normal", dtype)
    return normal_of(single_key("normal", key), sample_shape("normal", shape), found)


@compiled_when_large
def normal_of(key: Array, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Normal numbers from a typed key."""
    if is_complex(dtype):
        real = float_dtype_of(dtype)
        parts = [normal_of(k, shape, real) for k in lax.unstack(split_key(key))]
        return lax.div(lax.complex(*parts), lax.full((), math.sqrt(2), dtype))
    lowest = np.nextafter(np.array(-1, dtype), np.array(0, dtype), dtype=dtype)
    spread = uniform_between(key, shape, dtype, lowest, np.ones((), dtype))
    return lax.mul(lax.full((), math.sqrt(2), dtype), erf_inv(spread))


@placeable
def truncated_normal(key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Normal numbers between lower and upper, exclusive; parameters broadcast to the shape.

    >>> import rlx
    >>> x = rlx.random.truncated_normal(rlx.random.key(0), -1.0, 1.0, (100,))
    >>> bool((abs(x) < 1).all())
    True
    """
    found = float_dtype("truncated_normal", dtype)
    sizes = sample_shape("truncated_normal", shape, lower, upper)
    typed = single_key("truncated_normal", key)
    low, high = (lax.convert_element_type(v, found) for v in (lower, upper))
    root = lax.full((), math.sqrt(2), found)
    bounds = (lax.erf(lax.div(v, root)) for v in (low, high))
    spread = uniform_between(typed, sizes, found, *bounds)
    samples = lax.mul(root, erf_inv(spread))
    infinity = lax.full((), math.inf, found)
    inside = (
        lax.nextafter(lax.stop_gradient(low), infinity),
        lax.nextafter(lax.stop_gradient(high), lax.neg(infinity)),
    )
    return lax.clamp(inside[0], samples, inside[1])


@placeable
def lognormal(key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = None) -> Array:
    """exp(sigma * x) of normal numbers x.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> round(jnp.log(rlx.random.lognormal(rlx.random.key(0), 0.5, (10000,))).std().item(), 1)
    0.5
    """
    found = _inexact_dtype("lognormal", dtype)
    sizes = sample_shape("lognormal", shape, sigma)
    samples = normal_of(single_key("lognormal", key), sizes, found)
    return lax.exp(lax.mul(samples, parameter(sigma, found, sizes)))


@placeable
def maxwell(key: Any, shape: Sequence[int] = (), dtype: Any = None) -> Array:
    """The lengths of normal vectors in three dimensions.

    >>> import rlx
    >>> round((rlx.random.maxwell(rlx.random.key(0), (10000,)) ** 2).mean().item())
    3
    """
    found = float_dtype("maxwell", dtype)
    sizes = sample_shape("maxwell", shape)
    vectors = normal_of(single_key("maxwell", key), (*sizes, 3), found)
    return lax.sqrt(lax.reduce_sum(lax.mul(vectors, vectors), (len(sizes),)))


def double_sided_maxwell(key: Any, loc: Any, scale: Any, shape: Sequence[int] = (), dtype: Any = None) -> Array:
    """loc plus or minus scale times a Maxwell number; the parameters' shape follows `shape`.

    >>> import rlx
    >>> x = rlx.random.double_sided_maxwell(rlx.random.key(0), 1.0, 2.0, (10000,))
    >>> round(((x - 1) ** 2).mean().item())
    12
    """
    found = float_dtype("double_sided_maxwell", dtype)
    joint = sample_shape("double_sided_maxwell", None, loc, scale)
    sizes = (sample_shape("double_sided_maxwell", shape) or joint) + joint
    key_length, key_sign = lax.unstack(split_key(single_key("double_sided_maxwell", key)))
    lengths = maxwell(key_length, sizes, found)
    signs = rademacher(key_sign, sizes, found)
    scaled = lax.mul(lax.mul(signs, lengths), parameter(scale, found, sizes))
    return lax.add(scaled, parameter(loc, found, sizes))


@placeable
def wald(key: Any, mean: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The Wald (inverse Gaussian) distribution of the given mean and scale 1.

    >>> import rlx
    >>> round(rlx.random.wald(rlx.random.key(0), 2.0, (10000,)).mean().item())
    2
    """
    found = float_dtype("wald", dtype)
    sizes = sample_shape("wald", shape, mean)
    key_normal, key_uniform = lax.unstack(split_key(single_key("wald", key)))
    centre = parameter(mean, found, sizes)
    squared = lax.square(normal_of(key_normal, sizes, found))
    chance = uniform_between(key_uniform, sizes, found)
    centre_squared = lax.square(centre)
    root = lax.sqrt(4 * centre * squared + centre_squared * lax.square(squared))
    smaller = centre + centre_squared * squared / 2 - centre / 2 * root
    accept = lax.le(chance, as_array(centre / (centre + smaller)))
    return lax.select(accept, smaller, centre_squared / smaller)
