"""The MLX backend: what it relies on in MLX, fact by fact; each kernel kind against the reference; trainings."""

from __future__ import annotations

import io
import os
import pickle
import re
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.linalg
import scipy.special
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loop_plans import FLOAT, INT, constant, elementwise, load, plan_of, run_slowly, unary
from modules import load as load_module
from native_plans import counting_plan, operand, results, run_python, scan_plan
from test_reference import CASTS, TABLE, loops_kernels, same
from trainings import TRAININGS, decoder, losses

import rlx
import rlx.numpy as jnp
from rlx import errors, lm, nn, quant
from rlx.array import memory_of
from rlx.backends import backend_named, device_names
from rlx.backends.reference import ReferenceBackend
from rlx.call import default_place
from rlx.code.scalars import OPERATIONS
from rlx.config import ChosenDevice
from rlx.ir.formats import FLOAT_FORMATS, INTEGER_FORMATS
from rlx.ir.kernels import (
    Access,
    Branch,
    Buffer,
    Callback,
    Contract,
    Instruction,
    Library,
    Loops,
    Operand,
    Plan,
    Sort,
    Store,
)
from rlx.ir.scalar import ALPHABET
from rlx.ir.types import compute_dtype
from rlx.ir.verify_loops import verify_loops
from rlx.passes.pipeline import executables

MISSING = "mlx is not installed: pip install 'rlx[mlx]'"
mx: Any = pytest.importorskip("mlx.core", reason=MISSING)

from rlx.backends.mlx import MlxBackend, functions, loops  # noqa: E402
from rlx.backends.mlx.border import from_host, to_host  # noqa: E402
from rlx.backends.mlx.kernels import run_contract  # noqa: E402
from rlx.backends.mlx.library import at_work, is_on_gpu  # noqa: E402
from rlx.backends.mlx.loops import run_loops, why_not  # noqa: E402
from rlx.backends.mlx.mistakes import described  # noqa: E402
from rlx.backends.mlx.narrow import decode  # noqa: E402
from rlx.backends.mlx.program import PlanFunction  # noqa: E402
from rlx.backends.mlx.scalar import ScalarArray, encode, operation  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
NAN, INF = float("nan"), float("inf")
DOUBLE = np.dtype(np.float64)
on_the_cpu = pytest.mark.skipif(is_on_gpu(), reason="MLX computes on a GPU, which has no float64")


def array(values: Any, dtype: Any) -> Any:
    """MLX's array of NumPy's."""
    return mx.array(np.array(values), dtype)


def numbers(x: Any) -> list[Any]:
    """The elements of MLX's array."""
    return np.asarray(x).tolist()


def relative_error(found: Any, expected: np.ndarray) -> float:
    """The greatest relative error of MLX's array."""
    wide = np.asarray(found).astype(np.float64)
    return float(np.max(np.abs(wide - expected) / np.abs(expected)))


# ------------------------------------------------------------------ facts about MLX that the backend relies on
def test_fact_an_array_of_float64_is_narrowed_unless_a_dtype_is_given() -> None:
    assert mx.array(np.ones(2)).dtype == mx.float32
    assert mx.array(np.ones(2), mx.float64).dtype == mx.float64


def test_fact_a_numpy_view_of_a_result_shares_its_memory() -> None:
    x = mx.arange(4) + 1
    mx.eval(x)
    assert np.asarray(x).__array_interface__["data"] == np.asarray(x).__array_interface__["data"]
    assert not np.asarray(x).flags.owndata


def test_fact_memory_of_numpy_is_copied() -> None:
    source = np.zeros(4, np.float32)
    x = mx.array(source, mx.float32)
    source[0] = 1
    assert numbers(x) == [0, 0, 0, 0]


@on_the_cpu
@pytest.mark.parametrize("name", ["exp", "sin", "cos", "erf", "erfinv", "sigmoid"])
def test_fact_functions_of_float64_with_the_precision_of_float32(name: str) -> None:
    """When this fails, MLX has become exact, and rlx.backends.mlx.functions need not compose this one."""
    x = np.linspace(-0.9, 0.9, 101) + 0.003
    expected = {"erf": scipy.special.erf, "erfinv": scipy.special.erfinv, "sigmoid": scipy.special.expit}
    function = expected.get(name) or getattr(np, name)
    assert 1e-9 < relative_error(getattr(mx, name)(array(x, mx.float64)), function(x)) < 1e-4


@on_the_cpu
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("expm1", -40, 300), ("log", 0.01, 1e3), ("log1p", -0.9, 9), ("log2", 0.01, 1e3), ("tan", -700, 700),
        ("tanh", -3, 3), ("sinh", -9, 9), ("cosh", -9, 9), ("arcsin", -1, 1), ("arccos", -1, 1), ("arctan", -9, 9),
        ("arcsinh", -9, 9), ("arccosh", 1.1, 9), ("arctanh", -0.99, 0.99), ("sqrt", 0, 9),
    ],
)  # fmt: skip
def test_fact_functions_of_float64_that_are_exact(name: str, low: float, high: float) -> None:
    x = np.linspace(low, high, 998)[1:-1]  # none of them is 0
    assert relative_error(getattr(mx, name)(array(x, mx.float64)), getattr(np, name)(x)) < 1e-15


@on_the_cpu
def test_fact_erf_of_float32_loses_digits_near_zero() -> None:
    x = np.linspace(0.01, 0.5, 100).astype(np.float32)
    assert relative_error(mx.erf(mx.array(x)), scipy.special.erf(x.astype(float))) > 1e-6


@on_the_cpu
def test_fact_exp_of_float32_loses_digits_far_from_zero() -> None:
    x = np.linspace(70, 80, 100).astype(np.float32)
    assert 1e-6 < relative_error(mx.exp(mx.array(x)), np.exp(x.astype(float))) < 1e-5


@on_the_cpu
def test_fact_sin_of_float32_loses_the_sign_of_zero() -> None:
    assert not np.signbit(np.asarray(mx.sin(array([-0.0], mx.float32))))[0]


@on_the_cpu
def test_fact_power_and_atan2_of_float64_are_exact() -> None:
    x, y = np.linspace(0.1, 9, 99), np.linspace(-5, 5, 99)
    assert relative_error(mx.power(array(x, mx.float64), array(y, mx.float64)), x**y) < 1e-15
    assert relative_error(mx.arctan2(array(x, mx.float64), array(y, mx.float64)), np.arctan2(x, y)) < 1e-15


@pytest.mark.parametrize("name", ["erfc", "cbrt", "nextafter", "fma", "fmod", "popcount", "clz", "bitwise_count"])
def test_fact_functions_that_are_missing(name: str) -> None:
    assert not hasattr(mx, name)


def test_fact_floats_out_of_range_do_not_saturate() -> None:
    assert numbers(array([3e10, -3e10], mx.float32).astype(mx.int32)) != [2**31 - 1, -(2**31)]


@on_the_cpu
def test_fact_float64_is_rounded_twice_to_float16() -> None:
    x = 1 + 2.0**-11 + 2.0**-40
    assert numbers(array([x], mx.float64).astype(mx.float16)) == [1.0] != [np.float16(x)]


def test_fact_integer_division_by_zero_is_no_error() -> None:
    # the result is nothing that one could rely on, but there is one
    assert mx.floor_divide(array([5], mx.int32), array([0], mx.int32)).shape == (1,)


def test_fact_integers_of_64_bits_divide_exactly() -> None:
    found = mx.floor_divide(array([2**64 - 1], mx.uint64), array([3], mx.uint64))
    assert numbers(found) == [(2**64 - 1) // 3]


def test_fact_sums_and_products_of_small_integers_are_widened() -> None:
    small = array([100, 100], mx.int8)
    assert mx.sum(small).dtype == mx.prod(small).dtype == mx.int32
    assert mx.cumsum(small).dtype == mx.int8


def test_fact_arithmetic_of_integers_wraps() -> None:
    assert numbers(array([100], mx.int8) + array([100], mx.int8)) == [-56]
    assert numbers(array([2**63 + 5], mx.uint64) * array([3], mx.uint64)) == [2**63 + 15]
    assert numbers(mx.array([300, -129]).astype(mx.int8)) == [44, 127]


def test_fact_extrema_and_reductions_keep_nan() -> None:
    x = array([[1.0, NAN, 2.0]], mx.float32)
    for function in (mx.max, mx.min):
        assert np.isnan(numbers(function(x, axis=1)))
        assert np.isnan(numbers(function(mx.transpose(x), axis=0)))
    assert np.isnan(numbers(mx.maximum(x, 0.0))[0][1]) and np.isnan(numbers(mx.minimum(array(NAN, mx.float32), 0.0)))


@on_the_cpu
def test_fact_a_long_sum_of_float32_loses_digits() -> None:
    """Here it is cut into rows, whose sums are summed."""
    x = np.random.default_rng(0).normal(size=1 << 22).astype(np.float32) ** 2
    exact = x.sum(dtype=np.float64)
    assert abs(mx.sum(mx.array(x)).item() / exact - 1) > 1e-4
    assert abs(rlx.jit(jnp.sum, device="mlx")(x).item() / exact - 1) < 1e-5


def test_fact_an_extremum_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="size 0"):
        mx.max(mx.zeros((0, 3)), axis=0)


def test_fact_sign_is_zero_at_nan() -> None:
    assert numbers(mx.sign(array([NAN, -0.0], mx.float32))) == [0, 0]


def test_fact_rounding_is_to_even() -> None:
    assert numbers(mx.round(array([0.5, 1.5, 2.5, -0.5], mx.float32))) == [0, 2, 2, 0]


def test_fact_sorts_are_stable_with_nan_last() -> None:
    keys = array([3.0, NAN, 1.0, 1.0, -0.0, 0.0, NAN], mx.float32)
    assert numbers(mx.argsort(keys)) == [4, 5, 2, 3, 0, 1, 6]
    found = np.asarray(mx.sort(keys))
    assert np.signbit(found[:2]).tolist() == [True, False] and np.isnan(found[-2:]).all()


def test_fact_a_scatter_combines_repeated_places() -> None:
    places = mx.array([1, 1, 3])
    assert numbers(mx.zeros(4).at[places].add(mx.array([1.0, 2, 3]))) == [0, 3, 0, 3]
    assert numbers(mx.ones(4).at[places].multiply(mx.array([5.0, 2, 3]))) == [1, 10, 1, 3]
    assert numbers(mx.ones(4).at[places].maximum(mx.array([5.0, 2, 3]))) == [1, 5, 1, 3]
    assert numbers(mx.zeros(4, dtype=mx.bool_).at[places].maximum(mx.array([False, True, False]))) == [0, 1, 0, 0]


