"""Primitives against their JAX counterparts: values, values at the edges, and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from jax_primitives import RENAMED, SAME, in_jax
from primitive_cases import STEPS, Case, cases
from test_primitives import EDGES, HELD_FIXED, NEVER, compiled_tolerance, edge_arrays

from rlx.ir.types import is_complex, is_float, is_inexact
from rlx.ops.families import Elementwise
from rlx.testing import assert_close
from rlx.trace.primitive import registry
from rlx.transforms.reverse import vjp

jax = pytest.importorskip("jax")
lax, jnp = jax.lax, jax.numpy

KNOWN = set(RENAMED) | SAME  # the others are compared at the lattice
REFUSED = {("absolute", "uint8"), ("cummax", "bool"), ("cummin", "bool")}  # by JAX
# whose derivatives JAX lacks, or has in one operand only
UNKNOWN_TO_JAX = {"zeta", "igamma_grad_a", "random_gamma_grad"}
DTYPES = set("bool int32 int8 uint8 float64 float32 complex128 complex64 bfloat16".split())


@pytest.fixture(autouse=True)
def wide_jax() -> Iterator[None]:
    """float64 in JAX."""
    with jax.enable_x64(True):
        yield


comparable = [
    c
    for c in cases()
    if c.primitive.name in KNOWN
    and all(a.dtype.name in DTYPES for a in c.arrays)
    and (c.primitive.name, c.arrays[0].dtype.name) not in REFUSED
]


def tolerance(name: str, dtype: np.dtype) -> float:
    """JAX's own special functions are a little less exact than SciPy's."""
    special = name in ("igamma_grad_a", "random_gamma_grad", "polygamma", "zeta", "betainc", "lgamma")
    wide = dtype.itemsize == 8 and is_float(dtype) or dtype.itemsize == 16
    return 1e-9 if wide and special else (5 if is_complex(dtype) or special else 1) * 2 * compiled_tolerance(dtype)


def first_of_each_dtype(name: str) -> list[Case]:
    """For each combination of a primitive's parameters one sample of each dtype."""
    found: dict[Any, Case] = {}
    for c in comparable:
        if c.primitive.name == name:
            found.setdefault((repr(c.sample.params), *(a.dtype for a in c.arrays)), c)
    return list(found.values())


def compiled_in_jax(function: Callable[..., Any], *args: Any) -> Any:
    """Results in NumPy, from one compilation."""
    return jax.tree.map(np.asarray, jax.jit(function)(*args))


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("name", list(dict.fromkeys(c.primitive.name for c in comparable)))
def test_values_are_those_of_jax(name: str) -> None:
    chosen = first_of_each_dtype(name)

    def every(operands: list[Any]) -> list[Any]:
        return [in_jax(name, *xs, **c.sample.params) for xs, c in zip(operands, chosen, strict=True)]

    for case, expected in zip(chosen, compiled_in_jax(every, [c.arrays for c in chosen]), strict=True):
        (result,) = case.reference(*case.arrays)
        bound = tolerance(name, expected.dtype)
        assert_close(result, expected, bound, bound, message=repr(case))


