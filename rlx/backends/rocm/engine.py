"""ROCm's engine: CuPy's with hipBLAS, and HIP's own library for launches whose groups wait for one another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlx.backends.cuda.engine import CupyEngine
from rlx.backends.gpu.engine import View
from rlx.backends.gpu.epilogues import LibraryProduct
from rlx.backends.rocm.hip import Hip
from rlx.backends.rocm.products import multiply
from rlx.forks import cached_property
from rlx.ir.kernels import Buffer

__all__ = ["RocmEngine"]


class RocmEngine(CupyEngine):
    """An AMD GPU. CuPy's cooperative launches fail there; HIP supports them."""

    @cached_property
    def _hip(self) -> Hip | None:
        return Hip.loaded()

    @property
    def _waits(self) -> bool:
        """Open the device and HIP's library."""
        return super()._waits and self._hip is not None

    def _resident_of_one(self, function: int, items: int) -> int:
        assert self._hip is not None, "no kernel has groups that wait"
        return self._hip.resident(function, items)

    def _cooperate(self, function: Any, groups: int, items: int, arguments: tuple[Any, ...]) -> None:
        assert self._hip is not None, "no kernel has groups that wait"
        self._hip.launch(function.ptr, groups, items, self._stream.ptr, arguments)

    def multiply(self, product: LibraryProduct, memory: Mapping[Buffer, View]) -> None:
        """Call hipBLAS on the stream."""
        starts = {operand.buffer: self.address(memory[operand.buffer]) for operand in product.operands}
        self._checked(self._on_stream, multiply, self._cupy, product, starts, doing="hipBLAS")
