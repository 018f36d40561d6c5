"""Integer programs beside the quantised operators of onnxruntime, and exported to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import rlx
import rlx.numpy as jnp
from rlx import lax, quant
from rlx.quant.integer_program import IntegerConvolution, IntegerDense, IntegerOperation, IntegerProgram

draw = np.random.default_rng(5)
EXAMPLES = draw.normal(size=(32, 9, 7, 3)).astype("f4")


def run(model: onnx.ModelProto, *inputs: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))[0]


def convolution(p: Any, x: Any) -> Any:
    x = lax.conv_general_dilated(
        x, p["w"], (2, 1), ((1, 0), (1, 1)), rhs_dilation=(1, 2), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return x + p["b"]


def product(p: Any, x: Any) -> Any:
    return x.reshape(len(x), -1) @ p["w"] + p["b"]


PROGRAMS = {
    "QLinearConv": (convolution, {"w": draw.normal(size=(3, 2, 3, 5)), "b": draw.normal(size=5)}),
    "QLinearMatMul": (product, {"w": draw.normal(size=(189, 6)), "b": np.zeros(6)}),
}


def program_of(name: str, rounding: str) -> IntegerProgram:
    function, parameters = PROGRAMS[name]
    held = {key: value.astype("f4") for key, value in parameters.items()}
    return quant.integer_program(function, held, EXAMPLES, rounding=rounding)


def model_of(program: IntegerProgram, operation: IntegerOperation, name: str) -> onnx.ModelProto:
    """One operator, with the program's scales, weights and zero points; images are [n, channels, height, width]."""
    source, target = program.values[operation.inputs[0]], program.values[operation.output]
    assert isinstance(operation, IntegerConvolution | IntegerDense)
    multiplier, shift = operation.requantization.multiplier, operation.requantization.shift
    wide = multiplier.astype("f8")
    factor = wide * 2.0**-31 * 2.0 ** -shift.astype("f8") if operation.requantization.rounding == "q31" else wide
    constants = {
        "x_scale": np.float32(source.scale), "x_zero": np.int8(source.zero_point),
        "w_scale": (factor * target.scale / source.scale).astype("f4"), "w_zero": np.zeros(len(factor), "i1"),
        "y_scale": np.float32(target.scale), "y_zero": np.int8(target.zero_point),
    }  # fmt: skip
    names = ["x", "x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero"]
    options: dict[str, Any] = {}
    if isinstance(operation, IntegerConvolution):
        constants |= {"w": np.ascontiguousarray(operation.weights.transpose(0, 3, 1, 2)), "bias": operation.bias}
        names.append("bias")
        (top, bottom), (left, right) = operation.padding
        options = {"strides": operation.strides, "dilations": operation.dilation, "pads": [top, left, bottom, right]}
    else:
        constants["w"] = np.ascontiguousarray(operation.weights.T)
    graph = helper.make_graph(
        [helper.make_node(name, names, ["y"], **options)],
        name,
        [helper.make_tensor_value_info("x", TensorProto.INT8, None)],
        [helper.make_tensor_value_info("y", TensorProto.INT8, None)],
        [numpy_helper.from_array(np.asarray(value), key) for key, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("rounding", ["q31", "float"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_codes_are_those_of_onnxruntime_up_to_roundings(name: str, rounding: str) -> None:
    """It rounds once, halves to even: another code only where the sum is close to the middle of two."""
    program = program_of(name, rounding)
    (operation,) = (o for o in program.operations if isinstance(o, IntegerConvolution | IntegerDense))
    codes = np.random.default_rng(0).integers(-128, 128, (16, *program.values[program.inputs[0]].shape)).astype("i1")
    own = np.asarray(program(codes))
    if isinstance(operation, IntegerConvolution):
        other = run(model_of(program, operation, name), codes.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    else:
        other = run(model_of(program, operation, name), codes.reshape(16, -1))
    differences = np.abs(own.astype(int) - other)
    assert own.shape == other.shape and len(np.unique(own)) > 20
    assert differences.max() <= 1 and (differences > 0).mean() < 0.01


@pytest.mark.parametrize("rounding", ["q31", "float"])
def test_an_exported_program_computes_the_same_codes(rounding: str) -> None:
    def network(p: Any, x: Any) -> Any:
        x = lax.reduce_window(rlx.nn.relu(convolution(p, x)), -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return jnp.tanh(x.reshape(len(x), -1) @ p["d"])

    held = {key: value.astype("f4") for key, value in PROGRAMS["QLinearConv"][1].items()}
    held["d"] = draw.normal(size=(2 * 3 * 5, 4)).astype("f4")
    program = quant.integer_program(network, held, EXAMPLES, rounding=rounding)
    codes = draw.integers(-128, 128, (16, 9, 7, 3)).astype("i1")
    model = rlx.onnx.export(program, rlx.ShapeDtypeStruct(codes.shape, "int8"))
    np.testing.assert_array_equal(run(model, codes), np.asarray(program(codes)))


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_of_integers(dtype: str, groups: int) -> None:
    """Strides, dilations of both operands, groups, and padding that cuts: the same integers, also where they wrap."""

    def f(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (2, 1), ((2, -1), (0, 3)), lhs_dilation=(1, 2), rhs_dilation=(2, 1),
            dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups,
        )  # fmt: skip

    info = np.iinfo(dtype)
    x, w = (
        np.random.default_rng(1).integers(info.min, info.max, shape, endpoint=True).astype(dtype)
        for shape in ((2, 9, 6, 4), (3, 2, 4 // groups, 6))
    )
    model = rlx.onnx.export(f, *(rlx.ShapeDtypeStruct(a.shape, a.dtype) for a in (x, w)))
    np.testing.assert_array_equal(run(model, x, w), np.asarray(f(x, w)))
