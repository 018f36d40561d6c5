"""What is done to logits, beside transformers' processors in their order, one by one and together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from needs import beside

from rlx.lm import Sampling, processed
from rlx.lm.sampling import choose, level_of, numbers_of

pytestmark = pytest.mark.filterwarnings("ignore")

LOGITS = (np.random.default_rng(0).standard_normal((5, 60)) * 3).astype(np.float32)
TOKENS = np.random.default_rng(1).integers(0, 60, (5, 7))


@beside
@pytest.mark.parametrize(
    "given",
    [
        {"temperature": 0.7},
        {"temperature": 1.0, "top_k": 5},
        {"temperature": 1.0, "top_k": 100},
        {"temperature": 1.0, "top_p": 0.8},
        {"temperature": 1.0, "top_p": 0.01},
        {"temperature": 1.0, "min_p": 0.1},
        {"temperature": 1.0, "typical_p": 0.5},
        {"temperature": 1.0, "repetition_penalty": 1.7},
        {"temperature": 1.3, "top_k": 30, "top_p": 0.9, "min_p": 0.02, "typical_p": 0.9, "repetition_penalty": 1.2},
    ],
    ids=str,
)
def test_logits_are_those_of_transformers(given: dict[str, Any]) -> None:
    import torch
    from transformers import generation

    made = []
    if "repetition_penalty" in given:
        made.append(generation.RepetitionPenaltyLogitsProcessor(given["repetition_penalty"]))
    if given["temperature"] != 1:
        made.append(generation.TemperatureLogitsWarper(given["temperature"]))
    if "top_k" in given:
        made.append(generation.TopKLogitsWarper(min(given["top_k"], 60)))
    if "top_p" in given:
        made.append(generation.TopPLogitsWarper(given["top_p"]))
    if "min_p" in given:
        made.append(generation.MinPLogitsWarper(given["min_p"]))
    if "typical_p" in given:
        made.append(generation.TypicalLogitsWarper(given["typical_p"]))
    expected = torch.tensor(LOGITS)
    for step in made:
        expected = step(torch.tensor(TOKENS), expected)
    seen = np.zeros(LOGITS.shape, bool)
    for row, tokens in zip(seen, TOKENS, strict=True):
        row[tokens] = True
    found = np.asarray(processed(LOGITS, Sampling(**given), seen))
    assert np.array_equal(np.isinf(found), np.isinf(expected.numpy()))
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


EQUAL = np.zeros(8, np.float32)
RISING = np.log(np.array([1, 2, 3, 4, 30, 60], np.float32) / 100)
KEPT = {
    "no limit": ({}, RISING, 6),
    "top_p next to nothing": ({"top_p": 1e-9}, EQUAL, 1),
    "top_p of the greatest": ({"top_p": 0.59}, RISING, 1),
    "top_p of two": ({"top_p": 0.61}, RISING, 2),
    "top_p of all but the last": ({"top_p": 0.995}, RISING, 6),
    "top_p of one token": ({"top_p": 0.5}, EQUAL[:1], 1),
    "top_k": ({"top_k": 2}, RISING, 2),
    "top_k beyond the vocabulary": ({"top_k": 100}, RISING, 6),
    "top_k of ties": ({"top_k": 1}, EQUAL, 8),
    "min_p": ({"min_p": 0.4}, RISING, 2),
    "min_p of all": ({"min_p": 1.0}, RISING, 1),
    "min_p of equal ones": ({"min_p": 1.0}, EQUAL, 8),
    "typical_p next to nothing": ({"typical_p": 1e-9}, RISING, 1),
    "typical_p of all": ({"typical_p": 0.9999}, RISING, 6),
    "together": ({"top_k": 3, "top_p": 0.99, "min_p": 0.1}, RISING, 2),
}


@pytest.mark.selected("all")
@pytest.mark.parametrize("given, logits, kept", KEPT.values(), ids=KEPT)
def test_how_many_tokens_are_kept(given: dict[str, Any], logits: np.ndarray, kept: int) -> None:
    """At least one, whatever the limits; the kept ones have their logits."""
    sampling = Sampling(temperature=1.0, **given)
    found = np.asarray(processed(logits, sampling))
    assert np.isfinite(found).sum() == kept
    np.testing.assert_array_equal(found[np.isfinite(found)], logits[np.isfinite(found)])
    if "typical_p" not in given:
        assert np.isfinite(found[np.argmax(logits)]) or kept == len(logits) or np.ptp(logits) == 0


def test_what_is_drawn_is_kept() -> None:
    sampling = Sampling(temperature=1.0, top_p=1e-9)
    drawn = choose(EQUAL[None], numbers_of([sampling], [0]), level_of([sampling]), None, None, np.zeros(1, np.int32))
    assert np.isfinite(processed(EQUAL, Sampling(temperature=1.0, top_p=1e-9))[int(drawn[0])])


def test_penalties_and_biases() -> None:
    logits = np.array([2.0, -2.0, 1.0, 0.0], np.float32)
    seen = np.array([True, True, False, True])
    found = processed(logits, Sampling(temperature=2.0, repetition_penalty=2.0, bias={2: 1.0}), seen)
    np.testing.assert_allclose(found, [0.5, -2.0, 1.0, 0.0])
    np.testing.assert_array_equal(processed(logits, Sampling(repetition_penalty=2.0)), logits)
