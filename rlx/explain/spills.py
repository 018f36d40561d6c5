"""Arrays that go through memory between two kernels of a plan, and why no fusion keeps them from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from rlx.errors import short_name
from rlx.ir.kernels import (
    Branch,
    Buffer,
    Callback,
    Collective,
    Contract,
    Kernel,
    Library,
    Loops,
    Plan,
    RowTiles,
    Scan,
    Sort,
    While,
    members,
    nested_plans,
)
from rlx.ir.program import Equation, Origin
from rlx.ir.show_plan import buffer_names, kernel_name

__all__ = ["Spill", "SpillReason", "first_line", "spills_of"]


class SpillReason(Enum):
    """Why an array is written to memory and read again. `hint` says how to avoid it.

    >>> all(reason.hint for reason in SpillReason)
    True
    """

    MADE_BY_PRODUCT = "a matrix product makes it"
    READ_BY_PRODUCT = "a matrix product reads it"
    MADE_BY_SORT = "a sort makes it"
    READ_BY_SORT = "a sort reads it"
    MADE_BY_ROUTINE = "a library routine makes it"
    READ_BY_ROUTINE = "a library routine reads it"
    MADE_BY_LOOP = "a loop makes it"
    READ_BY_LOOP = "a loop reads it"
    MADE_BY_BRANCH = "a branch makes it"
    READ_BY_BRANCH = "a branch reads it"
    MADE_BY_HOST = "a callback makes it"
    READ_BY_HOST = "a callback reads it"
    MADE_BY_EXCHANGE = "an exchange between processes makes it"
    READ_BY_EXCHANGE = "an exchange between processes reads it"
    NESTS_APART = "the loop nests that make it and read it are separate kernels"

    @property
    def hint(self) -> str:
        """What to change in the program."""
        return _HINTS[self]


_HINTS = {
    SpillReason.MADE_BY_PRODUCT: "Products write whole matrices. A small one written as jnp.sum(a * b, axis) fuses with"
    " the operations that follow.",
    SpillReason.READ_BY_PRODUCT: "A product reads its operands from memory. Work on the smaller"
    " operand, or on the result, moves fewer bytes: (c * x) @ y is c * (x @ y) for a scalar c.",
    SpillReason.MADE_BY_SORT: "A sort writes whole rows. If only extremes are used, jnp.max and jnp.min fuse.",
    SpillReason.READ_BY_SORT: "A sort reads its rows from memory: nothing fuses into it.",
    SpillReason.MADE_BY_ROUTINE: "Library routines (factorisations, transforms) write whole arrays: nothing fuses into"
    " them.",
    SpillReason.READ_BY_ROUTINE: "Library routines (factorisations, transforms) read whole arrays: nothing fuses into"
    " them.",
    SpillReason.MADE_BY_LOOP: "The results of a scan or while loop are complete when it ends: move the computation that"
    " follows into the body, where it fuses with each step.",
    SpillReason.READ_BY_LOOP: "The operands of a scan or while loop exist before it begins: move their computation into"
    " the body, where it fuses with each step.",
    SpillReason.MADE_BY_BRANCH: "A branch of lax.cond is a separate plan: for cheap branches jnp.where fuses.",
    SpillReason.READ_BY_BRANCH: "A branch of lax.cond is a separate plan: for cheap branches jnp.where fuses.",
    SpillReason.MADE_BY_HOST: "Host functions work on arrays in memory. rlx.numba_scalar functions are fused.",
    SpillReason.READ_BY_HOST: "Host functions work on arrays in memory. rlx.numba_scalar functions are fused.",
    SpillReason.MADE_BY_EXCHANGE: "Data from other processes arrives in memory.",
    SpillReason.READ_BY_EXCHANGE: "Data for other processes is sent from memory.",
    SpillReason.NESTS_APART: "The fusion report gives the reason at the nest that did not fuse.",
}
# the kind of kernel that writes or reads an array -> the reason
_KINDS: tuple[tuple[tuple[type[Kernel], ...], SpillReason, SpillReason], ...] = (
    ((Callback,), SpillReason.MADE_BY_HOST, SpillReason.READ_BY_HOST),
    ((Collective,), SpillReason.MADE_BY_EXCHANGE, SpillReason.READ_BY_EXCHANGE),
    ((Branch,), SpillReason.MADE_BY_BRANCH, SpillReason.READ_BY_BRANCH),
    ((Scan, While), SpillReason.MADE_BY_LOOP, SpillReason.READ_BY_LOOP),
    ((Library,), SpillReason.MADE_BY_ROUTINE, SpillReason.READ_BY_ROUTINE),
    ((Sort,), SpillReason.MADE_BY_SORT, SpillReason.READ_BY_SORT),
    ((Contract,), SpillReason.MADE_BY_PRODUCT, SpillReason.READ_BY_PRODUCT),
)


class Spill(NamedTuple):
    """An array that one kernel writes and others read: its bytes, its writer and readers, and the reason.

    moved: bytes that fusing would save, one write and a read by each reader. line: the writer's
    line in the user's program.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> compiled = rlx.jit(lambda x: jnp.sort(jnp.sin(x))).lower(jnp.ones(64)).compile()
    >>> [(spill.nbytes, spill.reason.name) for spill in spills_of(compiled.plan)]
    [(256, 'READ_BY_SORT')]
    """

    array: str
    nbytes: int
    made_by: str
    read_by: tuple[str, ...]
    reason: SpillReason
    line: str

    @property
    def moved(self) -> int:
        """Bytes written and read."""
        return self.nbytes * (1 + len(self.read_by))

    @property
    def hint(self) -> str:
        """How to keep it out of memory."""
        return self.reason.hint

    def __str__(self) -> str:
        place = f"  {self.line}" if self.line else ""
        readers = ", ".join(self.read_by)
        return f"{self.array} ({self.moved} B moved): {self.made_by} -> {readers}: {self.reason.value}.{place}"


def spills_of(plan: Plan) -> list[Spill]:
    """The temporaries of a plan and of the plans in it that go through memory, most bytes first."""
    found = list(_spills(plan, ""))
    return sorted(found, key=lambda spill: -spill.moved)


def _spills(plan: Plan, path: str) -> Iterator[Spill]:
    names = buffer_names(plan)
    makers: dict[Buffer, tuple[str, Kernel]] = {}
    readers: dict[Buffer, list[tuple[str, Kernel]]] = {}
    for number, kernel in enumerate(plan.kernels):
        local = set(kernel.local) if isinstance(kernel, RowTiles) else set()
        for member in members(kernel):
            place = (f"kernel {path}{number} {kernel_name(member)}", member)
            for buffer in dict.fromkeys(member.writes):
                makers.setdefault(buffer, place)
            for buffer in dict.fromkeys(member.reads):
                if buffer.role == "temporary" and buffer not in local:
                    readers.setdefault(buffer, []).append(place)
        for inner in nested_plans(kernel):
            yield from _spills(inner, f"{path}{number}.")
    for buffer, places in readers.items():
        if buffer in makers and places[0] != makers[buffer]:
            made, maker = makers[buffer]
            reason = _reason(maker, [kernel for _, kernel in places])
            yield Spill(
                names.get(buffer, buffer.name or "?"), buffer.nbytes, made, tuple(p for p, _ in places), reason,
                first_line(maker),
            )  # fmt: skip


def _reason(maker: Kernel, readers: Sequence[Kernel]) -> SpillReason:
    for kinds, made, read in _KINDS:
        if isinstance(maker, kinds):
            return made
        if readers and all(isinstance(reader, kinds) for reader in readers):
            return read
    for kinds, _, read in _KINDS:
        if any(isinstance(reader, kinds) for reader in readers) and not any(isinstance(r, Loops) for r in readers):
            return read
    return SpillReason.NESTS_APART


def first_line(kernel: Kernel) -> str:
    """The first of the user's lines that a kernel stems from, file and number; "" if none is known."""
    for origin in getattr(kernel, "origins", ()):
        found = origin.origin if isinstance(origin, Equation) else origin
        if isinstance(found, Origin):
            return f"{short_name(found.file)}:{found.line}"
    return ""
