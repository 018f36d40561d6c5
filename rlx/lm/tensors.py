"""Tensors of a folder of safetensors files, by name, mapped: sharded or in one file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlx.errors import FileFormatError, UnsupportedError
from rlx.installation import install_command

__all__ = ["open_tensors"]

_INDEX = "model.safetensors.index.json"


class _Tensors(Mapping[str, np.ndarray]):
    """Tensors by name, read when they are asked for."""

    def __init__(self, places: dict[str, Any]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> np.ndarray:
        return self._places[name].get_tensor(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places


def open_tensors(folder: Path) -> Mapping[str, np.ndarray]:
    """The tensors of a model's folder. Raises FileFormatError where files are missing or broken."""
    safetensors = _library()
    index = folder / _INDEX
    names = (
        sorted(set(json.loads(index.read_text())["weight_map"].values())) if index.is_file() else ["model.safetensors"]
    )
    places: dict[str, Any] = {}
    for name in names:
        if not (folder / name).is_file():
            raise FileFormatError(f"{folder / name} is not there.", "Put all files of the model into one folder.")
        try:
            file, why = safetensors.safe_open(folder / name, "numpy"), ""
        except safetensors.SafetensorError as error:
            file, why = None, str(error)
        if file is None:
            raise FileFormatError(f"{folder / name} is not a safetensors file: {why}.", "Download it again.")
        places |= dict.fromkeys(file.keys(), file)
    return _Tensors(places)


def _library() -> Any:
    try:
        import safetensors
    except ImportError:
        safetensors = None
    if safetensors is None:
        raise UnsupportedError("Models in folders need the safetensors library.", install_command("lm"))
    return safetensors
