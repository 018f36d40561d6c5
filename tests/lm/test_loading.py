"""Folders and files: stored precision, packing on load and on the way to a file, adapters, broken files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from chat_models import MODELS, weights_of, write_folder
from needs import beside

from rlx import gguf, lm, save
from rlx import numpy as jnp
from rlx.cli.main import main
from rlx.errors import DtypeError, FileFormatError, OptionError, UnsupportedError
from rlx.lm.families import config_of_hugging_face
from rlx.lm.recipes import RECIPES
from rlx.quant import QuantizedArray, dequantize

SIZES: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 50, "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 256, "max_position_embeddings": 64, "eos_token_id": 3,
}  # fmt: skip


def folder_of(path: Path, dtype: Any = np.float32, **changes: Any) -> Path:
    """A folder with random weights of a dtype."""
    given = {**SIZES, **changes}
    path.mkdir()
    (path / "config.json").write_text(json.dumps(given))
    weights = weights_of(config_of_hugging_face(given))
    save(path / "model.safetensors", {name: jnp.asarray(value.astype(dtype)) for name, value in weights.items()})
    return path


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_folders_keep_their_precision(dtype: Any, tmp_path: Path) -> None:
    model = lm.load(folder_of(tmp_path / "m", dtype))
    weight = model.parameters["layers"][0]["up"]["weight"]
    assert weight.dtype == dtype and model.parameters["norm"]["weight"].dtype == np.float32
    whole = lm.load(tmp_path / "m", dtype="float32")
    assert whole.parameters["layers"][0]["up"]["weight"].dtype == np.float32
    tokens = np.arange(2, 22)[None]
    np.testing.assert_allclose(model.logits(tokens), whole.logits(tokens), atol=1e-4)
    assert list(model.generate([4, 5], 8, stop=())) == list(whole.generate([4, 5], 8, stop=()))
    half = lm.load(tmp_path / "m", dtype="bfloat16").parameters["layers"][0]["up"]["weight"]
    assert half.dtype == ml_dtypes.bfloat16
    with pytest.raises(DtypeError, match="int8"):
        lm.load(tmp_path / "m", dtype="int8")


def test_weights_of_a_folder_are_mapped(tmp_path: Path) -> None:
    """A number that changes in the file changes in the model: nothing was read into other memory."""
    model = lm.load(folder_of(tmp_path / "m", ml_dtypes.bfloat16))
    weight = np.asarray(model.parameters["layers"][2]["down"]["weight"])
    path = tmp_path / "m" / "model.safetensors"
    place = path.read_bytes().index(weight[:4].tobytes())
    with path.open("r+b") as file:
        file.seek(place)
        file.write(np.array([0.5, 0.25], ml_dtypes.bfloat16).tobytes())
    assert np.asarray(model.parameters["layers"][2]["down"]["weight"])[0, :2].tolist() == [0.5, 0.25]


@pytest.mark.selected("all")
@pytest.mark.parametrize("recipe", ["q8_0", "q4_0", "q4_k", "q4_k_m", "q6_k", "bf16", "f32"])
def test_packing_on_load_is_packing_on_the_way_to_a_file(recipe: str, tmp_path: Path) -> None:
    """The same bytes: a folder that is packed while it is loaded, the file made of it, and the file made of a file."""
    folder = folder_of(tmp_path / "m")
    model = lm.load(folder, quantize=recipe)
    plain = lm.load(folder)
    lm.save_gguf(plain, tmp_path / "m.gguf", recipe)
    assert main(["quantize", str(folder), str(tmp_path / "again.gguf"), "--to", recipe.upper()]) == 0
    lm.save_gguf(plain, tmp_path / "f32.gguf", "f32")
    lm.repack_gguf(tmp_path / "f32.gguf", tmp_path / "repacked.gguf", recipe, lm.load(tmp_path / "f32.gguf").config)
    first, *others = (gguf.GGUFFile(tmp_path / f"{name}.gguf") for name in ("m", "again", "repacked"))
    for file in others:
        assert file.keys() == first.keys()
        for name, tensor in first.items():
            assert file[name].kind is tensor.kind and np.array_equal(file[name].packed, tensor.packed), name
    tokens = np.arange(2, 22)[None]
    np.testing.assert_allclose(model.logits(tokens), lm.load(tmp_path / "m.gguf").logits(tokens), atol=1e-4)
    for layer in model.parameters["layers"]:
        assert isinstance(layer["up"]["weight"], QuantizedArray) == (recipe not in ("bf16", "f32"))
    if recipe == "q4_k_m":
        kinds = {name: tensor.kind.name for name, tensor in first.items()}
        assert kinds["blk.0.ffn_up.weight"] == "Q4_K" and kinds["output.weight"] == "Q6_K"
        assert "Q6_K" in {kinds[f"blk.{n}.attn_v.weight"] for n in range(3)}


def test_rows_that_do_not_fit_blocks_get_smaller_ones(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", hidden_size=96, intermediate_size=80)
    lm.save_gguf(lm.load(folder), tmp_path / "m.gguf", "q4_k_m")
    kinds = {name: tensor.kind.name for name, tensor in gguf.GGUFFile(tmp_path / "m.gguf").items()}
    assert kinds["blk.0.ffn_up.weight"] == "Q5_0" and kinds["blk.0.ffn_down.weight"] == "F16"
    lm.load(tmp_path / "m.gguf").logits([[1, 2, 3]])


def test_wrong_recipes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(tmp_path / "m")
    with pytest.raises(OptionError, match="no recipe 'q4_x'"):
        lm.load(folder, quantize="q4_x")
    assert main(["quantize", str(folder), str(tmp_path / "m.gguf"), "--to", "q4_x"]) == 2
    assert "There is no recipe q4_x" in capsys.readouterr().err
    lm.save_gguf(lm.load(folder), tmp_path / "m.gguf", "f32")
    assert main(["quantize", str(tmp_path / "m.gguf"), str(tmp_path / "m.gguf")]) == 2
    with pytest.raises(OptionError, match="is packed as it is"):
        lm.load(tmp_path / "m.gguf", quantize="q8_0")
    assert set(RECIPES) >= {"q8_0", "q4_k_m", "q4_0", "f16"}


@pytest.mark.selected("all")
@pytest.mark.parametrize(
    "change, error, words",
    [
        ({"hidden_act": "relu"}, UnsupportedError, "activation 'relu'"),
        ({"num_attention_heads": 0}, FileFormatError, "num_attention_heads = 0"),
        ({"num_key_value_heads": 3}, OptionError, "4 heads of queries cannot share 3"),
        ({"hidden_size": "32"}, FileFormatError, "hidden_size = '32'"),
        ({"hidden_size": None}, FileFormatError, "nothing of hidden_size"),
        ({"num_hidden_layers": -1}, FileFormatError, "num_hidden_layers = -1"),
        ({"rms_norm_eps": "x"}, FileFormatError, "rms_norm_eps = 'x'"),
        ({"rope_scaling": [1]}, FileFormatError, "must be an object"),
        ({"quantization_config": {"quant_method": "gptq"}}, UnsupportedError, "'gptq'"),
        ({"model_type": "mamba"}, UnsupportedError, "'mamba'"),
        ({"model_type": "bert"}, UnsupportedError, "load_encoder"),
    ],
    ids=str,
)
def test_configs_of_another_form_are_named(change: Any, error: type[Exception], words: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m")
    (folder / "config.json").write_text(json.dumps({**SIZES, **change}))
    with pytest.raises(error, match=words):
        lm.load(folder)


@pytest.mark.parametrize("text", ["{not json", "[]", "", "\xff", "[" * 5000])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"])
def test_broken_files_are_named(name: str, text: str, tmp_path: Path) -> None:
    write_folder(MODELS["qwen 3"], tmp_path / "m")
    (tmp_path / "m" / name).write_bytes(text.encode("latin1"))
    with pytest.raises(FileFormatError, match=name.replace(".", r"\.")):
        lm.load(tmp_path / "m")


def test_updates_of_unknown_layers_are_named() -> None:
    config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
    parameters = lm.random_parameters(config)
    for path in ("layers.99.q", "layers.0.zzz", "x", "layers.0.norm", "layers.q.0"):
        with pytest.raises(OptionError, match="no linear layer"):
            lm.apply_lora(parameters, {path: {"a": 0, "b": 0, "scale": 1}})


# ---------------------------------------------------------------- beside other libraries
@beside
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["llama", "phi3", "qwen2"])
@pytest.mark.parametrize("rslora", [False, True])
def test_folders_of_peft_are_read(name: str, rslora: bool, tmp_path: Path) -> None:
    """Beside plain weights, packed ones, and in a GGUF file, whose rows have another order."""
    import peft
    import torch
    from test_families import oracle

    theirs = oracle(name)
    theirs.save_pretrained(tmp_path / "base")
    modules = ["qkv_proj", "gate_up_proj", "down_proj"] if name == "phi3" else ["q_proj", "k_proj", "v_proj", "up_proj"]
    told = peft.LoraConfig(r=4, lora_alpha=6, target_modules=modules, use_rslora=rslora, init_lora_weights=False)
    adapted = peft.get_peft_model(theirs, told).eval()
    adapted.save_pretrained(tmp_path / "lora")
    tokens = np.arange(2, 20)[None]
    with torch.no_grad():
        expected = adapted(torch.tensor(tokens)).logits.numpy()
    model = lm.load(tmp_path / "base")
    lm.save_gguf(model, tmp_path / "m.gguf", "f32")
    for one in (model, lm.load(tmp_path / "m.gguf")):
        plain = np.asarray(one.logits(tokens))
        updates = lm.load_lora(tmp_path / "lora", one.config)
        found = lm.Model(one.config, lm.apply_lora(one.parameters, updates)).logits(tokens)
        np.testing.assert_allclose(found, expected, atol=1e-4)
        assert np.abs(plain - expected).max() > 1e-2
        merged = lm.Model(one.config, lm.merge_lora(one.parameters, updates)).logits(tokens)
        np.testing.assert_allclose(merged, expected, atol=1e-4)
    packed = lm.load(tmp_path / "base", quantize="q8_0")
    with_updates = lm.apply_lora(packed.parameters, lm.load_lora(tmp_path / "lora", packed.config))
    np.testing.assert_allclose(lm.Model(packed.config, with_updates).logits(tokens), expected, atol=0.3)
    other = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
    with pytest.raises(FileFormatError, match="do not fit"):
        lm.load_lora(tmp_path / "lora", other)


@beside
@pytest.mark.filterwarnings("ignore")
def test_adapters_of_other_kinds_are_refused(tmp_path: Path) -> None:
    import peft
    from test_families import oracle

    for number, more in enumerate(({"use_dora": True}, {"modules_to_save": ["lm_head"]})):
        told = peft.LoraConfig(r=2, target_modules=["q_proj"], **more)
        peft.get_peft_model(oracle("llama"), told).save_pretrained(tmp_path / str(number))
        with pytest.raises(UnsupportedError, match=next(iter(more))):
            lm.load_lora(tmp_path / str(number), lm.DecoderConfig(99, 64, 2, 4, 2, 96))


@beside
@pytest.mark.filterwarnings("ignore")
def test_vectors_and_perplexity_are_those_of_transformers(tmp_path: Path) -> None:
    import torch
    from test_families import oracle, ours

    theirs = oracle("llama")
    model = ours(theirs)
    rows = [list(range(2, 13)), [5], list(range(3, 20))]
    for pooling in ("mean", "last", "first"):
        found = np.asarray(lm.embed_texts(model, rows, pooling, normalised=False))
        for row, vector in zip(rows, found, strict=True):
            with torch.no_grad():
                states = theirs(torch.tensor([row]), output_hidden_states=True).hidden_states[-1][0].numpy()
            expected = {"mean": states.mean(0), "last": states[-1], "first": states[0]}[pooling]
            np.testing.assert_allclose(vector, expected, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(lm.embed_texts(model, rows), axis=-1), 1, atol=1e-5)
    text = np.random.default_rng(0).integers(2, 99, 200)
    losses = []
    for start in range(0, 192, 64):
        window = torch.tensor(text[start : start + 64])[None]
        with torch.no_grad():
            told = torch.log_softmax(theirs(window).logits[0], -1)
        losses += [-told[n - 1, window[0, n]].item() for n in range(33, 64)]
    assert lm.perplexity(model, text, 64) == pytest.approx(np.exp(np.mean(losses)), rel=1e-4)
    for wrong in ({"context": 3}, {"context": 201}):
        with pytest.raises(OptionError, match="windows of"):
            lm.perplexity(model, text, **wrong)
    with pytest.raises(OptionError, match="no pooling"):
        lm.embed_texts(model, rows, "most")


def test_dequantised_numbers_are_what_files_have(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m")
    model = lm.load(folder, quantize="q8_0")
    lm.save_gguf(model, tmp_path / "m.gguf", "f32")  # of packed weights: their numbers
    weight = model.parameters["layers"][1]["down"]["weight"]
    np.testing.assert_array_equal(
        gguf.GGUFFile(tmp_path / "m.gguf")["blk.1.ffn_down.weight"].numpy(), dequantize(weight)
    )
