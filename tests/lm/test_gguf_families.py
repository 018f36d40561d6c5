"""Tiny GGUF files of every family that is read, beside transformers, which made the weights, and llama.cpp.

RLX_TEST_LM=1 runs them (make test-lm).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import LM
from test_families import oracle, ours

import rlx
from rlx import gguf, lm
from rlx import numpy as jnp
from rlx.errors import FileFormatError
from rlx.lm import layers
from rlx.lm.weights import gguf_names
from rlx.quant import QuantizedArray, dequant_matmul

pytestmark = [
    *LM,
    pytest.mark.filterwarnings("ignore"),
]

# the name of test_families -> the architecture of the file
FAMILIES = {
    "llama": "llama", "llama-tied": "llama", "mixtral": "llama", "qwen2": "qwen2", "qwen2-moe": "qwen2moe",
    "qwen3": "qwen3", "qwen3-moe": "qwen3moe", "gemma": "gemma", "gemma2": "gemma2", "gemma3": "gemma3", "phi3": "phi3",
    "gpt2": "gpt2", "granite": "granite", "smollm3": "smollm3", "starcoder2": "starcoder2", "arcee": "arcee",
}  # fmt: skip
# what files do not say: they take it as it is in the models that there are
AS_FILES_HAVE_IT: dict[str, dict[str, Any]] = {
    "gemma2": {"query_pre_attn_scalar": 16},
    "starcoder2": {"sliding_window": None},
    "gemma3": {"query_pre_attn_scalar": 16, "num_hidden_layers": 6, "layer_types": None},
}
LETTERS = [chr(97 + n) for n in range(26)] + [chr(65 + n) for n in range(26)] + ["\u0120", "ab"]


def write(model: lm.Model, path: Path, kind: str = "F32") -> None:
    """A file of a model, with a tokenizer of as many tokens."""
    size = model.config.vocabulary
    tokens = (LETTERS + [f"<{n}>" for n in range(size)])[:size]
    data = gguf.Tokenizer("gpt2", "gpt-2", tokens, merges=["a b"], special={"eos": size - 1, "bos": size - 1})
    tokenizer = lm.TextTokenizer.of_gguf(data)
    lm.save_gguf(lm.Model(model.config, model.parameters, tokenizer), path, "f32")
    if kind != "F32":  # every matrix, whatever a recipe would do
        file = gguf.GGUFFile(path)
        writer = gguf.GGUFWriter().add_all_metadata(file.metadata)
        for name, tensor in file.items():
            writer.add_tensor(name, tensor, "F32" if tensor.ndim == 1 or tensor.shape[-1] % 32 else kind)
        writer.write(path)


def llama_cpp(path: Path, tokens: list[int], count: int) -> list[dict[str, Any]]:
    """What llama.cpp says behind tokens, greedily: the tokens with their logarithms of probability."""
    import xllamacpp

    given = xllamacpp.CommonParams()
    given.model.path = str(path)
    given.n_ctx, given.n_parallel, given.cpuparams.n_threads, given.warmup = 128, 1, 1, False
    given.cache_type_k = given.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    given.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    asked = {"prompt": tokens, "max_tokens": count, "temperature": 0, "logprobs": 1, "ignore_eos": True}
    return xllamacpp.Server(given).handle_completions(asked)["choices"][0]["logprobs"]["content"]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_file_gives_the_numbers_of_the_model_that_it_was_made_of(name: str, tmp_path: Path) -> None:
    import torch

    theirs = oracle(name, **AS_FILES_HAVE_IT.get(name, {}))
    model = ours(theirs)
    write(model, tmp_path / "m.gguf")
    found = lm.load(tmp_path / "m.gguf")
    tokens = np.random.default_rng(0).integers(2, 90, (2, 17))
    with torch.no_grad():
        expected = theirs(torch.tensor(tokens)).logits.numpy()
    np.testing.assert_allclose(found.logits(tokens), expected, atol=1e-4, rtol=0)
    said = llama_cpp(tmp_path / "m.gguf", tokens[0].tolist(), 6)
    made = list(found.generate(tokens[0].tolist(), 6, stop=()))
    logits = np.asarray(found.logits([[*tokens[0].tolist(), *made]]))[0, 16:-1].astype(np.float64)
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    for step, token in enumerate(said):
        assert abs(token["logprob"] - logs[step, token["id"]]) < 2e-3, (step, token["id"], made)
        if token["id"] != made[step]:  # a tie
            assert abs(logs[step, token["id"]] - logs[step, made[step]]) < 2e-3
            break


@pytest.mark.parametrize("name", FAMILIES)
def test_names_are_those_of_the_format(name: str) -> None:
    """Of the gguf package, which llama.cpp's converters write by."""
    import gguf as package

    architecture = FAMILIES[name]
    number = next(n for n, known in package.MODEL_ARCH_NAMES.items() if known == architecture)
    config = ours(oracle(name)).config
    stems = [package.TENSOR_NAMES[tensor] for tensor in package.MODEL_TENSORS[number]]
    known = {stem.format(bid=layer) for stem in stems for layer in range(config.layers)}
    found = {name.rpartition(".")[0] for name in gguf_names(replace(config, family=architecture)).values()}
    assert found <= known


