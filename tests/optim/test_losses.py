"""Losses against optax's: values and gradients in float64, large logits, narrow dtypes, masks, operands refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import optim
from rlx.errors import DtypeError, ShapeError

RNG = np.random.default_rng(0)
LOGITS, OTHERS = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(2, 3, 4))
ONE_HOT = np.eye(4)[RNG.integers(0, 4, (2, 3))]
LABELS, BITS = RNG.integers(0, 4, (2, 3)), RNG.integers(0, 2, (2, 3, 4))
PROBABILITIES = np.exp(OTHERS) / np.exp(OTHERS).sum(-1, keepdims=True)
LOGARITHMS = np.log(np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True))
SOME = RNG.integers(0, 2, (2, 3, 4)).astype(bool) | (ONE_HOT > 0)
ROWS = np.array([[True, False, True], [False, True, True]])
FRAMES = RNG.normal(size=(3, 6, 5))
FRAME_PADDINGS = np.array([[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 1]], float)
SYMBOLS = np.array([[1, 1, 2], [3, 4, 0], [2, 0, 0]])
SYMBOL_PADDINGS = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 1]], float)
CTC = (FRAMES, FRAME_PADDINGS, SYMBOLS, SYMBOL_PADDINGS)

Case = tuple[tuple[Any, ...], dict[str, Any]]
CASES: dict[str, list[Case]] = {
    "softmax_cross_entropy": [
        ((LOGITS, ONE_HOT), {}),
        ((LOGITS, PROBABILITIES), {"axis": 1}),
        ((LOGITS, PROBABILITIES), {"axis": (0, -1)}),
        ((LOGITS, PROBABILITIES), {"axis": None}),
        ((LOGITS, ONE_HOT), {"where": SOME}),
        ((LOGITS, ONE_HOT[0]), {}),
    ],
    "safe_softmax_cross_entropy": [((LOGITS, PROBABILITIES), {}), ((LOGITS, ONE_HOT), {})],
    "softmax_cross_entropy_with_integer_labels": [
        ((LOGITS, LABELS), {}),
        ((LOGITS, LABELS - 4), {}),
        ((LOGITS, np.array([[0, 1, 2, 0], [2, 1, 0, 1]])), {"axis": 1}),
        ((LOGITS, np.array([11, 3])), {"axis": (1, 2)}),
        ((LOGITS, np.array([7, 0, 2])), {"axis": (-1, 0)}),
        ((LOGITS, LABELS), {"where": SOME}),
        ((LOGITS, LABELS), {"where": ROWS}),
        ((LOGITS, LABELS), {"where": np.arange(4) != LABELS[..., None]}),
    ],
    "poly_loss_cross_entropy": [
        ((LOGITS, PROBABILITIES), {}),
        ((LOGITS, ONE_HOT), {"epsilon": -0.5, "axis": (1, 2), "where": SOME}),
    ],
    "sigmoid_binary_cross_entropy": [((LOGITS, BITS), {}), ((LOGITS, PROBABILITIES), {})],
    "sigmoid_focal_loss": [
        ((LOGITS, BITS), {}),
        ((LOGITS, PROBABILITIES), {"alpha": 0.3, "gamma": 1.5}),
        ((LOGITS, BITS[0]), {"gamma": 0.0}),
    ],
    "smooth_labels": [((ONE_HOT, 0.1), {}), ((ONE_HOT, 0.1), {"axis": (1, 2)}), ((ONE_HOT, 0.2), {"where": SOME})],
    "kl_divergence": [
        ((LOGARITHMS, PROBABILITIES), {}),
        ((LOGARITHMS, ONE_HOT), {"axis": (0, 1)}),
        ((LOGARITHMS, PROBABILITIES), {"where": SOME}),
    ],
    "kl_divergence_with_log_targets": [((LOGARITHMS, np.log(PROBABILITIES)), {"axis": 0, "where": SOME})],
    "generalized_kl_divergence": [((LOGITS, 3 * PROBABILITIES), {}), ((LOGITS, PROBABILITIES), {"where": SOME})],
    "ranking_softmax_loss": [
        ((LOGITS, PROBABILITIES), {}),
        ((LOGITS, BITS), {"where": SOME, "weights": np.abs(OTHERS)}),
        ((LOGITS, PROBABILITIES), {"where": SOME & ROWS[..., None], "reduce_fn": None}),
    ],
    "squared_error": [((LOGITS, OTHERS), {}), ((LOGITS,), {})],
    "l2_loss": [((LOGITS, OTHERS), {}), ((LOGITS,), {})],
    "huber_loss": [((3 * LOGITS, OTHERS), {}), ((LOGITS, OTHERS[0]), {"delta": 0.3}), ((LOGITS,), {})],
    "log_cosh": [((3 * LOGITS, OTHERS), {}), ((LOGITS,), {})],
    "cosine_similarity": [
        ((LOGITS, OTHERS), {}),
        ((LOGITS, OTHERS), {"axis": (0, 2), "epsilon": 3.0}),
        ((LOGITS, OTHERS), {"axis": None, "where": SOME}),
    ],
    "cosine_distance": [((LOGITS, OTHERS), {}), ((LOGITS, OTHERS[:1]), {"axis": 1, "where": SOME})],
    "ntxent": [((LOGITS.reshape(6, 4), LABELS.ravel() % 3), {}), ((LOGITS[0], LABELS[0] * 0), {"temperature": 0.5})],
    "triplet_margin_loss": [
        ((LOGITS, OTHERS, PROBABILITIES), {}),
        ((LOGITS, OTHERS, PROBABILITIES), {"axis": 0, "norm_degree": 4, "margin": 2.0, "eps": 0.1}),
    ],
    "hinge_loss": [((LOGITS, 2 * BITS - 1), {})],
    "perceptron_loss": [((LOGITS, 2 * BITS - 1), {})],
    "sparsemax_loss": [((2 * LOGITS, BITS), {})],
    "multiclass_hinge_loss": [((LOGITS, LABELS), {})],
    "multiclass_perceptron_loss": [((LOGITS, LABELS), {})],
    "multiclass_sparsemax_loss": [((LOGITS[0], LABELS[0]), {}), ((0.1 * LOGITS[0], LABELS[0]), {})],
    "ctc_loss": [(CTC, {}), (CTC, {"blank_id": 2, "log_epsilon": -1e4}), ((FRAMES, *(x * 0 for x in CTC[1:])), {})],
    "ctc_loss_with_forward_probs": [],  # test_forward_probabilities
    "dice_loss": [
        ((LOGITS, ONE_HOT), {}),
        ((LOGITS, ONE_HOT), {"class_weights": np.arange(4.0), "alpha": 0.3, "beta": 0.7, "reduction": "sum"}),
        ((LOGITS, ONE_HOT), {"ignore_background": True, "reduction": "none", "smooth": 0.1, "axis": (0, 1)}),
        ((LOGITS[..., :1], BITS[..., 0]), {}),
        ((PROBABILITIES, ONE_HOT), {"apply_softmax": False}),
    ],
    "multiclass_generalized_dice_loss": [((LOGITS, ONE_HOT), {}), ((LOGITS, ONE_HOT), {"ignore_background": True})],
    "binary_dice_loss": [((LOGITS, BITS), {}), ((LOGITS[..., :1], BITS[..., :1]), {"smooth": 0.5})],
    "make_fenchel_young_loss": [],  # test_fenchel_young
}
DEPRECATED = {"convex_kl_divergence"}


def value_and_gradient(function: Callable[..., Any], module: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """The loss, and the gradient of a weighted sum of its elements with respect to the first operand."""

    def total(x: Any) -> Any:
        losses = function(x, *args[1:], **kwargs)
        weights = np.cos(np.arange(losses.size)).reshape(losses.shape)
        return (losses * weights).sum(), losses

    (_, losses), gradient = module.value_and_grad(total, has_aux=True)(args[0])
    return np.asarray(losses), np.asarray(gradient)


@pytest.fixture(scope="module")
def optax() -> Any:
    """The oracle; its floats have 64 bits in these tests."""
    return pytest.importorskip("optax")


def expected_of(optax: Any, name: str, args: tuple[Any, ...], kwargs: Any) -> Any:
    import jax

    with jax.enable_x64(True):
        operands = [jax.numpy.asarray(x) if isinstance(x, np.ndarray) else x for x in args]
        options = {k: jax.numpy.asarray(v) if isinstance(v, np.ndarray) else v for k, v in kwargs.items()}
        return value_and_gradient(getattr(optax.losses, name), jax, tuple(operands), options)


CALLS = [(name, *case) for name, cases in CASES.items() for case in cases]


def agree(optax: Any, name: str, args: tuple[Any, ...], kwargs: Any) -> None:
    expected = expected_of(optax, name, args, kwargs)
    for found in (
        value_and_gradient(getattr(optim, name), rlx, args, kwargs),
        rlx.jit(lambda x: value_and_gradient_of_jit(name, x, args, kwargs))(args[0]),
    ):
        for ours, theirs in zip(found, expected, strict=True):
            assert np.asarray(ours).dtype == np.float64
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)


def value_and_gradient_of_jit(name: str, x: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    losses, pullback = rlx.vjp(lambda x: getattr(optim, name)(x, *args[1:], **kwargs), x)
    weights = np.cos(np.arange(losses.size)).reshape(losses.shape)
    return losses, pullback(jnp.asarray(weights))[0]


def test_names_and_signatures(optax: Any) -> None:
    public = {name for name in vars(optax.losses) if not name.startswith("_")} - DEPRECATED
    assert set(optim.losses.__all__) == set(CASES) == {name for name in public if callable(getattr(optax.losses, name))}
    for name in CASES:
        ours, theirs = (inspect.signature(getattr(m, name)).parameters for m in (optim, optax.losses))
        assert [(p.name, p.kind, p.default) for p in ours.values() if name != "ranking_softmax_loss"] == [
            (p.name, p.kind, p.default) for p in theirs.values() if name != "ranking_softmax_loss"
        ]


@pytest.mark.thorough
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_values_and_gradients_are_those_of_optax(optax: Any, call: Any) -> None:
    agree(optax, *call)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_narrow_floats_are_rounded_once(call: Any, dtype: Any) -> None:
    """The loss of rounded operands, computed in float64 and rounded: 16-bit floats differ by one rounding."""
    name, args, kwargs = call

    def cast(x: Any, old: Any, new: Any) -> Any:
        return x.astype(new) if getattr(x, "dtype", None) == old else x

    narrow = [[cast(x, np.float64, dtype) for x in values] for values in (args, kwargs.values())]
    wide = [[cast(x, dtype, np.float64) for x in values] for values in narrow]
    found, expected = (getattr(optim, name)(*a, **dict(zip(kwargs, b, strict=True))) for a, b in (narrow, wide))
    assert found.dtype == dtype
    limits = jnp.finfo(found.dtype)
    scale = np.maximum(np.abs(np.asarray(expected)), 1e-3 if dtype != np.float32 else 1)
    tolerance = float(limits.eps) * (0.6 if dtype != np.float32 else 100)
    difference = np.abs(np.asarray(found, np.float64) - np.asarray(expected))
    assert (difference <= tolerance * scale + float(limits.smallest_subnormal)).all()


def test_large_logits() -> None:
    """No overflow, and no rounding of a large number that is common to all logits."""
    logits = np.array([[1e4, 1e4 + 1], [-1e30, 1e30], [1e38, -1e38]], np.float32)
    labels = np.array([0, 1, 0])
    exact = np.array([np.log1p(np.exp(1.0)), 0.0, 0.0])
    one_hot = np.eye(2, dtype=np.float32)[labels]
    np.testing.assert_allclose(optim.softmax_cross_entropy_with_integer_labels(logits, labels), exact, rtol=1e-6)
    np.testing.assert_allclose(optim.softmax_cross_entropy(logits, one_hot), exact, rtol=1e-6)
    binary = optim.sigmoid_binary_cross_entropy(np.array([1e30, -1e30, 50.0], np.float32), np.array([1, 1, 1]))
    np.testing.assert_allclose(binary, [0, 1e30, np.exp(-50.0)], rtol=1e-5)
    np.testing.assert_allclose(optim.log_cosh(np.array([1e-4, -1e30], np.float32)), [5e-9, 1e30], rtol=1e-5)
    gradient = rlx.grad(lambda x: optim.softmax_cross_entropy_with_integer_labels(x, labels).sum())(logits)
    assert np.isfinite(np.asarray(gradient)).all()


def test_labels_out_of_range_and_logits_of_minus_infinity() -> None:
    logits = np.array([[0.0, -np.inf], [0.0, 0.0]], np.float32)
    labels = np.array([[1.0, 0.0], [0.5, 0.5]], np.float32)
    assert np.isnan(np.asarray(optim.softmax_cross_entropy(logits, labels))).tolist() == [True, False]
    np.testing.assert_allclose(optim.safe_softmax_cross_entropy(logits, labels), [0, np.log(2)], rtol=1e-6)
    found = np.asarray(optim.softmax_cross_entropy_with_integer_labels(logits, np.array([0, 2])))
    assert found[0] == 0 and np.isnan(found[1])


def test_masked_classes_have_no_gradient() -> None:
    """Those with labels have none either: -inf times zero would be NaN."""
    mask = np.array([[True, True, False]])

    def total(logits: Any, labels: Any) -> Any:
        return optim.softmax_cross_entropy(logits, labels, where=mask).sum()

    for gradient in rlx.grad(total, (0, 1))(np.array([[1.0, 2.0, np.inf]], np.float32), np.ones((1, 3), np.float32)):
        assert np.isfinite(np.asarray(gradient)).all() and gradient[0, 2] == 0


def test_labels_with_more_axes_than_scores() -> None:
    scores, labels = np.array([1.0, 3.0, 0.5], np.float32), np.array([0, 1, 2, 1])
    for name in ("multiclass_hinge_loss", "multiclass_perceptron_loss", "multiclass_sparsemax_loss"):
        function = getattr(optim, name)
        np.testing.assert_allclose(function(scores, labels), function(np.tile(scores, (4, 1)), labels), err_msg=name)


@pytest.mark.thorough
def test_transforms() -> None:
    """vmap gives the rows' losses; second derivatives agree with differences."""
    each = rlx.vmap(optim.softmax_cross_entropy_with_integer_labels)(LOGITS, LABELS)
    np.testing.assert_allclose(each, optim.softmax_cross_entropy_with_integer_labels(LOGITS, LABELS), rtol=1e-14)
    ctc = rlx.jit(rlx.vmap(lambda *x: optim.ctc_loss(*(a[None] for a in x))[0]))(*CTC)
    np.testing.assert_allclose(ctc, optim.ctc_loss(*CTC), rtol=1e-12)
    for name in ("softmax_cross_entropy_with_integer_labels", "multiclass_sparsemax_loss", "log_cosh"):
        labels = [LABELS[0]] if name != "log_cosh" else []
        rlx.testing.check_grads(lambda x, n=name, y=labels: getattr(optim, n)(x, *y).sum(), (LOGITS[0],), order=2)


