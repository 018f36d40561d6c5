"""Models from files: GGUF files, and folders with config.json and safetensors."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.errors import DtypeError, FileFormatError, OptionError
from rlx.gguf.file import GGUFFile
from rlx.lm.families import config_of_gguf, config_of_hugging_face
from rlx.lm.generation import Model
from rlx.lm.json_files import read_object
from rlx.lm.recipes import packed
from rlx.lm.special import files_of_folder
from rlx.lm.tensors import open_tensors
from rlx.lm.tokens import TextTokenizer
from rlx.lm.weights import parameters_of_gguf, parameters_of_tensors

__all__ = ["load"]

_DTYPES = ("float32", "bfloat16", "float16")


def load(
    path: str | os.PathLike[str],
    tokenizer: TextTokenizer | None = None,
    *,
    dtype: Any = None,
    quantize: str | None = None,
) -> Model:
    """A model from a GGUF file, or from a folder with `config.json` and safetensors, sharded or not.

    Args:
      path: of the file or folder.
      tokenizer: in place of the model's own.
      dtype: of weights that are not packed: "float32", "bfloat16" or "float16". None: as they are stored, mapped from
        the file: only used parts take memory.
      quantize: pack the weights of a folder while they are loaded, as "q8_0", "q4_0", "q4_k", or by a recipe of
        llama.cpp, as "q4_k_m".

    Packed weights of a GGUF file stay packed and mapped.

    Raises UnsupportedError for an architecture that is not known, FileFormatError for weights that are missing or have
    other shapes, all of them by name, and OptionError for an unknown way to pack.

    >>> import rlx.lm
    >>> rlx.lm.load("no-such-folder")
    Traceback (most recent call last):
        ...
    rlx.errors.FileFormatError: no-such-folder is neither a GGUF file nor a folder with config.json...
    """
    path = Path(path)
    if dtype is not None and str(jnp.dtype(dtype)) not in _DTYPES:
        raise DtypeError(f"Weights cannot be {jnp.dtype(dtype)}.", f"There are: {', '.join(_DTYPES)}.")
    if path.is_file():
        if quantize is not None:
            raise OptionError("A GGUF file is packed as it is.", "rlx quantize FILE.gguf --to TYPE OUT.gguf packs it.")
        model = _load_gguf(GGUFFile(path), tokenizer)
    elif (path / "config.json").is_file():
        model = _load_folder(path, tokenizer)
    else:
        raise FileFormatError(f"{path} is neither a GGUF file nor a folder with config.json.", "Check the path.")
    if quantize is not None:
        model.parameters = packed(model.config, model.parameters, quantize)
    if dtype is not None:
        model.parameters = _cast(model.parameters, jnp.dtype(dtype))
    return model


def _cast(parameters: Any, dtype: Any) -> Any:
    """Weights of products in a dtype; norms and biases stay float32."""
    if isinstance(parameters, dict):
        return {name: _cast(part, dtype) for name, part in parameters.items()}
    if isinstance(parameters, list):
        return [_cast(part, dtype) for part in parameters]
    return (
        parameters.astype(dtype) if getattr(parameters, "ndim", 0) > 1 and hasattr(parameters, "astype") else parameters
    )


def _load_folder(path: Path, tokenizer: TextTokenizer | None) -> Model:
    given = read_object(path / "config.json")
    config = config_of_hugging_face(given)
    if tokenizer is None and (path / "tokenizer.json").is_file():
        tokenizer = TextTokenizer.of_folder(path)
    stop = files_of_folder(path, given).stop if tokenizer is None else tokenizer.stop
    parameters = parameters_of_tensors(config, open_tensors(path))
    return Model(_stopping(config, stop), parameters, tokenizer)


def _load_gguf(file: GGUFFile, tokenizer: TextTokenizer | None) -> Model:
    factors = {
        name: tuple(float(f) for f in np.ravel(file[f"rope_{name}.weight"].numpy()))
        for name in ("freqs", "factors_long", "factors_short")
        if f"rope_{name}.weight" in file
    }
    rows = file["token_embd.weight"].shape[0] if "token_embd.weight" in file else None
    config = config_of_gguf(file.metadata, factors, "output.weight" not in file, rows)
    if tokenizer is None and "tokenizer.ggml.model" in file.metadata:
        tokenizer = TextTokenizer.of_gguf(file.tokenizer)
    eos = file.metadata.get("tokenizer.ggml.eos_token_id")
    stop = tokenizer.stop if tokenizer is not None else () if eos is None else (int(eos),)
    return Model(_stopping(config, stop), parameters_of_gguf(config, file), tokenizer)


def _stopping(config: Any, stop: tuple[int, ...]) -> Any:
    """The config with the ids that end a text, of those that the vocabulary has."""
    return replace(config, stop=tuple(n for n in stop if n < config.vocabulary))
