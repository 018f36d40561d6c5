"""Tensors of a folder of safetensors files, by name, mapped: sharded or in one file."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rlx.errors import FileFormatError
from rlx.lm.json_files import read_object
from rlx.serialization.contents import Broken
from rlx.serialization.safetensors import read

__all__ = ["mapped_tensors", "open_tensors"]

_INDEX = "model.safetensors.index.json"


def open_tensors(folder: Path) -> Mapping[str, np.ndarray]:
    """The tensors of a model's folder, over the mapped files. Raises FileFormatError where one is missing or broken."""
    names = ["model.safetensors"]
    if (folder / _INDEX).is_file():
        shards = read_object(folder / _INDEX).get("weight_map")
        if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
            raise FileFormatError(f"{folder / _INDEX} has no map of tensors to files.", "Download it again.")
        names = sorted(set(shards.values()))
    found: dict[str, np.ndarray] = {}
    for name in names:
        if Path(name).name != name:
            raise FileFormatError(
                f"{folder / _INDEX} names {name!r}, which is not in the folder.", "Download it again."
            )
        found |= mapped_tensors(folder / name)
    return found


def mapped_tensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file. Raises FileFormatError if it is missing or broken."""
    if not path.is_file():
        raise FileFormatError(f"{path} is not there.", "Put all files of the model into one folder.")
    failed = "it is empty"
    if path.stat().st_size:
        with path.open("rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        try:
            return read(data).arrays
        except Broken as error:
            failed = str(error)
    raise FileFormatError(f"{path} is not a safetensors file: {failed}.", "Download it again.")