@pytest.mark.thorough
def test_forward_probabilities(optax: Any) -> None:
    import jax

    with jax.enable_x64(True):
        expected = optax.losses.ctc_loss_with_forward_probs(*map(jax.numpy.asarray, CTC))
    for ours, theirs in zip(optim.ctc_loss_with_forward_probs(*CTC), expected, strict=True):
        reached = np.asarray(theirs) > -9e4  # others are about log_epsilon
        assert (np.asarray(ours)[~reached] < -9e4).all()
        np.testing.assert_allclose(np.asarray(ours)[reached], np.asarray(theirs)[reached], rtol=1e-12)


@pytest.mark.thorough
def test_ctc_is_the_sum_over_alignments() -> None:
    """By enumeration of all paths; a padded symbol may be any number."""
    frames, symbols = RNG.normal(size=(4, 3)), (1, 1)
    logarithms = frames - np.log(np.exp(frames).sum(-1, keepdims=True))
    total = 0.0
    for path in np.ndindex(3, 3, 3, 3):
        merged = [s for i, s in enumerate(path) if i == 0 or path[i - 1] != s]
        if tuple(s for s in merged if s) == symbols:
            total += np.exp(sum(logarithms[i, s] for i, s in enumerate(path)))
    found = optim.ctc_loss(frames[None], np.zeros((1, 4)), np.array([[*symbols, -7]]), np.array([[0, 0, 1]]))
    np.testing.assert_allclose(found, -np.log([total]), rtol=1e-12)


