"""Functions as ONNX models: run by onnxruntime, read back by rlx, refused with the user's line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import rlx
import rlx.numpy as jnp
from benchmarks.programs import programs
from rlx import lax
from rlx.errors import OptionError, UnsupportedError

onnxruntime.set_default_logger_severity(3)
X = np.linspace(-2.0, 2.0, 24, dtype=np.float32).reshape(4, 6)
SUMS = {"sum_of_squares"}  # onnxruntime adds four million squares one by one


def real_parts(tree: Any) -> list[np.ndarray]:
    """The leaves of a tree; a complex one as its real and its imaginary part."""
    leaves = map(np.asarray, rlx.tree.leaves(tree))
    return [x for leaf in leaves for x in ((leaf.real, leaf.imag) if np.iscomplexobj(leaf) else (leaf,))]


def run(model: Any, arguments: Any) -> list[np.ndarray]:
    """The outputs of a model in onnxruntime, on one thread: on several its ScatterND loses additions to one place."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return session.run(None, dict(zip(names, real_parts(arguments), strict=True)))


def check(function: Callable[..., Any], arguments: Any, error: float = 1e-5, opset: int = 21) -> Any:
    """Export, run, compare; -> the model."""
    model = rlx.onnx.export(function, *arguments, opset=opset)
    found, expected = run(model, arguments), real_parts(rlx.jit(function)(*arguments))
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        largest = float(np.max(np.abs(b.astype(np.float64)), initial=0.0, where=np.isfinite(b)))
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=error, atol=error * largest)
    return model


@pytest.mark.parametrize("program", [p for p in programs if "dispatch" not in p.name], ids=lambda p: p.name)
def test_benchmark_programs(program: Any) -> None:
    """Every benchmark, gradients and random numbers included, gives in onnxruntime what it gives here."""
    function, arguments = program.build(rlx, np.random.default_rng(0))
    check(function, arguments, 5e-4 if program.name in SUMS else 1e-4)


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    name: getattr(jnp, name)
    for name in "abs exp expm1 exp2 sin cos tan tanh sinh cosh arctan arcsinh floor ceil trunc round sign square"
    " negative isfinite isnan isinf cbrt".split()
} | {
    "log1p": lambda x: jnp.log1p(jnp.abs(x)),
    "sqrt": lambda x: jnp.sqrt(jnp.abs(x)),
    "erf": lax.erf,
    "erfc": lax.erfc,
    "arcsin": lambda x: jnp.arcsin(x / 2),
    "arctan2": lambda x: jnp.arctan2(x, x[::-1]),
    "logistic": rlx.nn.sigmoid,
    "rsqrt": lambda x: lax.rsqrt(jnp.abs(x) + 1),
    "where": lambda x: jnp.where(x > 0, x, -x),
    "power": lambda x: jnp.abs(x) ** 1.5,
    "clip": lambda x: jnp.clip(x, -1, 1),
    "to int": lambda x: (x * 3).astype(jnp.int32),
    "to bool": lambda x: x.astype(bool),
    "to int8": lambda x: (x * 100).astype(jnp.int8),
    "mod": lambda x: jnp.mod(x, 0.7),
    "fmod": lambda x: jnp.fmod(x, 0.7),
    "copysign": lambda x: jnp.copysign(2.0, x),
    "gelu": rlx.nn.gelu,
    "float64": lambda x: jnp.exp(x.astype(jnp.float64)),
    "uint8": lambda x: (x * 9).astype(jnp.uint8) * 3 + 7,
    "shift": lambda x: (x * 9).astype(jnp.int32) << 3 ^ 5,
    "signs of zero": lambda x: jnp.copysign(1.0, jnp.array([0.0, -0.0, -jnp.inf, jnp.inf, -2.0, 2.0]) * x[0, 5]),
    "signed shift": lambda x: ((x * 90).astype(jnp.int32) >> 3, (x * 90).astype(jnp.int8) >> jnp.int8(9)),
    "lgamma": lax.lgamma,
    "digamma": lax.digamma,
    "erf_inv": lambda x: lax.erf_inv(x / 2),
    "int division": lambda x: (x * 9).astype(jnp.int32) // 4,
    "maximum": lambda x: jnp.maximum(x, 0.3),
    "logical": lambda x: (x > 0) & ~(x < 1) | (x == 0),
    "float16": lambda x: (x.astype(jnp.float16) * 2).astype(jnp.float32),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name: str) -> None:
    """One operation of every kind."""
    check(ELEMENTWISE[name], (X,))


