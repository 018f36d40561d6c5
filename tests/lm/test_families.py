"""Every family of decoders beside transformers, on tiny random configurations: logits, and 64 greedy tokens.

RLX_TEST_LM=1 runs them: they need torch and transformers (make test-lm).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import LM

import rlx
from rlx import lm, quant
from rlx.errors import FileFormatError, OptionError, UnsupportedError
from rlx.lm.families import config_of_hugging_face
from rlx.lm.layers import alibi_slopes, attend
from rlx.lm.weights import parameters_of_tensors

pytestmark = [
    *LM,
    pytest.mark.filterwarnings("ignore"),
]

SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0 + 0.1 * k for k in range(8)],
    "long_factor": [2.0 + k for k in range(8)],
    "original_max_position_embeddings": 256,
}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True, "num_key_value_heads": 1}),
    "llama2": ("Llama", {"num_key_value_heads": 4}),
    "llama3": ("Llama", {"rope_parameters": LLAMA3}),
    "smollm": ("Llama", {"hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3,
               "tie_word_embeddings": True}),
    "llama-linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}}),
    "llama-dynamic": ("Llama", {"rope_parameters": DYNAMIC}),
    "llama-yarn": ("Llama", {"rope_parameters": YARN}),
    "mistral": ("Mistral", {"sliding_window": 7}),
    "mistral-all": ("Mistral", {"sliding_window": None}),
    "qwen2": ("Qwen2", {}),
    "qwen2-moe": ("Qwen2Moe", {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
                  "shared_expert_intermediate_size": 40}),
    "qwen2-moe-apart": ("Qwen2Moe", {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
                        "shared_expert_intermediate_size": 48, "norm_topk_prob": True, "decoder_sparse_step": 2}),
    "qwen3": ("Qwen3", {"head_dim": 24}),
    "qwen3-moe": ("Qwen3Moe", {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
                  "norm_topk_prob": True}),
    "qwen3-moe-apart": ("Qwen3Moe", {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
                        "norm_topk_prob": False, "decoder_sparse_step": 2}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}),
    "gemma": ("Gemma", {"head_dim": 16}),
    "gemma2": ("Gemma2", {"head_dim": 16, "sliding_window": 5, "query_pre_attn_scalar": 20}),
    "gemma3": ("Gemma3Text", {"head_dim": 16, "sliding_window": 5, "num_hidden_layers": 3, "layer_types":
               ["sliding_attention", "sliding_attention", "full_attention"]}),
    "phi3": ("Phi3", {}),
    "phi3-partial": ("Phi3", {"partial_rotary_factor": 0.5}),
    "phi3-longrope": ("Phi3", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 256}),
    "granite": ("Granite", {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "attention_multiplier": 0.1,
                "logits_scaling": 2.0}),
    "smollm3": ("SmolLM3", {"num_hidden_layers": 4, "no_rope_layer_interval": 4}),
    "starcoder2": ("Starcoder2", {"sliding_window": 7, "use_bias": True}),
    "arcee": ("Arcee", {}),
    "llama-biased": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "gpt2": ("GPT2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256}),
}  # fmt: skip


def oracle(name: str, **changes: Any) -> Any:
    """A model of transformers with random weights; changes: of its config."""
    import torch
    import transformers

    family, more = DECODERS[name]
    torch.manual_seed(len(name))
    sizes = (
        {"vocab_size": 99, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0} if family == "GPT2" else SIZES
    )
    config = getattr(transformers, f"{family}Config")(**{**sizes, **more, **changes})
    config._attn_implementation = "eager"
    short = family.removesuffix("Text")
    made = (
        getattr(transformers, f"{family}LMHeadModel" if family == "GPT2" else f"{short}ForCausalLM")(config)
        .eval()
        .float()
    )
    with torch.no_grad():
        for parameter in made.parameters():  # so that norms and biases matter
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def ours(model: Any) -> lm.Model:
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return lm.load(folder)


@pytest.mark.parametrize("name", DECODERS)
def test_logits_and_greedy_tokens_are_those_of_transformers(name: str) -> None:
    import torch

    theirs = oracle(name)
    model = ours(theirs)
    tokens = np.random.default_rng(0).integers(2, 99, (2, 23))
    with torch.no_grad():
        expected = theirs(torch.tensor(tokens)).logits.numpy()
    np.testing.assert_allclose(model.logits(tokens), expected, atol=1e-4, rtol=0)
    np.testing.assert_allclose(lm.forward(model.parameters, tokens, model.config), expected, atol=1e-4, rtol=0)
    prompt = tokens[0, :11].tolist()
    _compare(model, prompt, _told(theirs, [prompt])[0][0], list(model.generate(prompt, 64)))
    both = [prompt, tokens[1, :11].tolist()]
    for given, *rows in zip(both, _told(theirs, both)[0], zip(*model.generate(both, 64), strict=True), strict=True):
        _compare(model, given, *map(list, rows))
    ragged = [prompt, tokens[1, :5].tolist(), tokens[1].tolist()]
    batch = list(zip(*model.generate(ragged, 64), strict=True))
    for row, given in zip(batch, ragged, strict=True):
        _compare(model, given, list(model.generate(given, 64)), list(row))


def _compare(model: lm.Model, prompt: list[int], expected: list[int], found: list[int]) -> None:
    """Equal, or where they part the logits of both tokens are within 1e-4."""
    assert len(expected) == len(found) == 64
    part = next((n for n, (a, b) in enumerate(zip(expected, found, strict=True)) if a != b), None)
    if part is not None:
        logits = np.asarray(model.logits([prompt + found[:part]]))[0, -1]
        assert abs(logits[expected[part]] - logits[found[part]]) < 1e-4, (part, expected[part], found[part])


LENGTHS: dict[str, dict[str, Any]] = {
    "llama-dynamic": {"max_position_embeddings": 32, "rope_parameters": {**DYNAMIC, "factor": 4.0}},
    "phi3-longrope": {
        "rope_parameters": {**LONGROPE, "original_max_position_embeddings": 32},
        "original_max_position_embeddings": 32,
    },
}


@pytest.mark.parametrize("start", [11, 40])
@pytest.mark.parametrize("name", LENGTHS)
def test_what_becomes_longer_than_a_model_was_trained_for_is_as_in_transformers(name: str, start: int) -> None:
    """Their models remember the longest sequence that they saw, so there is a new one for each look."""
    import torch

    model = ours(oracle(name, **LENGTHS[name]))
    tokens = np.random.default_rng(start).integers(2, 99, (2, 50))
    with torch.no_grad():
        expected = oracle(name, **LENGTHS[name])(torch.tensor(tokens)).logits.numpy()
    np.testing.assert_allclose(model.logits(tokens), expected, atol=1e-4, rtol=0)
    np.testing.assert_allclose(lm.forward(model.parameters, tokens, model.config), expected, atol=1e-4, rtol=0)
    prompts = tokens[:, :start].tolist()
    rows, steps = _told(oracle(name, **LENGTHS[name]), prompts)
    assert [list(row) for row in zip(*model.generate(prompts, 64, stop=()), strict=True)] == rows
    alone, _ = _told(oracle(name, **LENGTHS[name]), prompts[:1])
    assert list(model.generate(prompts[0], 64, stop=())) == alone[0]
    assert list(lm.speculate(model, prompts[0], lm.lookup_draft(), 64, stop=())) == alone[0]
    short = tokens[1, :5].tolist()
    ragged = list(zip(*model.generate([prompts[0], short], 64, stop=()), strict=True))
    assert [list(row) for row in ragged] == [alone[0], list(model.generate(short, 64, stop=()))]
    logits, cache = model.start(prompts, 64)
    for step, (scores, chosen) in enumerate(zip(steps, np.array(rows).T, strict=True)):
        np.testing.assert_allclose(logits, scores, atol=1e-4, rtol=0)
        if start + step == 32 and name == "phi3-longrope":
            with pytest.raises(OptionError, match="(?s)from 32 tokens to more than 32.*Start again"):
                model.steps.advance(chosen[:, None], cache)
            whole = np.concatenate([np.array(prompts), np.array(rows)[:, : step + 1]], axis=1).tolist()
            logits, cache = model.start(whole, 63 - step)
        else:
            logits, cache = model.steps.advance(chosen[:, None], cache)


def _told(theirs: Any, prompts: list[list[int]]) -> tuple[list[list[int]], list[np.ndarray]]:
    """What transformers say greedily behind prompts of one length, and the logits of each step."""
    import torch

    with torch.no_grad():
        made = theirs.generate(
            torch.tensor(prompts), attention_mask=torch.ones((len(prompts), len(prompts[0])), dtype=torch.long),
            max_new_tokens=64, do_sample=False, output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
    return made.sequences[:, len(prompts[0]) :].tolist(), [step.numpy() for step in made.logits]


@pytest.mark.parametrize("name", ["llama", "gemma2", "mistral", "qwen3-moe"])
def test_steps_with_a_cache_give_what_one_pass_gives(name: str) -> None:
    model = ours(oracle(name))
    tokens = np.random.default_rng(1).integers(2, 99, (2, 20))
    expected = np.asarray(model.logits(tokens))
    cache = lm.new_cache(model.config, 2, 32)
    first, cache = model.steps.advance(tokens[:, :9], cache, every=True)
    found = [np.asarray(first)]
    for n in range(9, 20):
        step, cache = model.steps.advance(tokens[:, n : n + 1], cache)
        found.append(np.asarray(step)[:, None])
    np.testing.assert_allclose(np.concatenate(found, 1), expected, atol=1e-5)
    again, _ = model.steps.advance(tokens[:, 15:], cache.truncate([15, 15]), every=True)
    np.testing.assert_allclose(again, expected[:, 15:], atol=1e-5)


def test_kinds_of_attention_are_those_of_bloom_and_gpt_oss() -> None:
    import torch
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor
    from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

    for heads in (3, 4, 12):
        slopes = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
        np.testing.assert_allclose(alibi_slopes(heads), slopes, atol=1e-7)
    rng = np.random.default_rng(0)
    query, key, value = (rng.normal(0, 1, (2, heads, 6, 8)).astype(np.float32) for heads in (4, 2, 2))
    sinks, visible = rng.normal(0, 1, 4).astype(np.float32), np.tril(np.ones((6, 6), bool))
    module = torch.nn.Module()
    module.num_key_value_groups, module.sinks = 2, torch.tensor(sinks)
    mask = torch.tensor(np.where(visible, 0, -1e9).astype(np.float32))[None, None]
    expected, _ = eager_attention_forward(module, *map(torch.tensor, (query, key, value)), mask, 0.3)
    found = attend(query, key, value, visible[None], 0.3, sinks=sinks)
    np.testing.assert_allclose(np.swapaxes(found, 1, 2), expected, atol=1e-6)


def test_the_loss_of_routers_is_that_of_transformers() -> None:
    """And so is its gradient."""
    import torch

    theirs = oracle("qwen3-moe")
    model = ours(theirs)
    tokens = np.random.default_rng(0).integers(2, 99, (2, 23))
    seen_of = quant.taps_of(lambda p, tokens: lm.forward(p, tokens, model.config))

    def loss(p: Any) -> Any:
        seen = seen_of(p, tokens)
        return lm.balance_loss(rlx.numpy.stack([seen[f"layers.{n}.router"] for n in range(2)]), chosen=2)

    expected = theirs(torch.tensor(tokens), output_router_logits=True).aux_loss
    expected.backward()
    value, slope = rlx.jit(rlx.value_and_grad(loss))(model.parameters)
    np.testing.assert_allclose(value, expected.detach(), rtol=1e-5)
    for layer, part in zip(slope["layers"], theirs.model.layers, strict=True):
        np.testing.assert_allclose(layer["router"]["weight"], part.mlp.gate.weight.grad, atol=1e-4)


def test_a_folder_of_shards_is_loaded(tmp_path: Path) -> None:
    theirs = oracle("llama")
    theirs.save_pretrained(tmp_path, max_shard_size="50KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    model = lm.load(tmp_path)
    tokens = np.arange(2, 12)[None]
    np.testing.assert_allclose(model.logits(tokens), ours(theirs).logits(tokens), atol=1e-6)
    next(tmp_path.glob("*.safetensors")).unlink()
    with pytest.raises(FileFormatError, match="is not there"):
        lm.load(tmp_path)


def test_what_is_missing_is_listed_at_once() -> None:
    theirs = oracle("llama")
    tensors = {name: value.detach().numpy() for name, value in theirs.state_dict().items()}
    config = config_of_hugging_face(theirs.config.to_dict())
    del tensors["model.norm.weight"]
    tensors["lm_head.weight"] = tensors["lm_head.weight"][:5]
    tensors["model.layers.0.self_attn.q_proj.bias"] = tensors["model.layers.7.mlp.up_proj.weight"] = np.ones(4)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(8)
    with pytest.raises(FileFormatError) as raised:
        parameters_of_tensors(config, tensors)
    for said in (
        "there is no model.norm.weight; head.weight is [5, 64] instead of [99, 64]",
        "model.layers.0.self_attn.q_proj.bias has no place; model.layers.7.mlp.up_proj.weight has no place.",
    ):
        assert said in str(raised.value)
    with pytest.raises(UnsupportedError, match="(?s)mamba.*Known: llama"):
        config_of_hugging_face({"model_type": "mamba"})
