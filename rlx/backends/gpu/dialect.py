"""The C dialect with work-items: what CUDA, HIP and OpenCL call alike, and the few words in which they differ."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from rlx.backends.c.dialect import CDialect
from rlx.backends.c.prelude import helpers_of
from rlx.backends.c.types import register_type
from rlx.ir.kernels import Contract, Loops, Sort

__all__ = ["DeviceDialect"]


class DeviceDialect(CDialect):
    """C for a device. A kernel takes, for each array, the memory that it lies in and the byte where it begins."""

    position_type: ClassVar[str] = "long"
    kernel_mark: ClassVar[str]  # what a function that the host launches begins with
    global_space: ClassVar[str]  # what pointers to the device's memory are marked with
    group_space: ClassVar[str]  # what memory that a group shares is declared with

    @abstractmethod
    def group_number(self) -> str:
        """The number of the group that a work-item is in."""

    @abstractmethod
    def item_number(self) -> str:
        """The number of a work-item among all."""

    @abstractmethod
    def number_in_group(self) -> str:
        """The number of a work-item in its group."""

    @abstractmethod
    def barrier(self) -> str:
        """The statement at which a group's items wait for one another, and see what the others wrote."""

    @abstractmethod
    def program(self, kernels: Mapping[str, str]) -> str:
        """The text that is compiled: what the device's compiler has to know, helper functions, kernels."""

    def spells(self, kernel: Loops) -> bool:
        """Special functions are the host's: those of devices' libraries are not exact enough."""
        return all(i.op != "special" for i in kernel.instructions)

    def contract(self, kernel: Contract, lhs: str, rhs: str, out: str) -> tuple[str, ...] | None:
        """Matrix products are nests over grids."""
        return None

    def sort(self, kernel: Sort, inputs: Sequence[str], outputs: Sequence[str]) -> tuple[str, ...] | None:
        """The host's."""
        return None

    def has_atomic(self, reducer: str, dtype: np.dtype) -> bool:
        """Whether memory combines elements of a dtype in one step: numbers of 32 bits, by compare and exchange."""
        return dtype.name in ("float32", "int32", "uint32")

    def atomic(self, reducer: str, dtype: np.dtype, pointer: str, value: str) -> str:
        """The statement that combines the element at a pointer with a register, in one step."""
        return f"{self.atomic_helper(reducer, dtype)}({pointer}, {value});"

    @abstractmethod
    def atomic_helper(self, reducer: str, dtype: np.dtype) -> str:
        """The name of the function that does so, which the program will hold."""

    def helper_text(self) -> str:
        """The helper functions that were spelled."""
        return "\n\n".join(helpers_of(self.helpers))

    def loop(self, index: str, start: str, stop: str, parallel: bool = False) -> str:
        """for, over positions of the device's own type."""
        return f"for ({self.position_type} {index} = {start}; {index} < {stop}; ++{index}) {{"

    def fixed(self, name: str, expression: str) -> str:
        """An index that keeps its value."""
        return f"const {self.position_type} {name} = {expression};"

    def is_first_item(self) -> str:
        """Whether this item is the first one of its group."""
        return f"{self.number_in_group()} == 0"

    def strided_loop(self, index: str, start: str, stop: str, step: int) -> str:
        """The head of a loop over every `step`-th index from the item's own on."""
        kind = self.position_type
        return f"for ({kind} {index} = {start} + {self.number_in_group()}; {index} < {stop}; {index} += {step}) {{"

    def combine_group(self, name: str, reducer: str, dtype: np.dtype, items: int) -> tuple[str, ...]:
        """Statements that combine a variable of every item of a group; each has the result then."""
        shared, item = f"group_{name}", self.number_in_group()
        pair = self.combine(reducer, dtype, f"{shared}[{item}]", f"{shared}[{item} + width]")
        return (
            f"{shared}[{item}] = {name};",
            self.barrier(),
            f"for (int width = {items // 2}; width > 0; width /= 2) {{",
            f"    if ({item} < width) {shared}[{item}] = {pair};",
            f"    {self.barrier()}",
            "}",
            f"{name} = {shared}[0];",
            self.barrier(),
        )

    def group_array(self, name: str, dtype: np.dtype, items: int) -> str:
        """An array that a group shares, declared where the kernel begins."""
        return f"{self.group_space} {register_type(dtype)} group_{name}[{items}];"