def _loop(x: Any) -> Any:
    return lax.while_loop(lambda c: c[1].sum() < 100, lambda c: (c[0] + 1, c[1] * 1.5), (0, jnp.abs(x)))


def _branches(x: Any) -> Any:
    pick = lambda i: lax.switch(i, [lambda y: y + 1, lambda y: y * 2, lambda y: -y], x)  # noqa: E731
    return pick(0), pick((x.sum() * 0).astype(jnp.int32) + 1), pick(2), lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x)


def _large(x: Any) -> Any:
    """Where numbers of 63 bits would be ordered otherwise."""
    return x.max(1), x.min(0), jnp.sort(x, 1), jnp.argmax(x, 1), x < x[::-1], jnp.maximum(x, x[::-1])


STRUCTURES: dict[str, Callable[..., Any]] = {
    "reductions": lambda x: (x.sum(), x.max(0), x.min(1), x.prod(), (x > 0).all(), (x > 1).any(0), x.mean(), x.var(1)),
    "order": lambda x: (jnp.sort(x, 0), jnp.argsort(-x, 1), jnp.argmax(x, 1), jnp.argmin(x, 0), lax.top_k(x, 3)),
    "shapes": lambda x: (x.T, x.reshape(2, -1), x[::2, 1:4], x[::-1], jnp.concatenate([x, x]), jnp.pad(x, 1), x[None]),
    "pad": lambda x: (lax.pad(x, 0.0, ((1, 2, 1), (-1, -2, 0))), lax.pad(x, 0.0, ((-1, 3, 2), (0, 0, 0)))),
    "iota": lambda x: (jnp.arange(6) * x, jnp.eye(4, 6) + x, jnp.tril(x)),
    "gather": lambda x: (x[jnp.array([2, 0, 1])], x[:, jnp.array([1, -1])], x[jnp.array([0, 3]), jnp.array([1, 2])]),
    "take": lambda x: jnp.take(x, jnp.array([1, 9]), axis=0),
    "along": lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1),
    "vmap gather": lambda x: rlx.vmap(lambda r, i: r[i])(x, jnp.array([0, 5, 2, 1])),
    "scatter": lambda x: (x.at[jnp.array([1, 1])].add(x[:2]), x.at[:, 2].set(0.0), x.at[jnp.array([1, 9])].set(7.0)),
    "scatter max": lambda x: (x.at[0].max(0.5), x.at[jnp.array([2, 0])].min(0.1), x.at[1].multiply(3.0)),
    "dynamic": lambda x: (
        lax.dynamic_slice(x, (jnp.argmax(x[:, 0]), 2), (2, 3)),
        lax.dynamic_update_slice(x, x[:2], (1, 0)),
    ),
    "products": lambda x: (
        x @ x.T,
        jnp.einsum("ij,kj->ik", x, x),
        jnp.tensordot(x, x, ([0, 1], [0, 1])),
        x.T @ x[:, 0],
    ),
    "integers": lambda x: (
        x.astype(int) @ x.astype(int).T,
        x.astype(jnp.int32).sum(),
        jnp.cumsum(x.astype(jnp.int16), 1),
    ),
    "cumulative": lambda x: (jnp.cumsum(x, 0), lax.cumsum(x, 1, reverse=True)),
    "pool": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 3), (1, 2), "SAME"),
    "convolution": lambda x: lax.conv_general_dilated(
        x.reshape(1, 1, 4, 6), jnp.ones((2, 1, 3, 2)), (2, 1), ((1, -1), (0, 2)), (1, 2), (1, 2)
    ),
    "scan": lambda x: lax.scan(lambda c, r: (c * 0.5 + r, c.sum()), x[0], x),
    "backwards": lambda x: lax.scan(lambda c, r: (c * 0.5 + r, c.sum()), x[0], x, reverse=True),
    "counted": lambda x: lax.fori_loop(0, 5, lambda i, c: c * 1.1 + i, x),
    "stacked": lambda x: lax.scan(lambda c, _: (c * 2, c[0]), x, None, length=3),
    "while": _loop,
    "branches": _branches,
    "gradient": lambda x: rlx.grad(lambda y: (jnp.tanh(y @ y.T) ** 2).sum())(x),
    "hessian": lambda x: rlx.hessian(lambda y: (jnp.sin(y) * y[0]).sum())(x[0]),
    "random": lambda x: rlx.random.normal(rlx.random.key(3), (5,)) + x[0, :5],
    "closure": lambda x: x + np.arange(24, dtype=np.float32).reshape(4, 6),
    "passed through": lambda x: (x, 3.0, x + 1),
    "missing numbers": lambda x: tuple(f(x.at[1, 2:4].set(jnp.nan), 1) for f in (jnp.argmax, jnp.argmin, jnp.sort)),
    "large integers": lambda x: _large(jnp.where(x > 0, 1 << 63, 1).astype(jnp.uint64) + jnp.abs(x).astype(jnp.uint64)),
    "norm": lambda x: rlx.nn.log_softmax(rlx.nn.standardize(x)),
    "rnn": lambda x: rlx.nn.softplus(x).cumsum(),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures(name: str) -> None:
    """Shapes, indices, products, loops, branches, derivatives."""
    check(STRUCTURES[name], (X,))


