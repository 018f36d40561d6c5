"""A cursor that reads numbers, strings and arrays from bytes and checks every length against the file's size."""

from __future__ import annotations

import os
import struct
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np

from rlx.errors import FileFormatError

__all__ = ["ARRAY", "KINDS", "ORDERS", "STRING", "Cursor", "Kind", "Order"]


class Kind(NamedTuple):
    """A kind of metadata value; `dtype` in little endian, None for strings and arrays."""

    name: str
    dtype: np.dtype | None


Order = Literal["<", ">"]
_NAMES = "uint8 int8 uint16 int16 uint32 int32 float32 bool string array uint64 int64 float64".split()
# the index is the number in the format
KINDS = tuple(Kind(n, None if n in ("string", "array") else np.dtype(n).newbyteorder("<")) for n in _NAMES)
STRING, ARRAY = _NAMES.index("string"), _NAMES.index("array")
ORDERS: tuple[Order, Order] = ("<", ">")
_DEPTH = 8  # of nested arrays


class Cursor:
    """A position in the bytes of a file, in its byte order; counts have 32 bits in version 1, otherwise 64."""

    def __init__(
        self, data: memoryview, path: os.PathLike[str] | str, order: Order, version: int, place: int = 0
    ) -> None:
        self.data, self.path, self.order, self.version, self.place = data, path, order, version, place
        self.size = len(data)
        self._count = struct.Struct(order + ("I" if version == 1 else "Q"))
        self._word = struct.Struct(order + "I")
        self._long = struct.Struct(order + "Q")

    def at(self, place: int) -> Cursor:
        """A cursor at another position."""
        return Cursor(self.data, self.path, self.order, self.version, place)

    def refuse(self, what: str, at: int | None = None) -> NoReturn:
        """Raise FileFormatError for a problem at a byte."""
        place = self.place if at is None else at
        raise FileFormatError(
            f"{os.fspath(self.path)} is not a readable GGUF file: {what}, at byte {place}.",
            "Download or write the file again.",
        )

    def need(self, length: int, what: str) -> int:
        """Skip `length` bytes, which must exist; returns the position where they began."""
        start = self.place
        if length > self.size - start:
            self.refuse(f"{what} has {length} bytes, and {max(self.size - start, 0)} are left")
        self.place = start + length
        return start

    def word(self, what: str) -> int:
        """An unsigned number of 32 bits."""
        return self._word.unpack_from(self.data, self.need(4, what))[0]

    def long(self, what: str) -> int:
        """An unsigned number of 64 bits."""
        return self._long.unpack_from(self.data, self.need(8, what))[0]

    def count(self, what: str) -> int:
        """A count or length, in the width of the version."""
        return self._count.unpack_from(self.data, self.need(self._count.size, what))[0]

    def bounded(self, what: str, smallest: int) -> int:
        """A count of elements of at least `smallest` bytes. Raises FileFormatError if they cannot fit."""
        start = self.place
        count = self.count(what)
        if count > (self.size - self.place) // smallest:
            self.refuse(f"the {what} is {count}, more than fit in the file", start)
        return count

    @property
    def count_size(self) -> int:
        """The size of a count in bytes."""
        return self._count.size

    def text(self, what: str) -> str:
        """A UTF-8 string preceded by its length."""
        length = self.count(f"the length of {what}")
        start = self.need(length, what)
        try:
            return str(self.data[start : self.place], "utf-8")
        except UnicodeDecodeError:
            pass  # raised outside the handler, so that the traceback omits this exception
        self.refuse(f"{what} is not UTF-8", start)

    def kind(self, what: str) -> int:
        """The number of a value's kind."""
        start = self.place
        number = self.word(f"the kind of {what}")
        if number >= len(KINDS):
            self.refuse(f"{what} has the kind {number}; valid kinds are 0 to {len(KINDS) - 1}", start)
        return number

    # ------------------------------------------------------------ values
    def skip(self, kind: int, what: str, depth: int = 0) -> None:
        """Skip a value: its lengths are checked, its strings are not read."""
        if kind == STRING:
            self.need(self.count(f"the length of {what}"), what)
        elif kind != ARRAY:
            self.need(_itemsize(kind), what)
        else:
            items, count = self.array_head(what, depth)
            if items == STRING:
                self._skip_texts(count, what)
            elif items == ARRAY:
                for _ in range(count):
                    self.skip(ARRAY, what, depth + 1)
            else:
                self.need(count * _itemsize(items), what)

    def value(self, kind: int, what: str, depth: int = 0) -> Any:
        """A value: a Python number or string, a NumPy array of numbers, or a list of strings or arrays."""
        if kind == STRING:
            return self.text(what)
        if kind != ARRAY:
            return self._numbers(kind, 1, what)[0].item()
        items, count = self.array_head(what, depth)
        if items == STRING:
            return self._texts(count, what)
        if items == ARRAY:
            return [self.value(ARRAY, what, depth + 1) for _ in range(count)]
        return self._numbers(items, count, what)

    def array_head(self, what: str, depth: int = 0) -> tuple[int, int]:
        """The kind and number of an array's elements, which must fit in the file."""
        if depth == _DEPTH:
            self.refuse(f"{what} nests arrays more than {_DEPTH} deep")
        kind = self.kind(f"the elements of {what}")
        smallest = {STRING: self.count_size, ARRAY: 4 + self.count_size}
        return kind, self.bounded(f"number of elements of {what}", smallest.get(kind) or _itemsize(kind))

    def _texts(self, count: int, what: str) -> list[str]:
        """Consecutive strings, whose lengths were checked when they were skipped."""
        found: list[str] = []
        data, unpack, width, start, stop = self.data, self._count.unpack_from, self.count_size, 0, self.place
        try:
            for _ in range(count):
                start = stop + width
                stop = start + unpack(data, stop)[0]
                found.append(str(data[start:stop], "utf-8"))
        except UnicodeDecodeError:
            pass
        if len(found) < count:
            self.refuse(f"string {len(found)} of {what} is not UTF-8", start)
        self.place = stop
        return found

    def _skip_texts(self, count: int, what: str) -> None:
        place, size, data, unpack, width = self.place, self.size, self.data, self._count.unpack_from, self.count_size
        try:
            for _ in range(count):
                place += width + unpack(data, place)[0]
                if place > size:
                    break
        except struct.error:  # fewer bytes than a length needs
            place = size + 1
        if place > size:
            self.refuse(f"a string of {what} extends past the end of the file")
        self.place = place

    def _numbers(self, kind: int, count: int, what: str) -> np.ndarray:
        dtype = KINDS[kind].dtype
        assert dtype is not None
        start = self.need(count * dtype.itemsize, what)
        raw = np.frombuffer(self.data[start : self.place], np.uint8)
        if dtype == np.bool_ and raw.max(initial=0) > 1:
            self.refuse(f"{what} contains a bool that is neither 0 nor 1", start)
        found = raw.view(dtype.newbyteorder(self.order)).astype(dtype.newbyteorder("="))
        found.flags.writeable = False
        return found


def _itemsize(kind: int) -> int:
    dtype = KINDS[kind].dtype
    assert dtype is not None
    return dtype.itemsize
