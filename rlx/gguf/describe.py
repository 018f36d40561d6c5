"""A file as a human-readable table."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from rlx.columns import aligned
from rlx.errors import bytes_text
from rlx.gguf.file import GGUFFile

__all__ = ["describe"]

_WIDTH = 60  # characters per value
_SHOWN = 4  # elements per array


def describe(path: str | os.PathLike[str]) -> str:
    """Describe a GGUF file as text: its header, its metadata and a line for each tensor.

    Args:
      path: a file, or any part of a split file.

    Returns the table. Raises the same errors as GGUFFile.

    >>> import numpy as np, tempfile, pathlib
    >>> from rlx import gguf
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "m.gguf"
    ...     gguf.GGUFWriter("llama").add_tensor("output.weight", np.eye(32), "Q4_0").write(path)
    ...     print(gguf.describe(path))
    m.gguf: GGUF version 3, little endian, alignment 32
    1 tensors, 1024 elements, 576 B, 4.50 bits per element: 1 Q4_0
    <BLANKLINE>
    metadata
      general.architecture  string  llama
    <BLANKLINE>
    tensors
      output.weight  Q4_0  [32, 32]  576 B
    """
    file = GGUFFile(path)
    keys = [(key, file.metadata.kind(key), _value(file, key)) for key in file.metadata]
    tensors = [(t.name, t.kind.name, str(list(t.shape)), bytes_text(t.nbytes)) for t in file.values()]
    return "\n".join([*_head(file), "", "metadata", *_table(keys), "", "tensors", *_table(tensors)])


def _head(file: GGUFFile) -> list[str]:
    elements = sum(math.prod(tensor.shape) for tensor in file.values())
    bits = f", {8 * file.nbytes / elements:.2f} bits per element" if elements else ""
    types = ", ".join(f"{count} {kind.name}" for kind, count in file.types().items())
    names = file.paths[0].name if len(file.paths) == 1 else f"{file.paths[0].name} and {len(file.paths) - 1} more parts"
    return [
        f"{names}: GGUF version {file.version}, {file.byte_order} endian, alignment {file.alignment}",
        f"{len(file)} tensors, {elements} elements, {bytes_text(file.nbytes)}{bits}{': ' + types if types else ''}",
    ]


def _value(file: GGUFFile, key: str) -> str:
    value = file.metadata[key]
    if isinstance(value, (list, np.ndarray)):
        more = f", ... {len(value)} items" if len(value) > _SHOWN else ""
        return _cut(f"[{', '.join(_item(item) for item in value[:_SHOWN])}{more}]")
    return _cut(value if isinstance(value, str) else _item(value))


def _item(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    return f"{value:.7g}" if isinstance(value, float) else ascii(value) if isinstance(value, str) else str(value)


def _cut(text: str) -> str:
    """The string as one line of printable characters."""
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: _WIDTH + 1])
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 3]}..."


def _table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Align rows, one line each."""
    return ["  " + line for line in aligned([_cut(cell) for cell in row] for row in rows)]
