"""SmolLM2-135M as its wheel has it: beside transformers, which decodes the same file, and beside llama.cpp.

RLX_TEST_LM=1 runs them (make test-lm).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import LM

import rlx
from rlx import gguf, lm
from rlx.backends.cpu.runtime.store import statistics
from rlx.call import trace as call_trace
from rlx.cli.generate import model_path

pytestmark = [
    *LM,
    pytest.mark.filterwarnings("ignore"),
]

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
ODD_TEXTS = ["  two  spaces\n\n\tand 12345 digits", "naïve café — “quotes” 漢字 🙂", "<|im_start|>user\nHi<|im_end|>"]


@pytest.fixture(scope="module")
def model() -> lm.Model:
    return lm.load(model_path("smollm2"))


@pytest.fixture(scope="module")
def theirs() -> Any:
    import torch
    import transformers

    path = model_path("smollm2")
    return transformers.AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=torch.float32)


@pytest.fixture(scope="module")
def oracle() -> Any:
    import transformers

    path = model_path("smollm2")
    return transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    yield _server(model_path("smollm2"))


def _server(path: Path) -> Any:
    import xllamacpp

    given = xllamacpp.CommonParams()
    given.model.path = str(path)
    given.n_ctx, given.n_parallel, given.cpuparams.n_threads, given.warmup = 512, 1, 2, False
    given.cache_type_k = given.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    given.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return xllamacpp.Server(given)


def test_greedy_tokens_are_those_of_transformers(model: lm.Model, theirs: Any) -> None:
    import torch

    assert model.tokenizer is not None
    for prompt in PROMPTS:
        tokens = model.tokenizer.encode(prompt)
        with torch.no_grad():
            expected = theirs(torch.tensor([tokens])).logits[0].numpy()
        np.testing.assert_allclose(model.logits([tokens])[0], expected, atol=1e-3)
        found = list(model.generate(tokens, 24))
        with torch.no_grad():  # in one pass: what it would have chosen behind each of them
            choice = theirs(torch.tensor([tokens + found])).logits[0].argmax(-1).tolist()[len(tokens) - 1 :]
        assert found == choice[: len(found)], prompt
        assert len(found) == 24 or choice[len(found)] in model.config.stop


def test_tokens_are_those_of_llama_cpp(model: lm.Model, tmp_path: Path) -> None:
    """Ours of the packed file, its of the same numbers as float32: it rounds what comes to quantised products to int8.

    Tokens are the same, or where they part our logits of both are within 1e-3; what it says of its five likeliest
    tokens at each step is ours within 1e-3, too.
    """
    assert model.tokenizer is not None
    file = gguf.GGUFFile(model_path("smollm2"))
    writer = gguf.GGUFWriter().add_all_metadata(file.metadata)
    for name, tensor in file.items():
        writer.add_tensor(name, tensor, "F32")
    writer.write(tmp_path / "plain.gguf")
    server = _server(tmp_path / "plain.gguf")
    for prompt in PROMPTS:
        tokens = model.tokenizer.encode(prompt)
        given = {"prompt": tokens, "max_tokens": 24, "temperature": 0, "logprobs": 5}
        said = server.handle_completions(given)["choices"][0]["logprobs"]["content"]
        expected = [token["id"] for token in said]
        logits = np.asarray(model.logits([tokens + expected]))[0, len(tokens) - 1 : -1]
        likely = np.asarray(rlx.nn.log_softmax(logits))
        for step, token in enumerate(said):
            for other in token["top_logprobs"]:
                assert abs(other["logprob"] - likely[step, other["id"]]) < 1e-3, (prompt, step)
        found = list(model.generate(tokens, 24))
        expected = [token for token in expected if token not in model.config.stop]
        part = next((n for n, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), None)
        if part is None:
            assert len(expected) == len(found)
            continue
        assert abs(logits[part, found[part]] - logits[part, expected[part]]) < 1e-3, (prompt, part)


def test_texts_are_encoded_as_elsewhere(model: lm.Model, server: Any, oracle: Any) -> None:
    """As many tokens as llama.cpp counts, and those of transformers."""
    assert model.tokenizer is not None
    for text in [*PROMPTS, *ODD_TEXTS]:
        found = model.tokenizer.encode(text)
        assert model.tokenizer.decode(found, special=True) == text
        given = {"prompt": text, "max_tokens": 1, "temperature": 0, "logprobs": 1}
        assert server.handle_completions(given)["usage"]["prompt_tokens"] == len(found), text
        assert oracle(text)["input_ids"] == found, text


def test_a_conversation_has_the_models_form(model: lm.Model, oracle: Any) -> None:
    said = [("user", "Hi"), ("assistant", "Hello."), ("user", "Bye")]
    messages = [{"role": role, "content": content} for role, content in said]
    assert model.tokenizer is not None
    text = lm.chat_text(messages, model.tokenizer)
    assert text == oracle.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text.endswith("<|im_start|>assistant\n")


def test_from_the_third_token_on_nothing_is_made_anew(model: lm.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel is compiled, no function is traced."""
    assert model.tokenizer is not None
    traced = []
    stage = call_trace.trace_program
    monkeypatch.setattr(call_trace, "trace_program", lambda *args, **more: traced.append(args) or stage(*args, **more))
    seen = []
    for _ in model.generate(model.tokenizer.encode(PROMPTS[0]), 12, stop=()):
        seen.append((statistics().compiled, len(traced)))
    assert len(seen) == 12
    assert len(set(seen[2:])) == 1, seen


RESIDENT = """
import psutil, sys
from rlx import lm
from rlx.cli.generate import model_path
model, own = lm.load(model_path("smollm2")), psutil.Process()
for length in map(int, sys.argv[1:]):
    prompt = list(range(length))
    list(model.generate(prompt, 20, stop=()))
    compiler = sum(part.rss for part in own.memory_maps() if "llvmlite" in part.path)
    print(own.memory_info().rss, compiler, model.start([prompt], 20)[1].nbytes)
"""


def test_memory_stays_near_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is resident is at most the file, the cache and 150 MiB: Python, NumPy and rlx in it, and mapped pages.

    Of the process that compiles, and behind a prompt of 300 tokens, the pages of the compiler's own library (74 MiB of
    them where it has run, 46 MiB where it only loads code) are not counted; in the second process all are.
    """
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    size = model_path("smollm2").stat().st_size
    for process in ("first", "second"):
        told = subprocess.run(
            [sys.executable, "-c", RESIDENT, "3", "300"], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for length, line in zip((3, 300), told, strict=True):
            resident, compiler, cache = map(int, line.split())
            counted = resident if (process, length) == ("second", 3) else resident - compiler
            assert counted <= size + cache + 150 * 2**20, (process, length, resident, compiler, cache)
