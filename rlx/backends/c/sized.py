"""C for a program whose sizes are arguments: one text for several sizes, in which only numbers differ.

The text for some sizes has the sizes' names as parameters of all functions, writes numbers so that an expression can
replace them, and computes the places of temporaries at run time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.backends.c.dialect import CDialect
from rlx.backends.c.files import CFunction, wrapped
from rlx.backends.c.types import helper_name, literal, register_type
from rlx.backends.loops.dialect import Parameter, bare
from rlx.backends.loops.program import buffers_beside
from rlx.code.tree import Array
from rlx.ir.kernels import Kernel, Plan, nested_plans
from rlx.ir.types import dtype_kind
from rlx.storage import aligned

__all__ = ["ALIGNED", "SizedBytes", "SizedFunction", "arena_text", "inner_name"]

ALIGNED = "RLX_ALIGNED"
_INTEGER = np.dtype(np.int64)


def inner_name(size: str) -> str:
    """The name of a size in the functions of the file; local variables have others."""
    return f"rlx_{size}"


class SizedBytes(int):
    """A number of bytes as the sum of the sizes of arrays, each rounded up to the alignment; `str` is that sum in C."""

    terms: Mapping[int, int]

    def __new__(cls, terms: Mapping[int, int]) -> SizedBytes:
        """The sum of count * nbytes, for each entry of `terms`."""
        made = super().__new__(cls, sum(count * aligned(nbytes) for nbytes, count in terms.items()))
        made.terms = terms
        return made

    def __add__(self, other: int) -> int:
        if isinstance(other, SizedBytes):
            return SizedBytes(Counter(self.terms) + Counter(other.terms))
        return int(self) + other if other else self

    __radd__ = __add__

    def __str__(self) -> str:
        terms = (
            f"{ALIGNED}({nbytes})" if count == 1 else f"{count} * {ALIGNED}({nbytes})"
            for nbytes, count in self.terms.items()
        )
        return " + ".join(terms) or "0"

    __format__ = object.__format__  # by str, not as the number


class SizedDialect(CDialect):
    """C whose functions take the sizes' values first."""

    varies = True

    def __init__(self, sizes: Sequence[str], blas: bool = False, taken: Iterable[str] = ()) -> None:
        super().__init__(blas, taken)
        self.sizes = [inner_name(size) for size in sizes]

    def function(self, name: str, parameters: Sequence[Parameter], parallel: bool) -> tuple[str, ...]:
        """A static function of the sizes and of pointers."""
        (head,) = super().function(name, parameters, parallel)
        sizes = ", ".join(f"int64_t {size}" for size in self.sizes)
        return (head.replace("(", f"({sizes}, " if parameters else f"({sizes}", 1),)

    def ignore(self, names: Sequence[str]) -> tuple[str, ...]:
        """Expressions that mark unused parameters; any of the sizes may be unused."""
        return super().ignore([*self.sizes, *names])

    def call(self, function: str, arguments: Sequence[str]) -> str:
        """A call with the sizes."""
        return super().call(function, [*self.sizes, *arguments])

    def constant(self, dtype: np.dtype, number: bool | int | float) -> str:
        """A number without suffixes or macros."""
        if dtype.kind == "b" or not np.isfinite(number) or abs(number) >= 2**63:
            return literal(dtype, number)
        value: int | float = float(number) if dtype_kind(dtype) == "f" else int(number)
        return f"({register_type(dtype)})({value})"

    def rounded(self, nbytes: int) -> SizedBytes:
        """The sum that contains only this."""
        self.helper(ALIGNED)
        return nbytes if isinstance(nbytes, SizedBytes) else SizedBytes({nbytes: 1})

    def part(self, array: Array, position: str, size: int) -> str:
        """A pointer with an offset."""
        return super().part(array, bare(position), size)


class SizedFunction(CFunction):
    """A function whose sizes are its first parameters, as it is written for some sizes.

    sizes: the names of the sizes' parameters, by size.
    """

    def __init__(self, *arguments: Any, sizes: Mapping[str, str], **options: Any) -> None:
        self.sizes = dict(sizes)
        super().__init__(*arguments, **options)

    def dialect_of(self, blas: bool, taken: Sequence[str]) -> CDialect:
        """The syntax of the kernels."""
        return SizedDialect([*self.sizes], blas, (*taken, f"{self.name}_arena_bytes"))

    def arena_prototype(self) -> str:
        """The declaration of the function that tells the size of the arena."""
        return f"int64_t {self.name}_arena_bytes({', '.join(f'int64_t {name}' for name in self.sizes.values())})"

    def prototypes(self) -> list[str]:
        """The declarations of both functions."""
        sizes = (f"int64_t {name}" for name in self.sizes.values())
        parameters = ", ".join((*sizes, *filter(None, [self.parameters()]), "void *arena"))
        return [self.arena_prototype(), f"void {self.name}({parameters})"]

    def memory_text(self) -> str:
        """The documentation of the arena."""
        sizes = ", ".join(self.sizes.values())
        return (
            f"{self.name} works in memory of the caller's: {self.name}_arena_bytes({sizes}) bytes, aligned to 8, that "
            "nothing else uses meanwhile. It does not allocate."
        )

    def public_lines(self) -> list[str]:
        """The function that runs the program."""
        passed = ", ".join((*self.sizes.values(), *self.passed, "(uint8_t *)arena"))
        return [*wrapped(f"{self.prototypes()[1]} {{"), *wrapped(f"    {self.unit.entry.name}({passed});"), "}"]


# ------------------------------------------------------------------ memory
def arena_text(plan: Plan) -> str:
    """The bytes of the arena of a plan whose places are SizedBytes, in C."""
    inner = dict.fromkeys(text for kernel in plan.kernels if (text := _inner_text(kernel)) != "0")
    own = str(SizedBytes({}) + plan.arena)
    return own if not inner else f"{own} + {_largest([*inner])}"


def _inner_text(kernel: Kernel) -> str:
    beside = sum((SizedBytes({b.nbytes: 1}) for b in buffers_beside(kernel)), SizedBytes({}))
    inner = dict.fromkeys(text for plan in nested_plans(kernel) if (text := arena_text(plan)) != "0")
    return " + ".join(filter(lambda text: text != "0", [str(beside), *([_largest([*inner])] if inner else [])])) or "0"


def _largest(texts: Sequence[str]) -> str:
    """The largest of some expressions."""
    first, *others = texts
    return f"{helper_name('maximum', _INTEGER)}({first}, {_largest(others)})" if others else first
