"""LIR: a Plan of kernels over buffers. How and where a program runs, for any backend.

Kernel kinds are a closed set: Loops, Contract, RowTiles, Sort, Library, Scan, While, Branch, Callback,
Collective, Await.
A backend generates code for these kinds only; it never sees primitives. Sizes, strides and offsets are data
of a kernel, not part of its `code`, so that equal layers and new batch sizes share compiled code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import numpy as np

from rlx.ir.collectives import Exchange

__all__ = [
    "Access",
    "Await",
    "RowTiles",
    "Branch",
    "Buffer",
    "Callback",
    "Collective",
    "Contract",
    "Instruction",
    "Kernel",
    "Library",
    "Loops",
    "Operand",
    "Order",
    "Plan",
    "Role",
    "Scan",
    "Sort",
    "Store",
    "While",
    "constants_of",
    "members",
    "merged_numbers",
    "all_kernels",
    "nested_plans",
    "reaches_apart",
]

Role = Literal["input", "output", "constant", "temporary"]
Order = Literal["any", "sequential"]


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A dense run of `size` elements of `dtype`.

    role: "input" and "output" are bound at each call, in the order of Plan.inputs/outputs;
    "constant" holds `value`; "temporary" lives in the arena, at Plan.offsets. Complex
    buffers count complex elements here; Loops see them as real ones (below).
    """

    dtype: np.dtype
    size: int
    role: Role = "temporary"
    value: np.ndarray | None = None
    name: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.dtype.itemsize

    @property
    def real_size(self) -> int:
        """The number of elements as kernels count them: a complex one is two real ones."""
        return self.size * (2 if self.dtype.kind == "c" else 1)

    @property
    def elements(self) -> np.ndarray:
        """The elements of a constant, in a row."""
        assert self.value is not None, f"{self.name or self.role} has no value"
        return np.ascontiguousarray(self.value).reshape(-1)


def reaches_apart(strides: Iterable[int], sizes: Iterable[int]) -> bool:
    """Whether different indices certainly reach different elements (sufficient, not necessary).

    Each stride has to lead beyond all that smaller ones reach together.
    """
    reach = 0
    for stride, size in sorted((abs(s), n) for s, n in zip(strides, sizes, strict=False)):
        if size > 1:
            if stride <= reach:
                return False
            reach += stride * (size - 1)
    return True


@dataclass(frozen=True, slots=True)
class Access:
    """An index map: element `offset + sum(strides[d] * i[d])` of `operands[operand]`.

    `strides` has one entry for each loop dimension, in elements of the *real* dtype for complex
    buffers (a complex64 buffer is a float32 one of twice the length: the real part at even
    elements). `chunk_stride` is added once for each chunk number (see Loops.chunks).
    """

    operand: int
    strides: tuple[int, ...]
    offset: int = 0
    chunk_stride: int = 0

    def first(self, start: int, chunk: int) -> int:
        """The element that a chunk's first iteration reaches, where dimension 0 begins at `start`."""
        moved = self.strides[0] * start if self.strides else 0
        return self.offset + moved + self.chunk_stride * chunk


@dataclass(frozen=True, slots=True)
class Instruction:
    """One scalar SSA step. `args` are numbers of earlier instructions of the kernel.

    Besides the scalar alphabet (ir/scalar.py), where `dtype` is the result's:
    - "constant": attribute is the value as bytes (little endian, of dtype)
    - "index": attribute is a loop dimension; the iteration number along it, dtype int64
    - "load": attribute is an Access; with one argument (int64) that number of elements is added to
      the address: a gather. Loading a bool buffer gives bool. Loading float16, bfloat16 or an
      8-bit float gives float32, and dtype is "float32". Gathered addresses are always in bounds.
    - "reduce": attribute is one of REDUCERS; combines its argument over all row dimensions;
      the result is a value of the row, usable afterwards at row and element level.
    - "cumulate": attribute is one of REDUCERS; the running (inclusive) combination of its argument
      along the row, in iteration order (kernels that use it have exactly one row dimension).
    """

    op: str
    args: tuple[int, ...]
    dtype: np.dtype
    attribute: Any = None