def differentiable(name: str) -> list[Case]:
    """Samples whose gradient JAX has."""
    return [
        c
        for c in first_of_each_dtype(name)
        if c.is_wide
        and c.primitive.name not in STEPS | NEVER | UNKNOWN_TO_JAX | {"is_finite"}
        and any(is_inexact(a.dtype) for a in c.arrays)
        and is_inexact(c.result_types[0].dtype)
    ]


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize(
    "name", [n for n in dict.fromkeys(c.primitive.name for c in comparable) if differentiable(n)]
)
def test_gradients_are_those_of_jax(name: str) -> None:
    fixed = {**HELD_FIXED, "betainc": {0, 1}}.get(name, set())
    chosen = differentiable(name)
    moving = [
        [n for n, a in enumerate(c.arrays) if is_inexact(a.dtype) and n not in fixed] for c in chosen
    ]

    def filled(number: int, args: Any) -> list[Any]:
        operands: list[Any] = list(chosen[number].arrays)
        for n, x in zip(moving[number], args, strict=True):
            operands[n] = x
        return operands

    args = [[c.arrays[n] for n in numbers] for c, numbers in zip(chosen, moving, strict=True)]
    types = [c.result_types[0] for c in chosen]
    cotangents = [
        np.linspace(0.5, 1.5, t.size).reshape(t.shape).astype(t.dtype) for t in types
    ]

    def every(args: Any, cotangents: Any) -> list[Any]:
        pulled = []
        for number, (xs, ct) in enumerate(zip(args, cotangents, strict=True)):
            params = chosen[number].sample.params

            def function(*xs: Any, number: int = number, params: Any = params) -> Any:
                return in_jax(name, *filled(number, xs), **params)

            pulled.append(jax.vjp(function, *xs)[1](ct))
        return pulled

    expected = compiled_in_jax(every, args, cotangents)
    for number, case in enumerate(chosen):
        _, pull = vjp(lambda *xs, n=number, c=case: c.bind(*filled(n, xs))[0], *args[number])
        bound = max(1e-9, tolerance(name, types[number].dtype))
        for x, y in zip(pull(cotangents[number]), expected[number], strict=True):
            assert_close(x, y, bound, bound, message=repr(case))


# ------------------------------------------------------------- edges
# where rlx differs from JAX, and how
DIFFERENT_VALUES = {
    "lgamma": "SciPy has -inf at -inf",
    "digamma": "SciPy has the infinities of 0. and -0. where JAX has NaN",
}
DIFFERENT_DERIVATIVES = {
    **DIFFERENT_VALUES,
    "logaddexp": "JAX has e ** x, not 0, beside an infinity; 1 or NaN for each of two equal ones, not the limit 1/2",
}
UNBOUNDED = {"igamma_grad_a", "random_gamma_grad", "betainc", "polygamma", "zeta", "igamma", "igammac"}
edge_names = [
    p.name
    for p in registry.values()
    if isinstance(p, Elementwise)
    and "f" in p.kinds
    and p.name in KNOWN
    and p.name not in UNBOUNDED | {"select", "bitcast", "convert", "complex"}
]


@pytest.mark.parametrize("name", [n for n in edge_names if n not in DIFFERENT_VALUES])
def test_values_at_the_edges_are_those_of_jax(name: str) -> None:
    primitive = registry[name]
    assert isinstance(primitive, Elementwise)
    arrays, params = edge_arrays(primitive, "f8"), primitive.sample_params[0]
    with np.errstate(all="ignore"):
        result = primitive.reference(*arrays, **params)
    expected = compiled_in_jax(lambda *xs: in_jax(name, *xs, **params), *arrays)
    assert_close(np.asarray(result), expected, tolerance(name, expected.dtype), 1e-300)


@pytest.mark.parametrize("name", [n for n in edge_names if n not in STEPS | set(DIFFERENT_DERIVATIVES)])
def test_derivatives_at_the_edges_are_those_of_jax(name: str) -> None:
    primitive = registry[name]
    assert isinstance(primitive, Elementwise)
    params = primitive.sample_params[0]
    if not is_float(primitive.result_dtype(np.dtype("f8"), **params)):
        pytest.skip("no derivative")
    arrays = [np.broadcast_to(a, [len(EDGES)] * primitive.arity) for a in edge_arrays(primitive, "f8")]
    values, pull = vjp(lambda *xs: primitive.bind(*xs, **params), *arrays)
    ones = np.ones(values.shape)

    def pulled(*xs: Any) -> Any:
        return jax.vjp(lambda *ys: in_jax(name, *ys, **params), *xs)[1](jnp.asarray(ones))

    for n, (x, y) in enumerate(zip(pull(ones), compiled_in_jax(pulled, *arrays), strict=True)):
        if name == "power" and n == 0:  # JAX's NaN is 0 here: x**0 is 1 for every x
            flat = np.logical_and(arrays[0] == 0, arrays[1] == 0)
            x, y = (np.where(flat, 0, np.asarray(v)) for v in (x, y))
        assert_close(x, y, 1e-9, 1e-300, message=f"operand {n}")