@pytest.mark.parametrize("name", ["minimum", "maximum"])
def test_fact_a_scatter_of_extrema_loses_nan(name: str) -> None:
    memory, places = mx.array([2.0, np.nan]), mx.array([0, 0, 1])
    found = getattr(memory.at[places], name)(mx.array([np.nan, 1.0, 5.0]))
    assert not np.isnan(np.asarray(found)).any()


def test_fact_an_assignment_changes_one_handle_only() -> None:
    x = mx.zeros(3)
    y = mx.reshape(x, (3,))
    y[0:1] = 1.0
    assert (numbers(x), numbers(y)) == ([0, 0, 0], [1, 0, 0])


def test_fact_strided_views_want_dense_rows() -> None:
    with pytest.raises(RuntimeError, match="row contiguous"):
        mx.eval(mx.as_strided(mx.arange(10)[::2], (2, 2), (2, 1), 0))
    assert numbers(mx.as_strided(mx.contiguous(mx.arange(10)[::2]), (2, 2), (-2, 1), 2)) == [[4, 6], [0, 2]]


@on_the_cpu
def test_fact_softmax_of_float64_has_the_precision_of_float32_and_of_float16_wants_to_be_precise() -> None:
    x = np.asarray(array(np.random.default_rng(0).normal(size=999) * 4, mx.float16)).astype(float)
    expected = scipy.special.softmax(x)
    assert 1e-9 < relative_error(mx.softmax(array(x, mx.float64)), expected) < 1e-4
    narrow = array(x, mx.float16)
    normal = expected > 2.0**-14
    found = [np.asarray(mx.softmax(narrow, precise=p)).astype(float) for p in (False, True)]
    loose, precise = (np.max(np.abs(f / expected - 1)[normal]) for f in found)
    assert precise < 6e-4 < loose


def test_fact_a_causal_mask_ends_with_the_last_key() -> None:
    q, k = mx.zeros((1, 1, 2, 4)), mx.zeros((1, 1, 5, 4))
    v = mx.broadcast_to(mx.reshape(mx.arange(5.0), (1, 1, 5, 1)), (1, 1, 5, 4))
    found = mx.fast.scaled_dot_product_attention(q, k, v, scale=1.0, mask="causal")
    assert numbers(found[0, 0, :, 0]) == [1.5, 2]


def test_fact_codes_of_four_and_eight_bits_lie_from_the_lowest_bits_up() -> None:
    for bits, per_word in ((4, 8), (8, 4)):
        codes = np.arange(32) % (1 << bits)
        words = (codes.reshape(-1, per_word).astype(np.uint32) << (bits * np.arange(per_word, dtype=np.uint32))).sum(1)
        scales, biases = mx.array([[2.0]]), mx.array([[-1.0]])
        found = mx.dequantize(mx.array(words.astype(np.uint32))[None], scales, biases, group_size=32, bits=bits)
        assert numbers(found) == [(codes * 2 - 1).tolist()]


