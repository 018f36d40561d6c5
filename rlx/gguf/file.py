"""The user's view of GGUF files: metadata and tensors of a file or of all its parts."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.errors import FileFormatError, bytes_text, did_you_mean
from rlx.forks import cached_property
from rlx.gguf.blocks import dequantize, swapped
from rlx.gguf.header import Header, Metadata, Place, bytes_of, read_header
from rlx.gguf.tokenizer import Tokenizer, tokenizer_of
from rlx.gguf.types import StorageType, bytes_shape, plain_dtype

__all__ = ["GGUFFile", "GGUFTensor"]

_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


class GGUFTensor:
    """A tensor of a file: its description, and its bytes, which are read on access.

    Attributes:
      name: its name.
      shape: its shape in NumPy's order, the innermost axis last.
      kind: its StorageType.

    `tensor[rows]` decodes rows only; `numpy.asarray(tensor)` is `tensor.numpy()`.

    >>> import numpy as np, tempfile, pathlib
    >>> from rlx import gguf
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "m.gguf"
    ...     gguf.GGUFWriter("llama").add_tensor("w", np.ones((2, 32)), "Q8_0").write(path)
    ...     gguf.GGUFFile(path)["w"]
    GGUFTensor('w', Q8_0[2, 32], 68 B)
    """

    __slots__ = ("_header", "_place")

    def __init__(self, header: Header, place: Place) -> None:
        self._header, self._place = header, place

    name = property(lambda self: self._place.name, doc="Its name.")
    shape = property(lambda self: self._place.shape, doc="Its shape in NumPy's order.")
    kind = property(lambda self: self._place.kind, doc="Its storage type.")
    nbytes = property(lambda self: self._place.nbytes, doc="Its size in the file, in bytes.")
    offset = property(lambda self: self._place.start, doc="The offset of its bytes in the file.")
    path = property(lambda self: self._header.path, doc="The file that contains it.")

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def __repr__(self) -> str:
        return f"GGUFTensor({self.name!r}, {self.kind.name}{list(self.shape)}, {bytes_text(self.nbytes)})"

    def __len__(self) -> int:
        return len(self.raw) if self.ndim > 1 else self.size

    @property
    def raw(self) -> np.ndarray:
        """The bytes as stored in the file: uint8 of shape [..., bytes of a row], mapped and read-only."""
        shape = self.shape or (1,)
        return bytes_of(self._header, self._place).reshape(bytes_shape(shape, self.kind))

    @property
    def packed(self) -> np.ndarray:
        """The bytes in little endian, as `dequantize` expects them: mapped, or a copy if the file is big-endian."""
        return swapped(self.raw, self.kind) if self._header.order == "big" else self.raw

    def numpy(self) -> np.ndarray:
        """Its numbers, read-only: plain types are mapped in their own dtype, all others are decoded to float32."""
        plain = plain_dtype(self.kind)
        if plain is None:
            return np.asarray(self.dequantize())
        stored = plain.newbyteorder(">" if self._header.order == "big" else "<")
        found = np.require(self.raw.view(stored).reshape(self.shape), plain, "A")
        found.flags.writeable = False  # even if it is a copy
        return found

    def dequantize(self) -> Any:
        """Its numbers as a float32 array, equal bit for bit to the result of the format's reference implementation."""
        return self._decoded(...).reshape(self.shape)

    def __getitem__(self, index: Any) -> Any:
        """Rows along the first axis, as float32: only they are decoded. Any other index decodes the whole tensor."""
        if self.ndim < 2 or index is None or index is Ellipsis or isinstance(index, tuple):
            return self.dequantize()[index]
        return self._decoded(index)

    def _decoded(self, rows: Any) -> Any:
        plain = plain_dtype(self.kind)
        if plain is not None and self.kind is not StorageType.F16:
            return jnp.asarray(self.numpy()[rows]).astype(np.float32)
        chosen = self.raw[rows]
        return dequantize(swapped(chosen, self.kind) if self._header.order == "big" else chosen, self.kind)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        found = self.numpy() if dtype is None else self.numpy().astype(dtype, copy=False)
        return found.copy() if copy else found


