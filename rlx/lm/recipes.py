"""Which storage type each weight of a model gets: recipes by llama.cpp's names, for files and for loading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import OptionError, did_you_mean
from rlx.gguf.types import LAYOUTS, StorageType
from rlx.lm.config import DecoderConfig
from rlx.quant.arrays import QuantizedArray, dequantize, quantize
from rlx.quant.schemes import scheme_of

__all__ = ["RECIPES", "numbers_of", "packed", "storage_of"]

Path = tuple[Any, ...]


class Recipe(NamedTuple):
    """Storage types: of most weights; of the output matrix; of values and the last products, in all layers or `some`.

    some: the first and the last eighth of the layers, and every third between them.
    """

    most: str
    output: str
    finer: str = ""
    some: bool = True


RECIPES: dict[str, Recipe] = {
    "f32": Recipe("F32", "F32"),
    "f16": Recipe("F16", "F16"),
    "bf16": Recipe("BF16", "BF16"),
    **{name: Recipe(name.upper(), "Q8_0" if name == "q8_0" else "Q6_K") for name in "q4_0 q4_1 q5_0 q5_1 q8_0".split()},
    **{f"q{bits}_k": Recipe(f"Q{bits}_K", "Q6_K") for bits in (2, 3, 4, 5, 6)},
    "q3_k_m": Recipe("Q3_K", "Q6_K", "Q4_K", some=False),
    "q4_k_s": Recipe("Q4_K", "Q6_K"),
    "q4_k_m": Recipe("Q4_K", "Q6_K", "Q6_K"),
    "q5_k_s": Recipe("Q5_K", "Q6_K"),
    "q5_k_m": Recipe("Q5_K", "Q6_K", "Q6_K"),
    "mxfp4": Recipe("MXFP4", "Q8_0"),
}
# in place of a type whose blocks do not fit into rows
_SMALLER = {"Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}


def storage_of(config: DecoderConfig, path: Path, shape: tuple[int, ...], recipe: str) -> StorageType:
    """The storage type of a parameter. Raises OptionError for an unknown recipe."""
    if recipe not in RECIPES:
        raise OptionError(
            f"There is no recipe {recipe!r}.", did_you_mean(recipe, RECIPES) or f"There are: {', '.join(RECIPES)}."
        )
    if len(shape) < 2 or path[-1] != "weight" or "router" in str(path[-2]) or path[0] in ("positions", "sinks"):
        return StorageType.F32
    found = RECIPES[recipe]
    name = found.most
    if path[0] == "head" or (path[0] == "embedding" and config.tied):
        name = found.output
    elif path[0] == "layers" and path[2] in ("v", "down") and found.finer:
        eighth = config.layers // 8
        layer = path[1]
        ends = layer < eighth or layer >= config.layers - max(eighth, 1) or (layer - eighth) % 3 == 2
        name = found.finer if ends or not found.some else name
    if shape[-1] % LAYOUTS[StorageType[name]].elements:
        name = _SMALLER.get(name, "F16")
    return StorageType[name] if not shape[-1] % LAYOUTS[StorageType[name]].elements else StorageType.F16


def packed(config: DecoderConfig, parameters: Mapping[str, Any], recipe: str) -> dict[str, Any]:
    """Parameters with their weights packed by a recipe, one after the other; packed ones stay as they are."""

    def walk(part: Any, path: Path) -> Any:
        if isinstance(part, Mapping):
            return {name: walk(value, (*path, name)) for name, value in part.items()}
        if isinstance(part, list):
            return [walk(value, (*path, n)) for n, value in enumerate(part)]
        kind = storage_of(config, path, part.shape, recipe)
        if kind is StorageType.F32 or isinstance(part, QuantizedArray):
            return part
        if kind in (StorageType.F16, StorageType.BF16):
            return part.astype("float16" if kind is StorageType.F16 else "bfloat16")
        return quantize(numbers_of(part), scheme_of(kind))

    return {name: walk(value, (name,)) for name, value in parameters.items()}


def numbers_of(weight: Any) -> np.ndarray:
    """A weight as float32 in NumPy, packed or not."""
    return np.asarray(dequantize(weight) if isinstance(weight, QuantizedArray) else weight).astype(np.float32)