@pytest.mark.parametrize("scheme", ["mxfp4", "nvfp4"])
def test_fact_floats_of_four_bits_and_their_scales_are_those_of_the_formats(scheme: str) -> None:
    """All codes with all finite scales that a weight can have."""
    count, group, dtype = (255, 32, "float8_e8m0fnu") if scheme == "mxfp4" else (127, 16, "float8_e4m3fn")
    scales = np.repeat(np.arange(count, dtype=np.uint8), 32 // group).reshape(count, -1)
    elements = np.tile(np.arange(16, dtype=np.uint8) * 17, (count, 1))  # each code twice
    weight = (jnp.asarray(elements), jnp.asarray(scales.view(getattr(ml_dtypes, dtype))), None, None)
    expected = quant.dequantize(quant.QuantizedArray(*weight, quant.QuantScheme(scheme)))
    found = mx.dequantize(mx.view(mx.array(elements), mx.uint32), mx.array(scales), mode=scheme, dtype=mx.float32)
    np.testing.assert_array_equal(np.asarray(found), expected)


def test_fact_rope_divides_by_frequencies_and_takes_an_offset_for_each_sequence() -> None:
    x, starts = mx.ones((2, 1, 3, 5)), np.array([4, 0])
    found = np.asarray(
        mx.fast.rope(x, 4, traditional=True, base=None, scale=1.0, offset=mx.array(starts), freqs=mx.array([2.0, 0.5]))
    )
    turned = (starts[:, None] + np.arange(3))[:, None, :, None] / np.array([2.0, 0.5])
    np.testing.assert_allclose(found[..., 0:4:2], np.cos(turned) - np.sin(turned), atol=1e-6)
    np.testing.assert_allclose(found[..., 1:4:2], np.cos(turned) + np.sin(turned), atol=1e-6)
    assert (found[..., 4] == 1).all()


@on_the_cpu
def test_fact_fft_of_float64_is_in_single_precision() -> None:
    assert mx.fft.fft(mx.zeros(4, dtype=mx.float64)).dtype == mx.complex64


def processor(routine: str, *arrays: Any, **options: Any) -> Any:
    """A routine of mx.linalg on the processor, whose numbers are there."""
    results = getattr(mx.linalg, routine)(*arrays, stream=mx.cpu, **options)
    mx.eval(results)
    return results


def test_fact_cholesky_leaves_a_pivot_that_is_not_positive_and_says_nothing() -> None:
    """A matrix is positive definite exactly where all pivots are positive."""
    generator = np.random.default_rng(0)
    for n in (1, 2, 3, 10, 33, 65, 130):
        for shift in np.linspace(0, 2, 12):
            a = generator.normal(size=(n, n))
            a = a + a.T + shift * np.sqrt(n) * np.eye(n)
            definite = np.linalg.eigvalsh(a)[0] > 0
            factor = np.asarray(processor("cholesky", array(a, mx.float64)))
            assert (np.diagonal(factor) > 0).all() == definite, (n, shift)
    assert numbers(processor("cholesky", mx.zeros((2, 2)))) == [[0, 0], [0, 0]]


@pytest.mark.parametrize("routine", ["svd", "eigh"])
def test_fact_svd_and_eigh_refuse_nan(routine: str) -> None:
    with pytest.raises(RuntimeError, match="failed"):
        processor(routine, mx.full((3, 3), NAN))


def test_fact_eig_of_nan_ends_the_process() -> None:
    text = "import mlx.core as mx; mx.eval(mx.linalg.eig(mx.full((3, 3), float('nan')), stream=mx.cpu)); print('there')"
    assert "there" not in run_python(text).stdout


def test_fact_eigenvectors_of_complex_matrices_are_wrong() -> None:
    generator = np.random.default_rng(0)
    a = (generator.normal(size=(4, 4)) + 1j * generator.normal(size=(4, 4))).astype(np.complex64)
    w, v = map(np.asarray, processor("eig", mx.array(a)))
    assert np.abs(a @ v - v * w).max() > 0.1
    w, v = map(np.asarray, processor("eig", mx.array(a.real)))
    assert np.abs(a.real @ v - v * w).max() < 1e-5


def test_fact_triangular_solves_multiply_by_an_inverse() -> None:
    """When this fails, the routines triangular_solve and lu_solve can be MLX's."""
    a = np.triu(np.random.default_rng(0).normal(size=(100, 100)))
    b = a @ np.ones((100, 1))
    x = np.asarray(processor("solve_triangular", array(a, mx.float64), array(b, mx.float64), upper=True))
    assert np.max(np.abs(a @ x - b) / (np.abs(a) @ np.abs(x))) > 1e-6
    with pytest.raises(RuntimeError, match="inversion failed"):
        processor("solve_triangular", mx.zeros((2, 2)), mx.ones((2, 1)), upper=True)


def test_fact_lu_factor_has_pivots_and_no_permutation() -> None:
    a = np.random.default_rng(0).normal(size=(5, 4, 4))
    factors, pivots = map(np.asarray, processor("lu_factor", array(a, mx.float64)))
    for matrix, factor, pivot in zip(a, factors, pivots, strict=True):
        expected, order = scipy.linalg.lu_factor(matrix)
        np.testing.assert_allclose(factor, expected, atol=1e-14)
        assert pivot.tolist() == order.tolist()


@pytest.mark.parametrize("routine", ["cholesky", "qr", "lu_factor"])
def test_fact_routines_that_take_no_complex_numbers(routine: str) -> None:
    with pytest.raises(ValueError, match="float32 or float64"):
        processor(routine, mx.eye(3, dtype=mx.complex64))


def test_fact_svd_makes_square_vectors() -> None:
    assert [f.shape for f in processor("svd", mx.ones((5, 2)))] == [(5, 5), (2,), (2, 2)]


def test_fact_there_is_no_complex128() -> None:
    assert not hasattr(mx, "complex128")


@on_the_cpu
def test_fact_matmul_takes_float64_and_complex64_and_sums_of_nothing() -> None:
    for dtype in (mx.float32, mx.float64, mx.complex64):
        assert numbers(mx.matmul(mx.ones((2, 3), dtype), mx.ones((3, 1), dtype))) == [[3], [3]]
        assert numbers(mx.matmul(mx.ones((1, 0), dtype), mx.ones((0, 1), dtype))) == [[0]]


def test_fact_streams_for_all_threads_exist() -> None:
    assert hasattr(mx, "new_thread_unsafe_stream")


# ------------------------------------------------------------------ scalars
def evaluate(op: str, *arguments: np.ndarray, dtype: Any = None, attribute: Any = None) -> np.ndarray:
    """An operation of the alphabet on arrays."""
    with at_work():
        values = [ScalarArray(from_host(a), a.dtype) for a in map(np.asarray, arguments)]
        result = np.dtype(dtype) if dtype is not None else np.asarray(arguments[-1]).dtype
        found = operation(Instruction(op, tuple(range(len(values))), result, attribute), values)
        mx.eval(found)
    return to_host(found, result if op in ("cast", "bitcast") else np.asarray(found).dtype)


@pytest.mark.parametrize(("op", "arguments", "expected"), TABLE)
def test_scalar_table(op: str, arguments: Any, expected: np.ndarray) -> None:
    found = evaluate(op, *arguments)
    if op in ("rsqrt", "logistic"):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    else:
        same(found, expected)


@pytest.mark.parametrize(("value", "expected"), CASTS)
def test_casts(value: np.ndarray, expected: np.ndarray) -> None:
    if DOUBLE in (value.dtype, expected.dtype) and is_on_gpu():
        pytest.skip("a GPU has no float64")
    same(evaluate("cast", value, dtype=expected.dtype), expected)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_integers_at_their_limits(dtype: str) -> None:
    """Divisions, shifts by every amount, counts of bits, as the reference computes them."""
    info = np.iinfo(dtype)
    edges = [info.min, info.min + 1, -7, -1, 0, 1, 2, 3, 7, 8, 31, 63, 64, info.max - 1, info.max]
    values = np.array([e for e in edges if info.min <= e <= info.max], dtype)
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    a, b, c = (Buffer(np.dtype(dtype), x.size, role) for role in ("input", "input", "output"))
    for op, rule in ALPHABET.items():
        if rule.arity == 2 and rule.result == "same" and info.dtype.kind in rule.kinds:
            kernel = Loops(
                (x.size,), 1, (a, b, c),
                (load(0, 1, dtype=a.dtype), load(1, 1, dtype=a.dtype), Instruction(op, (0, 1), a.dtype)),
                (Store(2, Access(2, (1,))),),
            )  # fmt: skip
        elif op in ("population_count", "count_leading_zeros", "neg", "abs", "sign", "not"):
            kernel = Loops(
                (x.size,), 1, (a, c), (load(0, 1, dtype=a.dtype), unary(op, 0, a.dtype)), (Store(1, Access(1, (1,))),)
            )
        else:
            continue
        agree(plan_of([kernel], [a, b], [c]), x, y)


@pytest.mark.parametrize("number", [-64, -3, -1, 0, 1, 5, 31, 32, 100])
def test_known_divisors_and_amounts(number: int) -> None:
    """A constant operand takes shorter ways, which give the same."""
    dtype = np.dtype(np.int32)
    x, y = Buffer(dtype, 7, "input"), Buffer(dtype, 7, "output")
    data = np.array([-(2**31), -9, -1, 0, 1, 9, 2**31 - 1], dtype)
    for op in ("div", "rem", "shift_left", "shift_right_logical", "shift_right_arithmetic"):
        kernel = Loops(
            (7,), 1, (x, y), (load(0, 1, dtype=dtype), constant(number, dtype), Instruction(op, (0, 1), dtype)),
            (Store(2, Access(1, (1,))),),
        )  # fmt: skip
        agree(plan_of([kernel], [x], [y]), data)


COMPOSED = {
    "exp": (np.exp, -745.0, 709.0),
    "exp2": (np.exp2, -1074.0, 1023.0),
    "sin": (np.sin, -700.0, 700.0),
    "cos": (np.cos, -700.0, 700.0),
    "erf": (scipy.special.erf, -7.0, 7.0),
    "erfc": (scipy.special.erfc, -7.0, 26.0),
    "erf_inv": (scipy.special.erfinv, -1.0, 1.0),
    "cbrt": (np.cbrt, -1e6, 1e6),
    "logistic": (scipy.special.expit, -700.0, 700.0),
}


@on_the_cpu
@pytest.mark.parametrize("name", COMPOSED)
def test_composed_functions_of_float64(name: str) -> None:
    function, low, high = COMPOSED[name]
    x = np.random.default_rng(0).uniform(low, high, 20000)
    found = np.asarray(getattr(functions, name)(array(x, mx.float64)))
    expected = function(x)
    normal = np.abs(expected) > 1e-300
    tolerance = 1e-12 if name in ("sin", "cos") else 1e-13  # at their zeros, by the rounding of x / 2's tangent
    np.testing.assert_allclose(found[normal], expected[normal], rtol=tolerance)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-300)


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("name", COMPOSED)
def test_composed_functions_of_float32(name: str, on_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are composed on the processor, and (here of its functions, which have errors of 4e-6) on a GPU."""
    monkeypatch.setattr(functions, "is_on_gpu", lambda: on_gpu)
    function, low, high = COMPOSED[name]
    low, high = (-80.0, 80.0) if name in ("exp", "logistic") else (max(low, -100.0), min(high, 9.0))
    x = np.random.default_rng(0).uniform(low, high, 20000).astype(np.float32)
    tolerance, atol = 1e-5 if on_gpu else 1e-6, 1e-7 * (name in ("sin", "cos"))
    found = np.asarray(getattr(functions, name)(mx.array(x)))
    np.testing.assert_allclose(found, function(x.astype(np.float64)), rtol=tolerance, atol=atol)


@on_the_cpu
def test_fma_of_float64_rounds_once() -> None:
    generator = np.random.default_rng(0)
    x, y, noise = (generator.normal(size=3000) for _ in range(3))
    z = -x * y * (1 + noise * 1e-9)
    same(evaluate("fma", x, y, z), OPERATIONS["fma"](x, y, z))


@pytest.mark.parametrize("dtype", [d for d in FLOAT_FORMATS if d.itemsize == 1], ids=str)
def test_every_code_of_small_floats(dtype: np.dtype) -> None:
    codes = np.arange(1 << FLOAT_FORMATS[dtype].bits).astype(np.uint8)
    expected = codes.view(dtype).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(decode(dtype, mx.array(codes))), expected)
    generator = np.random.default_rng(0)
    spread = generator.normal(size=5000) * 10.0 ** generator.integers(-6, 6, 5000)
    wide = np.concatenate([
        expected, (expected[1:] + expected[:-1]) / 2, spread,
        [0.0, -0.0, INF, -INF, NAN, 1e-40, 3e38],
    ]).astype(np.float32)  # fmt: skip
    with np.errstate(all="ignore"):
        rounded = wide.astype(dtype)
    found = np.asarray(encode(dtype, mx.array(wide))).view(dtype)
    np.testing.assert_array_equal(found.astype(np.float32), rounded.astype(np.float32))


@pytest.mark.parametrize("dtype", INTEGER_FORMATS, ids=str)
def test_every_code_of_small_integers(dtype: np.dtype) -> None:
    values = np.arange(-128, 128).astype(np.int8).astype(compute_dtype(dtype))
    codes = encode(dtype, mx.array(values))
    with np.errstate(all="ignore"):
        wrapped = values.astype(dtype).astype(compute_dtype(dtype))
    np.testing.assert_array_equal(np.asarray(decode(dtype, codes)), wrapped)


# ------------------------------------------------------------------ loop nests
def agree(plan: Plan, *arrays: np.ndarray, rtol: float = 0.0) -> list[np.ndarray]:
    """Check against the reference; the results."""
    found = results(MlxBackend(), plan, arrays)
    for mine, theirs in zip(found, results(ReferenceBackend(), plan, arrays), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=rtol)
    return found


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(loops_kernels(), st.integers(0, 2**32 - 1), st.booleans())
def test_loops_agree_with_nested_python_loops(kernel: Loops, seed: int, on_gpu: bool) -> None:
    """Strides of either sign and zero, gathers, guards, chunks, accumulation and scatters of random kernels.

    Of small whole numbers, whose sums are exact in any order: in that of a processor, and in that of a GPU.
    """
    verify_loops(kernel)
    random = np.random.default_rng(seed)
    memory = [random.integers(-3, 4, b.size).astype(b.dtype) for b in kernel.operands]
    expected = [a.copy() for a in memory]
    with np.errstate(all="ignore"):
        run_slowly(kernel, expected)
    assert why_not(kernel) is None
    with at_work(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(loops, "is_on_gpu", lambda: on_gpu)
        buffers = {b: from_host(a) for b, a in zip(kernel.operands, memory, strict=True)}
        run_loops(kernel, buffers)
        mx.eval(*buffers.values())
    for buffer, wanted in zip(kernel.operands, expected, strict=True):
        found = to_host(buffers[buffer], buffer.dtype)
        np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64))


def test_the_last_of_several_stores_to_one_element_stays() -> None:
    x, y = Buffer(FLOAT, 1000, "input"), Buffer(FLOAT, 3, "output")
    kernel = Loops(
        (1000,), 0, (x, y),
        (load(0, 1), Instruction("index", (), INT, 0), constant(3, INT),
         Instruction("rem", (1, 2), INT)),
        (Store(0, Access(1, (0,)), address=3, order="sequential"),),
    )  # fmt: skip
    data = np.arange(1000, dtype=FLOAT)
    (found,) = agree(plan_of([kernel], [x], [y]), data)
    assert found.tolist() == [999.0, 997.0, 998.0]


ENTRIES = {
    "rows": lambda x, i: x[i],
    "columns": lambda x, i: x[:, i],
    "the last axis": lambda x, i: x[..., i],
    "rows of a part": lambda x, i: x[1:, ::-1, 1:][i],
    "rows of a transposition": lambda x, i: x.T[i],
    "numbers of two axes": lambda x, i: x[i, :, i],
    "along an axis": lambda x, i: rlx.numpy.take_along_axis(x, i[:, None, None], 0),
    "rows that are in bounds": lambda x, i: x.at[i % 5].get(mode="promise_in_bounds"),
    "rows, or NaN": lambda x, i: x.at[i].get(mode="fill"),
    "a row at a time": lambda x, i: rlx.vmap(lambda n: rlx.lax.dynamic_slice(x, (n, 1, 0), (2, 2, 3)))(i),
    "one row": lambda x, i: x[i[3]],
    "rows of rows": lambda x, i: x[i][i[::-1]],
    "sums of rows": lambda x, i: x.at[i].add(x[i] + 1),
    "sums of numbers": lambda x, i: x[:, 0, 0].at[i].add(rlx.numpy.arange(i.size) + 1.0),
    "sums of columns": lambda x, i: x.at[:, i].add(x[:, i] + 1),
    "products of rows, transposed": lambda x, i: x.T.at[i].multiply(x.T[i]),
    "the largest of rows": lambda x, i: x.at[i].max(x[i] * 2),
    "rows assigned": lambda x, i: x.at[i].set(x[i[::-1]]),
    "rows assigned once": lambda x, i: x.at[i[:3]].set(x[i[-3:]], unique_indices=True),
    "rows clamped": lambda x, i: x.at[i].add(1.0, mode="clip"),
    "a derivative": lambda x, i: rlx.grad(lambda x: (x[i] ** 2).sum())(x),
}


@pytest.mark.parametrize("dtype", ["i1", "i4", "i8", "u4", "u8"])
@pytest.mark.parametrize("name", ENTRIES)
def test_entries_by_numbers_of_every_size(name: str, dtype: str) -> None:
    """As on the CPU: negative numbers count from the end, others that are outside are clamped or dropped."""
    bounds = np.iinfo(dtype)
    far = [-1, -5, -6, -4, bounds.min, -3] if bounds.min < 0 else []
    places = np.array([0, 4, 2, *far, 1, 3, 5, 6, bounds.max, 2], dtype)
    x = np.random.default_rng(0).standard_normal((5, 4, 3)).astype(np.float32)
    found, expected = (rlx.jit(ENTRIES[name], device=device)(x, places) for device in ("mlx", "cpu"))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["min", "max"])
def test_a_scatter_of_extrema_keeps_nan(name: str) -> None:
    x, places = np.array([2.0, NAN, 1.0], np.float32), np.array([0, 0, 1, 2])
    given = np.array([NAN, 1.0, 5.0, 3.0], np.float32)
    found = rlx.jit(lambda x, y: getattr(x.at[places], name)(y), device="mlx")(x, given)
    assert np.isnan(found).tolist() == [True, True, False]


@pytest.mark.parametrize("lower", [True, False])
def test_eigh_reads_one_triangle(lower: bool) -> None:
    x = np.array([[2.0, 1.0], [1.0, 3.0]], np.float32)
    spoilt = np.where(np.tri(2, dtype=bool) if lower else np.tri(2, dtype=bool).T, x, NAN).astype(np.float32)
    values = rlx.jit(lambda x: rlx.lax.linalg.eigh(x, lower=lower, symmetrize_input=False)[1], device="mlx")
    np.testing.assert_array_equal(values(spoilt), values(x))
    assert np.isfinite(values(x)).all()


def test_integer_bits_that_are_scattered_are_a_step_of_the_host() -> None:
    x, y = Buffer(INT, 6, "input"), Buffer(INT, 2, "output")
    kernel = Loops(
        (6,), 1, (x, y), (load(0, 1, dtype=INT), constant(1, INT), Instruction("and", (0, 1), INT)),
        (Store(0, Access(1, (0,)), address=2, accumulate="xor"), Store(1, Access(1, (0,)), accumulate="xor")),
    )  # fmt: skip
    zero = Loops((2,), 1, (y,), (constant(0, INT),), (Store(0, Access(0, (1,))),))
    plan = plan_of([zero, kernel], [x], [y])
    agree(plan, np.arange(6))
    assert "scatter of xor" in MlxBackend().compile(plan).texts()["host"]


# ------------------------------------------------------------------ products
LAYOUTS = [(False, False), (True, False), (False, True), (True, True)]


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("turned", LAYOUTS)
def test_products(dtype: str, turned: tuple[bool, bool], accumulate: bool) -> None:
    """Batches, transposed operands, a repeated left one, results with a gap between rows."""
    kind = np.dtype(dtype)
    if kind in (DOUBLE, np.dtype("c16")) and is_on_gpu():
        pytest.skip("a GPU has no float64")
    b, m, k, n = 3, 4, 5, 2
    left, right = Buffer(kind, m * k, "input"), Buffer(kind, b * k * n, "input")
    old, out = Buffer(kind, b * m * 3, "input"), Buffer(kind, b * m * 3, "output")
    lhs = Operand(left, (b, m, k), (0, 1, m) if turned[0] else (0, k, 1))
    rhs = Operand(right, (b, k, n), (k * n, 1, k) if turned[1] else (k * n, n, 1))
    product = Contract(lhs, rhs, Operand(out, (b, m, n), (m * 3, 3, 1), 1), accumulate)
    real = kind.type(0).real.dtype
    count = b * m * 3 * (2 if kind.kind == "c" else 1)
    copy = Loops((count,), 1, (old, out), (load(0, 1, dtype=real),), (Store(0, Access(1, (1,))),))
    generator = np.random.default_rng(0)
    arrays = [generator.normal(size=size).astype(kind) for size in (left.size, right.size, old.size)]
    agree(plan_of([copy, product], [left, right, old], [out]), *arrays, rtol=1e-5 if real == FLOAT else 1e-13)


@pytest.mark.parametrize("turned", LAYOUTS)
def test_a_product_of_dense_operands_copies_none(turned: tuple[bool, bool]) -> None:
    """Batches, transposed and repeated operands reach mx.matmul as views: nothing else is in the graph that copies."""
    batch, m, k, n = 3, 4, 5, 2
    left, right, out = Buffer(FLOAT, m * k), Buffer(FLOAT, batch * k * n), Buffer(FLOAT, batch * m * n)
    lhs = Operand(left, (batch, m, k), (0, 1, m) if turned[0] else (0, k, 1))
    rhs = Operand(right, (batch, k, n), (k * n, 1, k) if turned[1] else (k * n, n, 1))
    with at_work():
        buffers = {b: mx.array(np.ones(b.size, np.float32)) for b in (left, right)}
        run_contract(Contract(lhs, rhs, operand(out, batch, m, n)), buffers)
        graph = nodes(buffers[out])
    assert graph.count("Matmul") == 1
    assert set(graph) <= {"Matmul", "Reshape", "Transpose", "Broadcast", "Unflatten", "ExpandDims", "Squeeze"}, graph


def nodes(*arrays: Any) -> list[str]:
    """The names of the operations that arrays wait for."""
    text = io.StringIO()
    mx.export_to_dot(text, *arrays)
    lines = [line for line in text.getvalue().splitlines() if "rectangle" in line]
    return [line.split('label ="')[1].split('"')[0] for line in lines]


# ------------------------------------------------------------------ sorts
@pytest.mark.parametrize("dtype", ["f4", "i8", "u1", "bfloat16", "c8", "?"])
def test_sorts_with_their_permutation(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    x, payload = Buffer(kind, 24, "input"), Buffer(np.dtype("c8"), 24, "input")
    outputs = tuple(Buffer(np.dtype(d), 24, "output") for d in (kind, "c8", "i4"))
    plan = plan_of([Sort(4, 6, (x, payload), outputs, index=True)], [x, payload], outputs)
    generator = np.random.default_rng(0)
    data = generator.integers(0, 3, 24).astype(kind)
    if kind.kind in "fV":
        data[[2, 7, 9]] = [NAN, -0.0, NAN]
    arrays = [data, (generator.normal(size=24) + 1j * np.arange(24)).astype("c8")]
    expected = results(ReferenceBackend(), plan, arrays)
    for found, wanted in zip(results(MlxBackend(), plan, arrays), expected, strict=True):
        assert found.tobytes() == wanted.tobytes()


def test_sorts_by_two_keys() -> None:
    x, y = Buffer(FLOAT, 50, "input"), Buffer(INT, 50, "input")
    outputs = (Buffer(FLOAT, 50, "output"), Buffer(INT, 50, "output"))
    generator = np.random.default_rng(0)
    agree(
        plan_of([Sort(1, 50, (x, y), outputs, keys=2)], [x, y], outputs),
        generator.integers(0, 4, 50).astype(FLOAT), generator.integers(0, 9, 50),
    )  # fmt: skip


# ------------------------------------------------------------------ routines
def matrices(dtype: str, *shape: int) -> np.ndarray:
    """A batch of random matrices; of the second one an element is NaN."""
    generator = np.random.default_rng(0)
    a = generator.normal(size=shape) + 1j * generator.normal(size=shape) * (dtype[0] == "c")
    a = (a if dtype[0] == "c" else a.real).astype(dtype)
    a[1, 0, 0] = NAN
    return a


ROUTINES: dict[str, tuple[Any, Any]] = {
    "qr": (jnp.linalg.qr, lambda a, f: f[0] @ f[1]),
    "svd": (jnp.linalg.svd, lambda a, f: f[0] * f[1][..., None, :] @ f[2]),
    "svdvals": (jnp.linalg.svdvals, lambda a, f: f[0]),
    "eigh": (jnp.linalg.eigh, lambda a, f: a @ f[1] - f[1] * f[0][..., None, :]),
    "eig": (jnp.linalg.eig, lambda a, f: a @ f[1] - f[1] * f[0][..., None, :]),
}


@on_the_cpu
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
@pytest.mark.parametrize("name", ROUTINES)
def test_factorisations(name: str, dtype: str) -> None:
    """What the factors of each matrix of a batch make, as the CPU's; NaN of one that has NaN."""
    function, product = ROUTINES[name]
    a = matrices(dtype, 3, 4, 4)
    if name == "eigh":
        a = a + a.conj().swapaxes(-1, -2)
    found, expected = both(function, a)
    for f, e in zip(found, expected, strict=True):
        assert f.dtype == e.dtype and f.shape == e.shape
    made, wanted = (product(a, f)[[0, 2]] for f in (found, expected))
    np.testing.assert_allclose(made, wanted, atol=1e-12 if dtype == "f8" else 2e-5)
    if name != "qr":
        assert all(np.isnan(f[1]).all() for f in found)


@on_the_cpu
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_cholesky_of_what_is_not_positive_definite_is_nan(dtype: str) -> None:
    a = matrices(dtype, 4, 5, 5)
    a = a @ a.swapaxes(-1, -2) + np.eye(5, dtype=dtype)
    a[2] = -a[2]
    (found,), (expected,) = both(jnp.linalg.cholesky, a)
    np.testing.assert_allclose(found, expected, atol=1e-5 if dtype == "f4" else 1e-13)
    assert np.isnan(found[2][np.tril_indices(5)]).all() and not np.isnan(np.triu(found[2], 1)).any()


def test_a_report_says_why_a_routine_is_the_hosts() -> None:
    tall, square = np.ones((5, 2), np.float32), np.eye(3, dtype=np.float32)
    with rlx.default_device("mlx"):
        reports = {
            "inverses": rlx.inspect(jnp.linalg.solve)(square, square).dispatch,
            "all of u and v": rlx.inspect(lambda a: jnp.linalg.svd(a, full_matrices=False))(tall).dispatch,
            "complex64": rlx.inspect(jnp.linalg.qr)(square.astype(np.complex64)).dispatch,
            "no routine schur": rlx.inspect(rlx.scipy.linalg.schur)(square).dispatch,
        }
        assert "host" not in str(rlx.inspect(jnp.linalg.cholesky)(square).dispatch).splitlines()[1]
    for words, report in reports.items():
        assert words in str(report), report


# ------------------------------------------------------------------ loops and branches
@pytest.mark.parametrize("length", [0, 1, 5, 32, 33, 100])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_unrolled_and_stepped(length: int, reverse: bool) -> None:
    plan = scan_plan(length, 3, reverse)
    data = [np.random.default_rng(n).integers(-4, 4, b.size).astype(b.dtype) for n, b in enumerate(plan.inputs)]
    agree(plan, *data)
    stepped = bool(PlanFunction(plan).host_loops)
    assert stepped == (length > 32)


def test_a_while_loop_reads_its_condition() -> None:
    plan = counting_plan(50)
    agree(plan, *(np.zeros(b.size, b.dtype) for b in plan.inputs))
    assert "while" in MlxBackend().compile(plan).texts()["host"]


@pytest.mark.parametrize("number", [-3, 0, 1, 7])
def test_a_branch_clamps_its_number(number: int) -> None:
    index, x, y = Buffer(np.dtype("i4"), 1, "input"), Buffer(FLOAT, 2, "input"), Buffer(FLOAT, 2, "output")

    def plan(op: str) -> Plan:
        a, b = Buffer(FLOAT, 2, "input"), Buffer(FLOAT, 2, "output")
        return plan_of([elementwise(op, a, b)], [a], [b])

    kernel = Branch(index, (plan("neg"), plan("sqrt")), (x,), (y,))
    agree(plan_of([kernel], [index, x], [y]), np.array([number], np.int32), np.array([4.0, 9.0], FLOAT))


def test_a_callback_gets_arrays_of_the_host() -> None:
    x, y, z = Buffer(FLOAT, 4, "input"), Buffer(FLOAT, 4), Buffer(FLOAT, 4, "output")
    seen: list[np.ndarray] = []

    def function(a: np.ndarray) -> list[np.ndarray]:
        seen.append(a)
        return [a * 2]

    kernels = [elementwise("neg", x, y), Callback(function, (operand(y, 4),), (operand(z, 4),))]
    plan = plan_of(kernels, [x], [z], [y], arena=64)
    found = results(MlxBackend(), plan, [np.arange(4, dtype=FLOAT)])
    assert found[0].tolist() == [0, -2, -4, -6] and seen[0].flags.writeable


# ------------------------------------------------------------------ blocks
def normals(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


Q, K = normals(2, 7, 4, 8), normals(2, 7, 2, 8)
CALLS: dict[str, tuple[str, Any, tuple[np.ndarray, ...]]] = {
    "attention": ("dot_product_attention", nn.dot_product_attention, (Q, Q + 1, Q - 1)),
    "grouped heads": ("dot_product_attention", partial(nn.dot_product_attention, scale=0.3), (Q, K, K + 1)),
    "causal": ("dot_product_attention", partial(nn.dot_product_attention, is_causal=True), (Q, K, K)),
    "bias": ("dot_product_attention", nn.dot_product_attention, (Q, Q, Q, normals(1, 4, 7, 7))),
    "layer norm": ("layer_norm", nn.layer_norm, (normals(5, 6, 9), normals(9), normals(9))),
    "layer norm without vectors": ("layer_norm", partial(nn.layer_norm, epsilon=0.1), (normals(5, 9),)),
    "rms norm": ("rms_norm", nn.rms_norm, (normals(5, 9), normals(9))),
    "softmax": ("softmax", partial(nn.softmax, axis=0), (normals(5, 9) * 9,)),
    "softmax over two axes": ("softmax", partial(nn.softmax, axis=(0, -1)), (normals(5, 2, 9),)),
    "logsumexp": ("logsumexp", partial(nn.logsumexp, axis=1, keepdims=True), (normals(5, 9) * 9,)),
    "logsumexp of all": ("logsumexp", nn.logsumexp, (normals(5, 9),)),
}
ELSE: dict[str, tuple[Any, tuple[np.ndarray, ...]]] = {
    "float64": (nn.softmax, (normals(5, 9).astype(np.float64),)),
    "another axis": (partial(nn.layer_norm, axis=0), (normals(5, 9),)),
    "a mask": (nn.dot_product_attention, (Q, Q, Q, None, np.tril(np.ones((1, 1, 7, 7), bool)))),
    "a window": (partial(nn.dot_product_attention, local_window_size=2), (Q, Q, Q)),
    "causal of fewer queries": (partial(nn.dot_product_attention, is_causal=True), (Q[:, :3], K, K)),
    "factors": (lambda a: nn.logsumexp(a, b=a * a), (normals(5, 9),)),
    "nothing": (nn.softmax, (normals(5, 0),)),
}


def blocks_of(function: Any, *args: Any) -> list[str]:
    """The blocks in a program's plan on the device."""
    with rlx.default_device("mlx"):
        plan = rlx.inspect(function)(*args).plan
    return [k.routine for k in plan.kernels if isinstance(k, Library) and k.meaning is not None]


@pytest.mark.parametrize("called", CALLS)
def test_blocks_are_functions_of_mlx(called: str) -> None:
    name, function, args = CALLS[called]
    assert blocks_of(lambda *a: function(*a) * 2.0, *args) == [name]
    (found,), (expected,) = both(lambda *a: function(*a) * 2.0, *args)
    np.testing.assert_allclose(found, expected, rtol=3e-6, atol=1e-6)


@pytest.mark.parametrize("called", ELSE)
def test_other_calls_of_blocks_are_their_equations(called: str) -> None:
    function, args = ELSE[called]
    if args[0].dtype == DOUBLE and is_on_gpu():
        pytest.skip("a GPU has no float64")
    found = blocks_of(function, *args)
    # attention's own softmax may be one
    assert found == [] if args[0].ndim < 4 else "dot_product_attention" not in found
    (found,), (expected,) = both(function, *args)
    np.testing.assert_allclose(found, expected, rtol=3e-6 if found.itemsize > 2 else 2e-3, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("called", ["causal", "layer norm", "rms norm", "softmax", "logsumexp"])
def test_blocks_of_narrow_floats(called: str, dtype: str) -> None:
    name, function, args = CALLS[called]
    args = tuple(a.astype(np.dtype(getattr(ml_dtypes, dtype, None) or dtype)) for a in args)
    assert blocks_of(function, *args) == [name]
    (found,), (expected,) = both(function, *args)
    unit = 2.0**-10 if dtype == "float16" else 2.0**-7
    np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=2 * unit, atol=2 * unit)


@pytest.mark.parametrize("called", ["causal", "layer norm", "softmax"])
def test_derivatives_and_batches_of_blocks(called: str) -> None:
    name, function, args = CALLS[called]
    gradient = rlx.grad(lambda *a: (function(*a) ** 2).sum(), argnums=tuple(range(len(args))))
    found, expected = both(gradient, *args)
    for f, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-4, atol=1e-4)
    stacked = [np.stack([a, a + 1]) for a in args]
    for f, e in zip(*both(rlx.vmap(function), *stacked), strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------------ convolutions
SAME = ((1, 1), (1, 1))
CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "features last": ((2, 8, 9, 3), (3, 3, 3, 4), {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}),
    "features first": ((2, 3, 8, 9), (4, 3, 3, 2), {"dimension_numbers": ("NCHW", "OIHW", "NHWC")}),
    "groups": ((2, 6, 8, 9), (9, 2, 3, 3), {"feature_group_count": 3}),
    "dilated": ((2, 3, 8, 9), (4, 3, 2, 2), {"lhs_dilation": (2, 1), "rhs_dilation": (1, 3)}),
    "strided": ((2, 3, 9, 8), (4, 3, 3, 3), {"window_strides": (3, 2), "padding": ((0, 2), (1, 3))}),
    "a line": ((2, 3, 9), (4, 3, 3), {"window_strides": (2,), "padding": "SAME"}),
    "space": ((1, 2, 5, 4, 6), (3, 2, 2, 2, 2), {"window_strides": (1, 1, 2), "padding": "VALID"}),
}
NO_CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "negative padding": ((2, 3, 8, 9), (4, 3, 3, 3), {"padding": ((-1, 1), (0, 0))}),
    "batch groups": ((4, 3, 8, 9), (4, 3, 3, 3), {"batch_group_count": 2}),
    "groups in space": ((1, 4, 5, 4, 6), (4, 2, 2, 2, 2), {"feature_group_count": 2, "padding": "VALID"}),
}


