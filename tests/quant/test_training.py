"""Calibration and rounding that learns, against NumPy; against torch and onnxruntime where RLX_TEST_LM=1 has them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from needs import beside

import rlx
import rlx.numpy as jnp
from rlx import quant
from rlx.ad_checkpoint import checkpoint_name
from rlx.errors import AxisError, NanError, OptionError, ShapeError
from rlx.quant.training import range_of

X = (np.random.default_rng(0).standard_normal((6, 50)) * 3).astype(np.float32)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_fake_quantisation_is_numpys_to_the_bit(bits: int, axis: int | None) -> None:
    top = range_of(bits)
    axes = tuple(i for i in range(2) if i != axis)
    scale = np.maximum(np.abs(X).max(axes, keepdims=axis is not None) / np.float32(top), np.float32(1e-6))
    expected = np.clip(np.rint(X / scale), -top, top) * scale
    for f in (quant.fake_quantize, rlx.jit(quant.fake_quantize, static_argnums=(2, 3))):
        np.testing.assert_array_equal(f(X, None, bits, axis), expected)
        np.testing.assert_array_equal(f(X, scale if axis is None else scale.reshape(-1), bits, axis), expected)
    zeros = quant.fake_quantize(np.zeros((2, 3), np.float32), bits=bits)
    assert not np.asarray(zeros).any()


def test_what_lies_far_outside_is_the_greatest_code() -> None:
    for kind in ("identity", "clipped", "tanh", "hard_tanh"):
        found = rlx.jit(lambda x, kind=kind: quant.fake_quantize(x, 0.5, bits=4, straight_through=kind))
        assert found(np.array([1e8, -1e8], np.float32)).tolist() == [3.5, -3.5]


def test_straight_through_estimates() -> None:
    x = np.array([0.2, -0.7, 4.1, -9.0], np.float32)

    def slope(name: str) -> Any:
        return np.asarray(rlx.grad(lambda v: quant.fake_quantize(v, 0.5, 4, None, name).sum())(x))

    assert slope("identity").tolist() == [1, 1, 1, 1]
    assert slope("clipped").tolist() == slope("hard_tanh").tolist() == [1, 1, 0, 0]
    np.testing.assert_allclose(slope("tanh"), 1 - np.tanh(x / 3.5) ** 2, rtol=1e-5)


@pytest.mark.parametrize("axis", [None, 0])
def test_a_scale_may_be_a_moving_average_of_what_was_seen(axis: int | None) -> None:
    """It is the calibrator's, and a state that compiled steps take in and hand out."""

    @rlx.jit
    def step(x: Any, before: Any) -> Any:
        scale = quant.observed_scale(x, 4, axis, before, 0.75)
        return quant.fake_quantize(x, scale, 4, axis), scale

    batches = [size * X for size in (1.0, 3.0, 0.5)]
    calibrators = [quant.Calibrator("moving_average", decay=0.75) for _ in range(1 if axis is None else len(X))]
    scale = None
    for batch in batches:
        for calibrator, part in zip(calibrators, [batch] if axis is None else batch, strict=True):
            calibrator.add(part)
        rounded, scale = step(batch, scale)
        expected = np.array([c.threshold() / 7 for c in calibrators], np.float32)
        np.testing.assert_allclose(np.reshape(scale, -1), expected, rtol=1e-6)
        assert np.array_equal(rounded, np.clip(np.rint(batch / scale), -7, 7) * scale)
    assert np.isfinite(rlx.grad(lambda x: step(x, scale)[0].sum())(X)).all()


def test_quantise_and_back_is_numpys_to_the_bit() -> None:
    entry = quant.CalibrationEntry.per_channel(1, [0.1, 0.2, 0.5], [0, 3, -7])
    x = X[:, :3]
    s, z = np.float32([0.1, 0.2, 0.5]), np.float32([0, 3, -7])
    expected = (np.clip(np.rint(x / s) + z, -128, 127) - z) * s
    assert np.array_equal(quant.quantize_dequantize(x, entry), expected)


def test_tables_of_schemes_and_entries_are_mappings() -> None:
    schemes = quant.QuantMap({"head": quant.QuantScheme("int8/32")})
    schemes.insert("head", "gguf_q4_0")
    schemes.insert("body", "nf4")
    assert dict(schemes) == {"head": quant.QuantScheme("gguf_q4_0"), "body": quant.QuantScheme("nf4/64")}
    assert len(schemes) == 2 and "tail" not in schemes
    record = quant.CalibrationRecord({"x": quant.CalibrationEntry.per_tensor(0.5)})
    assert list(record) == ["x"] and record["x"].zero_points == (0,)


