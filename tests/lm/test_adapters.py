"""LoRA and speculative decoding: against merged weights, plain generation and probabilities; LoRA beside peft."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from needs import beside

import rlx
from rlx import lm, quant
from rlx.errors import OptionError, ShapeError

CONFIG = lm.DecoderConfig(
    vocabulary=30, width=32, layers=2, heads=4, key_heads=2, inner=64, context=128, rope=lm.Rope(dims=8)
)
MODEL = lm.Model(CONFIG, lm.random_parameters(CONFIG, 1))
TOKENS = np.random.default_rng(0).integers(0, 30, (3, 12))


def moved(seed: int) -> dict[str, Any]:
    """Updates that change something."""
    draw = np.random.default_rng(seed)
    made = lm.new_lora(MODEL.parameters, rank=3, alpha=6.0, names=("q", "v", "down"), seed=seed)
    return {path: {**u, "b": draw.normal(0, 0.1, u["b"].shape).astype(np.float32)} for path, u in made.items()}


def test_updates_beside_weights_are_updates_in_them() -> None:
    updates = moved(1)
    apart = lm.forward(lm.apply_lora(MODEL.parameters, updates), TOKENS, CONFIG)
    merged = lm.merge_lora(MODEL.parameters, updates)
    plain = lm.forward(MODEL.parameters, TOKENS, CONFIG)
    np.testing.assert_allclose(lm.forward(merged, TOKENS, CONFIG), apart, atol=1e-4)
    assert np.abs(np.asarray(apart) - np.asarray(plain)).max() > 0.01
    np.testing.assert_allclose(lm.forward(lm.merge_lora(merged, updates, -1.0), TOKENS, CONFIG), plain, atol=1e-4)


def test_each_sequence_of_a_batch_may_have_its_own() -> None:
    one, two = moved(1), moved(2)
    together = lm.forward(lm.apply_lora(MODEL.parameters, lm.stack_lora([one, two], [1, -1, 0])), TOKENS, CONFIG)
    for row, updates in enumerate((two, None, one)):
        parameters = MODEL.parameters if updates is None else lm.apply_lora(MODEL.parameters, updates)
        alone = lm.forward(parameters, TOKENS[row : row + 1], CONFIG)
        np.testing.assert_allclose(together[row], alone[0], atol=1e-5)
    with pytest.raises(ShapeError, match="differ in their linears"):
        lm.stack_lora([one, lm.new_lora(MODEL.parameters, 2)], [0, 1, 0])


@pytest.mark.thorough
def test_updates_learn_beside_quantised_weights() -> None:
    packed = rlx.tree.map(lambda x: quant.quantize(x, "int8/32") if x.ndim == 2 else x, MODEL.parameters)
    updates = lm.new_lora(packed, rank=4, names=("q", "v", "up", "down"))

    @rlx.jit
    def loss(updates: Any, parameters: Any) -> Any:
        logits = lm.forward(lm.apply_lora(parameters, updates), TOKENS, CONFIG)
        return -np.float32(1) * rlx.numpy.take_along_axis(
            rlx.nn.log_softmax(logits[:, :-1]), TOKENS[:, 1:, None], axis=-1
        ).mean()  # fmt: skip

    rule = rlx.optim.adam(0.02)
    state, first = rule.init(updates), float(loss(updates, packed))
    slope = rlx.jit(rlx.grad(loss))
    for _ in range(25):
        change, state = rule.update(slope(updates, packed), state, updates)
        updates = rlx.optim.apply_updates(updates, change)
    assert float(loss(updates, packed)) < 0.7 * first
    with pytest.raises(OptionError, match="quantised weight cannot"):
        lm.merge_lora(packed, updates)
    with pytest.raises(OptionError, match="rank 0"):
        lm.new_lora(packed, 0)


@beside
@pytest.mark.filterwarnings("ignore")
def test_updates_and_their_gradients_are_those_of_peft() -> None:
    import peft
    import torch
    from test_families import oracle, ours

    theirs = oracle("llama")
    model = ours(theirs)
    wrapped = peft.get_peft_model(theirs, peft.LoraConfig(r=3, lora_alpha=6, target_modules=["q_proj", "down_proj"]))
    updates = {}
    draw = np.random.default_rng(0)
    modules = dict(wrapped.named_modules())
    for path, made in lm.new_lora(model.parameters, 3, 6.0, ("q", "down")).items():
        number, name = path.split(".")[1:]
        inside = f"model.layers.{number}." + {"q": "self_attn.q_proj", "down": "mlp.down_proj"}[name]
        part = next(m for n, m in modules.items() if n.endswith(inside))
        made = {**made, "b": draw.normal(0, 0.1, made["b"].shape).astype(np.float32)}
        part.lora_A["default"].weight.data = torch.tensor(np.array(made["a"]))
        part.lora_B["default"].weight.data = torch.tensor(np.array(made["b"]))
        updates[path] = (made, part)
    tokens = np.random.default_rng(1).integers(2, 99, (2, 9))
    expected = wrapped(torch.tensor(tokens)).logits
    (expected**2).mean().backward()

    def loss(given: Any) -> Any:
        return (lm.forward(lm.apply_lora(model.parameters, given), tokens, model.config) ** 2).mean()

    given = {path: made for path, (made, _) in updates.items()}
    np.testing.assert_allclose(
        lm.forward(lm.apply_lora(model.parameters, given), tokens, model.config), expected.detach().numpy(), atol=1e-4
    )
    slope = rlx.jit(rlx.grad(loss))(given)
    for path, (_, part) in updates.items():
        np.testing.assert_allclose(slope[path]["a"], part.lora_A["default"].weight.grad, atol=1e-4)
        np.testing.assert_allclose(slope[path]["b"], part.lora_B["default"].weight.grad, atol=1e-4)


# ---------------------------------------------------------------- speculation
@pytest.mark.thorough
def test_speculation_gives_what_generation_gives() -> None:
    other = lm.Model(CONFIG, lm.random_parameters(CONFIG, 2))
    for draft in (lm.lookup_draft(), lm.model_draft(MODEL, 3), lm.model_draft(other, 5)):
        for prompt in ([1, 2, 3], [4] * 9):
            assert list(lm.speculate(MODEL, prompt, draft, 40)) == list(MODEL.generate(prompt, 40, stop=()))
    calls = []
    advance = MODEL.steps.advance
    counted = lm.Model(CONFIG, MODEL.parameters)
    counted.steps.advance = lambda *args, **more: calls.append(1) or advance(*args, **more)  # ty: ignore
    assert len(list(lm.speculate(counted, [1, 2, 3], lm.model_draft(MODEL, 3), 40))) == 40
    assert len(calls) <= 13, "four tokens come with each look"


@pytest.mark.thorough
def test_accepted_and_replaced_tokens_are_distributed_as_wanted() -> None:
    """100,000 draws of eight tokens: chi-squared with 7 degrees of freedom, p > 0.001."""
    p = np.array([0.3, 0.2, 0.15, 0.1, 0.1, 0.08, 0.05, 0.02])
    q = np.array([0.05, 0.3, 0.05, 0.2, 0.1, 0.1, 0.1, 0.1])
    draw = np.random.default_rng(0)
    keys = rlx.random.split(rlx.random.key(3), 100_000)
    counts = np.zeros(8)
    for key, token in zip(keys, draw.choice(8, 100_000, p=q), strict=True):
        kept, behind = lm.speculative_accept([int(token)], q[None], np.stack([p, p]), key)
        counts[token if kept else behind] += 1
    assert ((counts - 1e5 * p) ** 2 / (1e5 * p)).sum() < 24.3