@dataclass(frozen=True, slots=True)
class Store:
    """Write instruction `value` through `access`, at `address` (an instruction) elements further.

    The value has the buffer's (real) dtype; into a narrow float buffer it may also be a float32,
    which is rounded to nearest even (accumulating: combined in float32, rounded at each step).
    accumulate: None stores; one of REDUCERS combines with the stored value (in iteration order).
    initialize: an accumulating store first sets every element its access reaches (per chunk) to
    the reducer's identity; otherwise it updates the buffer's contents. `guard`: a bool instruction;
    nothing is written if it is false, and only then may the address be out of bounds.

    A store is of the row if its access has zero strides along the row dimensions and its value,
    address and guard are of the row (reduce results, and instructions that depend on no row
    dimension). A store of the row that overwrites runs once per row. One that accumulates runs for
    every element of the row like any other store, unless `once` is set, which runs it once per row:
    the two differ, and the operands alone do not determine which is needed. Only a store of the row may
    be `once`.

    order: whether it matters which of several iterations writes an element first. "any": it does not. Each element is
    written by one iteration, or the reducer combines values in any order, up to rounding: a backend may use atomics.
    "sequential": iterations write in their order, and those that overwrite (None) leave the last one's value. A store
    that overwrites in any order without an address or a guard moves along every dimension that it runs over; of
    others lowering knows that places are distinct.

    The elements that `initialize` sets do not depend on guard (address must be None): within the chunk's
    own range of dimension 0, over the whole of the other sizes, where a dimension whose stride is
    zero counts as one iteration even if it has none (the sum of nothing is the identity).
    """

    value: int
    access: Access
    address: int | None = None
    accumulate: str | None = None
    initialize: bool = False
    guard: int | None = None
    once: bool = False
    order: Order = "any"


@dataclass(frozen=True, eq=False, slots=True)
class Kernel:
    """Base of all kernel kinds: scheduling and memory planning use `reads` and `writes`.

    equations: the numbers of the equations of the plan's program that it computes. Every kind also states `origins`,
    the user's lines that wrote them, and `label`, the names of their primitives.
    """

    equations: tuple[int, ...] = field(default=(), kw_only=True)

    @property
    def reads(self) -> tuple[Buffer, ...]:
        raise NotImplementedError

    @property
    def writes(self) -> tuple[Buffer, ...]:
        raise NotImplementedError


@dataclass(frozen=True, eq=False, slots=True)
class Loops(Kernel):
    """A loop nest: elementwise work with reductions along rows, gathers and scatters.

    sizes: trip counts, outermost first. The first `outer` dimensions are outer ones, the rest are
    row dimensions (the last one innermost). Meaning, for every outer index in order:
    instructions and stores run over the row. The result of a "reduce" is known after a whole pass over
    the row; instructions that depend on it run in a later pass (the backend decides what to recompute).
    Values of the row are computed and stored even if the row is empty. An iteration loads before
    it stores, and nothing is loaded that another iteration or an earlier pass stores.
    parallel: how many leading outer dimensions may run in any order and at the same time.
    chunks: if over 1, dimension 0 is cut in that many equal ranges (range c of n elements is
    [n*c//chunks, n*(c+1)//chunks)); accumulating stores use access.chunk_stride to write separate parts;
    chunks may run in any order and at the same time even if parallel == 0. A later kernel combines.
    A chunk is a separate kernel over its range: "index" and addresses count from the whole's
    beginning, a row that is cut (outer == 0) reduces and cumulates within the chunk.
    """

    sizes: tuple[int, ...]
    outer: int
    operands: tuple[Buffer, ...]
    instructions: tuple[Instruction, ...]
    stores: tuple[Store, ...]
    parallel: int = 0
    chunks: int = 1
    origins: tuple[Any, ...] = ()
    label: str = ""

    @property
    def accesses(self) -> tuple[Access, ...]:
        """Every index map of the kernel: loads in order, then stores in order."""
        loads = tuple(i.attribute for i in self.instructions if i.op == "load")
        return loads + tuple(s.access for s in self.stores)

    @property
    def reads(self) -> tuple[Buffer, ...]:
        seen = {i.attribute.operand for i in self.instructions if i.op == "load"}
        seen |= {s.access.operand for s in self.stores if s.accumulate and not s.initialize}
        return tuple(self.operands[n] for n in sorted(seen))

    @property
    def writes(self) -> tuple[Buffer, ...]:
        return tuple(self.operands[n] for n in sorted({s.access.operand for s in self.stores}))


