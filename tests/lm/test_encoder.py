"""BERT: masks and mistakes by itself, numbers beside transformers (RLX_TEST_LM=1: make test-lm)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from needs import beside

import rlx
from rlx import lm
from rlx.errors import FileFormatError, OptionError, UnsupportedError

CONFIG = lm.EncoderConfig(vocabulary=50, width=32, layers=2, heads=4, inner=64, context=16, pooled=True, masked=True)
ENCODER = lm.Encoder(CONFIG, lm.random_parameters(CONFIG, 2))
TOKENS = np.random.default_rng(0).integers(0, 50, (2, 9))


def test_padding_is_not_seen_and_gradients_reach_every_parameter() -> None:
    counted = np.arange(9) < np.array([[9], [5]])
    found = np.asarray(ENCODER.states(TOKENS, counted))
    np.testing.assert_allclose(found[1, :5], ENCODER.states(TOKENS[1:, :5])[0], atol=1e-5)
    assert np.abs(found[1, :5] - np.asarray(ENCODER.states(TOKENS))[1, :5]).max() > 1e-3
    slope = rlx.jit(rlx.grad(lambda p: (lm.encode(p, TOKENS, CONFIG) ** 3).sum()))(ENCODER.parameters)
    reached = {path: np.abs(leaf).max() > 0 for path, leaf in rlx.tree.leaves_with_path(slope)}
    unused = {"guess", "guess_norm", "guess_bias", "pooler"}
    assert all(moved or path[0].key in unused for path, moved in reached.items())


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="outside the vocabulary of 50"):
        ENCODER.states([[50]])
    with pytest.raises(OptionError, match="context of 16"):
        ENCODER.states(np.zeros((1, 17), int))
    with pytest.raises(OptionError, match="3 heads cannot share a width of 32"):
        lm.EncoderConfig(vocabulary=9, width=32, layers=1, heads=3, inner=8)
    bare = lm.EncoderConfig(vocabulary=9, width=8, layers=1, heads=2, inner=8)
    with pytest.raises(UnsupportedError, match="no pooled output"):
        lm.Encoder(bare, lm.random_parameters(bare)).pooled([[1]])
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(UnsupportedError, match="bert is an encoder"):
        lm.load(tmp_path)
    with pytest.raises(FileFormatError, match="is not there"):
        lm.load_encoder(tmp_path)


@beside
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["BertModel", "BertForMaskedLM"])
def test_numbers_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = {"vocab_size": 99, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.BertConfig(**sizes, intermediate_size=96, max_position_embeddings=40)
    theirs = getattr(transformers, kind)(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    theirs.save_pretrained(tmp_path)
    ours = lm.load_encoder(tmp_path)
    rng = np.random.default_rng(1)
    tokens, kinds = rng.integers(0, 99, (3, 12)), rng.integers(0, 2, (3, 12))
    counted = np.arange(12) < np.array([[12], [7], [1]])
    given = {"input_ids": tokens, "attention_mask": counted.astype(int), "token_type_ids": kinds}
    with torch.no_grad():
        expected = theirs(**{name: torch.tensor(value) for name, value in given.items()})
    if kind == "BertModel":
        found = np.asarray(ours.states(tokens, counted, kinds))
        np.testing.assert_allclose(found[counted], expected.last_hidden_state.numpy()[counted], atol=1e-4, rtol=0)
        np.testing.assert_allclose(ours.pooled(tokens, counted, kinds), expected.pooler_output, atol=1e-4, rtol=0)
    else:
        found = np.asarray(ours.logits(tokens, counted, kinds))
        np.testing.assert_allclose(found[counted], expected.logits.numpy()[counted], atol=1e-4, rtol=0)