@pytest.mark.parametrize("called", [*CONVOLUTIONS, *NO_CONVOLUTIONS])
def test_convolutions(called: str) -> None:
    """By mx.conv_general where MLX has the same one; its derivatives are convolutions, of which MLX has most, too."""
    left, right, options = {**CONVOLUTIONS, **NO_CONVOLUTIONS}[called]
    options = {"window_strides": (1,) * (len(left) - 2), "padding": SAME, **options}
    function = partial(rlx.lax.conv_general_dilated, **options)
    x, kernel = normals(*left), normals(*right)
    assert blocks_of(function, x, kernel) == (["convolution"] if called in CONVOLUTIONS else [])
    slopes = rlx.grad(lambda x, kernel: (function(x, kernel) ** 2).sum(), argnums=(0, 1))
    for computed in (function, slopes):
        for found, expected in zip(*both(computed, x, kernel), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_layouts_of_convolutions_reach_mlx_as_views() -> None:
    function = partial(rlx.lax.conv_general_dilated, window_strides=(1, 1), padding=SAME)
    with rlx.default_device("mlx"):
        made = rlx.inspect(function)(normals(2, 3, 8, 9), normals(4, 3, 3, 3)).executable.function
    (part,) = made.parts
    with at_work():
        arrays = {b: mx.array(normals(b.size)) for b in part.inputs}
        graph = nodes(*part.traced(arrays))
    assert graph.count("Convolution") == 1 and set(graph) <= {"Convolution", "Transpose", "Reshape", "Unflatten"}, graph


@on_the_cpu
def test_a_convolution_of_float64_is_a_product() -> None:
    x, kernel = normals(2, 3, 8, 9).astype(float), normals(4, 3, 3, 3).astype(float)
    function = partial(rlx.lax.conv_general_dilated, window_strides=(1, 1), padding=SAME)
    assert blocks_of(function, x, kernel) == []
    (found,), (expected,) = both(function, x, kernel)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


# ------------------------------------------------------------------ packed weights and rotary positions
PACKED = ["int4/32", "int4/64", "int4/128", "int8/32", "int8/64", "int8/128", "int8a/32", "int8a/128", "mxfp4", "nvfp4"]
UNPACKED = ["int4/16", "int8/256", "nf4/64", "fp8e4m3", "gguf_q4_0", "gguf_q8_0"]


def quantized(scheme: str, rows: int = 37, length: int = 768) -> quant.QuantizedArray:
    return quant.quantize(normals(rows, length), scheme)


@pytest.mark.parametrize("scheme", [*PACKED, *UNPACKED])
def test_products_with_packed_weights(scheme: str) -> None:
    """As the decoded weight's, with weights that are arguments and with constant ones."""
    weight = quantized(scheme)
    full = np.asarray(quant.dequantize(weight), np.float64)
    wanted = ["dequantized_product"] if scheme in PACKED else []
    for rows in (1, 5, 130):
        x = normals(rows, 768)
        expected = x @ full.T
        for function, args in ((quant.dequant_matmul, (x, weight)), (lambda x: quant.dequant_matmul(x, weight), (x,))):
            assert blocks_of(function, *args) == wanted
            found = rlx.jit(function, device="mlx")(*args)
            np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("scheme", ["int4/64", "int8/32", "int8a/32", "mxfp4"])
def test_a_constant_weight_is_packed_once(scheme: str) -> None:
    """A call is the product alone; the weight is there as words and nothing else."""
    weight = quantized(scheme)
    with rlx.default_device("mlx"):
        function = rlx.inspect(lambda x: quant.dequant_matmul(x, weight))(normals(2, 768)).executable.function
    (part,) = function.parts
    with at_work():
        (result,) = part.traced(dict.fromkeys(part.inputs, mx.array(normals(2 * 768))))
        graph = nodes(result)
    assert set(graph) <= {"QuantizedMatmul", "Reshape", "Flatten", "Unflatten"} and "QuantizedMatmul" in graph
    held = sum(a.nbytes for a in function.constants.values())
    assert held == weight.elements.nbytes + (1 if scheme == "mxfp4" else 2) * weight.scales.nbytes


def test_derivatives_batches_and_dtypes_of_products_with_packed_weights() -> None:
    weight, x = quantized("int8a/64", 5, 256), normals(3, 256)
    for function, args in (
        (rlx.grad(lambda x: (quant.dequant_matmul(x, weight) ** 2).sum()), (x,)),
        (rlx.vmap(quant.dequant_matmul, in_axes=(1, None), out_axes=1), (np.stack([x, 2 * x], 1), weight)),
        (quant.dequant_matmul, (x[0], weight)),
    ):
        (found,), (expected,) = both(function, *args)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    half = rlx.jit(quant.dequant_matmul, device="mlx")(x.astype(np.float16), weight)
    assert half.dtype == np.float16 and half.shape == (3, 5)


ROPES: dict[str, lm.Rope] = {
    "plain": lm.Rope(dims=8),
    "of a part": lm.Rope(dims=6),
    "interleaved": lm.Rope(dims=8, interleaved=True),
    "linear": lm.Rope(dims=8, scaling="linear", factors=(("factor", 4.0),)),
    "yarn": lm.Rope(dims=8, scaling="yarn", factors=(("factor", 4.0), ("original_max_position_embeddings", 64))),
}


@pytest.mark.parametrize("kind", ROPES)
def test_rotary_positions_are_a_function_of_mlx(kind: str) -> None:
    """Queries and keys of both layers, and their derivatives, which are those of the tables."""
    config, parameters, tokens = decoder(ROPES[kind])

    def logits(parameters: Any) -> Any:
        return lm.forward(parameters, tokens, config)

    assert blocks_of(logits, parameters).count("rotate_pairs") == 4
    for function in (logits, rlx.grad(lambda p: (logits(p) ** 2).sum())):
        for found, expected in zip(*both(function, parameters), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    "rope",
    [lm.Rope(dims=8), lm.Rope(dims=8, scaling="dynamic", factors=(("factor", 2.0), ("max_position_embeddings", 16)))],
)
def test_a_decoder_goes_on_from_its_positions(rope: lm.Rope) -> None:
    """Sequences of different lengths, token by token; frequencies that change with the length stay the tables'."""
    config, parameters, tokens = decoder(rope)
    logits: dict[str, list[np.ndarray]] = {}
    for device in ("mlx", "cpu"):
        with rlx.default_device(device):
            steps, cache = lm.Steps(parameters, config), lm.new_cache(config, batch=2, capacity=24)
            first, cache = steps.advance(tokens, cache, counts=[7, 4])
            second, cache = steps.advance(tokens[:, :1], cache)
            logits[device] = [np.asarray(first), np.asarray(second)]
    for found, expected in zip(logits["mlx"], logits["cpu"], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------ programs
def both(function: Any, *args: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Results on MLX and on the CPU."""
    found = rlx.jit(function, device="mlx")(*args)
    expected = rlx.jit(function, device="cpu")(*args)
    return [np.asarray(a) for a in rlx.tree.leaves(found)], [np.asarray(a) for a in rlx.tree.leaves(expected)]


def test_random_numbers_are_those_of_the_cpu() -> None:
    def draw(key: Any) -> list[Any]:
        return [
            rlx.random.bits(key, (300,)), rlx.random.uniform(key, (300,)), rlx.random.randint(key, (300,), -5, 1000),
            rlx.random.permutation(key, 100), rlx.random.bernoulli(key, 0.3, (300,)), rlx.random.normal(key, (300,)),
        ]  # fmt: skip

    for found, expected in zip(*both(draw, rlx.random.key(7)), strict=True):
        assert found.dtype == expected.dtype
        if found.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=1e-6)
        else:
            np.testing.assert_array_equal(found, expected)


def test_kernels_without_iterations_leave_their_results() -> None:
    """A temporary without elements, which nothing writes, is read by later kernels."""
    query, key = np.ones((2, 9, 4, 8), np.float32), np.ones((2, 7, 2, 8), np.float32)
    f = rlx.jit(lambda q, k: nn.dot_product_attention(q, k[:, :0], k[:, :0]), device="mlx")
    np.testing.assert_array_equal(np.asarray(f(query, key)), np.zeros((2, 9, 4, 8), np.float32))


def test_what_runs_on_the_host_is_named() -> None:
    x = np.eye(3, dtype=np.float32)
    executable = MlxBackend().compile(
        rlx.inspect(lambda x: rlx.scipy.special.gammaln(jnp.linalg.cholesky(x) + 1))(x).plan
    )
    assert "lgamma: MLX has no such function" in executable.texts()["host"]
    assert "cholesky" not in executable.texts()["host"]


def test_a_result_is_not_copied() -> None:
    """The array that comes back is MLX's memory, also when NumPy looks at it: MLX counts it once, until it is gone."""
    function = rlx.jit(lambda x: x + 1, device="mlx")
    x = rlx.device_put(np.zeros(1 << 20, np.float32), "mlx")
    rlx.block_until_ready(function(x))
    before = mx.get_active_memory()
    result = function(x)
    assert result.numpy().sum() == 1 << 20
    held = mx.get_active_memory() - before
    assert result.nbytes <= held < 1.5 * result.nbytes
    del result
    assert mx.get_active_memory() - before < held


def test_threads_at_the_same_time_and_an_orderly_end() -> None:
    text = """
    import threading, numpy as np, rlx, rlx.numpy as jnp
    f = rlx.jit(lambda x: jnp.tanh(x) * 2 + x.sum(), device="mlx")
    x = np.ones((8, 8), np.float32)
    expected, found = np.asarray(f(x)), []
    def work():
        for _ in range(30):
            found.append(np.asarray(f(x)))
    threads = [threading.Thread(target=work) for _ in range(6)]
    [t.start() for t in threads]; [t.join() for t in threads]
    assert len(found) == 180 and all(np.allclose(expected, a) for a in found)
    print("all there")
    """
    done = run_python(textwrap.dedent(text))
    assert (done.returncode, done.stdout.strip()) == (0, "all there"), done.stderr


@pytest.mark.skipif(os.environ.get("RLX_MLX_COMPILED") != "1", reason="compiles C++ for a minute: make test-mlx does")
def test_plans_under_mx_compile() -> None:
    """A training step, compiled: results, new values, and that the text says so."""
    text = """
    import os
    del os.environ["MLX_DISABLE_COMPILE"]
    import numpy as np, rlx, rlx.numpy as jnp
    def loss(w, x):
        return rlx.nn.logsumexp(jnp.tanh(x @ w["a"]) @ w["b"], axis=-1).mean()
    generator = np.random.default_rng(0)
    w = {"a": generator.normal(size=(6, 5)).astype("f4"), "b": generator.normal(size=(5, 4)).astype("f4")}
    step = lambda w, x: rlx.tree.map(lambda p, g: p - 0.1 * g, w, rlx.grad(loss)(w, x))
    compiled, plain = rlx.jit(step, device="mlx"), rlx.jit(step, device="cpu")
    for n in range(3):
        x = generator.normal(size=(7, 6)).astype("f4")
        w, other = compiled(w, x), plain(w, x)
        for a, b in zip(rlx.tree.leaves(w), rlx.tree.leaves(other)):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-6)
    from rlx.passes.pipeline import executables
    texts = [e.texts()["mlx"] for _, e in executables._entries.values() if "mlx" in e.texts()]
    assert all("compiled by mx.compile" in t for t in texts) and texts, texts
    print("trained")
    """
    done = run_python(textwrap.dedent(text), timeout=280)
    assert (done.returncode, done.stdout.strip()) == (0, "trained"), done.stderr


# ------------------------------------------------------------------ trainings
def test_every_example_has_a_program_here() -> None:
    # the tests of weights, of a distribution, of a conversation; processes exchange on the host; devices are the CPU's;
    # layers of other libraries, checkpoints and accumulated gradients train as digits does
    elsewhere = {"newton_logistic", "hmc", "chat", "data_parallel"}
    elsewhere |= {"accumulated_mean", "equinox_digits", "flax_digits", "resume_training"}
    elsewhere |= {f"parallel_{way}" for way in ("experts", "pipeline", "plan", "ring", "tensor", "zero")}
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == {*TRAININGS, *elsewhere}


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("example", "steps"), [("digits", 40), ("chargpt", 15), ("lorenz_fit", 60), ("finetune", 20)])
def test_trainings_reach_the_losses_of_the_cpu(example: str, steps: int) -> None:
    found, expected = losses("mlx", steps, example), losses("cpu", steps, example)
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert found[-1] < 0.9 * found[0]


@pytest.mark.filterwarnings("default")
def test_gradients_of_examples_are_those_of_the_cpu() -> None:
    """With the noise that the same keys draw."""
    found, expected = losses("mlx", 5, "private_gradients"), losses("cpu", 5, "private_gradients")
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.filterwarnings("default")
def test_networks_of_few_bits_are_those_of_the_cpu() -> None:
    """The example's three: float32, int8 after training, four bits with scales that training moves."""
    found, expected = losses("mlx", 2, "quantised_digits"), losses("cpu", 2, "quantised_digits")
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert found[1] < 0.9 * found[0]


def test_tokens_of_a_conversation_are_those_of_the_cpu() -> None:
    """What the chat does: one token after the other, each the likeliest, of a small decoder with packed weights."""
    config, parameters, _ = decoder(lm.Rope(dims=8))
    for layer in parameters["layers"]:
        layer["o"] = {"weight": quant.quantize(layer["o"]["weight"], "int8/32")}
    said = {}
    for device in ("mlx", "cpu"):
        with rlx.default_device(device):
            said[device] = list(lm.Model(config, parameters).generate([1, 2, 3], max_tokens=12))
    assert said["mlx"] == said["cpu"] and len(said["mlx"]) == 12


@on_the_cpu
@pytest.mark.filterwarnings("default")
def test_newtons_method_in_float64_comes_to_scikit_learns_weights() -> None:
    """A loop in a loop of which the host reads the conditions; the example compares with 1e-5."""
    with rlx.default_device("mlx"):
        assert load_module(ROOT / "examples" / "newton_logistic.py").main() < 1e-5


def test_hamiltonian_monte_carlo_draws_from_the_distribution_of_the_cpu() -> None:
    """64 chains of 150 samples: acceptance, mean and variance; the first samples are the same ones."""
    module = load_module(ROOT / "examples" / "hmc.py")
    drawn: dict[str, tuple[np.ndarray, float]] = {}
    for device in ("mlx", "cpu"):
        with rlx.default_device(device):
            positions, rate = module.sample(rlx.random.key(0), 150)
        drawn[device] = np.asarray(positions), float(rate)
    (found, rate), (expected, other) = drawn["mlx"], drawn["cpu"]
    np.testing.assert_allclose(found[:, :3], expected[:, :3], atol=1e-4)
    assert abs(rate - other) < 0.01 and rate > 0.7
    mean, variance = found[:, 30:].mean(axis=(0, 1)), found[:, 30:].var(axis=(0, 1))
    exact = np.array([1.0, module.WIDTH**2 + 2 * module.BEND**2])
    assert np.abs(mean).max() < 0.1 and np.abs(variance - exact).max() < 0.15


def test_the_tests_that_the_document_names_are_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "mlx.md").read_text(encoding="utf-8")))
    files = (Path(__file__).parent / f"test_{name}.py" for name in ("mlx", "mlx_call", "mlx_calls", "metal"))
    there = set(re.findall(r"^def (test_\w+)", "\n".join(f.read_text(encoding="utf-8") for f in files), re.MULTILINE))
    assert len(named) > 50 and not named - there - {"test_fact"}


