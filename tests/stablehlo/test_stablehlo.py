"""StableHLO: written, verified by MLIR, run by PJRT and by the reference interpreter, read back; JAX's modules read."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import numpy as np
import pytest
from closeness import close
from primitive_cases import cases_of, names

import rlx
import rlx.numpy as jnp
from benchmarks.programs import programs
from rlx import lax
from rlx.errors import FileFormatError, UnsupportedError
from rlx.stablehlo.reading import _parsed
from rlx.stablehlo.writing import write_program
from rlx.trace.tracing import trace_program

X = np.linspace(-2.0, 2.0, 24, dtype=np.float32).reshape(4, 6)


def on_pjrt(text: str, arguments: Any) -> list[np.ndarray]:
    """Compile a module for PJRT's CPU, and run it."""
    extension: Any = importlib.import_module("jaxlib._jax")
    device = jax.devices("cpu")[0]
    devices = extension.DeviceList((device,))
    executable = device.client.compile_and_load(text, devices, extension.CompileOptions())
    results = executable.execute_sharded([jax.device_put(a) for a in arguments])
    return [np.asarray(r[0]) for r in results.disassemble_into_single_device_arrays()]


PROGRAMS = [p for p in programs if "dispatch" not in p.name]
# Adam divides by roots of squares near zero; a product of derivatives of sums
ROUNDED = {"mlp_adam_step": 1e-4, "hessian_vector_product": 1e-5}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_benchmark_programs(program: Any) -> None:
    """Every benchmark is verified, runs on PJRT, and is read back to a text that stays the same."""
    function, arguments = program.build(rlx, np.random.default_rng(0))
    exported = rlx.export(function)(*arguments)
    text = exported.stablehlo()
    leaves = [np.asarray(leaf) for leaf in rlx.tree.leaves(arguments)]
    expected = rlx.tree.leaves(exported.call(*arguments))
    close(on_pjrt(text, leaves), expected, ROUNDED.get(program.name, 1e-6))
    again = rlx.import_stablehlo(text)
    close(rlx.tree.leaves(again.call(*leaves)), expected, ROUNDED.get(program.name, 1e-6))
    written = again.stablehlo()
    if "stablehlo.while" not in text:  # a loop that is read carries what it closes over
        assert rlx.import_stablehlo(written).stablehlo() == written


# special functions without a text, and what needs Schur forms
# steps of sparse solvers, and exchanges between processes: StableHLO has nothing like them
SPARSE = set("assumed_pattern csr_lstsq csr_solve csr_logdet csr_triangular_solve csr_incomplete_lu".split())
APART = SPARSE | {name for name in names() if name.startswith("process_")}
REFUSED = set("bessel_j confluent_hypergeometric hypergeometric faddeeva sylvester eig schur matrix_sqrt".split())
REFUSED |= APART
ERRORS = {1: 0.2, 2: 1e-2, 4: 1e-6, 8: 1e-12, 16: 1e-12}  # by bytes, relative to the largest number


