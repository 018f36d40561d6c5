"""The rarer names of rlx.lax, against JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import rlx
from rlx import errors, lax

GENERATOR = np.random.default_rng(5)
F = np.float32


def draw(*shape: int) -> np.ndarray:
    return GENERATOR.normal(size=shape).astype(F)


MATRICES = (((1,), (1,)), ((), ()))
FREE = {"lhs_ragged_dimensions": (0,), "rhs_group_dimensions": (0,)}
SUMMED = {"lhs_ragged_dimensions": (1,), "rhs_group_dimensions": ()}
SIZES = np.array([2, 0, 3], np.int32)
IMAGE = draw(2, 3, 6, 5)
LAYOUTS = ("NHWC", "HWIO", "NHWC")


def ragged(library: Any, numbers: Any, axes: dict[str, Any]) -> Any:
    return library.lax.RaggedDotDimensionNumbers(dot_dimension_numbers=numbers, **axes)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "ragged_dot": (lambda m, x, y: m.lax.ragged_dot(x, y, SIZES), (draw(6, 4), draw(3, 4, 5))),
    "ragged_dot_general": (
        lambda m, x, y: m.lax.ragged_dot_general(x, y, SIZES, ragged(m, MATRICES, FREE)),
        (draw(5, 4), draw(3, 4, 2)),
    ),
    "ragged_dot_summed": (
        lambda m, x, y: m.lax.ragged_dot_general(x, y, SIZES, ragged(m, (((1,), (0,)), ((), ())), SUMMED)),
        (draw(4, 6), draw(6, 2)),
    ),
    "patches": (
        lambda m, x: m.lax.conv_general_dilated_patches(x, (2, 3), (1, 2), "SAME", rhs_dilation=(2, 1)),
        (IMAGE,),
    ),
    "patches_in_a_layout": (
        lambda m, x: m.lax.conv_general_dilated_patches(
            x, (2, 2), (1, 1), ((1, 0), (0, 2)), lhs_dilation=(1, 2), dimension_numbers=LAYOUTS
        ),
        (draw(2, 4, 3, 2),),
    ),
    "local": (
        lambda m, x, k: m.lax.conv_general_dilated_local(x, k, (2, 1), "VALID", (2, 2)),
        (IMAGE, draw(4, 12, 3, 4)),
    ),
    "mixed_reduce": (
        lambda m, x: m.lax.reduce(
            (x, x * 2), (np.ones((), F), np.zeros((), F)), lambda a, b: (a[0] * b[0], a[1] + b[1]), (0,)
        ),
        (draw(5, 3),),
    ),
    "mixed_reduce_window": (
        lambda m, x: m.lax.reduce_window(x, np.ones((), F), lambda a, b: a * b * 2, (2,), (1,), "VALID"),
        (draw(5),),
    ),
    "reduce_precision": (lambda m, x: m.lax.reduce_precision(x, 8, 7), (draw(4),)),
    "dot_in_float32": (lambda m, x, y: m.lax.dot(x, y, precision="F32_F32_F32"), (draw(2, 3), draw(3, 4))),
    "index_take": (
        lambda m, x: m.lax.index_take(x, (np.array([0, 4]), np.array([1, 2])), (0, 1)),
        (draw(5, 3),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives(name: str) -> None:
    """Eagerly, jitted, and both modes."""
    function, args = CASES[name]

    def mine(*values: Any) -> Any:
        return function(rlx, *values)

    def theirs(*values: Any) -> Any:
        return function(jax, *values)

    def close(actual: Any, expected: Any) -> None:
        for a, e in zip(rlx.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(e), rtol=2e-5, atol=2e-5)

    expected = theirs(*args)
    close(mine(*args), expected)
    close(rlx.jit(mine)(*args), expected)
    tangents = tuple(np.ones_like(a) for a in args)
    close(rlx.jvp(mine, args, tangents), jax.jvp(theirs, args, tangents))
    if name not in ("mixed_reduce_window", "ragged_dot_summed"):  # JAX has no gradient
        positions = tuple(range(len(args)))
        loss = lambda f, tree: lambda *v: sum((x * x).sum() for x in tree.leaves(f(*v)))  # noqa: E731
        close(rlx.grad(loss(mine, rlx.tree), positions)(*args), jax.grad(loss(theirs, jax.tree), positions)(*args))


def test_shapes() -> None:
    """The functions that foretell them."""
    transposed = ((1, 4, 4, 2), (3, 3, 2, 5), (2, 2), "SAME", LAYOUTS)
    assert lax.conv_transpose_shape_tuple(*transposed) == jax.lax.conv_transpose_shape_tuple(*transposed)
    general = ((1, 9, 8, 3), (3, 2, 3, 16), (2, 3), ((1, 1), (0, 2)), LAYOUTS)
    assert lax.conv_general_shape_tuple(*general) == jax.lax.conv_general_shape_tuple(*general)
    assert lax.conv_general_permutations(LAYOUTS) == jax.lax.conv_general_permutations(LAYOUTS)
    window = ((6, 7), (2, 3), (1, 2), ((1, 0), (2, 2)), (2, 1), (1, 2))
    assert lax.reduce_window_shape_tuple(*window) == jax.lax.reduce_window_shape_tuple(*window)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint32", "int64", "uint64"])
def test_mulhi(dtype: str) -> None:
    """The upper half of products of Python's integers."""
    info = np.iinfo(dtype)
    x = np.array([info.min, info.max, info.max // 3, 5], dtype)
    y = np.array([info.max, info.max, info.min // 2, 7], dtype)
    expected = [(int(a) * int(b)) >> info.bits for a, b in zip(x, y, strict=True)]
    assert lax.mulhi(x, y).tolist() == expected
    assert rlx.jit(lax.mulhi)(x, y).tolist() == expected


def test_approximate_extrema_are_exact() -> None:
    """Largest and smallest, along an axis."""
    x = draw(3, 7)
    for name in ("approx_max_k", "approx_min_k"):
        for mine, theirs in zip(getattr(lax, name)(x, 3), getattr(jax.lax, name)(x, 3), strict=True):
            np.testing.assert_array_equal(np.asarray(mine), np.asarray(theirs))
    with pytest.raises(errors.DtypeError, match="floating"):
        lax.approx_max_k(np.arange(3), 1)


def test_random_bits() -> None:
    """The same from the same key, others from the next."""
    key = np.array([1, 2, 3, 4], np.uint32)
    following, bits = lax.rng_bit_generator(key, (5, 3))
    np.testing.assert_array_equal(bits, rlx.jit(lambda k: lax.rng_bit_generator(k, (5, 3))[1])(key))
    assert not np.array_equal(lax.rng_bit_generator(following, (5, 3))[1], bits)
    for dtype in ("uint8", "uint64"):
        assert lax.rng_bit_generator(key.view(np.uint64), (4,), dtype)[1].dtype == dtype
    drawn = rlx.jit(lambda: lax.rng_uniform(2.0, 3.0, (50,)))
    assert 2.0 <= np.asarray(drawn()).min() and not np.array_equal(drawn(), drawn())


def test_platforms_and_composites() -> None:
    """The processor's function; a name that survives as a call."""
    chosen = rlx.jit(lambda x: lax.platform_dependent(x, cpu=lax.sin, default=lax.cos))
    np.testing.assert_allclose(rlx.jit(chosen, device="cpu")(0.5), np.sin(F(0.5)), rtol=1e-6)
    with pytest.raises(errors.ControlFlowTypeError, match="structure"):
        lax.platform_dependent(1.0, cpu=lax.sin, default=lambda x: (x, x))
    with pytest.raises(errors.UnsupportedError, match=rlx.default_backend()):
        lax.platform_dependent(1.0, tpu=lax.sin)
    power = lax.composite(lambda x, exponent: x**exponent, "my.power", version=1)
    program = rlx.make_program(lambda x: power(x, exponent=3))(2.0)
    assert [e.params["name"] for e in program.equations] == ["my.power.v1"]
    assert float(rlx.grad(lambda x: power(x, exponent=3))(2.0)) == 12.0


def test_a_custom_linear_solve() -> None:
    """Both modes, a second derivative, and vmap, against the solution by the matrix."""
    matrix, right = draw(3, 3) + 4 * np.eye(3, dtype=F), draw(3)

    def solved(library: Any, a: Any, b: Any) -> Any:
        dense = lambda mv, y: library.numpy.linalg.solve(library.jacobian(mv)(y), y)  # noqa: E731
        return library.lax.custom_linear_solve(lambda x: a @ x, b, dense, dense)

    def total(library: Any) -> Any:
        return lambda a, b: (solved(library, a, b) ** 2).sum()

    jax_module: Any = jax
    jax_module.jacobian = jax.jacrev
    for make in (lambda m: m.grad(total(m), (0, 1)), lambda m: m.jit(m.hessian(total(m), 1))):
        mine, theirs = make(rlx)(matrix, right), make(jax)(matrix, right)
        for a, e in zip(rlx.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-3, atol=1e-4)
    many = rlx.vmap(lambda b: solved(rlx, matrix, b))(draw(4, 3))
    assert many.shape == (4, 3)
    with pytest.raises(errors.UnsupportedError, match="transpose_solve"):
        rlx.grad(lambda b: lax.custom_linear_solve(lambda x: 2 * x, b, lambda mv, y: y / 2))(1.0)


def test_a_custom_root() -> None:
    """The implicit derivative, through values that f closes over."""

    def root(a: Any, b: Any) -> Any:
        newton = lambda f, x: lax.fori_loop(0, 30, lambda i, x: x - f(x) / (3 * x * x), x)  # noqa: E731
        return lax.custom_root(lambda x: x**3 - a * b, a, newton, lambda g, y: y / g(1.0))

    found, gradient = rlx.jit(rlx.value_and_grad(root))(4.0, 2.0)
    np.testing.assert_allclose([found, gradient], [2.0, 2 / 12], rtol=1e-5)
    np.testing.assert_allclose(rlx.grad(rlx.grad(root))(4.0, 2.0), -2 / 9 * 4 * 8 ** (-5 / 3), rtol=1e-4)


def test_precisions() -> None:
    """Names are checked; a sum in float32 of halves."""
    assert lax.Precision("highest") is lax.Precision.HIGHEST
    x, y = draw(3, 4).astype(np.float16), draw(4, 2).astype(np.float16)
    exact = lax.dot(x, y, precision=lax.DotAlgorithmPreset.F16_F16_F32)
    assert exact.dtype == np.float16
    with pytest.raises(errors.UnsupportedError, match="no precision"):
        lax.dot(x, y, precision="exactest")


def test_collectives_of_one_source() -> None:
    """Every member gets one member's value; both axes of two together."""
    x = draw(2, 3, 4)
    got = rlx.vmap(lambda v: lax.pbroadcast(v, "i", 2), in_axes=1, axis_name="i")(x)
    np.testing.assert_array_equal(got, np.broadcast_to(x[None, :, 2], (3, 2, 4)))
    y = draw(2, 3, 6)

    def exchange(library: Any) -> Any:
        inner = library.vmap(lambda v: library.lax.all_to_all(v, ("i", "j"), 0, 0), axis_name="j")
        return library.vmap(inner, axis_name="i")

    np.testing.assert_array_equal(exchange(rlx)(y), exchange(jax)(y))