# ------------------------------------------------------------------ mistakes
def test_the_device_is_listed() -> None:
    assert "mlx" in device_names()
    assert backend_named("mlx").name == "mlx"


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        ("import importlib.util; importlib.util.find_spec = lambda name: None", "needs the package mlx, which is not"),
        ("import mlx.core; mlx.core.__version__ = '0.29.1'", "needs mlx 0.32 or newer; 0.29.1 is installed"),
    ],
)
def test_a_missing_or_old_mlx_is_said(prepare: str, message: str) -> None:
    done = run_python(f"import rlx\n{prepare}\nrlx.jit(lambda x: x + 1, device='mlx')(1.0)")
    assert done.returncode == 1
    assert "DeviceError" in done.stderr and message in done.stderr and "[mlx]" in done.stderr


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device claims what it would on a GPU."""
    backend = backend_named("mlx")
    monkeypatch.setattr(backend, "unit", backend.unit._replace(name="gpu"))


def test_float64_on_a_gpu_is_refused(on_a_gpu: None) -> None:
    with pytest.raises(errors.DtypeError, match="The device .mlx. has no float64"):
        rlx.jit(lambda x: x * 3.5 - 1, device="mlx")(np.ones(11))
    with rlx.default_device("mlx"), pytest.raises(errors.DtypeError, match="float64"):
        jnp.sin(np.ones(3))


def test_float64_stays_on_the_cpu_where_nobody_has_asked_for_the_gpu(
    on_a_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a Mac without RLX_DEVICE. It is said once; float32 goes to the device."""
    monkeypatch.setattr(default_place, "_said", False)
    wide, narrow = np.ones(3), np.ones(3, np.float32)
    with rlx.scoped(device=ChosenDevice("mlx")):
        assert rlx.default_backend() == "mlx" and jnp.ones(3).device == rlx.jit(jnp.sin)(narrow).device == "mlx"
        with pytest.warns(UserWarning, match="has no float64: arrays and programs with it stay on the CPU") as seen:
            assert jnp.ones(3, float).dtype == np.float32
            assert jnp.ones(3, np.float64).device == "cpu" and rlx.device_put(wide).device == "cpu"
            assert jnp.sin(wide).device == "cpu" and rlx.jit(jnp.sin)(wide).device == "cpu"
            inside = rlx.jit(lambda x: x.astype(np.float64).sum())
            assert inside(narrow).device == "cpu" and inside(narrow).item() == 3
            assert rlx.lax.scan(lambda c, _: (c + 1.0, None), wide, None, 3)[0].device == "cpu"
        assert len(seen) == 1
        assert rlx.grad(lambda x: (x * x).sum())(wide).tolist() == [2, 2, 2]
        there = jnp.asarray(rlx.device_put(narrow))
        assert there.device == "mlx" and there.astype(np.float64).device == "cpu"
        inside, outside = jnp.asarray(wide) > 0, jnp.asarray(wide) < 2
        mask = inside & outside  # of no float64: it is made on the device
        assert mask.device == "mlx" and jnp.where(mask, wide, 0.0).tolist() == [1, 1, 1]
        assert rlx.jit(lambda x: jnp.where(mask, x, 0.0))(wide).tolist() == [1, 1, 1]
        assert rlx.jit(lambda m, x: jnp.where(m, x, 0.0))(mask, wide).device == "cpu"
        with pytest.raises(errors.DtypeError, match="float64"):
            rlx.jit(jnp.sin, device="mlx")(wide)


