"""Operators whose attributes and inputs have special cases, one small model each: make test-formats has all cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import rlx

F, I = np.float32, np.int64  # noqa: E741
X = np.arange(7, dtype=F)
OFF_ON = np.array([2.0, 5.0], F)
HOT = {0: [5, 2, 2], -1: [2, 2, 5], 2: [2, 2, 5], 3: [2, 2, 2], -4: [2, 2, 2], -3: [5, 2, 2]}
ROWS: dict[str, tuple[str, list[Any], dict[str, Any], list[Any]]] = {
    # operator, inputs, attributes, outputs
    "Split uneven": ("Split", [X], {"num_outputs": 3}, [X[:3], X[3:6], X[6:]]),
    "Split even": ("Split", [X[:6]], {"num_outputs": 3}, [X[:2], X[2:4], X[4:6]]),
    "Split by sizes": ("Split", [X, np.array([1, 0, 6], I)], {}, [X[:1], X[:0], X[1:]]),
    "OneHot": ("OneHot", [np.array([*HOT], I), np.array(3, I), OFF_ON], {}, [np.array([*HOT.values()], F)]),
    "OneHot in front": (
        "OneHot", [np.array([*HOT], I), np.array(3, I), OFF_ON], {"axis": 0}, [np.array([*HOT.values()], F).T],
    ),
    "Gather from the end": ("Gather", [X, np.array([-1, 0, -7], I)], {}, [X[[6, 0, 0]]]),
    "Slice backwards": (
        "Slice", [X, np.array([-1], I), np.array([-100], I), np.array([0], I), np.array([-2], I)], {}, [X[::-2]],
    ),
    "Reshape with 0 and -1": ("Reshape", [X[:6].reshape(2, 3), np.array([0, -1], I)], {}, [X[:6].reshape(2, 3)]),
    "Mod of floats": ("Mod", [np.array([-4.0, 7.0], F), np.array([3.0, -3.0], F)], {"fmod": 1}, [np.array([-1, 1], F)]),
    "Mod of integers": ("Mod", [np.array([-4, 7], I), np.array([3, -3], I)], {}, [np.array([2, -2], I)]),
    "Unsqueeze from the end": ("Unsqueeze", [X, np.array([-1], I)], {}, [X[:, None]]),
    "CumSum exclusive and reverse": (
        "CumSum", [X[:4], np.array(0, np.int32)], {"exclusive": 1, "reverse": 1}, [np.array([6, 5, 3, 0], F)],
    ),
    "RNN that cuts minus infinity": (
        "RNN", [np.full((1, 1, 1), -np.inf, F), np.ones((1, 1, 1), F), np.zeros((1, 1, 1), F)],
        {"hidden_size": 1, "activations": ["ThresholdedRelu"]}, [np.zeros((1, 1, 1, 1), F)],
    ),
}  # fmt: skip


@pytest.mark.selected("all")
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.filterwarnings("ignore")
def test_operator(name: str) -> None:
    operator, inputs, attributes, expected = ROWS[name]
    names = [f"x{n}" for n in range(len(inputs))]
    outs = [f"y{n}" for n in range(len(expected))]
    node = helper.make_node(operator, names, outs, **attributes)
    types = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in inputs]
    # all inputs but the first are stored in the model, where shapes depend on them
    given = [helper.make_tensor_value_info(names[0], types[0], inputs[0].shape)]
    stored = [onnx.numpy_helper.from_array(a, n) for n, a in zip(names[1:], inputs[1:], strict=True)]
    results = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in outs]
    graph = helper.make_graph([node], "one", given, results, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    function, parameters = rlx.onnx.load(model)
    found = function(parameters, inputs[0])
    for a, b in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.asarray(a).dtype == b.dtype


def test_scales_are_rounded_up() -> None:
    """To powers of two; zero to the least one, and infinities to the largest unless they become NaN."""
    for saturate, infinite in ((1, 2.0**127), (0, np.nan)):
        numbers = np.array([1.1, 2.0, 0.0, 3e-39, np.inf, np.nan], F)
        node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E8M0, saturate=saturate)
        given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6])]
        results = [helper.make_tensor_value_info("y", TensorProto.FLOAT8E8M0, [6])]
        model = helper.make_model(helper.make_graph([node], "one", given, results))
        function, parameters = rlx.onnx.load(model)
        found = np.asarray(function(parameters, numbers)).astype(F)
        np.testing.assert_array_equal(found, np.array([2.0, 2.0, 2.0**-127, 2.0**-127, infinite, np.nan], F))


def test_errors_name_the_node() -> None:
    """An error of rlx says in which node it was raised."""
    node = helper.make_node("MatMul", ["a", "b"], ["c"], name="projection")
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "ab"]
    graph = helper.make_graph([node], "one", given, [helper.make_tensor_value_info("c", TensorProto.FLOAT, None)])
    function, parameters = rlx.onnx.load(helper.make_model(graph))
    with pytest.raises(rlx.errors.ShapeError) as caught:
        function(parameters, np.ones((2, 3), F), np.ones((2, 3), F))
    assert caught.value.__notes__ == ["This happened in the node 'projection' (MatMul) of the ONNX model."]


def test_constants_without_a_type_in_onnx() -> None:
    """They are refused by name; captured keys are their words."""
    constant = np.ones(3, "float8_e3m4")
    with pytest.raises(rlx.errors.RlxError, match="float8_e3m4"):
        rlx.onnx.export(lambda x: (rlx.numpy.asarray(constant), x), np.ones(3, F))
    key = rlx.random.key(3)
    model = rlx.onnx.export(lambda x: x + rlx.random.normal(key, (3,)), np.zeros(3, F))
    function, parameters = rlx.onnx.load(model)
    np.testing.assert_allclose(function(parameters, np.zeros(3, F)), rlx.random.normal(key, (3,)), rtol=1e-5)
