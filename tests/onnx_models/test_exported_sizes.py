"""Models for any batch size: functions of symbolic sizes in onnxruntime, for sizes that were not tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax, nn
from rlx.errors import ShapeError

onnxruntime.set_default_logger_severity(3)
RNG = np.random.default_rng(0)
W = RNG.standard_normal((3, 4)).astype(np.float32)
K = RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)


class Case(NamedTuple):
    """A function, the shapes of its arguments, the shapes of its results, and sizes to try."""

    function: Callable[..., Any]
    shapes: str
    results: str
    sizes: tuple[int, ...] = (0, 1, 2, 3, 7, 16)
    dtype: str = "float32"


SOME = (1, 2, 7)
CASES = {
    "layers": Case(lambda x: nn.softmax(jnp.tanh(x @ W), -1), "b,3", "b,4"),
    "mean": Case(lambda x: x - x.mean(0), "b,3", "b,3", SOME),
    "narrow": Case(lambda x: x / x.shape[0], "b", "b", SOME, "float64"),
    "two sizes": Case(lambda x, y: jnp.concatenate([x, y]), "b,3 n,3", "n + b,3"),
    "expressions": Case(lambda x: x.reshape(2, -1).sum(0), "2*b", "b"),
    "sums of sizes": Case(lambda x, y: x.sum() + y * x.shape[0], "a+b a", "a"),
    "shapes": Case(lambda x: (x.reshape(-1), x[:, None] * x[None], x[1:] - x[:-1], x[::2]), "b,3", "3 * b", (2, 3, 8)),
    "indices": Case(lambda x: (x[:, jnp.array([2, 0])], jnp.arange(x.shape[0]), jnp.roll(x, 1, 0)), "b,3", "b,2", SOME),
    "updates": Case(lambda x: (jnp.asarray(x).at[:, 1].set(2.0), jnp.asarray(x).at[0].add(1.0)), "b,3", "b,3", SOME),
    "order": Case(lambda x: (jnp.sort(x, 0), jnp.argsort(x, 0), lax.top_k(x, 2), jnp.argmax(x, 1)), "b,3", "b,3"),
    "convolution": Case(
        lambda x: lax.conv_general_dilated(x, K, (2, 1), "SAME"), "b,3,n,n", "b,4,(n + 1) // 2,n", (3, 4, 7)
    ),
    "pool": Case(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 2), "VALID"), "b,n", "b,n // 2", (2, 5)),
    "attention": Case(lambda q: nn.dot_product_attention(q, q, q, is_causal=True), "b,t,2,4", "b,t,2,4", SOME),
    "gradient": Case(rlx.grad(lambda x: (jnp.sin(x @ x.T) ** 2).sum()), "b,3", "b,3"),
    "loop": Case(
        lambda x: lax.scan(lambda c, t: (jnp.tanh(c + t @ W), c.sum(-1)), jnp.zeros((x.shape[1], 4)), x),
        "t,b,3", "b,4", SOME,
    ),
    "condition": Case(lambda x: lax.cond(x.sum() > 0, lambda a: a * 2, lambda a: a - 1, x), "b,3", "b,3"),
    "running": Case(lambda x: (lax.cumprod(x, axis=0), jnp.cumsum(x, 1)), "b,3", "b,3", SOME),
    "cholesky": Case(lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(x.shape[0])), "b,3", "b,b", SOME),
    "batch of solves": Case(lambda x: jnp.linalg.solve(x @ x.mT + jnp.eye(3), x), "b,3,3", "b,3,3"),
    "transform": Case(lambda x: jnp.abs(jnp.fft.rfft(x)), "b,12", "b,7"),
    "random": Case(lambda x: x + rlx.random.uniform(rlx.random.key(0), x.shape), "b,3", "b,3"),
}  # fmt: skip
QUICK = ("layers", "two sizes", "loop")


def check(case: Case, opset: int = 21) -> None:
    """Export once, and compare for every size."""
    scope = rlx.export.SymbolicScope()
    shapes = [rlx.export.symbolic_shape(text, scope=scope) for text in case.shapes.split()]
    model = rlx.onnx.export(case.function, *(rlx.ShapeDtypeStruct(s, case.dtype) for s in shapes), opset=opset)
    named = [
        ",".join(str(d.dim_param or d.dim_value) for d in v.type.tensor_type.shape.dim) for v in model.graph.output
    ]
    assert named[0] == case.results
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = sorted({name for shape in shapes for d in shape if not isinstance(d, int) for name in d.names})
    for turn, size in enumerate(case.sizes):
        sizes = {name: size if not at else case.sizes[turn - at] for at, name in enumerate(names)}
        arguments = [
            RNG.standard_normal([d if isinstance(d, int) else d.evaluate(sizes) for d in shape]).astype(case.dtype)
            for shape in shapes
        ]
        found = session.run(None, {i.name: x for i, x in zip(session.get_inputs(), arguments, strict=True)})
        for a, b in zip(found, rlx.tree.leaves(case.function(*arguments)), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape), sizes
            np.testing.assert_allclose(a, np.asarray(b), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", QUICK)
def test_sizes(name: str) -> None:
    check(CASES[name])


@pytest.mark.parametrize("name", [name for name in CASES if name not in QUICK])
@pytest.mark.thorough
def test_more_sizes(name: str) -> None:
    check(CASES[name])


@pytest.mark.parametrize("opset", [17, onnx.defs.onnx_opset_version()])
@pytest.mark.thorough
def test_sizes_in_other_opsets(opset: int) -> None:
    for name in CASES:
        if name != "random":
            check(CASES[name], opset)


def exported(function: Callable[..., Any], shape: str, *constraints: str) -> Any:
    sizes = rlx.export.symbolic_shape(shape, constraints=constraints)
    return rlx.export(function)(rlx.ShapeDtypeStruct(sizes, "float32"))


def test_an_exported_function_is_written_without_types() -> None:
    model = rlx.onnx.export(exported(jnp.sin, "b,3"))
    assert [d.dim_param for d in model.graph.input[0].type.tensor_type.shape.dim] == ["b", ""]


def test_limits_have_to_be_stated() -> None:
    """A file cannot refuse sizes: a function of two programs needs the user's word, which the model repeats."""

    def halves(x: Any) -> Any:
        return x if x.shape[0] < 200 else x * 2

    with pytest.raises(ShapeError, match=r"b <= 199, which an ONNX model cannot say[\s\S]*constraints=\['b <= 199'\]"):
        rlx.onnx.export(exported(halves, "b"))
    assert "b <= 199" in rlx.onnx.export(exported(halves, "b", "b <= 199")).graph.doc_string


def test_graphs_that_depend_on_a_size_are_refused() -> None:
    """Transforms of any length have other factors for each."""
    with pytest.raises(ShapeError, match="no single model for all sizes.*it differs in"):
        rlx.onnx.export(exported(lambda x: jnp.abs(jnp.fft.rfft(x)), "b,n"))