@pytest.mark.parametrize(
    ("setting", "machine", "expected"),
    [
        ("", "Darwin-arm64", "mlx"), ("", "Darwin-x86_64", "cpu"), ("", "Linux-arm64", "cpu"),
        ("cpu", "Darwin-arm64", "cpu"),
    ],
)  # fmt: skip
def test_the_default_device_of_a_mac(setting: str, machine: str, expected: str) -> None:
    system, _, processor = machine.partition("-")
    text = f"""
    import sys, platform, os
    import numpy
    sys.platform, platform.machine = {system.lower()!r}, lambda: {processor!r}
    os.environ["RLX_DEVICE"] = {setting!r}
    import rlx
    print(rlx.default_backend(), type(rlx.config.device).__name__)
    """
    done = run_python(textwrap.dedent(text))
    assert done.stdout.split() == [expected, "ChosenDevice" if expected == "mlx" else "str"], done.stderr


def test_a_mac_with_its_gpu() -> None:
    """The devices of a Mac whose GPU is the processor in fact: what is there, and what runs where."""
    text = """
    import sys, platform, types, warnings
    import numpy as np, mlx.core as mx
    mx.default_device, mx.gpu = (lambda: types.SimpleNamespace(type=mx.DeviceType.gpu)), mx.cpu
    sys.platform, platform.machine = "darwin", lambda: "arm64"
    import rlx, rlx.numpy as jnp
    sys.platform = "linux"  # for whoever loads libraries
    narrow, wide = np.ones(3, np.float32), np.ones(3)
    assert rlx.devices() == rlx.devices("mlx") == ["mlx:gpu", "mlx:cpu"] and rlx.default_backend() == "mlx"
    double = rlx.jit(lambda x: x + x)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert double(narrow).device == jnp.sin(narrow).device == jnp.ones(3).device == "mlx:gpu"
        assert double(wide).device == "cpu" and double(wide).dtype == np.float64
    assert len(said) == 1 and "no float64" in str(said[0].message), said
    on_processor = rlx.jit(lambda x: x * 2, device="mlx:cpu")(wide)
    assert on_processor.device == "mlx:cpu" and on_processor.dtype == np.float64
    try:
        rlx.jit(lambda x: x * 2, device="mlx:gpu")(wide)
    except rlx.errors.DtypeError as error:
        assert "no float64" in str(error)
    else:
        raise AssertionError("a GPU has taken float64")
    there = rlx.device_put(double(narrow), "mlx:cpu")
    assert there.device == "mlx:cpu" and rlx.device_put(there, "mlx:gpu").tolist() == [2, 2, 2]
    with rlx.default_device("mlx:cpu"):
        assert double(narrow).device == "mlx:cpu" and len(rlx.devices()) == 2
    print("as it should be")
    """
    done = run_python(textwrap.dedent(text), RLX_DEVICE="")
    assert (done.returncode, done.stdout.strip()) == (0, "as it should be"), done.stderr