@dataclass(frozen=True, slots=True)
class Operand:
    """A strided view of a buffer (strides and offset in elements of the buffer's dtype)."""

    buffer: Buffer
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Contract(Kernel):
    """out[b, m, n] = sum over k of lhs[b, m, k] * rhs[b, k, n].

    lhs and rhs have one dtype. Elements are widened to `accumulator` (None: that dtype itself, which is not narrow
    then), multiplied and summed in it; out has this dtype or the operands' dtype, to which sums are rounded or
    wrapped. The accumulator is of the operands' kind, at least as wide and not narrow. tf32: operands in float32 are
    rounded to ten bits after the binary point first, ties to even. Lowering makes the types that the device has
    (ProductLimits.types): float32/64 and complex64/128 in their own dtype by default.
    The three operands have shapes (b, m, k), (b, k, n), (b, m, n); in each of lhs and rhs one of
    the two last strides is 1 (or its size is 1) and the other is at least the size along that axis
    (or its own size is 1), as BLAS requires; out has strides (s, n', 1). b of lhs and rhs may have
    stride 0. out's buffer is not an operand's. All three may have one more batch dimension, which
    is first: a stack of batches.
    accumulate: add to `out` instead of overwriting it. With k == 0 the sum is zero.
    """

    lhs: Operand
    rhs: Operand
    out: Operand
    accumulate: bool = False
    accumulator: np.dtype | None = None
    tf32: bool = False
    origins: tuple[Any, ...] = ()
    label: str = ""

    @property
    def summed_in(self) -> np.dtype:
        """The dtype in which products are summed."""
        return self.lhs.buffer.dtype if self.accumulator is None else self.accumulator

    @property
    def batches(self) -> int:
        """The number of products."""
        return prod(self.out.shape[:-2])

    @property
    def rows(self) -> int:
        """Rows of lhs and out."""
        return self.out.shape[-2]

    @property
    def columns(self) -> int:
        """Columns of rhs and out."""
        return self.out.shape[-1]

    @property
    def depth(self) -> int:
        """Columns of lhs, rows of rhs."""
        return self.lhs.shape[-1]

    @property
    def reads(self) -> tuple[Buffer, ...]:
        own = (self.out.buffer,) if self.accumulate else ()
        return (self.lhs.buffer, self.rhs.buffer, *own)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        return (self.out.buffer,)


@dataclass(frozen=True, eq=False, slots=True)
class RowTiles(Kernel):
    """Run kernels one after the other, all of them cut in `count` equal row tiles (see ir.row_tiles).

    If one kernel writes a buffer that another one uses, both use it only within their own tile. A backend may
    therefore run the tiles one by one, in any order, or at the same time. `local` are temporaries
    that nothing else touches: only the row tiles at work need memory for them, `scratch` bytes each, in
    which a local buffer's part of the tile starts at the byte in `offsets`.
    """

    count: int
    kernels: tuple[Loops | Contract, ...]
    local: tuple[Buffer, ...] = ()
    scratch: int = 0
    offsets: Mapping[Buffer, int] = field(default_factory=dict)
    origins: tuple[Any, ...] = ()
    label: str = ""

    @property
    def reads(self) -> tuple[Buffer, ...]:
        before = dict.fromkeys(b for kernel in self.kernels for b in kernel.reads)
        first = self._first_writes()
        return tuple(b for b in before if b not in first)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        written = dict.fromkeys(b for kernel in self.kernels for b in kernel.writes)
        return tuple(b for b in written if b not in self.local)

    def _first_writes(self) -> set[Buffer]:
        """Buffers that are written before they are read."""
        read: set[Buffer] = set()
        first: set[Buffer] = set()
        for kernel in self.kernels:
            read.update(b for b in kernel.reads if b not in first)
            first.update(b for b in kernel.writes if b not in read)
        return first


