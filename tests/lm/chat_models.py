"""Tiny models with the special tokens, tokenizers and templates that families of chat models have, as folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers

from rlx import lm
from rlx.gguf.tokenizer import Tokenizer, byte_alphabet
from rlx.lm.weights import hugging_face_names
from rlx.serialization import save

SPACE = "\u2581"
IM = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
INST = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
HEADERS = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}"
    "<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
TURNS = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content | trim }}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
BARS = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


class ChatModel(NamedTuple):
    """What a family of chat models has: special tokens first, in the order of their ids.

    pieces: SentencePiece, otherwise byte-level BPE with this rule; eos: the text's end in config.json; ends: ids in
    generation_config.json; says: of tokenizer_config.json; framed: tokenizer.json puts bos before texts.
    """

    special: tuple[str, ...]
    template: str
    rule: str | None
    eos: str
    ends: tuple[str, ...]
    says: dict[str, Any]
    framed: bool
    family: str = "llama"
    prefix: bool = True


def bos(text: str | None, eos: str, **more: Any) -> dict[str, Any]:
    return {"bos_token": text, "eos_token": eos, "tokenizer_class": "PreTrainedTokenizerFast", **more}


LLAMA3 = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
GEMMA = ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>")
PHI3 = ("<unk>", "<s>", "</s>", "<|endoftext|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>")
QWEN = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
SENTENCES = ("<unk>", "<s>", "</s>")
gemma_says = bos("<bos>", "<eos>", add_bos_token=True, pad_token="<pad>", unk_token="<unk>")
MODELS = {
    "llama 2": ChatModel(
        SENTENCES, INST, None, "</s>", ("</s>",), bos("<s>", "</s>", add_bos_token=True, unk_token="<unk>"), True
    ),
    "llama 3": ChatModel(
        LLAMA3,
        HEADERS,
        "llama-bpe",
        "<|end_of_text|>",
        ("<|end_of_text|>", "<|eot_id|>"),
        bos("<|begin_of_text|>", "<|eot_id|>"),
        True,
    ),
    "gemma 2": ChatModel(GEMMA, TURNS, None, "<eos>", ("<eos>", "<end_of_turn>"), gemma_says, True, "gemma2", False),
    "gemma 3": ChatModel(
        GEMMA, TURNS, None, "<eos>", ("<eos>", "<end_of_turn>"), gemma_says, True, "gemma3_text", False
    ),
    "phi 3": ChatModel(
        PHI3,
        BARS,
        None,
        "<|endoftext|>",
        ("<|endoftext|>", "<|end|>"),
        bos("<s>", "<|endoftext|>", add_bos_token=False, unk_token="<unk>"),
        False,
        "phi3",
    ),
    "qwen 2.5": ChatModel(
        QWEN,
        IM,
        "qwen2",
        "<|im_end|>",
        ("<|im_end|>", "<|endoftext|>"),
        bos(None, "<|im_end|>", add_bos_token=False),
        False,
        "qwen2",
    ),
    "qwen 3": ChatModel(
        QWEN,
        IM,
        "qwen2",
        "<|im_end|>",
        ("<|im_end|>", "<|endoftext|>"),
        bos(None, "<|im_end|>", add_bos_token=False),
        False,
        "qwen3",
    ),
    "mistral": ChatModel(
        SENTENCES, INST, None, "</s>", ("</s>",), bos("<s>", "</s>", unk_token="<unk>"), True, "mistral"
    ),
}


def data_of(model: ChatModel) -> Tokenizer:
    """The tokenizer's data, from which the library makes a tokenizer.json."""
    special = {"unknown": model.special.index("<unk>")} if "<unk>" in model.special else {}
    words = ["he", "ll", "hell", "hello", "wo", "rl", "world"]
    if model.rule is None:
        texts = [chr(n) for n in range(33, 127)] + [SPACE, "\n"]
        tokens = [*model.special, *(f"<0x{n:02X}>" for n in range(256)), *texts, *words, SPACE + "hello"]
        types = [3] * len(model.special) + [6] * 256 + [1] * (len(texts) + len(words) + 1)
        scores = [0.0] * len(model.special) + [-float(n) for n in range(len(tokens) - len(model.special))]
        return Tokenizer("llama", None, tokens, np.array(scores, np.float32), np.array(types, np.int32), [], special,
                         {"add_bos_token": False, "add_space_prefix": model.prefix})  # fmt: skip
    letters = list(byte_alphabet())
    merges = ["h e", "l l", "he ll", "hell o", "w o", "r l", "\u0120 hello"]
    tokens = [*letters, *(m.replace(" ", "") for m in merges), *model.special]
    types = [1] * (len(tokens) - len(model.special)) + [3] * len(model.special)
    return Tokenizer("gpt2", model.rule, tokens, None, np.array(types, np.int32), merges)


def write_folder(model: ChatModel, folder: Path) -> None:
    library = lm.TextTokenizer.of_gguf(data_of(model)).library
    ids = {text: library.token_to_id(text) for text in model.special}
    begin = model.says["bos_token"]
    if model.framed:
        library.post_processor = tokenizers.processors.TemplateProcessing(
            single=[begin, "$A"], special_tokens=[(begin, ids[begin])]
        )
    elif model.rule is not None:
        library.post_processor = tokenizers.processors.ByteLevel(trim_offsets=False)
    if model.prefix and model.rule is None:
        steps = tokenizers.decoders
        parts = [steps.Replace(SPACE, " "), steps.ByteFallback(), steps.Fuse(), steps.Strip(" ", 1, 0)]
        library.decoder = steps.Sequence(parts)
    folder.mkdir(exist_ok=True)
    library.save(str(folder / "tokenizer.json"))
    size = library.get_vocab_size()
    config = {
        "model_type": model.family, "vocab_size": size, "hidden_size": 32, "num_hidden_layers": 2, "head_dim": 16,
        "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 32, "max_position_embeddings": 256,
        "bos_token_id": ids.get(begin),
        "eos_token_id": ids[model.eos], "sliding_window": 64, "query_pre_attn_scalar": 16,
        "tie_word_embeddings": model.family.startswith("gemma"), "use_sliding_window": False, "rms_norm_eps": 1e-6,
    }  # fmt: skip
    told = {**model.says, "chat_template": model.template}
    for name, content in (
        ("config.json", config),
        ("generation_config.json", {"eos_token_id": [ids[text] for text in model.ends]}),
        ("tokenizer_config.json", told),
    ):
        (folder / name).write_text(json.dumps(content))
    decoder = lm.families.config_of_hugging_face(config)
    save(folder / "model.safetensors", weights_of(decoder))


def weights_of(config: lm.DecoderConfig) -> dict[str, Any]:
    """Random weights by Hugging Face's names."""
    parameters, found = lm.random_parameters(config), {}
    for path, name in hugging_face_names(config).items():
        value: Any = parameters
        for part in path:
            value = value[part]
        found[name] = np.asarray(value)
    if config.family == "phi3":
        for number, layer in enumerate(parameters["layers"]):
            for name, parts in (("self_attn.qkv_proj", "qkv"), ("mlp.gate_up_proj", ("gate", "up"))):
                joined = [np.asarray(layer[part]["weight"]) for part in parts]
                found[f"model.layers.{number}.{name}.weight"] = np.concatenate(joined)
    return found