def test_the_environment_names_the_limits_of_memory() -> None:
    found = rlx.print_environment_info(return_string=True)
    assert found is not None
    line, *_ = [line for line in found.splitlines() if line.startswith("memory: of mlx")]
    assert "in use" in line and "MLX's own limit is" in line and "are kept for reuse" in line
    before = mx.set_memory_limit(3 << 30)
    try:
        assert "MLX's own limit is 3.00 GiB" in (rlx.print_environment_info(return_string=True) or "")
    finally:
        mx.set_memory_limit(before)


def test_limits_of_memory_that_a_user_sets_are_kept() -> None:
    """Programs set none of their own, and nothing is kept for reuse where nothing may be."""
    limit, cached = mx.set_memory_limit(5 << 30), mx.set_cache_limit(0)
    try:
        x = rlx.device_put(np.ones(1 << 18, np.float32), "mlx")
        for _ in range(3):
            x = rlx.jit(lambda x: jnp.sort(x * 2)[::-1] + x.sum())(x)
        rlx.block_until_ready(x)
        assert mx.get_cache_memory() == 0 and mx.get_memory_limit() == 5 << 30
        assert mx.set_cache_limit(0) == 0
    finally:
        mx.set_memory_limit(limit)
        mx.set_cache_limit(cached)


# ------------------------------------------------------------------ memory
@pytest.fixture
def there() -> Any:
    """An array on the device."""
    return rlx.device_put(np.arange(6, dtype=np.float32).reshape(2, 3), "mlx")


def address(x: Any) -> int:
    """Where an array of NumPy or one that looks at memory lies."""
    return np.asarray(x).__array_interface__["data"][0]


def test_devices_and_their_names(there: Any) -> None:
    (first, *_) = rlx.devices("mlx")
    assert there.device == first == "mlx" == first.platform
    assert first == f"mlx:{first.unit}" and repr(first) == f"Device(mlx:{first.unit})"
    assert rlx.devices("mlx:cpu") == ["mlx:cpu"] and backend_named("mlx").on("0") is backend_named("mlx")
    for place in ("mlx", "mlx:0", first, first.name, there.sharding):
        assert address(rlx.device_put(there, place)) == address(there)
    assert rlx.jit(jnp.sin, device=first)(1.0).device == first
    with rlx.default_device("mlx"):
        assert rlx.devices() == rlx.devices("mlx") and jnp.ones(3).device == "mlx"