def test_named_values_are_rounded_wherever_they_are_read() -> None:
    @rlx.jit
    def inner(x: Any) -> Any:
        return checkpoint_name(jnp.tanh(x), "inner")

    def network(x: Any, w: Any) -> Any:
        x = checkpoint_name(x, "x")
        h = inner(x @ w)
        return {"h": h, "both": h + x[:, :1]}

    w = np.random.default_rng(1).standard_normal((50, 4)).astype(np.float32)
    record = quant.calibrate(lambda batch: quant.taps_of(network)(batch, w), [X[:3], X[3:]])
    assert set(record) == {"x", "inner"} and record["x"].scales[0] == pytest.approx(np.abs(X).max() / 127)
    x = np.asarray(quant.quantize_dequantize(X, record["x"]))
    h = np.asarray(quant.quantize_dequantize(jnp.tanh(x @ w), record["inner"]))
    for f in (quant.insert_q_dq(network, record), rlx.jit(quant.insert_q_dq(network, record))):
        found = f(X, w)
        np.testing.assert_allclose(found["h"], h, atol=record["inner"].scales[0] * 1.01)
        np.testing.assert_allclose(found["both"], np.asarray(found["h"]) + x[:, :1], atol=1e-6)
        assert len(np.unique(np.asarray(found["h"]))) <= 24
    with pytest.raises(OptionError, match="no values called y"):
        quant.insert_q_dq(network, {"y": record["x"]})(X, w)
    with pytest.raises(OptionError, match="names no values"):
        quant.taps_of(lambda x: x)(X)


@pytest.mark.parametrize("axis", [None, 1])
def test_what_is_inserted_is_numpys_to_the_bit(axis: int | None) -> None:
    """Every reader of a value, and the result, has what NumPy rounds: of functions, compiled ones and graphs."""
    scales, zeros = (np.float32(0.1), np.float32(3)) if axis is None else (np.linspace(0.01, 2, 50), np.arange(50) - 25)
    scales, zeros = np.float32(scales), np.float32(zeros)
    entry = quant.CalibrationEntry(axis, tuple(scales.ravel().tolist()), tuple(zeros.ravel().astype(int).tolist()))

    def numpy_rounded(x: np.ndarray) -> np.ndarray:
        return (np.clip(np.rint(x / scales) + zeros, -128, 127) - zeros) * scales

    def function(x: Any) -> Any:
        named = checkpoint_name(x, "x")
        return named, 2 * named, checkpoint_name(rlx.nn.relu(named), "y")

    x = numpy_rounded(X)
    expected = x, 2 * x, numpy_rounded(np.maximum(x, 0))
    inserted = quant.insert_q_dq(function, {"x": entry, "y": entry})
    graph = rlx.Graph("net")
    node = graph.input("x", rlx.Shape(list(X.shape)))
    twice, other = graph.add(node, node), graph.relu(node)
    graph.set_outputs([node, twice, other])
    for run in (inserted, rlx.jit(inserted), lambda x: quant.insert_q_dq(graph, {node: entry, other: entry})(x=x)):
        for found, wanted in zip(run(X), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_methods_of_calibration_order_themselves() -> None:
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal(20_000) for _ in range(4)]
    batches[2][0] = 60.0  # one that does not count
    found = {}
    for method in ("max", "moving_average", "percentile", "entropy", "mse"):
        record = quant.calibrate(
            lambda x: {"x": x}, batches, method, **({"percentile": 99.9} if method == "percentile" else {})
        )
        found[method] = record["x"].scales[0] * 127
    assert found["max"] == pytest.approx(60.0)
    assert found["percentile"] < 5 and all(found[method] < 59 for method in ("mse", "entropy", "moving_average"))
    with pytest.raises(NanError, match="'hidden'"):
        quant.calibrate(lambda x: {"hidden": x}, [np.array([np.nan])])
    with pytest.raises(OptionError, match="no batches"):
        quant.calibrate(lambda x: {"x": x}, [])


def test_a_learned_scale_is_found() -> None:
    """The scale that rounding to 4 bits loses least with is reached by its own gradient."""
    x = jnp.asarray(np.random.default_rng(1).standard_normal(4000).astype(np.float32))

    @rlx.jit
    def loss(s: Any) -> Any:
        return ((quant.lsq(x, s, 4) - x) ** 2).mean()

    scale = quant.first_scale(x, 4)
    slope = rlx.jit(rlx.grad(loss))
    for _ in range(300):
        scale = scale - 20.0 * slope(scale)
    best = min(float(loss(jnp.float32(s))) for s in np.linspace(0.1, 1.0, 200))
    assert loss(scale) < 1.02 * best


