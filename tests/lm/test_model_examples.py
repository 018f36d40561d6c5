"""The examples that need a model: a conversation, and a fine-tuning that is stopped and goes on to the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from modules import load
from needs import LM

import rlx

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
pytestmark = [
    *LM,
    pytest.mark.filterwarnings("ignore"),
]


def test_a_conversation_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    assert load(EXAMPLES / "chat.py").main(["What is the capital of France?"], tokens=12) > 0
    assert "Paris" in capsys.readouterr().out


def test_training_that_was_stopped_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    example: Any = load(EXAMPLES / "finetune.py")
    share = example.main(10, tmp_path / "whole.safetensors")
    assert share < 0.9
    example.main(5, tmp_path / "parts.safetensors")
    example.main(10, tmp_path / "parts.safetensors")
    whole, parts = (rlx.load(tmp_path / f"{name}.safetensors") for name in ("whole", "parts"))
    pairs = zip(rlx.tree.leaves(whole), rlx.tree.leaves(parts), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)
