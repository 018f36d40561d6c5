"""Writing GGUF files: one file or several parts, each replacing the old file once it is complete."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from rlx.errors import DtypeError, OptionError, ShapeError, TreeMismatchError
from rlx.gguf.blocks import encoded, swapped
from rlx.gguf.cursor import Order
from rlx.gguf.file import GGUFTensor, part_path
from rlx.gguf.header import ALIGNMENT, MAGIC, MAX_RANK, Metadata
from rlx.gguf.types import PLAIN, StorageType, bytes_shape, elements_shape, storage_type
from rlx.gguf.values import count_bytes, kind_of, kind_word, text_bytes, value_bytes
from rlx.serialization.atomic import replace

__all__ = ["GGUFWriter"]

_NAME_LIMIT = 63  # bytes of a tensor's name that llama.cpp accepts
_PARTS_LIMIT = 65535  # the range of split.count
_CHUNK = 1 << 22  # elements encoded per write


class _Tensor(NamedTuple):
    """A tensor to be written; `rows(start, stop)`: the packed bytes of those rows, in little endian."""

    name: str
    shape: tuple[int, ...]
    kind: StorageType
    rows: Callable[[int, int], np.ndarray]

    @property
    def nbytes(self) -> int:
        return math.prod(bytes_shape(self.shape or (1,), self.kind))


class GGUFWriter:
    """A builder for GGUF files: add metadata and tensors, then call `write`.

    Args:
      architecture: `general.architecture`, such as "llama"; None leaves it out.
      alignment: the alignment of tensors, a power of two.
      byte_order: "little" or "big".
      version: 1, 2 or 3; counts and lengths of version 1 have 32 bits.

    Tensors are encoded while they are written, a few rows at a time.

    >>> import numpy as np, tempfile, pathlib
    >>> from rlx import gguf
    >>> writer = gguf.GGUFWriter("llama").add_metadata("llama.block_count", 1)
    >>> writer = writer.add_tensor("token_embd.weight", np.ones((8, 32), np.float32), "Q4_0")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "m.gguf"
    ...     writer.write(path)
    ...     gguf.GGUFFile(path)
    GGUFFile('...m.gguf', 1 tensors, 144 B)
    """

    def __init__(
        self,
        architecture: str | None = None,
        *,
        alignment: int = ALIGNMENT,
        byte_order: str = "little",
        version: int = 3,
    ) -> None:
        if alignment < 1 or alignment & (alignment - 1):
            raise OptionError(f"GGUFWriter got alignment={alignment}.", "Give a power of two, such as 32.")
        if byte_order not in ("little", "big"):
            raise OptionError(f"GGUFWriter got byte_order={byte_order!r}.", 'Give "little" or "big".')
        if version not in (1, 2, 3):
            raise OptionError(f"GGUFWriter got version={version!r}.", "Give 1, 2 or 3.")
        self._order: Order = "<" if byte_order == "little" else ">"
        self._version, self._alignment = version, alignment
        self._metadata: dict[str, tuple[str, Any]] = {}
        self._tensors: dict[str, _Tensor] = {}
        if architecture is not None:
            self.add_metadata("general.architecture", architecture)
        if alignment != ALIGNMENT:
            self.add_metadata("general.alignment", alignment)

    def add_metadata(self, key: str, value: Any, kind: str | None = None) -> GGUFWriter:
        """Add a metadata value.

        Args:
          key: its key; an existing one is replaced.
          value: a number, bool, text, array of numbers, or list of strings, numbers or lists.
          kind: "uint32", "float64", "array[int8]", ... The default follows NumPy's dtypes; a Python int is the first of
            uint32, int32, uint64, int64 that can represent it, a Python float is float32.

        Returns the writer. Raises DtypeError for a value that the format or the kind cannot represent.

        >>> from rlx import gguf
        >>> writer = gguf.GGUFWriter().add_metadata("llama.rope.freq_base", 10000.0)
        """
        if key == "general.alignment" and value != self._alignment:
            raise OptionError("The alignment is an argument of the writer.", f"Write GGUFWriter(alignment={value}).")
        kind = ("uint32" if key == "general.alignment" else kind_of(key, value)) if kind is None else kind
        value_bytes(self._order, self._version, key, kind, value)  # raises now if it cannot be written
        self._metadata[key] = kind, value
        return self

    def add_all_metadata(self, metadata: Mapping[str, Any]) -> GGUFWriter:
        """Add all values of a mapping. Values of a file's Metadata keep their kinds, `split.` keys are omitted.

        >>> from rlx import gguf
        >>> writer = gguf.GGUFWriter().add_all_metadata({"general.name": "Tiny", "llama.block_count": 2})
        """
        for key, value in metadata.items():
            if not key.startswith("split.") and key != "general.alignment":
                self.add_metadata(key, value, metadata.kind(key) if isinstance(metadata, Metadata) else None)
        return self

    def add_tensor(
        self, name: str, value: Any, kind: StorageType | str | int | None = None, importance: Any = None
    ) -> GGUFWriter:
        """Add a tensor.

        Args:
          name: its name, of at most 63 bytes; an existing one is replaced.
          value: an array, or a GGUFTensor, whose bytes are copied if it has the requested storage type.
          kind: the storage type; the default is the GGUFTensor's, or the array's dtype.
          importance: as in `quantize`.

        Returns the writer. Raises ShapeError for more than four axes and for rows that are not whole blocks,
        DtypeError for unsupported dtypes.

        >>> import numpy as np
        >>> from rlx import gguf
        >>> writer = gguf.GGUFWriter().add_tensor("w", np.ones((2, 256)), "Q6_K")
        """
        if isinstance(value, GGUFTensor) and (kind is None or storage_type(kind) is value.kind):
            return self._add(_Tensor(name, value.shape, value.kind, _packed_rows(lambda: value.packed)))
        array = value.numpy() if isinstance(value, GGUFTensor) else np.asarray(value)
        chosen = _kind_of_array(name, array) if kind is None else storage_type(kind)
        matrix = _matrix(array)
        weights = None if importance is None else np.ascontiguousarray(importance, np.float32)
        return self._add(
            _Tensor(name, array.shape, chosen, lambda start, stop: encoded(matrix[start:stop], chosen, weights))
        )

    def add_packed(self, name: str, packed: np.ndarray, kind: StorageType | str | int) -> GGUFWriter:
        """Add a tensor from its packed bytes, uint8 of shape [..., bytes of a row].

        >>> import numpy as np
        >>> from rlx import gguf
        >>> writer = gguf.GGUFWriter().add_packed("w", gguf.quantize(np.ones(32), "Q8_0"), "Q8_0")
        """
        chosen, found = storage_type(kind), np.asarray(packed)
        if found.dtype != np.uint8:
            raise DtypeError(f"add_packed got {found.dtype} instead of bytes.", "Give packed.view(numpy.uint8).")
        return self._add(_Tensor(name, elements_shape(found.shape, chosen), chosen, _packed_rows(lambda: found)))

    def _add(self, tensor: _Tensor) -> GGUFWriter:
        if len(tensor.shape) > MAX_RANK:
            axes = len(tensor.shape)
            raise ShapeError(f"The tensor {tensor.name!r} has {axes} axes; GGUF allows {MAX_RANK}.", "Reshape it.")
        bytes_shape(tensor.shape or (1,), tensor.kind)  # raises if rows are not whole blocks
        if len(tensor.name.encode()) > _NAME_LIMIT:
            raise TreeMismatchError(f"The name {tensor.name!r} has more than {_NAME_LIMIT} bytes.", "Shorten it.")
        self._tensors[tensor.name] = tensor
        return self

    def write(self, path: str | os.PathLike[str], part_bytes: int | None = None) -> None:
        """Write the file. It is written under another name, and replaces an existing file once it is on the disk.

        Args:
          path: the file.
          part_bytes: split the file into parts with at most this number of tensor bytes, but at least one tensor; they
            are named NAME-00001-of-00003.gguf, and so on. The first, with the metadata, is written last.

        Raises the errors of `quantize` for the numbers of a tensor, and OSError if the file cannot be written.

        >>> import tempfile, pathlib
        >>> from rlx import gguf
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     gguf.GGUFWriter("llama").write(pathlib.Path(folder) / "empty.gguf")
        """
        target = Path(path)
        if part_bytes is None:
            replace(target, lambda file: self._write(file, self._metadata, list(self._tensors.values())))
            return
        parts = _divided(list(self._tensors.values()), part_bytes)
        stem = target.with_suffix("") if target.suffix == ".gguf" else target
        for number in reversed(range(len(parts))):
            metadata = self._of_part(number, len(parts))
            replace(
                part_path(stem, number, len(parts)),
                lambda file, metadata=metadata, part=parts[number]: self._write(file, metadata, part),
            )

    def _of_part(self, number: int, count: int) -> dict[str, tuple[str, Any]]:
        kept = self._metadata if number == 0 else {k: v for k, v in self._metadata.items() if k == "general.alignment"}
        split = {"split.no": ("uint16", number), "split.count": ("uint16", count)}
        return {**kept, **split, "split.tensors.count": ("int32", len(self._tensors))}

    def _write(self, file: BinaryIO, metadata: Mapping[str, tuple[str, Any]], tensors: Sequence[_Tensor]) -> None:
        head = self._head(metadata, tensors)
        file.write(head + b"\0" * (-len(head) % self._alignment))
        for tensor in tensors:
            for chunk in _chunks(tensor):
                file.write((chunk if self._order == "<" else swapped(chunk, tensor.kind)).data)
            file.write(b"\0" * (-tensor.nbytes % self._alignment))

    def _head(self, metadata: Mapping[str, tuple[str, Any]], tensors: Sequence[_Tensor]) -> bytes:
        order, version = self._order, self._version
        parts = [MAGIC, struct.pack(order + "I", version)]
        parts += [count_bytes(order, version, len(tensors)), count_bytes(order, version, len(metadata))]
        for key, (kind, value) in metadata.items():
            parts += [text_bytes(order, version, key), kind_word(order, kind)]
            parts.append(value_bytes(order, version, key, kind, value))
        sizes = [-(-tensor.nbytes // self._alignment) * self._alignment for tensor in tensors]
        for tensor, offset in zip(tensors, accumulate(sizes, initial=0), strict=False):
            parts += [text_bytes(order, version, tensor.name), struct.pack(order + "I", len(tensor.shape))]
            parts += [count_bytes(order, version, n) for n in reversed(tensor.shape)]
            parts.append(struct.pack(order + "IQ", tensor.kind, offset))
        return b"".join(parts)


def _matrix(array: np.ndarray) -> np.ndarray:
    """An array as rows."""
    *outer, width = array.shape or (1,)
    return array.reshape(math.prod(outer), width)


def _packed_rows(packed: Callable[[], np.ndarray]) -> Callable[[int, int], np.ndarray]:
    """Rows of existing bytes."""
    return lambda start, stop: _matrix(packed())[start:stop]


def _chunks(tensor: _Tensor) -> Iterator[np.ndarray]:
    """The packed bytes of a tensor, a few rows at a time."""
    *outer, width = tensor.shape or (1,)
    rows = math.prod(outer) if width else 0
    step = max(1, _CHUNK // max(width, 1))
    for start in range(0, rows, step):
        yield np.ascontiguousarray(tensor.rows(start, min(start + step, rows)))


def _kind_of_array(name: str, array: np.ndarray) -> StorageType:
    """The storage type of a dtype."""
    if array.dtype.name == "bfloat16":
        return StorageType.BF16
    for kind, dtype in PLAIN.items():
        if array.dtype == dtype:
            return kind
    raise DtypeError(f"The tensor {name!r} has the dtype {array.dtype}, for which GGUF has no type.", "Give kind=.")


def _divided(tensors: list[_Tensor], limit: int) -> list[list[_Tensor]]:
    """Split tensors into runs of at most `limit` bytes, but at least one. Raises OptionError for too many runs."""
    parts: list[list[_Tensor]] = [[]]
    size = 0
    for tensor in tensors:
        if parts[-1] and size + tensor.nbytes > limit:
            parts.append([])
            size = 0
        parts[-1].append(tensor)
        size += tensor.nbytes
    if len(parts) > _PARTS_LIMIT:
        raise OptionError(f"part_bytes={limit} makes {len(parts)} parts; at most {_PARTS_LIMIT} work.", "Give more.")
    return parts