def test_mistakes_are_named() -> None:
    with pytest.raises(OptionError, match="have 3 bits"):
        quant.fake_quantize(X, bits=3)
    with pytest.raises(OptionError, match="straight_through='relu'"):
        quant.fake_quantize(X, straight_through="relu")
    with pytest.raises(ShapeError, match="for axis 0"):
        quant.fake_quantize(X, np.ones(5, np.float32), axis=0)
    with pytest.raises(OptionError, match="decay=1"):
        quant.observed_scale(X, decay=1.0)
    with pytest.raises(ShapeError, match="for axis 1"):
        quant.observed_scale(X, axis=1, before=np.ones(6, np.float32))
    with pytest.raises(AxisError, match="axis 2"):
        quant.lsq(X, np.ones(5, np.float32), axis=2)
    with pytest.raises(OptionError, match="not positive"):
        quant.CalibrationEntry.per_tensor(0.0)
    with pytest.raises(OptionError, match="2 scales and 1 zero points"):
        quant.CalibrationEntry(0, (1.0, 2.0), (0,))
    with pytest.raises(ShapeError, match="2 scales along axis 5"):
        quant.quantize_dequantize(X, quant.CalibrationEntry.per_channel(5, [1.0, 1.0]))
    with pytest.raises(OptionError, match="no method of calibration 'median'"):
        quant.Calibrator("median")
    with pytest.raises(OptionError, match="seen no values"):
        quant.Calibrator("mse").threshold()
    for scale in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(OptionError, match="not positive, or not finite") as raised:
            quant.fake_quantize(X, scale)
        assert "test_training.py" in str(raised.value), "the user's line"
        with pytest.raises(OptionError, match="not positive, or not finite"):
            quant.observed_scale(X, before=scale)
        with pytest.raises(OptionError, match="not positive, or not finite"):
            quant.lsq(X, np.array([1.0, scale] * 3, np.float32), axis=0)


# ---------------------------------------------------------------- other libraries
@beside
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("gradient_scale", [True, False])
def test_learned_scales_have_torchs_gradients(bits: int, gradient_scale: bool) -> None:
    import torch

    top = range_of(bits)
    scales = np.linspace(0.2, 1.0, 6).astype(np.float32)
    weight = np.random.default_rng(2).standard_normal(X.shape).astype(np.float32)
    x, s = torch.tensor(X, requires_grad=True), torch.tensor(scales, requires_grad=True)
    factor = 1 / np.sqrt(50 * top) if gradient_scale else 1.0
    made = torch._fake_quantize_learnable_per_channel_affine(x, s, torch.zeros(6), 0, -top, top, factor)
    (made * torch.tensor(weight)).sum().backward()

    def loss(x: Any, s: Any) -> Any:
        return (quant.lsq(x, s, bits, 0, gradient_scale) * weight).sum()

    np.testing.assert_allclose(quant.lsq(X, scales, bits, 0), made.detach(), atol=1e-6)
    for_x, for_s = rlx.jit(rlx.grad(loss, (0, 1)))(X, scales)
    np.testing.assert_allclose(for_x, x.grad, atol=1e-6)
    within = 1e-6 * float(s.grad.abs().max()) + 2e-7 * top  # codes up to q_max are rounded to float32
    np.testing.assert_allclose(for_s, s.grad, atol=within, rtol=0)


@beside
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("axis", [None, 1])
def test_straight_through_gradients_are_torchs(bits: int, axis: int | None) -> None:
    import torch

    top, weight = range_of(bits), np.random.default_rng(2).standard_normal(X.shape).astype(np.float32)
    scales = np.float32(0.3) if axis is None else np.linspace(0.2, 1.0, 50).astype(np.float32)
    x = torch.tensor(X, requires_grad=True)
    if axis is None:
        made = torch.fake_quantize_per_tensor_affine(x, float(scales), 0, -top, top)
    else:
        zeros = torch.zeros(50, dtype=torch.int32)
        made = torch.fake_quantize_per_channel_affine(x, torch.tensor(scales), zeros, axis, -top, top)
    (made * torch.tensor(weight)).sum().backward()
    slope = rlx.grad(lambda x: (quant.fake_quantize(x, scales, bits, axis) * weight).sum())(X)
    np.testing.assert_allclose(quant.fake_quantize(X, scales, bits, axis), made.detach(), atol=1e-6)
    np.testing.assert_allclose(slope, x.grad, atol=1e-6)


