"""The examples that need a model: a conversation, and a fine-tuning, which is killed and goes on to the same bits."""

from __future__ import annotations

import functools
import operator
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from modules import load
from needs import beside

import rlx
from rlx import gguf, lm
from rlx.gguf.tokenizer import byte_alphabet
from rlx.lm.weights import gguf_names

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@beside
@pytest.mark.filterwarnings("ignore")
def test_a_conversation_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    assert load(EXAMPLES / "chat.py").main(["What is the capital of France?"], tokens=12) > 0
    assert "Paris" in capsys.readouterr().out


@beside
@pytest.mark.filterwarnings("ignore")
def test_a_poem_is_learned(tmp_path: Path) -> None:
    assert load(EXAMPLES / "finetune.py").main(10, tmp_path / "lora.safetensors") < 0.9


# main(10, file) of the example, ended by SIGKILL before a step, or where a file is put in the place of the last one
KILLED = """
import os, signal, sys
from pathlib import Path
from modules import load

path, file, model, place, step = sys.argv[1:]
example = load(Path(path))
batch_of, replace = example.batch_of, os.replace

def die():
    os.kill(os.getpid(), signal.SIGKILL)

if place == "step":
    example.batch_of = lambda tokens, number: die() if number == int(step) else batch_of(tokens, number)
elif place == "saving":
    os.replace = lambda *paths: die() if str(paths[1]) == file else replace(*paths)
example.main(10, file, model)
"""


def tiny_model(path: Path) -> None:
    """A GGUF file of a small random model that reads bytes."""
    letters = list(byte_alphabet())
    config = lm.DecoderConfig(
        vocabulary=len(letters), width=32, layers=2, heads=4, key_heads=2, inner=64, context=64, rope=lm.Rope(dims=8)
    )
    writer = gguf.GGUFWriter("llama").add_metadata("tokenizer.ggml.model", "gpt2")
    writer.add_metadata("tokenizer.ggml.pre", "gpt-2").add_metadata("tokenizer.ggml.tokens", letters)
    sizes = {"embedding_length": 32, "block_count": 2, "feed_forward_length": 64, "context_length": 64}
    for key, value in (sizes | {"attention.head_count": 4, "attention.head_count_kv": 2}).items():
        writer.add_metadata(f"llama.{key}", value)
    parameters = lm.random_parameters(config)
    for place, name in gguf_names(config).items():
        value = np.asarray(functools.reduce(operator.getitem, place, parameters))
        writer.add_tensor(name, value, "F32" if value.ndim == 1 else "Q8_0")
    writer.write(path)


@pytest.mark.thorough
def test_training_that_was_killed_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    """Before the first save, between saves, and within one."""
    file = tmp_path / "parts.safetensors"
    tiny_model(tmp_path / "m.gguf")
    load(EXAMPLES / "finetune.py").main(10, tmp_path / "whole.safetensors", tmp_path / "m.gguf")
    for place, step, saved in (("step", 3, None), ("step", 7, 5), ("saving", 10, 5), ("nowhere", 0, 10)):
        given = (EXAMPLES / "finetune.py", file, tmp_path / "m.gguf", place, step)
        done = subprocess.run(
            [sys.executable, "-c", KILLED, *map(str, given)], cwd=Path(__file__).parents[1], stderr=subprocess.PIPE
        )
        assert done.returncode == (0 if place == "nowhere" else -signal.SIGKILL), done.stderr.decode()
        assert file.exists() == (saved is not None) and (saved is None or int(rlx.load(file)["step"]) == saved)
    whole, parts = (rlx.load(tmp_path / f"{name}.safetensors") for name in ("whole", "parts"))
    pairs = list(zip(rlx.tree.leaves(whole), rlx.tree.leaves(parts), strict=True))
    assert len(pairs) > 20 and all(np.array_equal(a, b) for a, b in pairs)
