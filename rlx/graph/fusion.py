"""rlx.fusion: reports of the fused loop nests, and of the missed fusions with reasons and hints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from rlx.backends import backend_named
from rlx.backends.base import Backend
from rlx.call.jit import Jitted, make_program
from rlx.errors import RlxError
from rlx.explain.spills import Spill, SpillReason, first_line, spills_of
from rlx.graph.elementwise_regions import MarkElementwiseRegions, UnfuseElementwiseRegions
from rlx.graph.graph import Graph
from rlx.graph.module import GraphModule, GraphStage
from rlx.graph.protocol import (
    AlgebraicSimplify,
    CommonSubexpressions,
    ConstantFolding,
    DeadCodeElimination,
    Inline,
    Pass,
)
from rlx.graph.shared_products import FuseSharedInputMatMul
from rlx.ir.kernels import Contract, Loops, Plan, RowTiles, members, nested_plans
from rlx.ir.options import FusionLimits, LoweringOptions
from rlx.ir.program import Program
from rlx.offered_names import offer_names
from rlx.passes.pipeline import lower_to_plan

__all__ = [
    "Chain",
    "FuseSharedInputMatMul",
    "Fused",
    "FusionLimits",
    "FusionOptions",
    "FusionReport",
    "FusionTarget",
    "MarkElementwiseRegions",
    "MissReason",
    "MissedFusion",
    "Spill",
    "SpillReason",
    "UnfuseElementwiseRegions",
    "assert_fusion_clean",
    "fusion_limits_for_target",
    "fusion_passes",
    "fusion_report",
    "inspect_fusion",
]

offer_names(globals())


class FusionTarget(Enum):
    """The device that kernels are for. All targets use the same fusion pass; limits and supported kinds differ.

    METAL is MLX, and WGPU the device "gpu".

    >>> from rlx import fusion
    >>> fusion.FusionTarget("cpu"), fusion.FusionTarget.METAL
    (<FusionTarget.CPU: 'cpu'>, <FusionTarget.MLX: 'mlx'>)
    """

    CPU = "cpu"
    C = "c"
    NUMBA = "numba"
    OPENCL = "opencl"
    CUDA = "cuda"
    ROCM = "rocm"
    MLX = "mlx"
    METAL = "mlx"  # Apple's GPUs
    WGPU = "gpu"
    XLA = "xla"
    TPU = "tpu"
    REFERENCE = "reference"

    @property
    def backend(self) -> Backend:
        """The backend of the device. Raises DeviceError if it is not installed."""
        return backend_named(self.value)


class MissReason(Enum):
    """The reason why a loop nest is a separate kernel. `hint` says how to change that.

    >>> from rlx import fusion
    >>> bool(fusion.MissReason.INDEX_MAPS.hint)
    True
    """

    NOTHING_SHARED = "nothing shares its loops"
    RUNS_BEFORE_OPERANDS = "it would have to run before its operands"
    BARRIER = "there is a barrier between them"
    EXCHANGE = "one of the two can overlap an exchange"
    SCATTERS = "the other scatters element by element"
    MIXED_SUMS = "one sums rows, the other sums elements of rows"
    INDEX_MAPS = "its operands are read through other index maps"
    RUNNING_ROWS = "running reductions need a row of one dimension"
    NO_ITERATIONS = "it has no iterations"
    LOOP_SIZES = "its loops have other sizes"
    ROW_LENGTHS = "its rows have another length"
    TOO_MANY_INSTRUCTIONS = "the kernel would be too large"
    REDUCTIONS_TOO_DEEP = "too many reductions depend on each other"
    TOO_MANY_OPERANDS = "the kernel would have too many operands"

    @property
    def hint(self) -> str:
        """The change to make in the program or the options."""
        return _HINTS[self]


_HINTS = {
    MissReason.NOTHING_SHARED: "No other nest reads or writes its arrays: there is nothing to fuse it with.",
    MissReason.RUNS_BEFORE_OPERANDS: "A kernel of another kind, such as a matrix product, runs between the two:"
    " fusing them would create a cycle.",
    MissReason.SCATTERS: "A scatter runs on one thread, so expensive computations run before it on all threads. Nothing"
    " to do, or compute less for each element.",
    MissReason.MIXED_SUMS: "The row sum would delay the other sums, as thread blocks of a GPU share rows. Nothing to"
    " do. FusionLimits.mixed_sums allows one kernel, as on the CPU.",
    MissReason.BARRIER: "lax.optimization_barrier, rlx.checkpoint or a memory_limit separates the two: leave it out.",
    MissReason.EXCHANGE: "The other needs the exchange's result: if fused, both would wait for it. Nothing to do.",
    MissReason.INDEX_MAPS: "The operand is read at other positions than it is computed at: compute both in one"
    " orientation, or let the operand have one user so that it is computed where it is read.",
    MissReason.RUNNING_ROWS: "Bring the axis of the running reduction to the end, and reduce over that axis alone.",
    MissReason.NO_ITERATIONS: "An array is empty: nothing runs.",
    MissReason.LOOP_SIZES: "The two have different numbers of elements; a nest can only take in nests of its sizes, or"
    " with one value for each of its rows.",
    MissReason.ROW_LENGTHS: "The two reduce over rows of different lengths: reduce over the same axes.",
    MissReason.TOO_MANY_INSTRUCTIONS: "Raise FusionLimits.instructions.",
    MissReason.REDUCTIONS_TOO_DEEP: "Raise FusionLimits.reduce_depth.",
    MissReason.TOO_MANY_OPERANDS: "Raise FusionLimits.operands.",
}


class Fused(NamedTuple):
    """A nest that became part of another.

    >>> import rlx.numpy as jnp
    >>> from rlx import fusion
    >>> report = fusion.fusion_report(lambda x: jnp.exp(x - x.max(1, keepdims=True)), jnp.ones((8, 8)))
    >>> report.fused
    [Fused(kernel='exp+subtract', into='reduce_max')]
    """

    kernel: str
    into: str


class MissedFusion(NamedTuple):
    """A nest that is a separate kernel, the reason, and its line in the user's program.

    >>> import rlx.numpy as jnp
    >>> from rlx import fusion
    >>> def smooth(x):
    ...     y = jnp.tanh(x)
    ...     return y, y + y[::-1]
    >>> fusion.fusion_report(smooth, jnp.ones(64)).opportunities[0].reason
    <MissReason.INDEX_MAPS: 'its operands are read through other index maps'>
    """

    kernel: str
    reason: MissReason
    line: str = ""

    @property
    def hint(self) -> str:
        """The change that would let it fuse."""
        return self.reason.hint

    def __str__(self) -> str:
        place = f"  {self.line}" if self.line else ""
        return f"{self.kernel}: {self.reason.value}. {self.hint}{place}"


@dataclass(frozen=True)
class FusionOptions:
    """Whether nests are fused, and the limits on kernels.

    >>> import rlx.numpy as jnp
    >>> from rlx import fusion
    >>> def shifted(x):
    ...     return jnp.exp(x - x.max(1, keepdims=True))
    >>> apart = fusion.FusionOptions(skip_fusion=True)
    >>> fusion.fusion_report(shifted, jnp.ones((8, 8)), options=apart).kernels
    2
    """

    skip_fusion: bool = False
    limits: FusionLimits = field(default_factory=FusionLimits)

    def lowering(self) -> LoweringOptions:
        """The corresponding options of rlx.lowering."""
        return LoweringOptions(fusion=self.limits, fuse=not self.skip_fusion)


class Chain(NamedTuple):
    """Products and loop nests that run as one kernel, tile by tile (see rlx.ir.kernels.RowTiles).

    steps: the kinds of its steps ("product" or a nest's label), in order. row_tiles: the maximum number of row tiles.
    local: bytes of the intermediate values that are never stored as a whole.

    >>> import rlx.numpy as jnp
    >>> from rlx import fusion
    >>> report = fusion.fusion_report(lambda x, w: jnp.tanh(x @ w) @ w, jnp.ones((512, 64)), jnp.ones((64, 64)))
    >>> [chain.steps for chain in report.chains]
    [('product', 'tanh', 'product')]
    """

    steps: tuple[str, ...]
    row_tiles: int
    local: int

    def __str__(self) -> str:
        return f"{' -> '.join(self.steps)}: one kernel in {self.row_tiles} row tiles, {self.local} B never stored"


class FusionReport(NamedTuple):
    """The fusion of every loop nest of a plan, and the arrays still stored in memory; includes nested plans.

    chains: the kernels that combine products, biases, activations, norms, attention or whole layers.

    >>> import rlx.numpy as jnp
    >>> from rlx import fusion
    >>> fusion.fusion_report(lambda x: jnp.sin(x) * jnp.cos(x), jnp.ones(8)).kernels
    1
    """

    fused: list[Fused]
    missed: list[MissedFusion]
    kernels: int
    spills: list[Spill]
    chains: list[Chain]

    @classmethod
    def of(cls, plan: Plan) -> FusionReport:
        """The report of a plan."""
        fused: list[Fused] = []
        missed: list[MissedFusion] = []
        chains: list[Chain] = []
        count = 0
        pending = [plan]
        while pending:
            current = pending.pop()
            count += len(current.kernels)
            pending += [inner for kernel in current.kernels for inner in nested_plans(kernel)]
            chains += [_chain(kernel) for kernel in current.kernels if isinstance(kernel, RowTiles)]
            nests = _nests(current)
            for decision in current.report or ():
                if decision.into is not None:
                    fused.append(Fused(decision.kernel, decision.into))
                else:
                    line = _line_of(decision.kernel, nests)
                    missed.append(MissedFusion(decision.kernel, MissReason(decision.reason), line))
        return cls(fused, missed, count, spills_of(plan), chains)

    @property
    def opportunities(self) -> list[MissedFusion]:
        """The misses between nests that share something."""
        idle = (MissReason.NOTHING_SHARED, MissReason.NO_ITERATIONS)
        return [miss for miss in self.missed if miss.reason not in idle]

    def __str__(self) -> str:
        lines = [f"{len(self.fused) + len(self.missed)} loop nests, {self.kernels} kernels"]
        lines += [f"  {f.kernel}: fused into {f.into}" for f in self.fused]
        lines += [f"  {miss}" for miss in self.missed]
        lines += [f"  {chain}" for chain in self.chains]
        if self.spills:
            lines.append(f"{len(self.spills)} arrays between kernels, {sum(s.moved for s in self.spills)} B moved")
            lines += [f"  {spill}" for spill in self.spills]
            lines += [f"  {reason.value}: {reason.hint}" for reason in dict.fromkeys(s.reason for s in self.spills)]
        return "\n".join(lines)


def _chain(row_tiles: RowTiles) -> Chain:
    steps = tuple("product" if isinstance(k, Contract) else k.label for k in row_tiles.kernels)
    return Chain(steps, row_tiles.count, sum(b.nbytes for b in row_tiles.local))


def _nests(plan: Plan) -> list[Loops]:
    """The loop nests of a plan, including those in row tiles."""
    return [m for kernel in plan.kernels for m in members(kernel) if isinstance(m, Loops)]


def _line_of(label: str, nests: list[Loops]) -> str:
    """The line of the first nest that contains the one called `label`; it is removed from the list."""
    names = label.split("+")
    for nest in nests:
        own = nest.label.removesuffix("+...").split("+")
        if all(one == other for one, other in zip(names, own, strict=False)):
            nests.remove(nest)
            return first_line(nest)
    return ""


def _plan(subject: Any, args: Sequence[Any], options: FusionOptions) -> Plan:
    if isinstance(subject, Plan):
        return subject
    if isinstance(subject, GraphModule) and subject.stage is GraphStage.LIR:
        return subject.lir
    if isinstance(subject, (Graph, GraphModule)):
        program = (subject if isinstance(subject, Graph) else subject.graph()).program
    elif isinstance(subject, Program):
        program = subject
    else:
        program = make_program(subject)(*args)
    return lower_to_plan(program, options=options.lowering())


def fusion_report(
    subject: Plan | Program | Graph | GraphModule | Jitted | Callable[..., Any],
    *args: Any,
    options: FusionOptions | None = None,
) -> FusionReport:
    """The report of a plan, or of the plan of a program, graph, or function (of `args`).

    >>> import rlx, rlx.numpy as jnp
    >>> report = rlx.fusion.fusion_report(lambda x: jnp.exp(x - x.max(1, keepdims=True)), jnp.zeros((8, 8)))
    >>> report.kernels, report.opportunities
    (1, [])
    """
    return FusionReport.of(_plan(subject, args, options or FusionOptions()))


def inspect_fusion(subject: Any, *args: Any, options: FusionOptions | None = None) -> str:
    """The fusion report as text.

    >>> import rlx.numpy as jnp
    >>> from rlx import fusion
    >>> fusion.inspect_fusion(lambda x: jnp.sin(x) * jnp.cos(x), jnp.ones(8)).splitlines()[0]
    '1 loop nests, 1 kernels'
    """
    return str(fusion_report(subject, *args, options=options))


def assert_fusion_clean(subject: Any, *args: Any, options: FusionOptions | None = None) -> None:
    """Raise RlxError, with reasons and hints, if nests that share something were not fused.

    >>> import rlx.numpy as jnp
    >>> from rlx import fusion
    >>> fusion.assert_fusion_clean(lambda x: jnp.sin(x) * jnp.cos(x), jnp.ones(8))
    """
    report = subject if isinstance(subject, FusionReport) else fusion_report(subject, *args, options=options)
    if report.opportunities:
        listed = "\n".join(f"  {miss}" for miss in report.opportunities)
        raise RlxError(f"{len(report.opportunities)} loop nests were not fused:\n{listed}", line="")


def fusion_limits_for_target(target: FusionTarget | str = FusionTarget.CPU) -> FusionLimits:
    """The limits on the kernels of a target. Raises DeviceError if its device is not installed.

    >>> from rlx import fusion
    >>> fusion.fusion_limits_for_target("cpu").operands, fusion.fusion_limits_for_target("cuda").mixed_sums
    (40, False)
    """
    return FusionTarget(target).backend.lowering.fusion


def fusion_passes(target: FusionTarget | str = FusionTarget.CPU) -> list[Pass]:
    """The passes that run on programs before lowering and fusion, in order; the same for every target.

    >>> from rlx import fusion
    >>> [step.name for step in fusion.fusion_passes()][:2]
    ['inline', 'constant_folding']
    """
    FusionTarget(target)
    return [Inline(), ConstantFolding(), AlgebraicSimplify(), CommonSubexpressions(), DeadCodeElimination()]
