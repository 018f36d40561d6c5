"""Texts to tokens and back, by the tokenizers library, from a GGUF file's data or a `tokenizer.json`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from rlx.errors import UnsupportedError
from rlx.gguf.tokenizer import Tokenizer

__all__ = ["TextTokenizer", "Utf8"]

_CONTROL, _USER = 3, 4
# rules that cut text into words, as regular expressions, by the names that GGUF files have for them
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DIGITS_THEN_GPT2 = ("smollm", "refact", "command-r", "codeshell", "exaone", "starcoder")


class TextTokenizer:
    """Texts to token ids and back.

    Args:
      library: a `tokenizers.Tokenizer`.
      data: what a GGUF file says of it, or None.
      special: ids by role: "bos", "eos", ...
      chat_template: in Jinja, or None.

    >>> from rlx.gguf import Tokenizer
    >>> from rlx.lm import TextTokenizer
    >>> letters = Tokenizer("gpt2", "smollm", ["H", "i", "Hi"], types=None, merges=["H i"])
    >>> TextTokenizer.of_gguf(letters).encode("HiH")
    [2, 0]
    """

    def __init__(self, library: Any, special: dict[str, int] | None = None, chat_template: str | None = None,
                 begins: bool = False) -> None:  # fmt: skip
        self.library = library
        self.special = special or {}
        self.chat_template = chat_template
        self.begins = begins  # whether a text begins with the token "bos"

    @classmethod
    def of_gguf(cls, data: Tokenizer) -> TextTokenizer:
        """The tokenizer that a GGUF file carries. Raises UnsupportedError for a kind that is not byte-level BPE."""
        tokenizers = _library()
        if data.model != "gpt2":
            raise UnsupportedError(
                f"The file's tokenizer is of the kind {data.model!r}; byte-level BPE ('gpt2') is what is read.",
                "Pass tokenizer=rlx.lm.TextTokenizer.of_file('tokenizer.json') from the model's own folder.",
            )
        vocabulary = {token: number for number, token in enumerate(data.tokens)}
        merges = [tuple(merge.split(" ", 1)) for merge in data.merges]
        found = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges, ignore_merges=data.pre == "llama-bpe"))
        found.pre_tokenizer = _cutter(tokenizers, data.pre or "gpt-2")
        found.decoder = tokenizers.decoders.ByteLevel()
        types = np.ones(len(data.tokens), np.int32) if data.types is None else data.types
        added = [
            tokenizers.AddedToken(data.tokens[n], special=int(types[n]) == _CONTROL, normalized=False)
            for n in np.flatnonzero((types == _CONTROL) | (types == _USER)).tolist()
        ]
        found.add_tokens(added)
        begins = data.flags.get("add_bos_token", False) and "bos" in data.special
        return cls(found, data.special, data.chat_template, begins)

    @classmethod
    def of_file(cls, path: str | os.PathLike[str], special: dict[str, int] | None = None,
                chat_template: str | None = None) -> TextTokenizer:  # fmt: skip
        """The tokenizer of a `tokenizer.json`."""
        return cls(_library().Tokenizer.from_file(os.fspath(path)), special, chat_template)

    def __len__(self) -> int:
        return self.library.get_vocab_size()

    def encode(self, text: str, begin: bool = True) -> list[int]:
        """The ids of a text; special tokens that are written out in it are recognised."""
        found = self.library.encode(text, add_special_tokens=False).ids
        return [self.special["bos"], *found] if begin and self.begins else found

    def decode(self, tokens: Iterable[int], special: bool = False) -> str:
        """The text of ids; without special tokens unless asked for."""
        return self.library.decode([int(t) for t in tokens], skip_special_tokens=not special)

    def token(self, role: str) -> str:
        """The text of the token with a role, such as "bos"; empty if there is none."""
        number = self.special.get(role)
        return "" if number is None else self.library.id_to_token(number) or ""


def _library() -> Any:
    try:
        import tokenizers
    except ImportError:
        tokenizers = None
    if tokenizers is None:
        raise UnsupportedError("Texts need the tokenizers library.", 'pip install "rlx[lm]"')
    return tokenizers


def _cutter(tokenizers: Any, pre: str) -> Any:
    """The pre-tokenizer of a name in GGUF files."""
    parts = tokenizers.pre_tokenizers
    levels = parts.ByteLevel(add_prefix_space=False, use_regex=False)
    if pre in _DIGITS_THEN_GPT2:
        return parts.Sequence([parts.Digits(individual_digits=True), parts.ByteLevel(add_prefix_space=False)])
    if pre in ("gpt-2", "gpt2", "default"):
        return parts.ByteLevel(add_prefix_space=False)
    rules = {"llama-bpe": _LLAMA3, "llama3": _LLAMA3, "qwen2": _QWEN2}
    if pre not in rules:
        raise UnsupportedError(
            f"The file's tokenizer cuts words by a rule {pre!r} that is not known.",
            "Pass tokenizer=rlx.lm.TextTokenizer.of_file('tokenizer.json') from the model's own folder.",
        )
    return parts.Sequence([parts.Split(tokenizers.Regex(rules[pre]), "isolated"), levels])


class Utf8:
    """Pieces of text of tokens that come one by one: what is no whole character yet is held back.

    >>> from rlx.gguf import Tokenizer
    >>> from rlx.lm import TextTokenizer
    >>> pieces = Utf8(TextTokenizer.of_gguf(Tokenizer("gpt2", "gpt-2", ["\\u00c3", "\\u00a9"])))
    >>> pieces.add(0), pieces.add(1)
    ('', 'é')
    """

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer, self._tokens, self._said = tokenizer, list[int](), 0

    def add(self, token: int) -> str:
        """The text that a token completes."""
        self._tokens.append(int(token))
        text = self._tokenizer.decode(self._tokens)
        if text.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""
        piece = text[self._said :]
        self._said = len(text)
        if piece.endswith("\n"):  # a line is over: begin anew, so that long texts are not decoded again and again
            self._tokens, self._said = [], 0
        return piece

    def rest(self) -> str:
        """What was held back."""
        return self._tokenizer.decode(self._tokens)[self._said :]