class GGUFFile(Mapping[str, GGUFTensor]):
    """A GGUF file, whole or split into parts: its metadata, and its tensors by name.

    Opening reads only the header: tensors are mapped and read on access. Any part of a split file may be given. The
    mapping lives as long as the file object or an array that uses it.

    Args:
      path: the file.

    Attributes:
      metadata: values by key (Metadata); a split file has the metadata of its first part.
      version, byte_order ("little" or "big"), alignment: of the (first) file.
      paths: the file, or all its parts.

    Raises FileFormatError, with the file and the byte, unless the file is a complete GGUF file; OSError if it cannot
    be read.

    >>> import numpy as np, tempfile, pathlib
    >>> from rlx import gguf
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "m.gguf"
    ...     writer = gguf.GGUFWriter("llama").add_metadata("general.name", "Tiny")
    ...     writer.add_tensor("output.weight", np.eye(32), "Q4_0").write(path)
    ...     file = gguf.GGUFFile(path)
    ...     file.metadata["general.name"], file["output.weight"].dequantize().sum().item()
    ('Tiny', 32.0)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        headers = _parts(self.path, read_header(self.path))
        first = headers[0]
        self.paths = tuple(header.path for header in headers)
        self.metadata: Metadata = first.metadata
        self.version, self.byte_order, self.alignment = first.version, first.order, first.alignment
        self._tensors = {p.name: GGUFTensor(header, p) for header in headers for p in header.tensors}
        _check_parts(self.path, headers, len(self._tensors))

    @property
    def architecture(self) -> str | None:
        """The value of `general.architecture`, such as "llama"."""
        return self.metadata.get("general.architecture")

    @property
    def tensors(self) -> Mapping[str, GGUFTensor]:
        """The tensors by name, in the order of the file."""
        return self

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.values())

    def types(self) -> dict[StorageType, int]:
        """The number of tensors of each storage type, the most frequent first."""
        return dict(Counter(tensor.kind for tensor in self.values()).most_common())

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer's data. Raises FileFormatError if the file has none or it is inconsistent."""
        return tokenizer_of(self.path, self.metadata)

    def __getitem__(self, name: str) -> GGUFTensor:
        if name not in self._tensors:
            near = did_you_mean(str(name), self._tensors)
            raise KeyError(f"{self.path} has no tensor {name!r:.80}. {near}".rstrip())
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"GGUFFile({str(self.path)!r}, {len(self)} tensors, {bytes_text(self.nbytes)})"


# ---------------------------------------------------------------- parts
def part_path(path: Path, number: int, count: int) -> Path:
    """The name of a part, counted from 0, of a file `path` without a suffix."""
    return path.with_name(f"{path.name}-{number + 1:05d}-of-{count:05d}.gguf")


def _parts(path: Path, header: Header) -> list[Header]:
    """The headers of all parts of a file, in order; of an unsplit file, its own header."""
    count = _number(path, header.metadata, "split.count", 1)
    if count <= 1:
        return [header]
    named = _PART.fullmatch(path.name)
    if named is None or int(named["count"]) != count:
        raise FileFormatError(
            f"{path} is one of {count} parts of a file, but its name does not say so.",
            f"Name it {part_path(Path('NAME'), _number(path, header.metadata, 'split.no', 0), count)}, and its other"
            " parts accordingly.",
        )
    stem = path.with_name(named["stem"])
    return [_part(part_path(stem, number, count), number, count) for number in range(count)]


def _part(path: Path, number: int, count: int) -> Header:
    if not path.exists():
        raise FileFormatError(f"{path}, part {number + 1} of {count}, is missing.", "Put all parts into one folder.")
    header = read_header(path)
    says = tuple(_number(path, header.metadata, key, -1) for key in ("split.no", "split.count"))
    if says != (number, count):
        raise FileFormatError(f"{path} claims to be part {says[0]} of {says[1]}.", "Download the parts again.")
    return header


def _number(path: Path, metadata: Metadata, key: str, default: int) -> int:
    value = metadata.get(key, default)
    if type(value) is not int or not -1 <= value < 2**31:
        raise FileFormatError(f"{path} has {key} = {value!r:.40}, not a number of parts.", "Download the file again.")
    return value


def _check_parts(path: Path, headers: list[Header], distinct: int) -> None:
    total = sum(len(header.tensors) for header in headers)
    expected = _number(path, headers[0].metadata, "split.tensors.count", total)
    if len({header.order for header in headers}) > 1:
        raise FileFormatError(f"The parts of {path} differ in byte order.", "Download the parts again.")
    if distinct != total:
        raise FileFormatError(f"Two parts of {path} have a tensor of the same name.", "Download the parts again.")
    if expected != total:
        raise FileFormatError(f"The parts of {path} have {total} tensors instead of {expected}.", "Get them again.")
