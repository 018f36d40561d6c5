"""The special tokens of a model, from all the places that name them: the only file that knows these places.

A GGUF file has ids by role, the types of its tokens, and well-known texts of tokens that end a turn. A folder has
`tokenizer.json` with a post-processor, `tokenizer_config.json`, `special_tokens_map.json`, `config.json` and
`generation_config.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import FileFormatError
from rlx.gguf.tokenizer import Tokenizer
from rlx.lm.json_files import read_object

__all__ = [
    "LLAMA3_RULES",
    "ChatFiles",
    "control_types",
    "files_of_folder",
    "frame_of_gguf",
    "roles_of_gguf",
    "stops_of_gguf",
]

_NORMAL, _UNKNOWN, _CONTROL, _USER = 1, 2, 3, 4
# texts by which llama.cpp recognises tokens that end a turn or a text, whatever the file says of their type
_ENDS = (
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> </s> <|eom_id|>"
    " <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <eos> <turn|> <|tool_response>"
).split()
# tokens between files and around gaps, behind which a text is over
_FILE_ENDS = {
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
# Llama 3's rule of words, whose texts begin with "bos" if the file does not say otherwise
LLAMA3_RULES = ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2")
_DEFAULT_ROLES = {"llama": {"unknown": 0, "bos": 1, "eos": 2}}
_ROLES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}


# ---------------------------------------------------------------- GGUF
def roles_of_gguf(data: Tokenizer) -> dict[str, int]:
    """Ids by role; SentencePiece models have the usual ones where a file says nothing."""
    usual = {role: n for role, n in _DEFAULT_ROLES.get(data.model, {}).items() if n < len(data.tokens)}
    return usual | data.special


def control_types(data: Tokenizer) -> np.ndarray:
    """The types of tokens, int32[tokens]: those that end a turn are control tokens, whatever the file says."""
    types = np.ones(len(data.tokens), np.int32) if data.types is None else data.types.copy()
    for text in _ends_there(data):
        types[text] = _CONTROL
    return types


def stops_of_gguf(data: Tokenizer) -> tuple[int, ...]:
    """The ids that end a text or a turn: by role, and by their texts.

    >>> from rlx.gguf import Tokenizer
    >>> stops_of_gguf(Tokenizer("gpt2", tokens=["a", "<|im_end|>", "<|endoftext|>"], special={"eos": 2}))
    (1, 2)
    """
    roles = roles_of_gguf(data)
    found = {roles[role] for role in ("eos", "eot", "eom", *_FILE_ENDS) if role in roles} | _ends_there(data)
    known = {text: n for n, text in enumerate(data.tokens)}
    for role, texts in _FILE_ENDS.items():
        if role not in roles:
            found |= {known[text] for text in texts if text in known}
    # harmony's messages end with <|end|>, its turns do not
    inner = {known["<|end|>"]} if {"<|return|>", "<|call|>", "<|end|>"} <= known.keys() else set()
    return tuple(sorted(found - inner))


def frame_of_gguf(data: Tokenizer) -> tuple[int | None, int | None]:
    """The token before each text, and the one behind it; None where there is none."""
    roles = roles_of_gguf(data)
    begins = data.flags.get("add_bos_token", data.model == "llama" or data.pre in LLAMA3_RULES)
    ends = data.flags.get("add_eos_token", False)
    return roles.get("bos") if begins else None, roles.get("eos") if ends else None


def _ends_there(data: Tokenizer) -> set[int]:
    wanted = set(_ENDS)
    return {n for n, text in enumerate(data.tokens) if text in wanted}


# ---------------------------------------------------------------- folders
class ChatFiles(NamedTuple):
    """What a folder says about its special tokens.

    Fields: texts: of tokens by role; frame: whether "bos" and "eos" are put around texts, None: as tokenizer.json says;
    stop: ids that end a text; template: chat templates by name.
    """

    texts: Mapping[str, str]
    frame: tuple[bool, bool] | None
    stop: tuple[int, ...]
    templates: Mapping[str, str]


def files_of_folder(folder: Path, config: Mapping[str, Any]) -> ChatFiles:
    """The special tokens that the files of a folder name. Raises FileFormatError for files of another form."""
    told = read_object(folder / "tokenizer_config.json", missing={})
    texts = {}
    for names in (read_object(folder / "special_tokens_map.json", missing={}), told):
        for role, name in _ROLES.items():
            text = names.get(name)
            text = text.get("content") if isinstance(text, Mapping) else text
            if isinstance(text, str):
                texts[role] = text
    says = [name in told for name in ("add_bos_token", "add_eos_token")]
    frame = (bool(told.get("add_bos_token")), bool(told.get("add_eos_token"))) if any(says) else None
    ends = read_object(folder / "generation_config.json", missing={}).get("eos_token_id", config.get("eos_token_id"))
    return ChatFiles(texts, frame, _ids(folder, ends), _templates(folder, told.get("chat_template")))


def _ids(folder: Path, ends: Any) -> tuple[int, ...]:
    found = [] if ends is None else ends if isinstance(ends, list) else [ends]
    if not all(type(n) is int and n >= 0 for n in found):
        raise FileFormatError(f"{folder}: eos_token_id is {ends!r}.", "It is a token's id, or a list of ids.")
    return tuple(found)


def _templates(folder: Path, given: Any) -> dict[str, str]:
    """Chat templates by name: of a file, of the text in tokenizer_config.json, or of a list there."""
    if (folder / "chat_template.jinja").is_file():
        return {"default": (folder / "chat_template.jinja").read_text(encoding="utf-8")}
    if given is None:
        return {}
    if isinstance(given, str):
        return {"default": given}
    if isinstance(given, list) and all(isinstance(t, Mapping) and {"name", "template"} <= t.keys() for t in given):
        return {str(t["name"]): str(t["template"]) for t in given}
    raise FileFormatError(
        f"{folder / 'tokenizer_config.json'}: chat_template is neither a text nor a list of named texts.",
        "Pass tokenizer= to rlx.lm.load.",
    )
