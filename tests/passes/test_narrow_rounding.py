"""Programs of narrow floats: compiled ones round where eager ones do, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
import rlx.numpy as jnp

DTYPES = ["bfloat16", "float16", "float8_e5m2", "float8_e4m3fn"]

# two arrays of one shape to one; exact operations and such whose results differ by what is rounded when
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / (abs(y) + 1),
    "mod": lambda x, y: jnp.mod(x, 1 + abs(y)),
    "floor": lambda x, y: jnp.floor(x * 3 + y),
    "ceil": lambda x, y: jnp.ceil(x * 3 - y),
    "large and back": lambda x, y: (x + 256) - 256 if x.dtype.itemsize > 1 else (x + 16) - 16,
    "where": lambda x, y: jnp.where(x + y > x, x * y, y - x),
    "equal": lambda x, y: (x * 3 == (x + x) + x).astype(x.dtype) + y,
    "maximum": lambda x, y: jnp.maximum(x * y, -x),
    "square root": lambda x, y: jnp.sqrt(abs(x)) - y,
    "wider and back": lambda x, y: (x.astype("float32") + 0.001).astype(x.dtype).astype("float32").astype(x.dtype) * y,
    "other format": lambda x, y: (x * y).astype("float16").astype("bfloat16").astype(x.dtype),
    "reverse": lambda x, y: x[::-1] * y,
    "transposed": lambda x, y: x.T.reshape(x.shape) + y,
    "sum of two": lambda x, y: (x + y)[..., :2].sum(axis=-1, keepdims=True) * x,
    "greatest": lambda x, y: (x * y).max(axis=0, keepdims=True) - x,
    "concatenate": lambda x, y: jnp.concatenate([x[:1] + y[:1], (x * y)[1:]]),
}
STEPS = st.lists(
    st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6
)


def inputs(dtype: str, seed: int, shape: tuple[int, ...] = (5, 8)) -> Any:
    x = np.random.default_rng(seed).normal(size=(2, *shape))
    return [jnp.asarray(a, "float32").astype(dtype) for a in x]


@settings(deadline=None, max_examples=60)
@given(steps=STEPS, dtype=st.sampled_from(DTYPES), seed=st.integers(0, 2**31), count=st.sampled_from([1, 2]))
@pytest.mark.thorough
def test_compiled_is_eager_to_the_last_bit(steps, dtype, seed, count):
    x, y = inputs(dtype, seed)

    def program(x: Any, y: Any) -> Any:
        values = [x, y]
        for name, first, second in steps:
            values.append(OPERATIONS[name](values[-1 - first % len(values)], values[-1 - second % len(values)]))
        return values[-count:]

    for found, want in zip(rlx.jit(program)(x, y), program(x, y), strict=True):
        np.testing.assert_array_equal(np.asarray(found, "float32"), np.asarray(want, "float32"))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sums_and_products_are_wide_inside(dtype):
    """A reduction is rounded once, at its end: 4096 ones make 4096, which repeated rounding would not reach."""
    ones = jnp.ones(4096, dtype)
    assert float(rlx.jit(jnp.sum)(ones)) == float(jnp.sum(ones)) == 4096
    assert float(rlx.jit(jnp.dot)(ones, ones)) == 4096
    sums = rlx.jit(lambda x: (x * 2).sum(axis=0) - 8191)(ones[:, None] * jnp.ones(3, dtype))
    np.testing.assert_array_equal(np.asarray(sums, "float32"), np.asarray(jnp.full(3, 8192, dtype) - 8191, "float32"))


def test_a_histogram_counts_as_eagerly():
    zeros = np.zeros(4, "float16")
    found = rlx.jit(lambda x: jnp.histogram(x, bins=3, range=(-1, 2))[0])(zeros)
    np.testing.assert_array_equal(found, jnp.histogram(zeros, bins=3, range=(-1, 2))[0])


def test_a_loop_rounds_its_carry_and_what_leads_to_it():
    def step(carry: Any, x: Any) -> Any:
        carry = (carry + 256) - 256 + x
        return carry, carry * 3 - x

    xs = inputs("bfloat16", 0, (40,))[0]
    carry, wanted = jnp.zeros((), "bfloat16"), []
    for x in xs:
        carry, y = step(carry, x)
        wanted.append(float(y))
    final, found = rlx.jit(lambda xs: rlx.lax.scan(step, jnp.zeros((), "bfloat16"), xs))(xs)
    np.testing.assert_array_equal(np.asarray(found, "float32"), np.array(wanted, "float32"))
    assert float(final) == float(carry)


def test_excess_precision_is_a_switch():
    x = inputs("bfloat16", 1)[0]

    @rlx.jit
    def there_and_back(x: Any) -> Any:
        return (x + 256) - 256

    rounded = np.asarray(there_and_back(x), "float32")
    assert not np.array_equal(rounded, np.asarray(x, "float32"))
    with rlx.scoped(excess_precision=True):
        kept = np.asarray(there_and_back(x), "float32")
    np.testing.assert_allclose(kept, np.asarray(x, "float32"), rtol=2**-7, atol=2**-14)
    np.testing.assert_array_equal(np.asarray(there_and_back(x), "float32"), rounded)


@pytest.mark.parametrize("name", ["tanh", "sinh", "arcsinh", "sin", "log1p", "sign", "negative"])
@pytest.mark.parametrize("source", ["float64", "float32"])
def test_functions_of_what_was_converted(name, source):
    """The sign of a number that was just narrowed: LLVM once asked for a function that is not there."""
    x = np.linspace(-3, 3, 41).astype(source)
    found = rlx.jit(lambda v: getattr(jnp, name)(v.astype("float16")))(x)
    want = np.asarray(getattr(jnp, name)(jnp.asarray(x).astype("float16")), "float64")
    np.testing.assert_allclose(np.asarray(found, "float64"), want, rtol=2**-9, equal_nan=True)
    signs = rlx.jit(lambda v: jnp.copysign(jnp.ones((), "float16"), v.astype("float16")))(x)
    np.testing.assert_array_equal(np.asarray(signs, "float64"), np.copysign(1.0, x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_float64_is_rounded_once_where_numpy_rounds_once(dtype):
    """Ties of float16, and numbers so near to them that float32 takes them for ties."""
    halves = np.random.default_rng(0).integers(0, 0x7BFF, 300).astype("uint16")
    low, high = halves.view("float16").astype("float64"), (halves + np.uint16(1)).view("float16").astype("float64")
    tie = (low + high) / 2
    x = np.concatenate([tie, tie * (1 + 1e-12), tie * (1 - 1e-12), -tie * (1 + 1e-12), [1e300, -1e-300, np.inf, 0.0]])
    found = rlx.jit(lambda v: v.astype(dtype))(x)
    np.testing.assert_array_equal(np.asarray(found, "float64"), np.asarray(jnp.asarray(x).astype(dtype), "float64"))