@pytest.mark.parametrize("name", names())
def test_primitives(name: str) -> None:
    """A first and a middle sample of every primitive are verified and run on PJRT, or refused by name."""
    cases = cases_of(name)
    written = 0
    for case in (cases[0], cases[len(cases) // 2]):
        program, _ = trace_program(case.bind, case.types)
        try:
            text = write_program(program, name)
        except UnsupportedError as error:
            assert name in str(error) and (name in REFUSED or "dilated" in str(error))
            continue
        written += 1
        _parsed(text)
        expected = case.reference(*case.arrays)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = on_pjrt(text, case.arrays)
        error = max(ERRORS[4 if e.dtype == np.complex64 else e.dtype.itemsize] for e in expected)
        close([f.astype(complex) for f in found], [e.astype(complex) for e in expected], error)
    assert written or name in REFUSED


def test_most_primitives_are_there() -> None:
    """All but a few special functions, and factorisations without a decomposition."""
    local = {*names()} - APART
    assert len(local - REFUSED) >= 0.95 * len(local)


def loops(x: Any) -> Any:
    """A loop on a condition, a branch, a scan backwards."""
    count, grown = lax.while_loop(lambda c: c[1].sum() < 100, lambda c: (c[0] + 1, c[1] * 1.5), (0, jnp.abs(x)))
    chosen = lax.switch(count % 3, [jnp.sin, jnp.cos, lambda y: -y], grown)
    return count, chosen, lax.scan(lambda c, r: (c * 0.5 + r, c.sum()), x[0], x, reverse=True)


def indices(x: Any) -> Any:
    """Gathers and scatters, some of them outside."""
    inside = x[jnp.array([2, 0]), jnp.array([1, -1])]
    return inside, jnp.take(x, jnp.array([1, 9]), axis=0), x.at[jnp.array([1, 9])].add(1.0), x.at[0].set(7.0)


def pooled(x: Any) -> Any:
    """The gradient of a maximum over windows."""
    pool = lambda y: lax.reduce_window(y, -jnp.inf, lax.max, (2, 2), (2, 2), "VALID")  # noqa: E731
    return rlx.grad(lambda y: (pool(y) ** 2).sum())(x)


def ordered(x: Any) -> Any:
    """Sorting with NaN and by several keys, places, accumulations."""
    y = jnp.where(x > 1.5, jnp.nan, x)
    return jnp.sort(y, 0), jnp.argmax(x, 1), lax.top_k(x, 3), jnp.cumsum(x, 0), jnp.lexsort((x[0], jnp.round(x[1])))


def spectral(x: Any) -> Any:
    """Complex numbers and a Fourier transform."""
    z = jnp.fft.fft(x)
    return z, jnp.abs(z), jnp.fft.irfft(jnp.fft.rfft(x)), jnp.conj(z) * (1 + 2j)


def linear(x: Any) -> Any:
    """Cholesky's factor and triangular solutions."""
    a = x @ x.T + 5 * jnp.eye(4)
    factor = jnp.linalg.cholesky(a)
    return factor, lax.linalg.triangular_solve(factor, x, left_side=True, lower=True)


def factored(x: Any) -> Any:
    """Singular values, least squares, a determinant: loops and products."""
    a = x[:, :4] + 5 * jnp.eye(4)
    return jnp.linalg.svd(x)[1], jnp.linalg.lstsq(x.T, x[0, 0] + jnp.ones(6))[0], jnp.linalg.slogdet(a)[1]


def halves(x: Any) -> Any:
    """Sums in small floats, which are computed in wider ones."""
    y = x.astype(jnp.bfloat16)
    return y.sum(), (y @ y.T), x.astype(jnp.float16).mean(0)


def drawn(x: Any) -> Any:
    """Random numbers of a seed."""
    return rlx.random.normal(rlx.random.key(3), (5,)) + x[0, :5]


SMALL = [loops, indices, pooled, ordered, spectral, linear, factored, halves, drawn]


@pytest.mark.parametrize("function", SMALL, ids=lambda f: f.__name__)
def test_small_programs(function: Callable[..., Any]) -> None:
    """Run on PJRT, and read back."""
    exported = rlx.export(function)(X)
    text = exported.stablehlo()
    expected = rlx.tree.leaves(exported.call(X))
    error = 1e-2 if function is halves else 1e-5
    close(on_pjrt(text, [X]), expected, error)
    close(rlx.tree.leaves(rlx.import_stablehlo(text).call(X)), expected, error)


INTERPRETED: dict[str, Callable[..., Any]] = {
    "elementwise": lambda x: x * 2.0 + jnp.abs(x) - jnp.maximum(x, 0.5), "sum": lambda x: x.sum(axis=1),
    "select": lambda x: jnp.where(x > 0, x, -3.0), "integers": lambda x: x.astype(jnp.int32) * 3 // 2,
    "shapes": lambda x: (x.T[::2], jnp.pad(x, 1), jnp.concatenate([x, x], 1)), "loop": lambda x: lax.fori_loop(
        0, 3, lambda i, c: c + i, x),
}  # fmt: skip


@pytest.mark.parametrize("name", INTERPRETED)
def test_in_the_reference_interpreter(name: str) -> None:
    """StableHLO's own meaning of what is written, bit by bit."""
    dialect: Any = importlib.import_module("jaxlib.mlir.dialects.stablehlo")
    exported = rlx.export(INTERPRETED[name])(X)
    module = _parsed(exported.stablehlo())
    ir: Any = importlib.import_module("jaxlib.mlir.ir")
    with module.context:
        arguments = [ir.DenseElementsAttr.get(np.ascontiguousarray(X))]
        found = [np.array(a) for a in dialect.eval_module(module, arguments)]
    close(found, rlx.tree.leaves(exported.call(X)), 0.0)


JAX_PROGRAMS = (
    "layer_norm_gradient per_example_gradients convolution_gradient transformer_gradient scan_gradient sort_vector"
)


@pytest.mark.parametrize("name", JAX_PROGRAMS.split())
def test_modules_of_jax(name: str) -> None:
    """What jax.export writes is read, and gives what JAX computes."""
    program = next(p for p in programs if p.name == name)
    function, arguments = program.build(jax, np.random.default_rng(0))
    exported = jax.export.export(jax.jit(function, keep_unused=True))(*arguments)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
    found = rlx.import_stablehlo(exported.mlir_module()).call(*leaves)
    close(rlx.tree.leaves(found), jax.tree.leaves(jax.jit(function)(*arguments)), 1e-5)


def test_an_imported_function_is_one_like_others() -> None:
    """Differentiated, batched, saved."""
    text = rlx.export(lambda x: jnp.tanh(x).sum())(X[0]).stablehlo()
    imported = rlx.import_stablehlo(text)
    np.testing.assert_allclose(rlx.grad(imported)(X[0]), 1 - np.tanh(X[0]) ** 2, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rlx.vmap(imported)(X), np.tanh(X).sum(1), rtol=1e-5, atol=1e-6)
    assert rlx.export.deserialize(imported.serialize())(X[0]) == imported(X[0])


def test_sizes_that_are_not_known() -> None:
    """Text is written for given ones."""
    exported = rlx.export(lambda x: x.sum(1))(rlx.ShapeDtypeStruct(rlx.export.symbolic_shape("b, 3"), "float32"))
    assert "tensor<5x3xf32>" in exported.stablehlo(b=5)
    with pytest.raises(rlx.errors.ShapeError, match="sizes b"):
        exported.stablehlo()


def test_what_is_refused() -> None:
    """Operations by name and line; texts that are none; operations that are not read."""
    with pytest.raises(UnsupportedError, match="schur") as caught:
        rlx.export(lambda x: rlx.scipy.linalg.schur(x)[1])(X[:, :4]).stablehlo()
    assert "test_stablehlo.py" in str(caught.value)
    with pytest.raises(UnsupportedError, match="keys"):
        rlx.export(lambda key: rlx.random.uniform(key))(rlx.random.key(0)).stablehlo()
    for text in ("", "nonsense", 'module { func.func @main() { "stablehlo.add"() : () -> () func.return } }'):
        with pytest.raises(FileFormatError):
            rlx.import_stablehlo(text)
    call = 'module { func.func @main(%a: tensor<f32>) -> tensor<f32> { %0 = "stablehlo.custom_call"(%a)'
    call += ' <{call_target_name = "x"}> : (tensor<f32>) -> tensor<f32> func.return %0 : tensor<f32> } }'
    with pytest.raises(UnsupportedError, match="custom_call"):
        rlx.import_stablehlo(call)