def merged_numbers(*numbers: Iterable[int]) -> tuple[int, ...]:
    """The numbers of the equations of several kernels that become one."""
    return tuple(sorted(set().union(*numbers)))


def members(kernel: Kernel) -> tuple[Kernel, ...]:
    """The kernels that run in row tiles as this one, or the kernel itself."""
    return kernel.kernels if isinstance(kernel, RowTiles) else (kernel,)


@dataclass(frozen=True, eq=False, slots=True)
class Sort(Kernel):
    """Sort rows of contiguous (rows, length) operands together, ascending and stable.

    The first `keys` operands are compared lexicographically; NaN is last, -0. equals 0.
    With `index` the last output receives the permutation (int32 or int64, by its dtype).
    Outputs match the inputs one by one, before that last one.
    """

    rows: int
    length: int
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    keys: int = 1
    index: bool = False
    origins: tuple[Any, ...] = ()
    label: str = ""

    @property
    def reads(self) -> tuple[Buffer, ...]:
        return self.inputs

    @property
    def writes(self) -> tuple[Buffer, ...]:
        return self.outputs


@dataclass(frozen=True, eq=False, slots=True)
class Library(Kernel):
    """A named routine over contiguous operands: see LIBRARY_ROUTINES in backends/routines.py.

    attributes select the variant (upper or lower triangle, ...). If `meaning` is set, the routine is a block
    that the backend claims: its name is the block's, its attributes are the block's static arguments, and this plan,
    of the same inputs and outputs, defines its result.
    """

    routine: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    meaning: Plan | None = None
    origins: tuple[Any, ...] = ()
    label: str = ""

    @property
    def reads(self) -> tuple[Buffer, ...]:
        return tuple(o.buffer for o in self.inputs)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        return tuple(o.buffer for o in self.outputs)


@dataclass(frozen=True, eq=False, slots=True)
class Scan(Kernel):
    """Run `body` `length` times.

    body.inputs: constants (bound to `constants`), then carries, then slices of `xs`.
    body.outputs: the next carries, then slices of `ys`. xs and ys are contiguous with the loop
    dimension first; step t uses slice t (length-1-t if `reverse`). `initial` are the carries' first
    values, `final` receives their last ones (with length 0: a copy of `initial`).

    in_place: numbers of carries that steps update in place, from the body's Plan.held. The
    body's output for such a carry holds the carry when a step begins, so that elements that the body does not
    write keep their values. The body reads the carry there, not through its input. final[k] may be initial[k].
    """

    length: int
    reverse: bool
    body: Plan
    constants: tuple[Buffer, ...]
    initial: tuple[Buffer, ...]
    xs: tuple[Buffer, ...]
    final: tuple[Buffer, ...]
    ys: tuple[Buffer, ...]
    origins: tuple[Any, ...] = ()
    label: str = ""

    @property
    def in_place(self) -> tuple[int, ...]:
        """Numbers of carries that steps update in place."""
        return self.body.held

    @property
    def reads(self) -> tuple[Buffer, ...]:
        return (*self.constants, *self.initial, *self.xs)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        return (*self.final, *self.ys)


@dataclass(frozen=True, eq=False, slots=True)
class While(Kernel):
    """While `condition` (inputs: its constants, carries; one bool output) is true, run `body`
    (inputs: its constants, carries; outputs: the next carries). in_place: as in Scan."""

    condition: Plan
    body: Plan
    condition_constants: tuple[Buffer, ...]
    body_constants: tuple[Buffer, ...]
    initial: tuple[Buffer, ...]
    final: tuple[Buffer, ...]
    origins: tuple[Any, ...] = ()
    label: str = ""

    @property
    def in_place(self) -> tuple[int, ...]:
        """Numbers of carries that steps update in place."""
        return self.body.held

    @property
    def reads(self) -> tuple[Buffer, ...]:
        return (*self.condition_constants, *self.body_constants, *self.initial)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        return self.final