@beside
@pytest.mark.parametrize("axis", [None, 0])
def test_moving_averages_are_those_of_torch(axis: int | None) -> None:
    """Theirs are of the least and the greatest apart, so the greatest are the largest here."""
    import torch

    least, greatest = (torch.full((1 if axis is None else 6,), sign * torch.inf) for sign in (1, -1))
    scales, zeros = torch.ones_like(least), torch.zeros_like(least, dtype=torch.int32)
    on, scale = torch.ones(1, dtype=torch.int64), None
    for batch in (X, 2 * X, 0.3 * X):
        x = np.maximum(batch, -np.abs(batch).max(1, keepdims=True) / 8) + np.float32(0.01)
        x[:, 0] = np.abs(batch).max(1)
        scale = quant.observed_scale(x, 8, axis, scale, 0.9)
        expected = torch.fused_moving_avg_obs_fake_quant(
            torch.tensor(x), on, on, least, greatest, scales, zeros, 0.1, -128, 127, axis or 0, axis is not None, True
        )
        np.testing.assert_allclose(np.reshape(scale, -1), scales, rtol=1e-6)
        np.testing.assert_allclose(quant.fake_quantize(x, scale, 8, axis), expected, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("method", "bins"), [("percentile", 2048), ("percentile", 128), ("entropy", 128), ("entropy", 512)]
)
def test_thresholds_are_those_of_onnxruntime(method: str, bins: int, seed: int) -> None:
    """Within a bin of the histogram, which grows with the batches; their edges are float32."""
    calibrate = pytest.importorskip("onnxruntime.quantization.calibrate")
    rng = np.random.default_rng(seed)
    ours = quant.Calibrator(method, bins=bins, percentile=99.9)
    theirs = calibrate.HistogramCollector(
        method, symmetric=True, num_bins=bins, num_quantized_bins=128, percentile=99.9, scenario="same"
    )
    for size in (1.0, 0.5, 1.5):
        batch = (size * rng.laplace(0.1, size=5000)).astype(np.float32)
        ours.add(batch)
        theirs.collect({"x": [batch]})
    expected = float(theirs.compute_collection_result()["x"][1])
    assert abs(ours.threshold() - expected) <= 1.01 * ours.width, (ours.threshold(), expected)
    assert ours.largest is not None and 0 < ours.threshold() <= ours.largest


@pytest.mark.parametrize("moving", [False, True])
def test_greatest_values_are_those_of_onnxruntime(moving: bool, tmp_path: Path) -> None:
    """MinMaxCalibrater looks at a model's values; its average goes over the greatest of each batch, as ours."""
    calibrate = pytest.importorskip("onnxruntime.quantization.calibrate")
    from onnx import TensorProto, helper, save

    graph = helper.make_graph(
        [helper.make_node("Abs", ["x"], ["h"]), helper.make_node("Mul", ["h", "h"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 50])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [6, 50])],
    )  # fmt: skip
    path = tmp_path / "m.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    batches = [size * X for size in (1.0, 3.0, 0.5)]
    theirs = calibrate.MinMaxCalibrater(
        path, augmented_model_path=str(tmp_path / "a.onnx"), moving_average=moving, averaging_constant=0.25
    )
    theirs.augment_graph()
    theirs.create_inference_session()
    for batch in batches:  # each by itself, as their average wants it
        given = iter([{"x": batch.astype(np.float32)}])
        theirs.collect_data(SimpleNamespace(get_next=lambda given=given: next(given, None)))
    ranges = theirs.compute_data().data
    how: dict[str, Any] = {"method": "moving_average", "decay": 0.75} if moving else {"method": "max"}
    record = quant.calibrate(lambda x: {"h": np.abs(x), "y": x * x}, batches, **how)
    for name, entry in record.items():
        assert entry.scales[0] * 127 == pytest.approx(np.ravel(ranges[name].range_value[1]).item(), rel=1e-6)


def test_the_threshold_by_squares_is_the_best_of_all() -> None:
    """With the values themselves and not their histogram, by which ours is found."""
    values = np.append(np.random.default_rng(0).laplace(size=300_000), 60.0).astype(np.float32)
    calibrator = quant.Calibrator("mse")
    calibrator.add(values)

    def lost(threshold: float) -> float:
        step = threshold / 127
        return float(((values - np.clip(np.rint(values / step), -127, 127) * step) ** 2).sum())

    best = min(map(lost, np.arange(1.0, 60.0, 0.4)))
    assert lost(calibrator.threshold()) <= 1.02 * best < 0.5 * lost(60.0)


def test_bins_become_wider_where_there_would_be_too_many() -> None:
    """A range that grows a millionfold takes no more memory, and counts are kept."""
    calibrator = quant.Calibrator("percentile", bins=64, percentile=50.0)
    for size in (1e-3, 1.0, 1e3):
        calibrator.add(size * np.linspace(-1, 1, 1001))
    assert calibrator.counts.shape[1] <= 4096 and calibrator.counts.sum() == 3003
    assert abs(calibrator.threshold() - 0.5) <= calibrator.width