@pytest.mark.parametrize("name", ["phi3", "qwen2-moe", "qwen3-moe", "gemma2"])
def test_packed_weights_stay_packed(name: str, tmp_path: Path) -> None:
    model = ours(oracle(name))
    write(model, tmp_path / "m.gguf", "Q8_0")
    found = lm.load(tmp_path / "m.gguf")
    tokens = np.random.default_rng(0).integers(2, 90, (1, 9))
    part = found.parameters["layers"][1]["up"]["weight"]
    assert part.scheme.name == "gguf_q8_0" and part.shape == model.parameters["layers"][1]["up"]["weight"].shape
    difference = np.asarray(found.logits(tokens)) - np.asarray(model.logits(tokens))
    assert 0 < np.sqrt((difference**2).mean()) < 0.05


def rounded_product(x: Any, weight: QuantizedArray) -> Any:
    """The product as llama.cpp has it: x in blocks of 8 bits, and of Q4_1 the minima times sums in float16."""
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    scales = jnp.max(jnp.abs(blocks), -1) / np.float32(127)
    codes = jnp.rint(blocks * jnp.where(scales == 0, 0, 1 / scales)[..., None])
    halves = scales.astype(np.float16).astype(np.float32)
    found = dequant_matmul((codes * halves[..., None]).reshape(x.shape), weight)
    if weight.scheme.name != "gguf_q4_1":
        return found
    packed = np.asarray(weight.elements).reshape(weight.shape[0], -1, 20)
    minima = packed[..., 2:4].copy().view(np.float16)[..., 0].astype(np.float32)
    sums = codes.sum(-1)
    rounding = (sums * scales).astype(np.float16).astype(np.float32) - sums * halves
    return found + rounding @ minima.T


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1"])
def test_from_packed_weights_llama_cpp_differs_by_its_rounding_of_x(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounded as it does, we give its numbers: a code or two may fall to the other side, which is little of it all."""
    write(ours(oracle("llama")), tmp_path / "m.gguf", kind)
    model = lm.load(tmp_path / "m.gguf")
    tokens = np.random.default_rng(0).integers(2, 90, 17).tolist()
    said = llama_cpp(tmp_path / "m.gguf", tokens, 24)
    made = [token["id"] for token in said]

    def difference() -> float:
        logits = lm.forward(model.parameters, np.array([tokens + made]), model.config)[0, 16:-1]
        likely = np.asarray(rlx.nn.log_softmax(logits))[np.arange(24), made]
        return float(np.abs(likely - [token["logprob"] for token in said]).max())

    exact = difference()
    monkeypatch.setattr(layers, "dequant_matmul", rounded_product)
    assert difference() < 0.05 * exact < 0.05


def test_what_is_missing_is_listed(tmp_path: Path) -> None:
    model = ours(oracle("phi3"))
    whole = {name: tensor for name, tensor in _tensors(model, tmp_path).items() if "ffn_down" not in name}
    writer = gguf.GGUFWriter().add_all_metadata(gguf.GGUFFile(tmp_path / "m.gguf").metadata)
    for name, tensor in whole.items():
        writer.add_tensor(name, tensor, "F32")
    writer.write(tmp_path / "less.gguf")
    with pytest.raises(FileFormatError, match=r"no blk\.0\.ffn_down\.weight; there is no blk\.1\.ffn_down\.weight"):
        lm.load(tmp_path / "less.gguf")
    writer.add_tensor("blk.0.attn_q.bias", np.ones(64, np.float32), "F32").write(tmp_path / "other.gguf")
    with pytest.raises(FileFormatError, match=r"(?s)no blk\.1\.ffn_down\.weight.*blk\.0\.attn_q\.bias has no place"):
        lm.load(tmp_path / "other.gguf")


@pytest.mark.parametrize(("alignment", "part_bytes"), [(32, None), (64, None), (4096, None), (64, 140_000)])
def test_llama_cpp_reads_other_alignments_and_parts(alignment: int, part_bytes: int | None, tmp_path: Path) -> None:
    write(ours(oracle("llama")), tmp_path / "m.gguf")
    file = gguf.GGUFFile(tmp_path / "m.gguf")
    writer = gguf.GGUFWriter(alignment=alignment).add_all_metadata(file.metadata)
    for name, tensor in file.items():
        writer.add_tensor(name, tensor)
    writer.write(tmp_path / "other.gguf", part_bytes=part_bytes)
    parts = sorted(tmp_path.glob("other*"))
    assert len(parts) == (1 if part_bytes is None else 3)
    assert llama_cpp(parts[0], [5, 6, 7, 8], 8) == llama_cpp(tmp_path / "m.gguf", [5, 6, 7, 8], 8)


def test_a_mixture_without_a_number_of_experts_is_refused(tmp_path: Path) -> None:
    write(ours(oracle("qwen2-moe")), tmp_path / "m.gguf")
    file = gguf.GGUFFile(tmp_path / "m.gguf")
    writer = gguf.GGUFWriter("qwen2moe")
    for key, value in file.metadata.items():
        if key not in ("qwen2moe.expert_count", "general.architecture"):
            writer.add_metadata(key, value)
    for key, tensor in file.items():
        writer.add_tensor(key, tensor)
    writer.write(tmp_path / "less.gguf")
    with pytest.raises(FileFormatError, match=r"nothing of qwen2moe\.expert_count"):
        lm.load(tmp_path / "less.gguf")


def _tensors(model: lm.Model, folder: Path) -> dict[str, Any]:
    write(model, folder / "m.gguf")
    return dict(gguf.GGUFFile(folder / "m.gguf").items())
