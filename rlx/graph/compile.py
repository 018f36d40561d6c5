"""rlx.compile: the compiler's stages, one by one, as text, as files, and as one pipeline object."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from rlx.backends import meant_device
from rlx.config import config
from rlx.errors import RlxError
from rlx.explain.dump import dump
from rlx.graph.autodiff import grad_with_loss
from rlx.graph.fusion import FusionOptions, FusionReport, FusionTarget, assert_fusion_clean
from rlx.graph.graph import Graph, node_label
from rlx.graph.legalize import KernelDispatchConfig, KernelDispatchReport, legalize_or_rewrite
from rlx.graph.module import GraphModule, GraphStage, WrongStageError
from rlx.graph.protocol import PassStep
from rlx.ir.kernels import Plan
from rlx.ir.options import FusionLimits
from rlx.ir.program import Program
from rlx.ir.show import show_program
from rlx.ir.show_plan import describe_plan
from rlx.offered_names import offer_names
from rlx.passes.pipeline import Context, Step, lower_stages, passes, stages
from rlx.precision import Precision, PrecisionPolicy, mixed_program

__all__ = [
    "CompileOptions",
    "CompilePipeline",
    "CompileResult",
    "PipelineInspect",
    "TrainingCompileResult",
    "compile_graph_stages",
    "compile_hir_stages",
    "compile_module_stages",
    "fusion_target_for",
    "graph_from_lir",
    "inspect_compiled",
    "inspect_graph",
    "inspect_graph_diff",
    "inspect_hir",
    "inspect_hir_stats",
    "inspect_lir",
    "inspect_mir",
    "inspect_mir_diff",
    "inspect_mir_stats",
    "inspect_pipeline",
    "maybe_dump_pipeline",
    "node_label",
    "pipeline_for",
]

offer_names(globals())


@dataclass(frozen=True)
class CompileOptions:
    """The options of compiling a graph, for Session.compile, pipeline_for and the functions that compile stages.

    fusion_target: the target, if it is not the device's own. fusion_opts: whether nests are fused, and limits.
    arena_alignment: each temporary begins at a multiple of this number of bytes, a power of two.
    assert_fusion_clean: raise if nests that could share work are not fused. supported_ops: the kinds of operations that
    may be lowered. kernel_dispatch: the kinds that are rewritten although they are supported. dim_binding: values of a
    graph's named sizes. precision: compute everything in it; or policy: by kind of operation. dce, constant_folding:
    whether these passes run. verbose: print the reports of dispatch and fusion on standard error.

    Raises: RlxError for an alignment that is not a power of two, and for precision beside policy.

    >>> import rlx
    >>> import rlx.compile as compiler
    >>> g = rlx.Graph("rows")
    >>> g.set_outputs([g.relu(g.input("x", rlx.Shape(["batch", 4])))])
    >>> options = compiler.CompileOptions(dim_binding={"batch": 2})
    >>> rlx.Session("cpu").compile(g, options).run({"x": [1.0, -2.0, 3.0, -4.0] * 2})[0].shape
    (2, 4)
    """

    fusion_target: FusionTarget | None = None
    fusion_opts: FusionOptions = field(default_factory=FusionOptions)
    arena_alignment: int | None = None
    assert_fusion_clean: bool = False
    supported_ops: Iterable[str] | None = None
    kernel_dispatch: KernelDispatchConfig | None = None
    dim_binding: Mapping[str, int] | None = None
    precision: Precision | str | None = None
    policy: PrecisionPolicy | None = None
    dce: bool = True
    constant_folding: bool = True
    verbose: bool = False

    def __post_init__(self) -> None:
        size = self.arena_alignment
        if size is not None and (size < 1 or size & (size - 1)):
            raise RlxError(f"CompileOptions got arena_alignment={size}.", "It is a power of two, for example 64.")
        if self.precision is not None and self.policy is not None:
            raise RlxError("CompileOptions got precision and policy.", "A policy states all precisions: pass one.")

    @property
    def precisions(self) -> PrecisionPolicy | None:
        """The policy, also of a single precision."""
        if self.precision is None:
            return self.policy
        found: PrecisionPolicy = getattr(PrecisionPolicy, Precision(self.precision).value)()
        return found


@dataclass
class CompileResult:
    """A compiled program: its plan, the intermediate programs, and the reports.

    source: the graph as it was given, with its named sizes. pipeline: what compiled it.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import fusion
    >>> import rlx.compile as compiler
    >>> result = compiler.compile_graph_stages("cpu", rlx.Graph.trace(lambda x: jnp.sin(x) + 0.0 * x, jnp.ones(2)))
    >>> result.fusion.kernels, [step.name for step in result.steps][:2]
    (1, ['inline', 'fold'])
    """

    lir: Plan
    mir: Program
    steps: list[PassStep]
    fusion: FusionReport
    dispatch: KernelDispatchReport | None = None
    graph: Graph | None = None
    source: Graph | None = None
    pipeline: CompilePipeline | None = None

    def specialize(self, dim_binding: Mapping[str, int] | None = None, **sizes: int) -> CompileResult:
        """The result of compiling the graph for other values of its named sizes.

        Raises: RlxError if it has no named sizes, or for a missing or unknown name.

        >>> import rlx
        >>> import rlx.compile as compiler
        >>> g = rlx.Graph("rows")
        >>> g.set_outputs([g.relu(g.input("x", rlx.Shape(["batch", 4])))])
        >>> one = compiler.compile_graph_stages("cpu", g, dim_binding={"batch": 1})
        >>> one.specialize(batch=8).mir.output_types
        (float32[8,4],)
        """
        if self.source is None or self.pipeline is None or not self.source.symbols:
            raise RlxError("This result's graph has no named sizes.", 'Build it with shapes such as ["batch", 4].')
        binding = {**(dim_binding or {}), **sizes}
        return replace(self.pipeline, dim_binding=binding).compile(self.source)


@dataclass
class CompilePipeline:
    """The compilation of a graph, module or program to a plan, with all options.

    supported_ops: the kinds of operations that may be lowered; others are rewritten, or raise LegalizeError.
    assert_fusion_clean: raise if loop nests that could share work are not fused. The other fields are those of
    CompileOptions. Compiling raises DeviceError if the target's device is not installed, and RlxError for one that
    takes programs instead of plans (xla).

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> import rlx.compile as compiler
    >>> result = compiler.CompilePipeline().compile(rlx.Graph.trace(jnp.sin, jnp.ones(2)))
    >>> len(result.lir.kernels)
    1
    """

    target: FusionTarget = FusionTarget.CPU
    options: FusionOptions = field(default_factory=FusionOptions)
    supported_ops: Iterable[str] | None = None
    kernel_dispatch: KernelDispatchConfig | None = None
    assert_fusion_clean: bool = False
    arena_alignment: int | None = None
    dim_binding: Mapping[str, int] | None = None
    policy: PrecisionPolicy | None = None
    dce: bool = True
    constant_folding: bool = True
    verbose: bool = False

    def _context(self) -> Context:
        """The context of the target's device, with this pipeline's limits and alignment."""
        backend = self.target.backend
        if backend.takes_programs:
            raise RlxError(f"The device {backend.name!r} takes programs, not plans.", "Use rlx.jit(f, device=...).")
        given = self.options.lowering()
        lowering = replace(backend.lowering, fuse=given.fuse)
        if given.fusion != FusionLimits():
            lowering = replace(lowering, fusion=given.fusion)
        if self.arena_alignment is not None:
            lowering = replace(lowering, alignment=self.arena_alignment)
        return replace(Context.of(backend), options=lowering, claims=replace(backend.claims, blocks=frozenset()))

    def _passes(self) -> list[Step]:
        """The passes that run on the program."""
        without = {name for name, kept in (("dce", self.dce), ("fold", self.constant_folding)) if not kept}
        return [step for step in passes if step.name not in without]

    def compile(self, subject: Program | Graph | GraphModule) -> CompileResult:
        """Optimise, legalise, lower. A module at MIR is not optimised again."""
        source = subject if isinstance(subject, Graph) else None
        if source is not None and self.dim_binding is not None:
            subject = source.specialize(self.dim_binding)
        if isinstance(subject, GraphModule) and subject.stage is GraphStage.LIR:
            raise WrongStageError("This module is at LIR: it is already compiled.", "Use module.lir.")
        graph = subject.graph() if isinstance(subject, GraphModule) else subject
        program = graph if isinstance(graph, Program) else graph.program
        context = self._context()
        if self.policy is not None:
            program = mixed_program(program, self.policy)
        ready = isinstance(subject, GraphModule) and subject.stage is GraphStage.MIR
        found = stages(program, () if ready else self._passes(), context)
        steps = [PassStep(b.name, a.program, b.program, b.seconds) for a, b in zip(found, found[1:], strict=False)]
        mir, dispatch = found[-1].program, None
        if self.supported_ops is not None or self.kernel_dispatch is not None:
            mir, dispatch = legalize_or_rewrite(mir, self.supported_ops, self.kernel_dispatch, self.target.value)
        lowered = lower_stages(mir, context=context)
        if config.dump:
            dump([*found, *lowered], config.dump)
        plan = lowered[-1].form
        assert isinstance(plan, Plan)
        report = FusionReport.of(plan)
        if self.assert_fusion_clean:
            assert_fusion_clean(report)
        if self.verbose:
            print("\n".join(map(str, filter(None, (dispatch, report)))), file=sys.stderr)
        built = graph if isinstance(graph, Graph) else None
        return CompileResult(plan, mir, steps, report, dispatch, built, source, self)


    def compile_training(self, graph: Graph, wrt: Any = None) -> TrainingCompileResult:
        """Compile a graph whose first output is a scalar loss, and the loss with its gradients.

        wrt: as in rlx.autodiff.grad_with_loss; all parameters by default. Raises AutodiffError as it does.

        >>> import rlx, rlx.numpy as jnp
        >>> import rlx.compile as compiler
        >>> g = rlx.Graph.trace(lambda w, x: jnp.sum(w * x), jnp.ones(2), jnp.ones(2), params=["w"])
        >>> found = compiler.CompilePipeline().compile_training(g)
        >>> len(found.forward.mir.output_types), len(found.backward.mir.output_types)
        (1, 2)
        """
        bound = self if self.dim_binding is None else replace(self, dim_binding=None)
        specialized = graph if self.dim_binding is None else graph.specialize(self.dim_binding)
        return TrainingCompileResult(bound.compile(specialized), bound.compile(grad_with_loss(specialized, wrt)))


class TrainingCompileResult(NamedTuple):
    """forward: the compiled loss. backward: the compiled loss with its gradients, which also computes the loss.

    >>> import rlx.compile as compiler
    >>> compiler.TrainingCompileResult._fields
    ('forward', 'backward')
    """

    forward: CompileResult
    backward: CompileResult


# ------------------------------------------------------------------ stages
def fusion_target_for(device: str) -> FusionTarget:
    """The target of a device, by its name or an alias ("metal"). Raises RlxError for an unsupported device.

    >>> import rlx.compile as compiler
    >>> compiler.fusion_target_for("cpu"), compiler.fusion_target_for("metal")
    (<FusionTarget.CPU: 'cpu'>, <FusionTarget.MLX: 'mlx'>)
    """
    try:
        return FusionTarget(meant_device(device).partition(":")[0])
    except ValueError:
        known = ", ".join(t.value for t in FusionTarget)
        raise RlxError(f"There is no target for the device {device!r}.", f"There are: {known}.") from None


def pipeline_for(device: str = "cpu", options: CompileOptions | None = None, **named: Any) -> CompilePipeline:
    """A CompilePipeline for a device, with CompileOptions or fields of them by name.

    >>> import rlx.compile as compiler
    >>> compiler.pipeline_for("cpu", assert_fusion_clean=True).target
    <FusionTarget.CPU: 'cpu'>
    """
    if options is None:
        options = CompileOptions(**{k: named.pop(k) for k in _OPTIONS if k in named})
    fields_of: dict[str, Any] = {
        "target": options.fusion_target or fusion_target_for(device),
        "options": options.fusion_opts,
        "policy": options.precisions,
        **{name: getattr(options, name) for name in _SHARED},
        **named,
    }
    return CompilePipeline(**fields_of)


_SHARED = """supported_ops kernel_dispatch assert_fusion_clean arena_alignment dim_binding dce constant_folding
    verbose""".split()
_OPTIONS = tuple(f.name for f in fields(CompileOptions))


def compile_graph_stages(
    device: str, graph: Graph, options: CompileOptions | None = None, **named: Any
) -> CompileResult:
    """Compile a graph for a device, as far as the plan.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import fusion
    >>> import rlx.compile as compiler
    >>> compiler.compile_graph_stages("cpu", rlx.Graph.trace(jnp.sin, jnp.ones(2))).fusion.kernels
    1
    """
    return pipeline_for(device, options, **named).compile(graph)


def compile_hir_stages(
    device: str, program: Program, options: CompileOptions | None = None, **named: Any
) -> CompileResult:
    """Compile a program for a device, as far as the plan.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import fusion
    >>> import rlx.compile as compiler
    >>> program = rlx.Graph.trace(jnp.sin, jnp.ones(2)).program
    >>> compiler.compile_hir_stages("cpu", program).fusion.kernels
    1
    """
    return pipeline_for(device, options, **named).compile(program)


def compile_module_stages(
    device: str, module: GraphModule, options: CompileOptions | None = None, **named: Any
) -> CompileResult:
    """Compile a module at HIR or MIR for a device, as far as the plan.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import fusion
    >>> import rlx.compile as compiler
    >>> module = rlx.GraphModule.from_graph(rlx.Graph.trace(jnp.sin, jnp.ones(2)))
    >>> compiler.compile_module_stages("cpu", module).fusion.kernels
    1
    """
    return pipeline_for(device, options, **named).compile(module)


def graph_from_lir(result: CompileResult) -> Graph:
    """The graph of the program that a plan was compiled from, with its names and roles.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> import rlx.compile as compiler
    >>> result = compiler.compile_graph_stages("cpu", rlx.Graph.trace(lambda x: jnp.sin(x), jnp.ones(2)))
    >>> list(compiler.graph_from_lir(result).inputs)
    ['x']
    """
    if result.graph is None:
        return Graph.from_program(result.mir)
    return result.graph.with_program(result.mir)


# ------------------------------------------------------------------ text
def _program(subject: Any) -> Program:
    if isinstance(subject, Program):
        return subject
    found: Program = (subject.graph() if isinstance(subject, GraphModule) else subject).program
    return found


def inspect_graph(subject: Graph | GraphModule | Program) -> str:
    """The program as runnable Python, with the user's line for each operation.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> import rlx.compile as compiler
    >>> "ops.sin(x0)" in compiler.inspect_graph(rlx.Graph.trace(lambda x: jnp.sin(x), jnp.ones(2)))
    True
    """
    return show_program(_program(subject))


def _statistics(stage: str, program: Program) -> str:
    counts = Counter(e.primitive.name for e in program.equations)
    listed = ", ".join(
        f"{count} {name}" for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )
    head = f"{stage} {program.name}: {len(program.equations)} equations, {len(program.outputs)} outputs"
    return f"{head} ({listed or 'nothing is computed'})"


def inspect_hir(subject: Graph | GraphModule) -> str:
    """A graph, or a module at HIR, as text. Raises WrongStageError at later stages.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> import rlx.compile as compiler
    >>> "sin" in compiler.inspect_hir(rlx.Graph.trace(jnp.sin, jnp.ones(2)))
    True
    """
    return inspect_graph(subject.hir if isinstance(subject, GraphModule) else subject)


def inspect_hir_stats(subject: Graph | GraphModule) -> str:
    """One line: counts of a graph, or of a module at HIR.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> import rlx.compile as compiler
    >>> compiler.inspect_hir_stats(rlx.Graph.trace(jnp.sin, jnp.ones(2)))
    'HIR sin: 1 equations, 1 outputs (1 sin)'
    """
    return _statistics("HIR", (subject.hir if isinstance(subject, GraphModule) else subject).program)


def _mir(subject: GraphModule | Program | CompileResult) -> Program:
    if isinstance(subject, Program):
        return subject
    return subject.mir


def inspect_mir(subject: GraphModule | Program | CompileResult) -> str:
    """An optimised program as text.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> import rlx.compile as compiler
    >>> result = compiler.compile_graph_stages("cpu", rlx.Graph.trace(lambda x: jnp.sin(x) * 1.0, jnp.ones(2)))
    >>> "multiply" in compiler.inspect_mir(result)
    False
    """
    return show_program(_mir(subject))


def inspect_mir_stats(subject: GraphModule | Program | CompileResult) -> str:
    """One line: counts of an optimised program.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> import rlx.compile as compiler
    >>> compiler.inspect_mir_stats(compiler.compile_graph_stages("cpu", rlx.Graph.trace(jnp.sin, jnp.ones(2))))
    'MIR sin: 1 equations, 1 outputs (1 sin)'
    """
    return _statistics("MIR", _mir(subject))


def inspect_graph_diff(before: Any, after: Any) -> str:
    """The difference between two programs, graphs or modules, as a unified diff.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> import rlx.compile as compiler
    >>> before, after = (rlx.Graph.trace(f, jnp.ones(2)) for f in (jnp.sin, jnp.cos))
    >>> "cos" in compiler.inspect_graph_diff(before, after)
    True
    """
    return PassStep("passes", _program(before), _program(after), 0.0).diff


inspect_mir_diff = inspect_graph_diff


def inspect_lir(subject: GraphModule | Plan | CompileResult) -> str:
    """A plan: one line per kernel, and the map of the arena.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> import rlx.compile as compiler
    >>> result = compiler.compile_graph_stages("cpu", rlx.Graph.trace(jnp.sin, jnp.ones(2)))
    >>> "sin" in compiler.inspect_lir(result)
    True
    """
    return describe_plan(subject if isinstance(subject, Plan) else subject.lir)


class PipelineInspect(NamedTuple):
    """Each stage of a compilation as text.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> import rlx.compile as compiler
    >>> text = compiler.inspect_pipeline(rlx.Graph.trace(jnp.sin, jnp.ones(2)))
    >>> "sin" in text.mir_optimized
    True
    """

    hir: str
    mir_lowered: str
    mir_diff: str
    mir_optimized: str
    lir: str
    fusion: str

    def __str__(self) -> str:
        return "\n\n".join(f"==== {name} ====\n{text}" for name, text in zip(self._fields, self, strict=True))


def inspect_pipeline(
    subject: Program | Graph | GraphModule, pipeline: CompilePipeline | None = None
) -> PipelineInspect:
    """Every stage of compiling a subject.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> import rlx.compile as compiler
    >>> text = compiler.inspect_pipeline(rlx.Graph.trace(lambda x: jnp.sin(x) * 1.0, jnp.ones(2)))
    >>> "multiply" in text.mir_diff
    True
    """
    return inspect_compiled((pipeline or CompilePipeline()).compile(subject))


def inspect_compiled(result: CompileResult) -> PipelineInspect:
    """Every stage of a finished compilation.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> import rlx.compile as compiler
    >>> result = compiler.compile_graph_stages("cpu", rlx.Graph.trace(jnp.sin, jnp.ones(2)))
    >>> "sin" in compiler.inspect_compiled(result).mir_optimized
    True
    """
    traced = result.steps[0].before
    lowered = result.steps[0].after
    return PipelineInspect(
        show_program(traced),
        show_program(lowered),
        PassStep("passes", lowered, result.mir, 0.0).diff,
        show_program(result.mir),
        describe_plan(result.lir),
        str(result.fusion),
    )


def maybe_dump_pipeline(inspected: PipelineInspect, name: str) -> Path | None:
    """Write the stages to <folder>/<name>.ir.txt if RLX_DUMP names a folder; -> the file.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> import rlx.compile as compiler
    >>> text = compiler.inspect_pipeline(rlx.Graph.trace(jnp.sin, jnp.ones(2)))
    >>> file = compiler.maybe_dump_pipeline(text, "sine")
    """
    if not config.dump:
        return None
    path = Path(config.dump) / f"{name}.ir.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{inspected}\n", encoding="utf-8")
    return path