@pytest.mark.parametrize("dtype", ["u1", "i1", "u4", "i4", "i8"])
def test_floats_convert_to_integers_as_in_jax(dtype: str) -> None:
    x = np.array([0.5, -0.5, 1.9, -1.9, 300.7, -300.0, 3e9, -3e9, 1e30, -1e30, np.inf, -np.inf, np.nan])
    expected = np.asarray(lax.convert_element_type(x, np.dtype(dtype)))
    assert_close(registry["convert"].bind(x, dtype=np.dtype(dtype)), expected)


@pytest.mark.parametrize("dtype", ["u1", "i1", "i4"])
@pytest.mark.parametrize("name", ["divide", "remainder", "shift_left", "shift_right_logical", "shift_right_arithmetic"])
def test_integers_at_the_edges_are_those_of_jax(name: str, dtype: str) -> None:
    info = np.iinfo(dtype)
    values = np.array([info.min, info.max, 0, 1, 7, info.max - 1], dtype)
    x, y = values[:, None], values[None, :] if info.min == 0 else np.append(values, [-1, -3])[None].astype(dtype)
    expected = np.asarray(in_jax(name, x, y))
    assert_close(registry[name].bind(x, y), expected)


@pytest.mark.thorough
def test_ties_share_the_derivative_as_in_jax() -> None:
    x = np.array([[1.0, 3.0, 3.0, 2.0], [5.0, 5.0, 5.0, 1.0]])
    for name, params in (("reduce_max", {"axes": (1,)}), ("cummax", {"axis": 1}), ("cummin", {"axis": 1})):
        values, pull = vjp(lambda v, name=name, params=params: registry[name].bind(v, **params), x)
        ones = np.arange(1.0, values.size + 1).reshape(values.shape)
        _, pull_in_jax = jax.vjp(lambda v, name=name, params=params: in_jax(name, v, **params), x)
        assert_close(pull(ones)[0], np.asarray(pull_in_jax(ones)[0]), message=name)


@pytest.mark.parametrize("name", ["reduce_prod", "cumprod"])
@pytest.mark.selected(1)
def test_products_with_zeros_differentiate_as_in_jax(name: str) -> None:
    x = np.array([[2.0, 0.0, 3.0, 0.5, 4.0], [2.0, 0.0, 3.0, 0.0, 4.0], [0.0, 0.0, 0.0, 1.0, 2.0]])
    params: dict[str, Any] = {"axes": (1,)} if name == "reduce_prod" else {"axis": 1}

    def ours(x: Any) -> Any:
        return vjp(lambda v: registry[name].bind(v, **params), x)

    values, pull = ours(x)
    ones = np.ones(values.shape)
    _, pull_in_jax = jax.vjp(lambda v: in_jax(name, v, **params), x)
    assert_close(pull(ones)[0], np.asarray(pull_in_jax(ones)[0]))
    _, second = vjp(lambda v: ours(v)[1](ones)[0], x)
    _, second_in_jax = jax.vjp(
        lambda v: jax.vjp(lambda w: in_jax(name, w, **params), v)[1](ones)[0], x
    )
    direction = np.arange(15.0).reshape(3, 5) / 7
    assert_close(second(direction)[0], np.asarray(second_in_jax(direction)[0]))


def test_threefry_is_bit_equal_to_jax() -> None:
    threefry2x32_p = pytest.importorskip("jax.extend.core.primitives").threefry2x32_p

    generator = np.random.default_rng(0)
    operands = [generator.integers(0, 2**32, 64).astype(np.uint32) for _ in range(4)]
    for result, expected in zip(
        registry["threefry2x32"].bind(*operands), threefry2x32_p.bind(*operands), strict=True
    ):
        assert_close(result, np.asarray(expected))