@pytest.mark.thorough
def test_fenchel_young(optax: Any) -> None:
    loss = optim.make_fenchel_young_loss(rlx.nn.logsumexp)
    np.testing.assert_allclose(loss(LOGITS, ONE_HOT), optim.softmax_cross_entropy(LOGITS, ONE_HOT), rtol=1e-12)


def test_operands_that_are_refused() -> None:
    with pytest.raises(DtypeError, match="logits of dtype int"):
        optim.softmax_cross_entropy(np.zeros((2, 3), int), np.zeros((2, 3)))
    with pytest.raises(DtypeError, match="labels of dtype float64"):
        optim.softmax_cross_entropy_with_integer_labels(np.zeros((2, 3)), np.zeros(2))
    with pytest.raises(ShapeError, match=r"predictions of shape \(2,\) and targets of shape \(2, 1\)"):
        optim.l2_loss(np.zeros(2), np.zeros((2, 1)))
    with pytest.raises(ShapeError, match="batch, frames, classes"):
        optim.ctc_loss(FRAMES, FRAME_PADDINGS, SYMBOLS[:2], SYMBOL_PADDINGS)
    with pytest.raises(ShapeError, match="axis=None"):
        optim.softmax_cross_entropy_with_integer_labels(np.zeros((2, 3)), np.zeros(2, int), axis=None)  # ty: ignore[invalid-argument-type]
    with pytest.raises(ValueError, match="no reduction 'max'"):
        optim.dice_loss(LOGITS, ONE_HOT, reduction="max")  # ty: ignore[invalid-argument-type]