@on_the_cpu
def test_a_gpu_that_is_not_there_is_said() -> None:
    with pytest.raises(errors.DeviceError, match="no device 'mlx:gpu': MLX has mlx:cpu here"):
        rlx.device_put(1.0, "mlx:gpu")


def test_operations_run_where_the_array_lies_and_each_is_compiled_once(there: Any) -> None:
    def result() -> Any:
        return (jnp.sin(there) @ there.T + 1.0).sum(axis=0)

    first, misses = result(), executables.misses
    assert first.device == "mlx" and memory_of(first) is not None
    again = result()
    assert executables.misses == misses
    host = there.numpy()
    np.testing.assert_allclose(again, (np.sin(host) @ host.T + 1).sum(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(rlx.grad(lambda x: (x * x).sum())(there), 2 * host)


def test_results_stay_in_the_memory_of_mlx(there: Any) -> None:
    """A call's result is the next one's argument as it lies."""
    double = rlx.jit(lambda x: x * 2)
    y = double(double(there))
    assert y.device == "mlx" and isinstance(y.storage().array, mx.array)
    assert address(y) == y.unsafe_buffer_pointer() == address(y.__mlx_array__())
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(y)[0] = 1


def test_arrays_of_mlx_come_in_and_go_out_without_copies() -> None:
    given = mx.array([[1.0, 2.0], [3.0, 4.0]])
    taken = jnp.asarray(given)
    assert taken.device == "mlx" and taken.shape == (2, 2) and address(taken) == address(given)
    assert address(taken.__mlx_array__()) == address(np.from_dlpack(taken)) == address(given)
    doubled = rlx.jit(lambda tree, y: tree["a"] * y)({"a": given}, 2.0)
    assert doubled.device == "mlx" and numbers(doubled) == [[2, 4], [6, 8]]
    assert numbers(mx.sin(doubled - doubled)) == [[0, 0], [0, 0]]  # MLX's functions take arrays of rlx
    assert jnp.sum(given).item() == 10 and rlx.vmap(jnp.sum)(given).tolist() == [3, 7]
    assert rlx.jit(lambda x: x + 1, device="cpu")(given).device == "cpu"
    assert numbers(mx.array(jnp.arange(3))) == [0, 1, 2]


def test_an_array_of_mlx_is_not_copied_as_an_argument() -> None:
    """Alone, and as a leaf of a tree: a program that reads it allocates next to nothing."""
    given = mx.array(np.ones(1 << 20, np.float32))
    alone, leaf = rlx.jit(lambda x: x[5] + x[7]), rlx.jit(lambda tree: tree["w"][0][5] * 3)
    for call in (lambda: alone(given), lambda: leaf({"w": [given]}), lambda: rlx.vmap(jnp.sin)(given[:3])):
        rlx.block_until_ready(call())
        mx.clear_cache()
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        result = rlx.block_until_ready(call())
        assert result.device == "mlx" and mx.get_peak_memory() - before < 0.01 * given.nbytes


def test_an_assignment_to_a_given_array_changes_that_one_alone() -> None:
    given = mx.array([1.0, 2.0])
    taken = jnp.asarray(given)
    lent = taken.__mlx_array__()
    given[0], lent[1] = 7.0, 9.0
    assert taken.tolist() == [1, 2] and numbers(given) == [7, 2] and numbers(lent) == [1, 9]


@pytest.mark.parametrize("name", ["bool_", "int8", "uint64", "float16", "bfloat16", "float32", "complex64"])
def test_dtypes_that_both_have(name: str) -> None:
    given = mx.array([1, 0, 1]).astype(getattr(mx, name))
    taken = jnp.asarray(given)
    assert taken.dtype.name == name.rstrip("_") and taken.device == "mlx"
    assert taken.__mlx_array__().dtype == given.dtype
    assert np.asarray(jnp.where(taken != 0, 2, 3)).tolist() == [2, 3, 2]


@on_the_cpu
@pytest.mark.parametrize("dtype", ["complex128", "float8_e4m3fn", "int4"])
def test_a_dtype_without_a_counterpart_is_said(dtype: str) -> None:
    x = rlx.device_put(jnp.ones(3, dtype), "mlx")
    with pytest.raises(errors.DtypeError, match=f"MLX has no {dtype}"):
        x.__mlx_array__()


def test_mixing_devices_teaches(there: Any) -> None:
    here = rlx.device_put(jnp.ones(3), "cpu")
    for call in (lambda: there + here, lambda: rlx.jit(jnp.add)(there, here), lambda: jnp.asarray(mx.ones(3)) + here):
        with pytest.raises(errors.DeviceError, match="different devices(.|\n)*rlx.device_put"):
            call()
    assert (there + np.ones(3, np.float32)).device == (there + jnp.ones(3)).device == "mlx"
    assert (there + rlx.device_put(jnp.ones(3), there.device)).device == "mlx"


def test_donation_gives_memory_back_to_mlx() -> None:
    step = rlx.jit(lambda x: x + 1, donate_argnums=0)
    x = rlx.device_put(np.zeros(1 << 20, np.float32), "mlx")
    x = rlx.block_until_ready(step(x))
    before = mx.get_active_memory()
    for _ in range(5):
        old, x = x, step(x)
        assert old.is_deleted()
    rlx.block_until_ready(x)
    assert mx.get_active_memory() <= before + x.nbytes and x[0].item() == 6
    with pytest.raises(errors.DonatedArrayError):
        old.numpy()


@pytest.mark.parametrize("donates", [True, False])
def test_a_donated_argument_is_reused_while_mlx_computes(donates: bool) -> None:
    """The result lies where the argument was: there is never a second array of its size."""
    step = rlx.jit(lambda x: x * 2 + 1, donate_argnums=(0,) if donates else ())
    x = rlx.block_until_ready(step(rlx.device_put(np.zeros(1 << 20, np.float32), "mlx")))
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    for _ in range(3):
        x = rlx.block_until_ready(step(x))
    more = mx.get_peak_memory() - before
    assert (more < 0.1 * x.nbytes) if donates else (0.9 * x.nbytes < more < 1.1 * x.nbytes)
    assert x[0].item() == 15


def test_what_a_host_step_has_read_is_not_kept() -> None:
    """Of a chain of steps of the host, each as large as the argument, no more than two are there at a time."""

    def chain(x: Any) -> Any:
        for _ in range(4):
            x = rlx.pure_callback(np.negative, rlx.ShapeDtypeStruct(x.shape, x.dtype), x)
        return x

    function = rlx.jit(chain, device="mlx")
    x = rlx.device_put(np.zeros(1 << 18, np.float32), "mlx")
    rlx.block_until_ready(function(x))
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    rlx.block_until_ready(function(x))
    assert mx.get_peak_memory() - before < 2.1 * x.nbytes


def test_a_donated_argument_is_there_again_where_a_run_fails(there: Any) -> None:
    def refuse(a: np.ndarray) -> np.ndarray:
        raise ValueError("not today")

    type = rlx.ShapeDtypeStruct((2, 3), np.float32)
    step = rlx.jit(lambda x: rlx.pure_callback(refuse, type, x + 1), donate_argnums=0)
    with pytest.raises(ValueError, match="not today"):
        rlx.block_until_ready(step(there))
    assert there.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_donated_argument_that_is_a_result_stays(there: Any) -> None:
    twin = there.again()
    same, more = rlx.jit(lambda x: (x, x + 1), donate_argnums=0)(there)
    assert same is there and same.tolist() == [[0, 1, 2], [3, 4, 5]] and more[1, 2].item() == 6
    doubled = rlx.jit(lambda x: x * 2, donate_argnums=0)(there)
    assert there.is_deleted() and twin.tolist() == [[0, 1, 2], [3, 4, 5]] and doubled[1, 2].item() == 10


def test_pickles_hold_values(there: Any) -> None:
    back = pickle.loads(pickle.dumps(there))
    assert back.device == "cpu" and back.tolist() == there.tolist()


def test_keys_lie_there_too() -> None:
    key = rlx.random.key(3)
    away = rlx.device_put(key, "mlx")
    assert rlx.random.key_data(away).tolist() == rlx.random.key_data(key).tolist()
    assert rlx.random.bits(away, (5,)).tolist() == rlx.random.bits(key, (5,)).tolist()


def test_waiting_raises_what_the_run_raised() -> None:
    """MLX computes after the call has returned; the error names the user's line."""

    def broken(*args: Any, **options: Any) -> Any:
        values, vectors = mx.linalg.eigh(mx.full((3, 3), NAN), stream=mx.cpu)
        return vectors, values, vectors

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mx.linalg, "svd", broken)
        x = rlx.jit(lambda x: jnp.linalg.svd(x)[1] + 1, device="mlx")(np.eye(3, dtype=np.float32))
        with pytest.raises(RuntimeError, match="Eigenvalue decomposition failed") as raised:
            rlx.block_until_ready(x)
    assert "test_mlx.py" in "".join(raised.value.__notes__)


def test_running_out_of_memory_names_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "[metal::malloc] Attempting to allocate 9 bytes which is greater than the maximum allowed buffer size"
    monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": 3 << 30})
    error = described(RuntimeError(words))
    assert isinstance(error, errors.OutOfMemoryError)
    for part in (words, "working set that Metal recommends has 3.00 GiB", "in use", "donate_argnums"):
        assert part in str(error)
    other = RuntimeError("something else")
    assert described(other) is other

    def refused(*arrays: Any) -> None:
        raise RuntimeError(words)

    double = rlx.jit(lambda x: x * 2, device="mlx")
    double(np.ones(3, np.float32))
    monkeypatch.setattr(mx, "async_eval", refused)
    with pytest.raises(errors.OutOfMemoryError, match="the working set that Metal recommends has 3.00 GiB"):
        rlx.block_until_ready(double(np.ones(3, np.float32)))


def test_memory_of_the_device() -> None:
    memory = backend_named("mlx").memory
    assert memory.pool_bytes() > 0 and memory.dlpack_device() == tuple(mx.zeros(1).__dlpack_device__())
    storage = memory.allocate(12)
    assert memory.get(storage, (3,), np.dtype(np.float32)).tolist() == [0, 0, 0] and storage.is_ready()
    memory.synchronize()
    memory.clear_pool()
