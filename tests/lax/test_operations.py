# ruff: noqa: E501 one call of a table stands in one line
"""Every rlx.lax function that is not control flow, called as jax.lax is and compared with it."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from control_cases import compare

import rlx
from rlx import errors, lax

F = np.float32
X = np.linspace(-0.9, 0.8, 12, dtype=F).reshape(3, 4)
P = np.linspace(0.2, 3.1, 12, dtype=F).reshape(3, 4)
C = (X + 1j * P).astype(np.complex64)
N = np.arange(-6, 6, dtype=np.int32).reshape(3, 4)
J = np.array([3, -2, 5, 1], np.int32) * np.ones((3, 1), np.int32)
B = N % 2 == 0

UNARY = {
    "abs acos asin asinh atan atanh cbrt ceil cos cosh erf erf_inv erfc exp exp2 expm1 floor is_finite log1p"
    " logistic neg sign sin sinh square tan tanh bessel_i0e bessel_i1e": (X,),
    "acosh": (P + 1,),
    "digamma lgamma log rsqrt sqrt": (P,),
    "conj real imag": (C,),
    "abs neg square sign bitwise_not clz population_count": (N,),
}
BINARY = {
    "add sub mul div atan2 max min rem eq ne lt le gt ge nextafter complex": (X, P),
    "add sub mul div max min rem bitwise_and bitwise_or bitwise_xor eq lt": (N, J),
    "shift_left shift_right_arithmetic shift_right_logical": (N, J & 7),
    "bitwise_and bitwise_or bitwise_xor": (B, N > 0),
    "igamma igammac igamma_grad_a random_gamma_grad pow": (P, P[::-1]),
    "zeta": (P + 1, P),
}
ELEMENTWISE = [(name, args) for table in (UNARY, BINARY) for names, args in table.items() for name in names.split()]


@pytest.fixture(autouse=True)
def _default_dtypes():
    with jax.enable_x64(False):
        yield


@pytest.mark.parametrize(("name", "args"), ELEMENTWISE, ids=[f"{n}-{a[0].dtype}" for n, a in ELEMENTWISE])
def test_elementwise(name, args):
    compare(getattr(lax, name)(*args), getattr(jax.lax, name)(*args), 2e-4)


def _row(L):
    return L.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))


def _put(L):
    return L.ScatterDimensionNumbers(
        update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
    )


AT = np.array([[2], [0], [5], [-1]], np.int32)
UPDATES = np.linspace(1, 2, 16, dtype=F).reshape(4, 4)
IMAGE = np.sin(np.arange(2 * 3 * 7 * 6, dtype=F)).reshape(2, 3, 7, 6)
KERNEL = np.cos(np.arange(4 * 3 * 3 * 2, dtype=F)).reshape(4, 3, 3, 2)
NHWC = IMAGE.transpose(0, 2, 3, 1).copy()
HWIO = KERNEL.transpose(2, 3, 1, 0).copy()
LAYOUT = ("NHWC", "HWIO", "NHWC")

CALLS = {
    "betainc": lambda L: L.betainc(P, P[::-1], (X + 1) / 2),
    "clamp": lambda L: L.clamp(F(-0.5), X, F(0.5)),
    "integer_pow": lambda L: (L.integer_pow(X, 3), L.integer_pow(X, -2), L.integer_pow(N, 2)),
    "reciprocal": lambda L: L.reciprocal(X),
    "round": lambda L: (L.round(10 * X), L.round(X * 10, L.RoundingMethod.TO_NEAREST_EVEN), L.round(F(2.5)), L.round(F(-0.5))),
    "polygamma": lambda L: L.polygamma(np.ones_like(P), P),
    "select": lambda L: L.select(B, X, P),
    "select_n": lambda L: (L.select_n(B, X, P), L.select_n(np.abs(N) % 3, X, P, -X), L.select_n(True, X, P)),
    "reduce_precision": lambda L: [L.reduce_precision(x, e, m) for x in (X, P * 1e20, P * 1e-20, np.array([np.inf, np.nan, -0.0, 3e38], F)) for e, m in ((8, 7), (5, 10), (5, 2), (8, 23), (3, 4))],
    "convert_element_type": lambda L: (L.convert_element_type(X, "int32"), L.convert_element_type(N, "float16"), L.convert_element_type(X * 3, bool)),
    "bitcast_convert_type": lambda L: (L.bitcast_convert_type(X, "uint32"), L.bitcast_convert_type(X, "uint8"), L.bitcast_convert_type(np.arange(8, dtype=np.uint16).reshape(4, 2) * 999, "int32"), L.bitcast_convert_type(X, "float16")),
    "broadcast": lambda L: L.broadcast(X, (2, 1)),
    "broadcast_in_dim": lambda L: L.broadcast_in_dim(X, (3, 2, 4), (0, 2)),
    "broadcasted_iota": lambda L: (L.broadcasted_iota("int32", (2, 3), 1), L.iota("float32", 4)),
    "broadcast_to_rank": lambda L: L.broadcast_to_rank(X, 4),
    "reshape": lambda L: (L.reshape(X, (4, 3)), L.reshape(X, (12,), (1, 0))),
    "transpose": lambda L: L.transpose(IMAGE, (2, 0, 3, 1)),
    "rev": lambda L: L.rev(X, (0, 1)),
    "squeeze": lambda L: L.squeeze(X[None, :, None], (0, 2)),
    "expand_dims": lambda L: L.expand_dims(X, (0, 3)),
    "collapse": lambda L: (L.collapse(IMAGE, 1, 3), L.collapse(IMAGE, 2)),
    "tile": lambda L: L.tile(X, (2, 3)),
    "slice": lambda L: (L.slice(X, (0, 1), (3, 4), (2, 1)), L.slice(X, (1, 1), (1, 3))),
    "slice_in_dim": lambda L: (L.slice_in_dim(X, 1, None, axis=1), L.slice_in_dim(X, -3, -1, 2, 1)),
    "index_in_dim": lambda L: (L.index_in_dim(X, -1), L.index_in_dim(X, 1, 1, False)),
    "split": lambda L: L.split(X, (1, 0, 3), 1),
    "stack": lambda L: (L.stack([X, P], 1), L.unstack(X, 1)),
    "concatenate": lambda L: L.concatenate([X, P], 1),
    "pad": lambda L: (L.pad(X, F(9), [(1, 2, 1), (-1, 0, 0)]), L.pad(X, F(0), [(0, 0, 0), (2, -3, 2)])),
    "full": lambda L: (L.full((2, 3), 7), L.full((), 1.5, "float16"), L.full_like(X, 2), L.full_like(X, 2, "int8", (3,))),
    "gather": lambda L: [L.gather(X, AT, _row(L), (1, 4), mode=m) for m in ("clip", "fill", "promise_in_bounds", None)],
    "gather fill": lambda L: L.gather(X, AT, _row(L), (1, 4), mode="fill", fill_value=-7),
    "gather integers": lambda L: L.gather(N, AT, _row(L), (1, 4)),
    "scatter": lambda L: L.scatter(X, AT[:2], UPDATES[:2], _put(L)),
    "scatter_add": lambda L: [L.scatter_add(X, AT, UPDATES, _put(L), mode=m) for m in ("clip", "drop", None)],
    "scatter_sub": lambda L: L.scatter_sub(X, AT, UPDATES, _put(L)),
    "scatter_mul": lambda L: L.scatter_mul(X, AT, UPDATES, _put(L)),
    "scatter_min": lambda L: L.scatter_min(P, AT, UPDATES, _put(L)),
    "scatter_max": lambda L: L.scatter_max(P, AT, UPDATES, _put(L)),
    "scatter_apply": lambda L: L.scatter_apply(X, AT[:2], L.exp, _put(L), update_shape=(2, 4)),
    "dynamic_slice": lambda L: (L.dynamic_slice(X, (1, 9), (2, 2)), L.dynamic_slice(X, np.array([-1, -2], np.int32), (1, 2)), L.dynamic_slice(X, (np.int8(-1), np.int8(1)), (2, 1))),
    "dynamic_slice_in_dim": lambda L: L.dynamic_slice_in_dim(X, np.int32(-2), 2, 1),
    "dynamic_index_in_dim": lambda L: (L.dynamic_index_in_dim(X, 1), L.dynamic_index_in_dim(X, -1, 1, False)),
    "dynamic_update_slice": lambda L: L.dynamic_update_slice(X, P[:2, :2], (2, -3)),
    "dynamic_update_slice_in_dim": lambda L: L.dynamic_update_slice_in_dim(X, P[:, :1], 9, 1),
    "dynamic_update_index_in_dim": lambda L: L.dynamic_update_index_in_dim(X, P[0], 1, 0),
    "dot": lambda L: (L.dot(X, P.T), L.dot(X, P[0]), L.dot(X[0], P[0]), L.dot(P[:, 0], X)),
    "dot_general": lambda L: (L.dot_general(IMAGE, IMAGE, (((2,), (2,)), ((0, 3), (0, 3)))), L.dot_general(X.astype(np.float16), P.astype(np.float16), (((1,), (1,)), ((), ())), preferred_element_type=np.float32)),
    "batch_matmul": lambda L: L.batch_matmul(IMAGE, IMAGE.swapaxes(2, 3)),
    "conv": lambda L: [L.conv(IMAGE, KERNEL, (2, 1), p) for p in ("SAME", "VALID", "SAME_LOWER")],
    "conv layout": lambda L: L.conv_general_dilated(NHWC, HWIO, (1, 2), "SAME", rhs_dilation=(2, 1), dimension_numbers=LAYOUT),
    "conv dilated": lambda L: L.conv_with_general_padding(IMAGE, KERNEL, (1, 1), [(1, 2), (0, -1)], (2, 1), (1, 2)),
    "conv groups": lambda L: (L.conv_general_dilated(IMAGE, KERNEL[:3, :1], (1, 1), "VALID", feature_group_count=3), L.conv_general_dilated(IMAGE, KERNEL, (1, 1), "VALID", batch_group_count=2)),
    "conv_transpose": lambda L: [L.conv_transpose(NHWC, HWIO, (2, 3), p) for p in ("SAME", "VALID", [(1, 2), (0, 1)])],
    "conv_transpose kernel": lambda L: L.conv_transpose(NHWC, HWIO.swapaxes(2, 3), (2, 1), "SAME", transpose_kernel=True),
    "conv_transpose consistent": lambda L: L.conv_transpose(NHWC, HWIO, (2, 1), ((1, 1), (0, 1)), rhs_dilation=(1, 2), use_consistent_padding=True),
    "reduce_sum": lambda L: (L.reduce_sum(IMAGE, (1, 3)), L.reduce_sum(X, ()), L.reduce_prod(P, (0,))),
    "reduce_max": lambda L: (L.reduce_max(X, (0,)), L.reduce_min(N, (0, 1))),
    "reduce_and": lambda L: (L.reduce_and(B, (0,)), L.reduce_or(B, (1,)), L.reduce_xor(N, (0,))),
    "argmax": lambda L: (L.argmax(X, 1, np.int32), L.argmin(N, 0, np.int32)),
    "reduce monoids": lambda L: [L.reduce(x, i, f, (1,)) for x, i, f in ((X, F(0), L.add), (X, F(2), L.add), (P, F(1), L.mul), (X, F(-np.inf), L.max), (X, F(0.3), L.min), (N, np.int32(-1), L.bitwise_and), (B, False, L.bitwise_or))],
    "reduce general": lambda L: L.reduce((X, N), (F(0), np.int32(0)), lambda a, b: (L.add(a[0], b[0]), L.max(a[1], b[1])), (0,)),
    "reduce_window": lambda L: [L.reduce_window(X, i, f, (2, 2), (1, 2), p) for i, f in ((F(-np.inf), L.max), (F(np.inf), L.min), (F(0), L.add), (F(0.1), L.max)) for p in ("SAME", "VALID", "SAME_LOWER", [(1, 0), (2, 1)])],
    "reduce_window dilated": lambda L: L.reduce_window(X, F(0), L.add, (2, 2), (1, 1), "VALID", (2, 1), (1, 2)),
    "cumulative": lambda L: [f(P, axis=1, reverse=r) for f in (L.cumsum, L.cumprod, L.cummax, L.cummin, L.cumlogsumexp) for r in (False, True)],
    "sort": lambda L: (L.sort((X * J).astype(F)), L.sort(-P, 0), L.sort((J, X), num_keys=1), L.sort((J % 2, N, X), num_keys=2)),
    "sort_key_val": lambda L: L.sort_key_val(J, X, 1),
    "top_k": lambda L: (L.top_k((X * J).astype(F), 2), L.top_k(N, 3, axis=0)),
    "optimization_barrier": lambda L: L.optimization_barrier((X, N)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_call(name):
    call = CALLS[name]
    expected = jax.tree.leaves(call(jax.lax))
    for found in (call(lax), rlx.jit(lambda: call(lax))()):
        leaves = rlx.tree.leaves(found)
        assert len(leaves) == len(expected)
        for a, b in zip(leaves, expected, strict=True):
            compare(a, np.asarray(b), 2e-4)


def test_reduce_of_an_unknown_initial_value():
    total = rlx.jit(lambda x, i: lax.reduce(x, i, lax.max, (0,)))(X, F(0.5))
    np.testing.assert_allclose(np.asarray(total), np.maximum(X.max(0), 0.5))


def test_gradient_of_pooling():
    def pool(lib, x):
        return lib.lax.reduce_window(x, -np.inf, lib.lax.max, (2, 2), (2, 2), "VALID")

    ours = rlx.grad(lambda x: pool(rlx, x).sum())(X)
    compare(ours, jax.grad(lambda x: pool(jax, x).sum())(X))


def test_stop_gradient():
    assert float(rlx.grad(lambda x: x * lax.stop_gradient(x))(3.0)) == 3.0
    tree = lax.stop_gradient({"a": F(1), "b": np.int32(2)})
    assert int(tree["b"]) == 2
    assert float(rlx.jvp(lambda x: lax.stop_gradient(x * x), (2.0,), (1.0,))[1]) == 0.0
    out = rlx.jit(rlx.vmap(rlx.grad(lambda x: x * lax.stop_gradient(x))))(np.arange(3.0, dtype=F))
    assert np.asarray(out).tolist() == [0.0, 1.0, 2.0]


# ------------------------------------------------------------- operands and errors
def test_numbers_take_the_arrays_dtype():
    assert lax.add(X.astype(np.float16), 1.5).dtype == np.float16
    assert lax.mul(np.int8([3]), 2).dtype == np.int8
    assert lax.add(np.float16([1]), rlx.numpy.asarray(2.0)).dtype == np.float16


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: lax.add(X, N), errors.DtypeError, "do not promote"),
        (lambda: lax.add(N, 1.5), errors.DtypeError, "do not promote"),
        (lambda: lax.add(1, 2.5), errors.DtypeError, "do not promote"),
        (lambda: lax.add(X, np.ones(3, F)), errors.ShapeError, "broadcast"),
        (lambda: lax.select(B, X, X[0]), errors.ShapeError, "select_n"),
        (lambda: lax.select_n(B, X, X, X), errors.DtypeError, "bool"),
        (lambda: lax.reduce_sum(X, (2,)), errors.ShapeError, "axis 2"),
        (lambda: lax.dot(X, X), errors.ShapeError, "dot"),
        (lambda: lax.batch_matmul(X, IMAGE), errors.ShapeError, "batch_matmul"),
        (lambda: lax.dynamic_slice(X, (1,), (1, 1)), errors.ShapeError, "start ind"),
        (lambda: lax.dynamic_slice(X, (0.5, 1), (1, 1)), errors.DtypeError, "integers"),
        (lambda: lax.gather(X, AT, _row(lax), (1, 4), mode="wrap"), errors.UnsupportedError, "wrap"),
        (lambda: lax.conv(IMAGE, KERNEL, (1, 1), "FULL"), errors.UnsupportedError, "FULL"),
        (lambda: lax.conv_dimension_numbers((1, 2, 3), (1, 2, 3), ("NC", "OI", "NC")), errors.ShapeError, "letter"),
        (lambda: lax.concatenate([], 0), errors.ShapeError, "no arrays"),
        (lambda: lax.top_k(X, 9), errors.ShapeError, "k=9"),
        (lambda: lax.index_in_dim(X, 7), errors.IndexBoundsError, "index 7"),
        (lambda: lax.pad(X, np.int32(0), [(0, 0, 0)] * 2), errors.DtypeError, "padding value"),
        (lambda: lax.convert_element_type(X, "string"), errors.DtypeError, "dtype"),
        (lambda: lax.reduce(X, np.zeros(2, F), lax.add, (0,)), errors.DtypeError, "scalar"),
        (lambda: lax.associative_scan(lax.add, (X, X[:2])), errors.ShapeError, "one size"),
    ],
)
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_every_public_function_is_jaxs():
    ours_only = {"zeros_like_array", "pvary"}  # pvary: older programs have it, JAX renamed it in 0.10
    missing = [n for n in lax.__all__ if not hasattr(jax.lax, n) and n not in ours_only]
    assert missing == []
