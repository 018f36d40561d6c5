"""Every primitive of the registry: each of its rules against its meaning in NumPy."""

from __future__ import annotations

import importlib
import os
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numba
import numpy as np
import pytest
from primitive_cases import STEPS, Case, cases, cases_of, names, run_lowered

from rlx import errors
from rlx.ir.types import TensorType, is_complex, is_float, is_inexact, supported_dtypes
from rlx.ops.families import Elementwise
from rlx.ops.random_bits import CounterBits
from rlx.testing import assert_close, check_grads
from rlx.trace.primitive import registry
from rlx.transforms.reverse import linear_transpose
from rlx.transforms.vmap import vmap

COMPILED = bool(os.environ.get("RLX_TEST_COMPILED"))  # else Python runs the text of the numba device
BACKENDS = {
    "reference": ("rlx.backends.reference", "ReferenceBackend"),
    "cpu": ("rlx.backends.cpu", "CpuBackend"),
    "mlx": ("rlx.backends.mlx", "MlxBackend"),
    "numba": ("rlx.backends.numba", "NumbaBackend"),
}

# operands in which a function has no derivative, and functions that have none
HELD_FIXED = {"polygamma": {0}, "bessel_j": {0}, "expint_n": {0}}
NEVER = {"reduce", "householder_product", "packed_qr", "schur", "hessenberg", "tridiagonal"}

wide = [c for c in cases() if c.is_wide]
smooth = [
    c
    for c in wide
    if c.primitive.name not in STEPS | NEVER
    and any(is_inexact(a.dtype) for a in c.arrays)
    and not (c.primitive.name == "sign" and is_complex(c.arrays[0].dtype))
]


@pytest.mark.parametrize("case", cases(), ids=repr)
def test_reference_has_the_type_that_the_type_rule_says(case: Case) -> None:
    results = case.reference(*case.arrays)
    assert len(results) == len(case.result_types)
    for result, expected in zip(results, case.result_types, strict=True):
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)


def test_reference_reads_any_strides() -> None:
    for case in wide:
        strided = [np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a for a in case.arrays]
        for result, expected in zip(case.reference(*strided), case.reference(*case.arrays), strict=True):
            assert_close(result, expected, message=repr(case))


# ------------------------------------------------------------- derivatives
@pytest.mark.parametrize("case", smooth, ids=repr)
def test_derivatives_are_finite_differences(case: Case) -> None:
    name = case.primitive.name
    fixed = HELD_FIXED.get(name, set())
    moving = [n for n in range(len(case.arrays)) if n not in fixed]

    def function(*args: Any) -> tuple[Any, ...]:
        operands: list[Any] = list(case.arrays)
        for n, x in zip(moving, args, strict=True):
            operands[n] = x
        return case.bind(*operands)

    (result, *_) = case.result_types
    options: dict[str, float] = {}
    if result.dtype.name in ("float16", "bfloat16"):
        options = {"eps": 0.25, "atol": 0.25, "rtol": 0.25}
    elif result.dtype in (np.float32, np.complex64):
        options = {"eps": 5e-3, "atol": 2e-3, "rtol": 2e-3}
    order = 1 if options else 2
    check_grads(function, [case.arrays[n] for n in moving], order=order, **options)


@pytest.mark.parametrize("name", sorted(HELD_FIXED) + sorted(NEVER))
def test_missing_derivatives_are_refused_by_name(name: str) -> None:
    case = next(c for c in cases_of(name) if c.is_wide)
    with pytest.raises(errors.UnsupportedError, match="has no derivative"):
        check_grads(case.bind, case.arrays, order=1)


def linear_cases() -> list[Case]:
    """Samples of primitives that are linear in all of their inexact operands."""
    linear = {"add", "subtract", "negative", "real", "imag", "conj", "complex", "convert"}
    linear |= {"select", "reduce_sum", "cumsum"}
    return [c for c in smooth if c.primitive.name in linear]


