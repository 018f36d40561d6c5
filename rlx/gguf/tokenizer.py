"""The tokenizer stored in a file, as data: tokens, scores, types, merges and special tokens."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn

import numpy as np

from rlx.errors import FileFormatError
from rlx.gguf.header import Metadata

__all__ = ["TOKEN_TYPES", "Tokenizer", "byte_alphabet", "tokenizer_of"]

TOKEN_TYPES = {1: "normal", 2: "unknown", 3: "control", 4: "user", 5: "unused", 6: "byte"}
_SPECIAL = (
    "bos eos eot eom unknown seperator separator padding cls mask fim_pre fim_suf fim_mid fim_pad fim_rep fim_sep"
).split()  # "seperator": sic, in the format
_FLAGS = "add_bos_token add_eos_token add_sep_token add_space_prefix remove_extra_whitespaces".split()
_SPACE = "\u2581"  # the space of SentencePiece models


class Tokenizer(NamedTuple):
    """The tokenizer data of a file.

    Fields:
      model: the kind of tokenizer: "llama" (SentencePiece), "gpt2" (byte-level BPE), "bert", "t5", "rwkv", ...
      pre: the name of the rule that splits text into words, or None.
      tokens: the strings of the tokens, as in the model.
      scores: float32[tokens], or None.
      types: int32[tokens], the keys of TOKEN_TYPES, or None.
      merges: pairs of tokens "a b" in order of rank; empty for models without merges.
      special: ids by role: "bos", "eos", "unknown", "padding", ...
      flags: "add_bos_token", "add_space_prefix", ...
      chat_template: the template in Jinja, or None.

    >>> from rlx.gguf import Tokenizer
    >>> Tokenizer("gpt2", tokens=["Hello", "\u0120world"]).decode([0, 1])
    'Hello world'
    """

    model: str
    pre: str | None = None
    tokens: list[str] = []
    scores: np.ndarray | None = None
    types: np.ndarray | None = None
    merges: list[str] = []
    special: dict[str, int] = {}
    flags: dict[str, bool] = {}
    chat_template: str | None = None

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token stands for in text; none for control tokens.

        >>> from rlx.gguf import Tokenizer
        >>> Tokenizer("llama", tokens=["\u2581the"]).token_bytes(0)
        b' the'
        """
        text, kind = self.tokens[token], 1 if self.types is None else int(self.types[token])
        if kind in (3, 5):
            return b""
        if kind == 6 or (self.model in ("llama", "t5") and _is_byte(text)):
            return bytes([int(text[3:5], 16)]) if _is_byte(text) else text.encode()
        if self.model == "gpt2" and kind != 4:
            back = _CHARACTERS
            return bytes(back[c] for c in text) if all(c in back for c in text) else text.encode()
        return text.replace(_SPACE, " ").encode() if self.model in ("llama", "t5") else text.encode()

    def decode(self, tokens: Iterable[int]) -> str:
        """Decode tokens to text; invalid UTF-8 becomes the replacement character.

        >>> from rlx.gguf import Tokenizer
        >>> Tokenizer("gpt2", tokens=["Hi"]).decode([0])
        'Hi'
        """
        return b"".join(self.token_bytes(int(token)) for token in tokens).decode("utf-8", "replace")


def byte_alphabet() -> str:
    """The characters that represent the bytes 0 to 255 in byte-level BPE.

    >>> from rlx.gguf.tokenizer import byte_alphabet
    >>> byte_alphabet()[32], byte_alphabet()[65]
    ('\u0120', 'A')
    """
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = {byte: 256 + rank for rank, byte in enumerate(b for b in range(256) if b not in shown)}
    return "".join(chr(hidden.get(byte, byte)) for byte in range(256))


_CHARACTERS = {character: byte for byte, character in enumerate(byte_alphabet())}


def _is_byte(text: str) -> bool:
    """Whether a token is written as <0x0A>."""
    return (
        len(text) == 6
        and text.startswith("<0x")
        and text[5] == ">"
        and all(c in "0123456789ABCDEFabcdef" for c in text[3:5])
    )


# ---------------------------------------------------------------- from metadata
def tokenizer_of(path: os.PathLike[str], metadata: Metadata) -> Tokenizer:
    """The tokenizer in a file's metadata. Raises FileFormatError if it is inconsistent."""
    read = _Reader(path, metadata)
    if "tokenizer.ggml.model" not in metadata:
        raise FileFormatError(
            f"{os.fspath(path)} contains no tokenizer.", "Take the tokenizer from the model's own folder."
        )
    tokens = read.texts("tokens")
    found = Tokenizer(
        model=read.text("tokenizer.ggml.model") or "",
        pre=read.text("tokenizer.ggml.pre"),
        tokens=tokens,
        scores=read.numbers("scores", "f", np.float32, len(tokens)),
        types=read.numbers("token_type", "iu", np.int32, len(tokens)),
        merges=read.texts("merges"),
        special={
            name: token for name in _SPECIAL if (token := read.token(f"{name}_token_id", len(tokens))) is not None
        },
        flags={name: value for name in _FLAGS if (value := read.flag(name)) is not None},
        chat_template=read.text("tokenizer.chat_template"),
    )
    if found.types is not None and found.types.size and not 1 <= found.types.min() <= found.types.max() <= 6:
        read.refuse("token_type", "has types other than 1 to 6")
    return found


class _Reader:
    """Typed access to metadata."""

    def __init__(self, path: os.PathLike[str], metadata: Metadata) -> None:
        self.path, self.metadata = path, metadata

    def refuse(self, key: str, why: str) -> NoReturn:
        raise FileFormatError(
            f"{os.fspath(self.path)}: tokenizer.ggml.{key} {why}.", "Download or convert the model again."
        )

    def text(self, key: str) -> str | None:
        value = self.metadata.get(key)
        if value is not None and not isinstance(value, str):
            self.refuse(key.removeprefix("tokenizer.ggml."), "is no text")
        return value

    def texts(self, key: str) -> list[str]:
        value: Any = self.metadata.get(f"tokenizer.ggml.{key}", [])
        if isinstance(value, np.ndarray) and not value.size:
            return []
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            self.refuse(key, "is not an array of strings")
        return value

    def numbers(self, key: str, kinds: str, dtype: Any, length: int) -> np.ndarray | None:
        value = self.metadata.get(f"tokenizer.ggml.{key}")
        if value is None:
            return None
        if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
            self.refuse(key, "is not an array of numbers")
        if len(value) != length:
            self.refuse(key, f"has {len(value)} elements for {length} tokens")
        return value.astype(dtype)

    def token(self, key: str, length: int) -> int | None:
        value = self.metadata.get(f"tokenizer.ggml.{key}")
        if value is None:
            return None
        if type(value) is not int:
            self.refuse(key, "is not an integer")
        return value if 0 <= value < length else None if value in (-1, 2**32 - 1) else self.refuse(key, f"is {value}")

    def flag(self, key: str) -> bool | None:
        value = self.metadata.get(f"tokenizer.ggml.{key}")
        if value is not None and type(value) is not bool:
            self.refuse(key, "is no bool")
        return value
