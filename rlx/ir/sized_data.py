"""Plans and other data with symbolic sizes: those of a call put in, and refusal of sizes where numbers are needed."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from rlx.ir.dims import is_sized
from rlx.ir.kernels import Buffer, Plan
from rlx.ir.sized_scalars import SizedScalar

__all__ = ["filled_kernel", "filled_plan", "refuse_sizes", "sizes_in"]


def refuse_sizes(data: Any) -> None:
    """End the attempt to make a template if numbers in the data are symbolic: its user needs them."""
    for size in sizes_in(data):
        operator.index(size)


def sizes_in(data: Any) -> Iterator[Any]:
    """The symbolic sizes in tuples, mappings and immutable classes, each as often as it occurs."""
    if is_sized(data):
        yield data
    elif isinstance(data, Buffer):
        yield from sizes_in(data.size)
    elif isinstance(data, (tuple, list)):
        for part in data:
            yield from sizes_in(part)
    elif isinstance(data, Mapping):
        for part in (*data, *data.values()):
            yield from sizes_in(part)
    elif is_dataclass(data) and not isinstance(data, type):
        for field in fields(data):
            yield from sizes_in(getattr(data, field.name))


def filled_plan(plan: Plan, numbers: Mapping[Any, Any]) -> Plan:
    """The plan with numbers in place of its symbolic sizes."""
    return _Filling(numbers).of(plan)


def filled_kernel(kernel: Any, numbers: Mapping[Any, Any]) -> tuple[Any, dict[Buffer, Buffer]]:
    """A kernel with numbers in place of its symbolic sizes, and which buffer each of its buffers is made from."""
    filling = _Filling(numbers)
    made = filling.of(kernel)
    return made, {filling.of(buffer): buffer for buffer in (*kernel.reads, *kernel.writes)}


class _Filling:
    """Copies data with numbers in place of sizes; one copy of each object, so that buffers stay themselves."""

    def __init__(self, numbers: Mapping[Any, Any]) -> None:
        self._numbers = numbers
        self._done: dict[int, tuple[Any, Any]] = {}

    def of(self, data: Any) -> Any:
        """The copy; the object itself if it has no sizes in it."""
        if is_sized(data):
            found = self._numbers[data]
            return found.tobytes() if isinstance(data, SizedScalar) else found
        if data is None or isinstance(data, (str, bytes, int, float, np.ndarray, np.dtype)):
            return data
        found = self._done.get(id(data))
        if found is None:
            found = self._done[id(data)] = data, self._copy(data)
        return found[1]

    def _copy(self, data: Any) -> Any:
        if isinstance(data, (tuple, list)):
            made = [self.of(part) for part in data]
            if all(a is b for a, b in zip(made, data, strict=True)):
                return data
            return type(data)(*made) if hasattr(data, "_fields") else type(data)(made)
        if isinstance(data, Mapping):
            return {self.of(key): self.of(value) for key, value in data.items()}
        if is_dataclass(data) and not isinstance(data, type):
            made = {field.name: self.of(getattr(data, field.name)) for field in fields(data) if field.init}
            changed = {name: value for name, value in made.items() if value is not getattr(data, name)}
            return replace(data, **changed) if changed else data
        return data
