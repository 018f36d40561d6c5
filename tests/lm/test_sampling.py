"""What is done to logits, beside transformers' processors in their order, one by one and together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from needs import LM

from rlx.lm import Sampling, processed

pytestmark = [
    *LM,
    pytest.mark.filterwarnings("ignore"),
]

LOGITS = (np.random.default_rng(0).standard_normal((5, 60)) * 3).astype(np.float32)
TOKENS = np.random.default_rng(1).integers(0, 60, (5, 7))


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
