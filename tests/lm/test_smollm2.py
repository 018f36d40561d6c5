"""SmolLM2-135M as its wheel has it: beside transformers, which decodes the same file, and beside llama.cpp.

RLX_TEST_LM=1 runs them (make test-lm).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlx import lm
from rlx.backends.cpu.runtime.store import statistics
from rlx.cli.generate import model_path

wanted = os.environ.get("RLX_TEST_LM") == "1"
pytestmark = [pytest.mark.skipif(not wanted, reason="RLX_TEST_LM=1 asks for them"), pytest.mark.filterwarnings("ignore")]

PROMPTS = [
    "The capital of France is",
    "Once upon a time",
    "Water boils at",
    "def fibonacci(n):",
    "The largest planet in the solar system is",
    "Dear Sir or Madam,",
    "1, 2, 3, 4,",
    "In 1969, humans",
    "The recipe needs",
    "My favourite colour is",
]


@pytest.fixture(scope="module")
def model() -> lm.Model:
    return lm.load(model_path("smollm2"))


@pytest.fixture(scope="module")
def theirs() -> Any:
    import torch
    import transformers

    path = model_path("smollm2")
    return transformers.AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.float32
    )


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    import xllamacpp

    given = xllamacpp.CommonParams()
    given.model.path = str(model_path("smollm2"))
    given.n_ctx, given.n_parallel, given.cpuparams.n_threads, given.warmup = 512, 1, 2, False
    yield xllamacpp.Server(given)


def test_greedy_tokens_are_those_of_transformers(model: lm.Model, theirs: Any) -> None:
    import torch

    assert model.tokenizer is not None
    for prompt in PROMPTS:
        tokens = model.tokenizer.encode(prompt)
        with torch.no_grad():
            expected = theirs(torch.tensor([tokens])).logits[0].numpy()
            made = theirs.generate(torch.tensor([tokens]), max_new_tokens=24, do_sample=False)[0].tolist()
        np.testing.assert_allclose(model.logits([tokens])[0], expected, atol=1e-3)
        made = [token for token in made[len(tokens) :] if token not in model.config.stop]
        assert list(model.generate(tokens, 24)) == made, prompt


def test_tokens_are_those_of_llama_cpp_when_activations_are_rounded_as_there(model: lm.Model, server: Any) -> None:
    """llama.cpp multiplies in int8: it rounds what comes to a product, which moves logits by some tenths here.

    With the same rounding tokens are the same, or part where its own two best are close.
    """
    assert model.tokenizer is not None
    config = replace(model.config, activations="int8/32")
    rounding = lm.Model(config, model.parameters, model.tokenizer)
    same = 0
    for prompt in PROMPTS:
        tokens = model.tokenizer.encode(prompt)
        given = {"prompt": tokens, "max_tokens": 24, "temperature": 0, "logprobs": 2}
        said = server.handle_completions(given)["choices"][0]["logprobs"]["content"]
        expected = [token["id"] for token in said if token["id"] not in config.stop]
        found = list(rounding.generate(tokens, 24))
        part = next((n for n, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), None)
        same += part is None
        if part is not None:
            best = said[part]["top_logprobs"]
            assert found[part] == best[1]["id"], prompt
            assert best[0]["logprob"] - best[1]["logprob"] < 0.05, (prompt, part, best)
    assert same >= 8


def test_texts_are_encoded_as_llama_cpp_does(model: lm.Model, server: Any) -> None:
    assert model.tokenizer is not None
    for text in [*PROMPTS, "  two  spaces\n\n\tand 12345 digits", "naïve café — “quotes” 漢字 🙂", "<|im_start|>user\nHi<|im_end|>"]:
        expected = server.handle_tokenize({"content": text, "add_special": False, "parse_special": True})["tokens"]
        assert model.tokenizer.encode(text) == expected, text
        assert model.tokenizer.decode(expected, special=True) == text


def test_a_conversation_has_the_models_form(model: lm.Model) -> None:
    import transformers

    path = model_path("smollm2")
    oracle = transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Bye"}]
    assert model.tokenizer is not None
    text = lm.chat_text(messages, model.tokenizer)
    assert text == oracle.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text.endswith("<|im_start|>assistant\n")


def test_from_the_third_token_on_nothing_is_compiled_or_traced(model: lm.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlx.call import jitted

    assert model.tokenizer is not None
    traced = []
    stage = jitted.stage
    monkeypatch.setattr(jitted, "stage", lambda *args, **more: traced.append(args) or stage(*args, **more))
    seen = []
    for _ in model.generate(model.tokenizer.encode(PROMPTS[0]), 12, stop=()):
        seen.append((statistics().compiled, len(traced)))
    assert len(seen) == 12
    assert len(set(seen[2:])) == 1, seen


def test_memory_stays_near_the_file() -> None:
    """In a process of its own: what is resident after 20 tokens, less what importing took."""
    code = (
        "import psutil, sys; from rlx import lm; from rlx.cli.generate import model_path; p = model_path('smollm2');"
        "own = psutil.Process(); model = lm.load(p); list(model.generate([504, 3575, 282], 20, stop=()));"
        "print(own.memory_info().rss, p.stat().st_size)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    resident, size = map(int, told)
    assert resident < size + 350 * 2**20, (resident, size)