@pytest.mark.parametrize("case", linear_cases(), ids=repr)
def test_transpose_is_the_adjoint(case: Case) -> None:
    generator = np.random.default_rng(0)
    moving = [n for n, a in enumerate(case.arrays) if is_inexact(a.dtype)]
    if not is_inexact(case.result_types[0].dtype):
        pytest.skip("the result is an integer: nothing to transpose")

    def function(*args: Any) -> Any:
        operands: list[Any] = list(case.arrays)
        for n, x in zip(moving, args, strict=True):
            operands[n] = x
        return case.bind(*operands)[0]

    def draw(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        values = generator.normal(size=shape)
        imaginary = 1j * generator.normal(size=shape) if is_complex(dtype) else 0
        return np.asarray(values + imaginary).astype(dtype)

    args = [draw(case.arrays[n].shape, case.arrays[n].dtype) for n in moving]
    cotangent = draw(case.result_types[0].shape, case.result_types[0].dtype)
    transposed = linear_transpose(function, *args)(cotangent)
    forward = np.real(np.sum(function(*args).numpy() * cotangent))
    backward = sum(np.real(np.sum(x * ct.numpy())) for x, ct in zip(args, transposed, strict=True))
    tolerance = 10 * compiled_tolerance(case.result_types[0].dtype)
    assert np.allclose(forward, backward, rtol=tolerance, atol=tolerance)


# ------------------------------------------------------------- batching
def variations(x: np.ndarray, count: int = 3) -> list[np.ndarray]:
    """The array with its elements in other places: still within the function's domain."""
    return [np.roll(x.reshape(-1), shift).reshape(x.shape) for shift in range(count)]


# operands whose elements in another order are not a pattern: tests/sparse has batches of patterns
PATTERNS = {"csr_product": (1, 2), "sampled_product": (2, 3), "csr_solve": (1, 2), "csr_logdet": (1, 2)}
PATTERNS["csr_triangular_solve"] = (1, 2)
PATTERNS["csr_lstsq"] = (0, 1, 2)  # a batch of matrices is one system, whose iterations are counted together


def axis_choices(case: Case) -> list[tuple[int | None, ...]]:
    """In-axes to try: none, first, last of each operand; at most sixteen combinations."""
    kept = PATTERNS.get(case.primitive.name, ())
    options = [sorted({0, a.ndim} if n not in kept else ()) for n, a in enumerate(case.arrays)]
    combinations = [c for c in product(*[[None, *o] for o in options]) if any(d is not None for d in c)]
    step = max(1, len(combinations) // 16)
    return combinations[::step]


@pytest.mark.parametrize("case", wide, ids=repr)
def test_batch_is_a_loop(case: Case) -> None:
    for dims in axis_choices(case):
        choices = [variations(a) if d is not None else [a] * 3 for a, d in zip(case.arrays, dims, strict=True)]
        operands = [np.stack(c, axis=d) if d is not None else c[0] for c, d in zip(choices, dims, strict=True)]
        looped = [case.reference(*args) for args in zip(*choices, strict=True)]
        batched = vmap(case.bind, in_axes=dims)(*operands)
        for number, result in enumerate(batched):
            expected = np.stack([out[number] for out in looped])
            narrow = expected.dtype.itemsize < 8
            assert_close(result, expected, rtol=None if narrow else 1e-12, message=f"in_axes={dims}")


# ------------------------------------------------------------- compiled code
@pytest.fixture(autouse=True)
def _kernels_as_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter runs the numba device's text; `make test-backends` has it compiled, which takes minutes."""
    monkeypatch.setattr(numba.config, "DISABLE_JIT", int(not COMPILED))


def backend_named(name: str) -> Any:
    """The backend, or skip the test where it cannot be imported."""
    if name == "mlx":
        pytest.importorskip("mlx.core", reason="mlx is not installed: pip install 'rlx[mlx]'")
    module, cls = BACKENDS[name]
    pytest.importorskip(module, exc_type=ImportError)
    try:
        return getattr(importlib.import_module(module), cls)()
    except errors.DeviceError as error:  # no C compiler
        pytest.skip(str(error))


def compiled_tolerance(dtype: np.dtype) -> float:
    """Compiled functions may differ from NumPy's by a few units in the last place."""
    if is_complex(dtype) or is_float(dtype):
        width = dtype.itemsize // 2 if is_complex(dtype) else dtype.itemsize
        per_width = {1: 0.26, 2: 0.02 if dtype.name == "bfloat16" else 3e-3, 4: 4e-6, 8: 1e-13}
        return per_width[width]
    return 0.0


def check_compiled(backend: Any, chosen: list[Case]) -> None:
    """Run samples as one program, and compare each result with NumPy's."""
    counts = [len(c.arrays) for c in chosen]

    def function(*args: Any) -> list[Any]:
        results: list[Any] = []
        start = 0
        for case, count in zip(chosen, counts, strict=True):
            results += case.bind(*args[start : start + count])
            start += count
        return results

    results = iter(run_lowered(backend, function, [a for c in chosen for a in c.arrays]))
    for case in chosen:
        for number, expected in enumerate(case.reference(*case.arrays)):
            tolerance = compiled_tolerance(expected.dtype)
            found = next(results)
            if (backend.name, case.primitive.name, number) in DIRECTIONS:
                found = turned_towards(found, expected)
            assert_close(found, expected, tolerance, tolerance, message=repr(case))


DIRECTIONS = {("mlx", "eigh", 1)}  # results whose columns are directions: another LAPACK may give the opposite ones


def turned_towards(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Columns times a phase each, by which they come near to the expected ones."""
    overlap = (found.conj() * expected).sum(axis=-2, keepdims=True)
    size = np.abs(overlap)
    return found * np.where(size > 0, overlap / np.where(size > 0, size, 1), 1).astype(found.dtype)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", names())
def test_compiled_code_computes_the_reference(name: str, backend: str) -> None:
    found = backend_named(backend)
    check_compiled(found, [case for case in cases_of(name) if is_claimed(case, found)])


def is_claimed(case: Case, backend: Any) -> bool:
    """Whether a device has the dtypes of a sample: GPUs may have no float64."""
    if backend.claims.dtypes >= supported_dtypes:
        return True
    results = [np.asarray(r).dtype for r in case.reference(*case.arrays)]
    return {*results, *(a.dtype for a in case.arrays)} <= backend.claims.dtypes


EDGES = (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.5, -3.5, 1e-30, 700.0, -700.0, np.inf, -np.inf, np.nan)
# limits rather than values at the edges, or (polygamma) defined at integers only
ROUGH = {"igamma_grad_a", "random_gamma_grad", "betainc", "fma", "polygamma"}


def edge_arrays(primitive: Elementwise, dtype: str) -> list[np.ndarray]:
    """All combinations of the edge values, one axis for each operand."""
    values = np.array(EDGES).astype(dtype)
    rank = primitive.arity
    return [values.reshape([-1 if a == n else 1 for a in range(rank)]) for n in range(rank)]


def edge_primitives() -> list[tuple[str, str]]:
    """Elementwise primitives of one, two or three floating operands, with the dtypes that they take."""
    return [
        (p.name, dtype)
        for p in registry.values()
        for dtype in ("f8", "f4")
        if isinstance(p, Elementwise)
        and p.takes(np.dtype(dtype))
        and p.name not in ROUGH | {"select"}
        and not p.name.endswith("_callback")
    ]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("name", "dtype"), edge_primitives())
def test_compiled_code_at_the_edges(name: str, backend: str, dtype: str) -> None:
    primitive = registry[name]
    assert isinstance(primitive, Elementwise)
    arrays = edge_arrays(primitive, dtype)
    params = primitive.sample_params[0] if name != "bitcast" else {"dtype": np.dtype(f"u{dtype[1]}")}
    with np.errstate(all="ignore"):
        expected = primitive.reference(*arrays, **params)
    bind = partial(primitive.bind, **params)
    (result,) = run_lowered(backend_named(backend), lambda *xs: [bind(*xs)], arrays)
    tolerance = compiled_tolerance(np.dtype(expected.dtype))
    assert_close(result, expected, tolerance, tolerance * 1e-30)


# ------------------------------------------------------------- accuracy
def promising() -> list[str]:
    """Elementwise primitives of floats that say how exact they are."""
    return [
        p.name
        for p in registry.values()
        if isinstance(p, Elementwise) and p.ulp is not None and p.name in _of_floats - _OF_BITS
    ]


# NumPy's functions are less exact in places: the reference's, and those of the numba device where Python runs its text
PROMISED = [name for name in BACKENDS if name != "reference" and (name != "numba" or COMPILED)]
_OF_BITS = {"select", "bitcast", "nextafter"}
_of_floats = {c.primitive.name for c in cases() if c.result_types[0].dtype == np.float32}


def accuracy_arrays(primitive: Elementwise) -> list[np.ndarray]:
    """float32 numbers of every size, the domain's more often."""
    random = np.random.default_rng(5)
    bounds: Any = primitive.domain
    intervals = bounds if isinstance(bounds[0], tuple) else (bounds,) * primitive.arity
    anything = random.integers(0, 2**32, (primitive.arity, 500), np.uint32).view(np.float32)
    usual = [random.uniform(low, high, 1500).astype(np.float32) for low, high in intervals]
    return [np.concatenate(parts) for parts in zip(anything, usual, strict=True)]


@pytest.mark.parametrize("backend", PROMISED)
@pytest.mark.parametrize("name", promising())
def test_results_are_as_exact_as_the_primitive_says(name: str, backend: str) -> None:
    primitive: Any = registry[name]
    arrays = accuracy_arrays(primitive)
    bind = partial(primitive.bind, **primitive.sample_params[0])
    (found,) = run_lowered(backend_named(backend), lambda *xs: [bind(*xs)], arrays)
    with np.errstate(all="ignore"):
        exact = np.asarray(primitive.reference(*[a.astype("f8") for a in arrays], **primitive.sample_params[0]))
        rounded = exact.astype(np.float32)
        errors = np.abs(found.astype("f8") - exact) / np.spacing(np.abs(rounded)).astype("f8")
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    edge = np.isinf(rounded) | np.isinf(found)
    worst = np.where(same, 0, np.where(edge, np.inf, errors))
    at = int(np.argmax(worst))
    assert worst[at] <= max(primitive.ulp[0], 0.5 + 1e-6), [float(a[at]) for a in arrays]


@pytest.mark.parametrize("backend", PROMISED)
@pytest.mark.parametrize("name", [name for name in promising() if getattr(registry[name], "exact_at", ())])
def test_results_are_exact_where_the_primitive_says(name: str, backend: str) -> None:
    primitive: Any = registry[name]
    points = np.array(primitive.exact_at).T
    expected = np.asarray(primitive.reference(*points))
    for dtype in ("f4", "f8"):
        arrays = list(np.ascontiguousarray(points.astype(dtype)))
        (found,) = run_lowered(backend_named(backend), lambda *xs: [primitive.bind(*xs)], arrays)
        np.testing.assert_array_equal(found, expected.astype(dtype))
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["c16", "c8"])
@pytest.mark.parametrize("name", ["exp", "expm1", "tanh", "sign"])
def test_compiled_complex_functions_at_the_edges(name: str, backend: str, dtype: str) -> None:
    """Infinities, NaN and zeros in either part, zeros' signs included."""
    primitive = registry[name]
    values = np.array([v for v in EDGES if abs(v) < 10 or not np.isfinite(v)])
    x = np.empty((len(values), len(values)), dtype)
    x.real, x.imag = values[:, None], values
    with np.errstate(all="ignore"):
        expected = primitive.reference(x)
    (result,) = run_lowered(backend_named(backend), lambda v: [primitive.bind(v)], [x])
    tolerance = compiled_tolerance(np.dtype(dtype))
    for found, wanted in ((result.real, expected.real), (result.imag, expected.imag)):
        assert_close(found, wanted, tolerance, tolerance)
        known = ~np.isnan(wanted) & (wanted == 0)
        np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(wanted[known]))


def test_expm1_of_complex_infinities() -> None:
    """The array API's special cases, in which NumPy's are NaN."""
    x = np.array([complex(a, b) for a, b in ((np.inf, 0), (-np.inf, np.inf), (-np.inf, np.nan), (np.nan, 0))])
    with np.errstate(all="ignore"):
        found = registry["expm1"].reference(x)
        at_infinity = registry["expm1"].reference(np.array([complex(np.inf, np.inf), complex(np.inf, np.nan)]))
    np.testing.assert_array_equal(found, [np.inf, -1, -1, complex(np.nan, 0)])
    assert (at_infinity.real == np.inf).all() and np.isnan(at_infinity.imag).all()


FLOATS = ("f8", "f4", "f2", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn")
TARGETS = (*FLOATS, "i1", "u1", "i4", "u4", "i8", "u8", "?", "c8", "int4", "uint2")


@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_conversions_at_the_edges(backend: str) -> None:
    convert = registry["convert"]
    values = np.array([*EDGES, 300.7, -300.7, 3e9, -3e9, 1e19, -1e19, 1e-3, 65519.9, 65520.0, 3.3e38])
    integers = np.array([0, 1, -1, 127, -128, 2**31 - 1, 2**53 + 1, 2**63 - 1, -(2**63)])
    with np.errstate(all="ignore"):
        arrays = [values.astype(d) for d in FLOATS] + [integers, integers.astype("i4")]

    def function(*args: Any) -> list[Any]:
        return [convert(x, dtype=np.dtype(d)) for x in args for d in TARGETS]

    results = iter(run_lowered(backend_named(backend), function, arrays))
    for x in arrays:
        for dtype in TARGETS:
            with np.errstate(all="ignore"):
                expected = convert.reference(x, dtype=np.dtype(dtype))
            assert_close(next(results), expected, 0.0, 0.0, message=f"{x.dtype} to {dtype}")


def test_every_primitive_has_samples() -> None:
    # lu_solve takes an LU factorisation of its other operand, linear_solve programs, the others keys and errors:
    # tests/random/test_keys.py, tests/experimental; eigenvalues and inverses of sparse matrices: tests/sparse
    own_tests = {"lu_solve", "linear_solve", "random_wrap", "random_unwrap", "check"}
    own_tests |= {"csr_eigsh", "csr_inverse_entries", "csr_inverse_change", "csr_incomplete_lu"}
    own_tests |= {p for p in registry if p.endswith("_callback")}
    plain = {p.name for p in registry.values() if not p.region and not p.collective}
    assert not plain - set(names()) - own_tests


def test_fma_rounds_once() -> None:
    generator = np.random.default_rng(0)
    for dtype in ("f8", "f4"):
        x, y, noise = (generator.normal(size=2000).astype(dtype) for _ in range(3))
        z = (-x * y * (1 + noise * 1e-3)).astype(dtype)  # cancels most of the product
        with np.errstate(all="ignore"):
            result = registry["fma"].reference(x, y, z)
        exact = [Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)) for a, b, c in zip(x, y, z, strict=True)]
        # float() of a Fraction rounds once to float64, and that to float32 only where dtype is f8
        if dtype == "f8":
            assert result.tolist() == [float(e) for e in exact]
        else:
            errors_ = [abs(Fraction(float(r)) - e) for r, e in zip(result, exact, strict=True)]
            spacing = [Fraction(float(s)) for s in np.spacing(np.abs(result))]
            assert all(2 * e <= s for e, s in zip(errors_, spacing, strict=True))


