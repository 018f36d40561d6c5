"""The features that a backend supports directly: kinds of kernels, library routines, dtypes, blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.backends.routines import LIBRARY_ROUTINES
from rlx.errors import DtypeError, source_line
from rlx.ir.kernels import Branch, Callback, Collective, Contract, Kernel, Library, Loops, RowTiles, Scan, Sort, While
from rlx.ir.program import Equation, Program
from rlx.ir.types import TensorType, is_key, supported_dtypes

__all__ = ["SPARSE_PRODUCTS", "Claims", "refuse_unclaimed_dtypes"]

# loops and sums that every device has: a device claims them only if it has kernels for them
SPARSE_PRODUCTS = frozenset({"csr_product", "sampled_product"})

Fits = Callable[[str, tuple[TensorType, ...], Mapping[str, Any]], bool]


@dataclass(frozen=True, slots=True)
class Claims:
    """The features that a backend has kernels for.

    kinds: kinds of kernels. RowTiles are created only if claimed; without Contract, products become Loops. Sort,
    Library, Callback and Collective, if not claimed, run on the host in Python. Loops is always supported.
    routines: names of library routines; by default all but the sparse products. Others become loops and products; routines without such a decomposition run on
    the host. loops_up_to: exceptions as (routine, order): small matrices still become loops and products, if the first
    operand has at most `order` rows and columns.
    dtypes: of arrays. A program with another dtype is refused.
    blocks: names of functions that are kept as calls (rlx.trace.replay.block). A call of one becomes a Library kernel
    with this name as its routine, the call's static arguments as attributes, and its plan as meaning. Other blocks
    are replaced by their equations. fits: whether a call of a claimed block is supported:
    `(name, types of the operands, attributes)`; if None, all calls are.

    >>> from rlx.backends.claims import Claims
    >>> sorted(Claims(blocks=frozenset({"softmax"})).blocks)
    ['softmax']
    """

    kinds: frozenset[type[Kernel]] = frozenset(
        (Loops, Contract, RowTiles, Sort, Library, Scan, While, Branch, Callback, Collective)
    )
    routines: frozenset[str] = frozenset(LIBRARY_ROUTINES) - SPARSE_PRODUCTS
    loops_up_to: tuple[tuple[str, int], ...] = ()
    dtypes: frozenset[np.dtype] = supported_dtypes
    blocks: frozenset[str] = frozenset()
    fits: Fits | None = None

    def takes(self, equation: Equation) -> bool:
        """Whether an equation is a call of a block that is kept."""
        if not equation.primitive.claimable or equation.params["name"] not in self.blocks:
            return False
        name, attributes = equation.params["name"], equation.params["attributes"]
        alone = equation.params.get("alone")
        types = tuple(a.type for a in equation.inputs) if alone is None else alone.input_types
        return self.fits is None or self.fits(name, types, attributes)

    def decomposes(self, equation: Equation) -> bool:
        """Whether other primitives compute an equation, instead of a routine."""
        primitive = equation.primitive
        if not primitive.decomposes or not any(variable.type.size for variable in equation.outputs):
            return False
        order = max(equation.inputs[0].type.shape[-2:])
        return primitive.routine not in self.routines or order <= dict(self.loops_up_to).get(primitive.routine, -1)

    def host_reason(self, kernel: Kernel) -> str | None:
        """The reason that a kernel runs on the host; None if it does not."""
        if isinstance(kernel, Library) and kernel.meaning is None and kernel.routine not in self.routines:
            return f"the device has no routine {kernel.routine}"
        if type(kernel) not in self.kinds:
            return f"the device has no kernels of kind {type(kernel).__name__}"
        return None


def refuse_unclaimed_dtypes(program: Program, claims: Claims, device: str) -> Program:
    """The program itself; raises DtypeError if it, or a region in it, has a dtype that the device lacks."""
    if claims.dtypes >= supported_dtypes:
        return program
    for variable in program.inputs:
        _refuse(variable.type, claims, device, f"an input of {program.name}", "")
    for variable, _ in program.constants:
        _refuse(variable.type, claims, device, f"a constant of {program.name}", "")
    for equation in program.equations:
        line = "" if equation.origin is None else source_line(*equation.origin)
        for variable in equation.outputs:
            _refuse(variable.type, claims, device, f"the result of {equation.primitive.name}", line)
    for region in program.regions():
        refuse_unclaimed_dtypes(region, claims, device)
    return program


def _refuse(type: TensorType, claims: Claims, device: str, what: str, line: str) -> None:
    if is_key(type.dtype) or type.dtype in claims.dtypes:
        return
    known = ", ".join(sorted(dtype.name for dtype in claims.dtypes))
    raise DtypeError(
        f"The device {device!r} has no {type.dtype.name}: {what} is {type!r}.",
        f"Use .astype(...) with one of {known}; or compile for the processor, with jit(device='cpu').",
        line,
    )