@pytest.mark.parametrize("name", ["reductions", "shapes", "products", "scan", "gradient", "norm", "while"])
def test_round_trip(name: str) -> None:
    """What was written is read back to the same function."""
    function = STRUCTURES[name]
    loaded, parameters = rlx.onnx.load(rlx.onnx.export(function, X))
    found, expected = rlx.tree.leaves(loaded(parameters, X)), rlx.tree.leaves(function(X))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_trees_and_files(tmp_path: Path) -> None:
    """Leaves in order are inputs and outputs; the file is the model."""
    arguments = ({"b": X[0], "a": X}, 2.0)
    path = tmp_path / "model.onnx"
    model = rlx.onnx.export(lambda p, s: {"z": p["a"] * s, "y": p["b"]}, *arguments, path=path)
    assert onnx.load(path).SerializeToString() == model.SerializeToString()
    y, z = run(model, ({"b": X[0], "a": X}, np.float32(2)))
    np.testing.assert_array_equal(y, X[0])
    np.testing.assert_array_equal(z, 2 * X)


NEWEST = onnx.defs.onnx_opset_version()


@pytest.mark.parametrize("opset", range(17, NEWEST + 1))
@pytest.mark.thorough
def test_opsets(opset: int) -> None:
    """Every structure for every operator set: the same results, or an error that says which one to write."""
    for name, function in STRUCTURES.items():
        try:
            model = check(function, (X,), opset=opset)
        except UnsupportedError as error:
            assert opset == 17 and "needs Bitwise" in str(error) and "opset=18" in str(error), name
            continue
        assert [o.version for o in model.opset_import] == [opset]


def test_other_opsets_are_refused() -> None:
    """With the range that can be written."""
    for opset in (16, NEWEST + 1, "21"):
        with pytest.raises(OptionError, match=f"from 17 to {NEWEST}"):
            rlx.onnx.export(jnp.sin, X, opset=opset)
    with pytest.raises(UnsupportedError, match=r"BitwiseXor, which opset 17 lacks; write opset=18"):
        rlx.onnx.export(lambda x: x.astype(int) ^ 3, X, opset=17)


REFUSED: dict[str, Callable[..., Any]] = {
    "eig": lambda x: jnp.abs(jnp.linalg.eigvals(x[:, :4])),
    "reduce_prod": lambda x: jnp.prod(lax.complex(x, x)).real,
    "confluent_hypergeometric": lambda x: rlx.scipy.special.hyp1f1(1.5, 2.0, x),
    "pure_callback": lambda x: rlx.pure_callback(np.sin, x, x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_onnx_lacks_is_refused(name: str) -> None:
    """By name, with the user's line."""
    with pytest.raises(UnsupportedError) as caught:
        rlx.onnx.export(REFUSED[name], X)
    assert name in str(caught.value) and "test_exporting.py" in str(caught.value)


def test_keys_are_refused() -> None:
    """Random keys have no type there."""
    with pytest.raises(UnsupportedError, match="keys"):
        rlx.onnx.export(lambda key: rlx.random.uniform(key), rlx.random.key(0))