# ------------------------------------------------------------- errors
ELEMENTWISE = [p.name for p in registry.values() if isinstance(p, Elementwise) and not p.name.endswith("_callback")]


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_refuses_what_it_does_not_take(name: str) -> None:
    primitive = registry[name]
    assert isinstance(primitive, Elementwise)
    params = primitive.sample_params[0]
    if primitive.arity > 1:
        lead = [np.zeros(2, bool)] if name == "select" else []
        rest = primitive.arity - len(lead) - 2
        unequal = [*lead, np.zeros(2, "f4"), np.zeros(2, "f8"), *[np.zeros(2, "f8")] * rest]
        with pytest.raises(errors.DtypeError, match="dtype"):
            primitive.type(*[case_type(a) for a in unequal], **params)
        dtype = "u4" if primitive.kinds == "u" else {"b": "?", "c": "c8"}.get(primitive.kinds[-1], "i4")
        dtype = "f4" if "f" in primitive.kinds else dtype
        crooked = [*lead, np.zeros(2, dtype), np.zeros(3, dtype), *[np.zeros(3, dtype)] * rest]
        with pytest.raises(errors.ShapeError, match="do not broadcast"):
            primitive.type(*[case_type(a) for a in crooked], **params)
    refused = [d for d in ("?", "c8", "f8") if not primitive.takes(np.dtype(d))]
    for dtype in refused if name != "select" and not isinstance(primitive, CounterBits) else ():
        operands = [np.zeros(2, dtype)] * primitive.arity
        with pytest.raises(errors.DtypeError, match="does not take"):
            primitive.type(*[case_type(a) for a in operands], **params)