@dataclass(frozen=True, eq=False, slots=True)
class Branch(Kernel):
    """Run the branch whose number is the int32 scalar in `index`, clamped to the range."""

    index: Buffer
    branches: tuple[Plan, ...]
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    origins: tuple[Any, ...] = ()
    label: str = ""

    @property
    def reads(self) -> tuple[Buffer, ...]:
        return (self.index, *self.inputs)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        return self.outputs


@dataclass(frozen=True, eq=False, slots=True)
class Callback(Kernel):
    """Call `function(*arrays) -> arrays` on the host, with fresh contiguous NumPy arrays.

    It returns a sequence, one array for each output (None stands for no outputs), of exactly the
    output's shape and dtype. A function that is an ir.user_functions.ArrayCall calls compiled code, which a backend
    may call itself; operands are contiguous then.
    """

    function: Any
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    origins: tuple[Any, ...] = ()
    label: str = ""

    @property
    def reads(self) -> tuple[Buffer, ...]:
        return tuple(o.buffer for o in self.inputs)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        return tuple(o.buffer for o in self.outputs)


@dataclass(frozen=True, eq=False, slots=True)
class Collective(Kernel):
    """Exchange an array with the other members of a group of processes: see ir.collectives.

    Both operands are contiguous; output does not overlap input's buffer. Collectives and Callbacks run in their order.
    mark: bytes that must be equal on all members. A Collective is never fused and never removed.
    awaited: whether it may overlap the kernels after it, until the Await of the same output.
    """

    exchange: Exchange
    input: Operand
    output: Operand
    mark: bytes
    awaited: bool = False
    origins: tuple[Any, ...] = ()
    label: str = ""

    @property
    def reads(self) -> tuple[Buffer, ...]:
        return (self.input.buffer,)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        return (self.output.buffer,)


@dataclass(frozen=True, eq=False, slots=True)
class Await(Kernel):
    """Wait for the Collective of the same input and output: until here its operands are not used otherwise."""

    input: Operand
    output: Operand
    origins: tuple[Any, ...] = ()
    label: str = ""

    @property
    def reads(self) -> tuple[Buffer, ...]:
        return (self.input.buffer, self.output.buffer)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        return ()


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """Kernels in order, over buffers; `arena` bytes hold the temporaries, each from byte `offsets[buffer]` on.

    Every output is a separate buffer that some kernel writes (never an input or a constant), but
    for carries in place (see Scan).
    A plan inside Scan, While or Branch has its own arena, placed by the backend.
    held: numbers of outputs that have a value when the plan begins, which are a loop's carries in
    place (see Scan). barriers: whether work is held back to save memory. unplaced: why equations, by number, need no
    kernel: "constant", "view" (another index map of an operand) or "alias" (the operand itself).
    Temporaries in use at the same time do not share bytes, except that a Loops may write one over
    the last use of another in place: see verify_plan.may_share.
    """

    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    buffers: tuple[Buffer, ...]
    kernels: tuple[Kernel, ...]
    arena: int = 0
    offsets: Mapping[Buffer, int] = field(default_factory=dict)
    held: tuple[int, ...] = ()
    barriers: bool = False
    name: str = "plan"
    report: Any = None
    unplaced: Mapping[int, str] = field(default_factory=dict)


def nested_plans(kernel: Kernel) -> tuple[Plan, ...]:
    """The plans inside a kernel, one level down."""
    if isinstance(kernel, Scan):
        return (kernel.body,)
    if isinstance(kernel, While):
        return (kernel.condition, kernel.body)
    return kernel.branches if isinstance(kernel, Branch) else ()


def all_kernels(plan: Plan) -> Iterator[Kernel]:
    """The kernels of a plan, and of the plans inside them."""
    for kernel in plan.kernels:
        yield kernel
        for inner in nested_plans(kernel):
            yield from all_kernels(inner)


def constants_of(plan: Plan) -> tuple[Buffer, ...]:
    """The constants of a plan and of the plans inside it, each of them once."""
    own = [b for b in plan.buffers if b.role == "constant"]
    inside = [b for k in plan.kernels for inner in nested_plans(k) for b in constants_of(inner)]
    return tuple(dict.fromkeys((*own, *inside)))