def case_type(a: np.ndarray) -> Any:
    """The type of an array."""
    return TensorType(a.shape, a.dtype)


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "params", "error"),
    [
        ("reduce_sum", (2,), "?", {"axes": (0,)}, errors.DtypeError),
        ("reduce_sum", (2,), "f4", {"axes": (1,)}, errors.ShapeError),
        ("reduce_max", (2, 3), "f4", {"axes": (0, 0)}, errors.ShapeError),
        ("reduce_and", (2,), "f4", {"axes": (0,)}, errors.DtypeError),
        ("argmax", (2, 0), "f4", {"axis": 1, "index_dtype": np.dtype("i4")}, errors.ShapeError),
        ("argmin", (2,), "c8", {"axis": 0, "index_dtype": np.dtype("i4")}, errors.DtypeError),
        ("argmin", (2,), "f4", {"axis": 0, "index_dtype": np.dtype("f4")}, errors.DtypeError),
        ("cumsum", (2,), "f4", {"axis": 1}, errors.ShapeError),
        ("cummax", (2,), "c8", {"axis": 0}, errors.DtypeError),
        ("cumlogsumexp", (2,), "i4", {"axis": 0}, errors.DtypeError),
        ("integer_power", (2,), "i4", {"exponent": -1}, errors.DtypeError),
        ("bitcast", (2,), "f4", {"dtype": np.dtype("i8")}, errors.DtypeError),
        ("complex", (2,), "f2", {}, errors.DtypeError),
        ("round", (2,), "f4", {"mode": "up"}, errors.UnsupportedError),
    ],
)
def test_mistakes_have_their_own_errors(
    name: str, shape: tuple[int, ...], dtype: str, params: dict[str, Any], error: type[Exception]
) -> None:
    count = 2 if name == "complex" else 1
    with pytest.raises(error):
        registry[name].bind(*[np.zeros(shape, dtype)] * count, **params)
