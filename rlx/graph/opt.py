"""rlx.opt: passes over programs and graphs, legalisation, and everything in rlx.fusion, autodiff and compile.

Every function takes a Program, a Graph, or a GraphModule at HIR or MIR, and returns the same kind.
docs/seed_names.md lists the names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rlx.backends.base import Backend
from rlx.config import config
from rlx.errors import RlxError
from rlx.explain.memory_report import Lifetime, MemoryPlan, MemoryPlanOptions
from rlx.graph import legalize as legalization
from rlx.graph import protocol
from rlx.graph.autodiff import (
    AutodiffError,
    ForceEnergyLossWeights,
    GradWithLossOptions,
    HigherOrderOptions,
    build_force_energy_loss,
    custom_fn,
    directional_nth_grad,
    grad,
    grad_subgraph,
    grad_with_loss,
    grad_with_loss_opts,
    hvp,
    jvp,
    nth_order_grad,
    nth_order_grad_with_options,
    prepare_graph_for_ad,
    vmap,
)
from rlx.graph.common_forms import LegalizeBroadcast, LowerDotGeneral, common_form
from rlx.graph.control_lowering import LowerControlFlow
from rlx.graph.fusion import (
    FusionLimits,
    FusionOptions,
    FusionReport,
    FusionTarget,
    MarkElementwiseRegions,
    MissedFusion,
    MissReason,
    UnfuseElementwiseRegions,
    assert_fusion_clean,
    fusion_passes,
    fusion_report,
)
from rlx.graph.graph import Graph, Node
from rlx.graph.legalize import (
    DispatchPath,
    KernelDispatchConfig,
    KernelDispatchPolicy,
    KernelDispatchReport,
    KindDispatchSummary,
    LegalizeError,
    UnsupportedKind,
    format_legalize_error,
)
from rlx.graph.module import GraphModule, GraphStage
from rlx.graph.protocol import (
    AlgebraicSimplify,
    CommonSubexpressions,
    ConstantFolding,
    DeadCodeElimination,
    Inline,
    Pass,
    PassStep,
    SpecializeParams,
)
from rlx.graph.specialize import specialize
from rlx.ir.kernels import Library, Plan, Sort, all_kernels
from rlx.ir.program import Program
from rlx.offered_names import offer_names
from rlx.passes.pipeline import Context, compile_stages, lower_to_plan
from rlx.precision import AutoMixedPrecision, CastConfig, OperationKind, Precision, PrecisionPolicy
from rlx.trace import places
from rlx.trace.primitive import registry, type_of

__all__ = [
    "AlgebraicSimplify",
    "AutoMixedPrecision",
    "AutodiffError",
    "CastConfig",
    "CommonSubexpressions",
    "ConstantFolding",
    "DeadCodeElimination",
    "DispatchPath",
    "ForceEnergyLossWeights",
    "FusionLimits",
    "FusionOptions",
    "FusionReport",
    "FusionTarget",
    "GradWithLossOptions",
    "HigherOrderOptions",
    "Inline",
    "KernelDispatchConfig",
    "KernelDispatchPolicy",
    "KernelDispatchReport",
    "KindDispatchSummary",
    "LegalizeBroadcast",
    "LegalizeError",
    "Lifetime",
    "LowerControlFlow",
    "LowerDotGeneral",
    "MarkElementwiseRegions",
    "MemoryPlan",
    "MemoryPlanOptions",
    "MissReason",
    "MissedFusion",
    "OperationKind",
    "Pass",
    "PassStep",
    "Precision",
    "PrecisionPolicy",
    "SpecializeParams",
    "UnfuseElementwiseRegions",
    "UnsupportedKind",
    "analyze_dispatch",
    "assert_fusion_clean",
    "build_force_energy_loss",
    "common_form",
    "constant_folding",
    "cse",
    "custom_fn",
    "dce",
    "directional_nth_grad",
    "format_dispatch_report",
    "format_legalize_error",
    "fuse_elementwise",
    "fusion_passes",
    "fusion_report",
    "grad",
    "grad_subgraph",
    "grad_with_loss",
    "grad_with_loss_opts",
    "hvp",
    "inline",
    "inline_if",
    "inline_into",
    "is_pure_view",
    "jvp",
    "legalize_for_backend",
    "legalize_or_rewrite_for_backend",
    "maybe_log_dispatch_report",
    "nth_order_grad",
    "nth_order_grad_with_options",
    "plan_memory",
    "plan_memory_backward",
    "plan_memory_f32_uniform",
    "plan_memory_with_options",
    "prepare_graph_for_ad",
    "prepare_graph_for_backend_with_report",
    "promote_params_to_inputs",
    "rewrite_for_backend",
    "run_passes",
    "simplify",
    "specialize_params",
    "supported_for_target",
    "supports_op",
    "unroll_while",
    "vmap",
]

offer_names(globals())

Subject = TypeVar("Subject", Program, Graph, GraphModule)


def program_of(subject: Program | Graph | GraphModule) -> Program:
    """The program of a subject."""
    if isinstance(subject, Program):
        return subject
    return (subject.graph() if isinstance(subject, GraphModule) else subject).program


def _with_program(subject: Program | Graph | GraphModule, program: Program) -> Any:
    """The subject with another program of the same inputs."""
    if isinstance(subject, Program):
        return program
    if isinstance(subject, Graph):
        return subject.with_program(program)
    graph = subject.graph().with_program(program)
    return GraphModule(subject.stage, graph)


# ------------------------------------------------------------------ passes
def run_passes(
    subject: Subject,
    passes: Iterable[Pass | Callable[[Program], Program]],
    *,
    verify: bool = True,
    verbose: bool = False,
    dump: str | Path | None = None,
    watch: Callable[[PassStep], Any] | None = None,
) -> Subject:
    """Run passes in order, your own among them; see rlx.graph.protocol.run_passes.

    >>> import rlx
    >>> g = rlx.Graph.trace(lambda x: (x * 1.0 + x * 1.0), 2.0)
    >>> history = []
    >>> slim = rlx.opt.run_passes(g, rlx.fusion.fusion_passes(), watch=history.append)
    >>> len(g.program.equations), len(slim.program.equations)
    (3, 1)
    >>> [step.name for step in history if step.changed]
    ['algebraic_simplify']
    """
    program = protocol.run_passes(program_of(subject), passes, verify=verify, verbose=verbose, dump=dump, watch=watch)
    return _with_program(subject, program)


def _one(subject: Subject, single: Pass) -> Subject:
    return run_passes(subject, [single])


def constant_folding(subject: Subject) -> Subject:
    """Evaluate the equations that depend only on constants.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda x: x * jnp.exp(0.0), jnp.ones(2))
    >>> [e.primitive.name for e in opt.constant_folding(g).program.equations]
    ['multiply']
    """
    return _one(subject, ConstantFolding())


def simplify(subject: Subject) -> Subject:
    """Simplify algebraically, exact for NaN, infinities and signed zeros.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda x: x * 1.0, jnp.ones(2))
    >>> len(opt.simplify(g).program.equations)
    0
    """
    return _one(subject, AlgebraicSimplify())


def cse(subject: Subject) -> Subject:
    """Compute equal equations once.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda x: (jnp.sin(x), jnp.sin(x)), jnp.ones(2))
    >>> len(opt.cse(g).program.equations)
    1
    """
    return _one(subject, CommonSubexpressions())


def dce(subject: Subject) -> Subject:
    """Remove dead equations.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda x: (jnp.sin(x), x + 1.0)[1], jnp.ones(2))
    >>> [e.primitive.name for e in opt.dce(g).program.equations]
    ['add']
    """
    return _one(subject, DeadCodeElimination())


def inline(subject: Subject) -> Subject:
    """Replace calls by the programs that they call.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(rlx.jit(lambda x: jnp.sin(x)), jnp.ones(2))
    >>> [e.primitive.name for e in opt.inline(g).program.equations]
    ['sin']
    """
    return _one(subject, Inline())


def inline_if(subject: Subject) -> Subject:
    """Replace every `cond` by all its branches and selects.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda x: rlx.lax.cond(x > 0, jnp.sin, jnp.cos, x), 1.0)
    >>> "cond" in {e.primitive.name for e in opt.inline_if(g).program.equations}
    False
    """
    return _one(subject, LowerControlFlow(kinds=("cond",)))


def unroll_while(subject: Subject, max_iterations: int) -> Subject:
    """Unroll every `while_loop` up to max_iterations; see LowerControlFlow. All carries are returned.

    >>> import rlx
    >>> from rlx import opt
    >>> def double(x):
    ...     return rlx.lax.while_loop(lambda x: x < 100.0, lambda x: 2.0 * x, x)
    >>> float(opt.unroll_while(rlx.Graph.trace(double, 30.0), 3)(30.0))
    120.0
    """
    return _one(subject, LowerControlFlow(max_iterations, kinds=("while_loop",)))


def fuse_elementwise(subject: Subject, max_steps: int = 32) -> Subject:
    """Mark connected elementwise operations as regions.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda x: jnp.sin(x) * 2.0, jnp.ones(2))
    >>> [e.params["name"] for e in opt.fuse_elementwise(g).program.equations]
    ['elementwise_region']
    """
    return _one(subject, MarkElementwiseRegions(max_steps))


def inline_into(source: Graph, target: Graph, *operands: Node, **named: Node) -> tuple[Node, ...]:
    """Record the operations of `source` into `target`, on nodes of `target`; -> the outputs there.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> source, target = rlx.Graph.trace(jnp.sin, jnp.ones(2)), rlx.Graph("target")
    >>> x = target.input("x", rlx.Shape([2]))
    >>> target.set_outputs(opt.inline_into(source, target, x))
    >>> target(jnp.zeros(2)).tolist()
    [0.0, 0.0]
    """
    results = target.apply(source, *operands, **named)
    return results if isinstance(results, tuple) else (results,)


# ------------------------------------------------------------------ parameters
def promote_params_to_inputs(graph: Graph, names: Sequence[str] | None = None) -> Graph:
    """The graph with parameters (all, or those named) turned into inputs.

    >>> import rlx
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda w, x: w * x, 1.0, 1.0, params=["w"])
    >>> list(opt.promote_params_to_inputs(g).inputs)
    ['w', 'x']
    """
    chosen = set(graph.params if names is None else names)
    unknown = chosen - set(graph.params)
    if unknown:
        raise RlxError(f"Graph {graph.name!r} has no parameter {sorted(unknown)[0]!r}.")
    roles = ["param" if n in graph.params and n not in chosen else "input" for n in graph.signature]
    return Graph.from_program(graph.program, list(graph.signature), roles, graph.name)


def specialize_params(graph: Graph, values: Mapping[str, Any]) -> Graph:
    """The graph with parameters (or inputs) replaced by constants, by name; others are unchanged.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda w, x: w * x, jnp.ones(2), jnp.ones(2), params=["w"])
    >>> opt.specialize_params(g, {"w": jnp.array([3.0, 4.0])})(jnp.ones(2)).tolist()
    [3.0, 4.0]
    """
    names = list(graph.signature)
    unknown = sorted(set(values) - set(names))
    if unknown:
        raise RlxError(f"Graph {graph.name!r} has no parameter {unknown[0]!r}.")
    program = specialize(graph.program, {names.index(n): np.asarray(v) for n, v in values.items()})
    kept = [n for n in names if n not in values]
    roles = ["param" if n in graph.params else "input" for n in kept]
    return Graph.from_program(program, kept, roles, graph.name)


# ------------------------------------------------------------------ memory
def plan_memory(subject: Program | Graph | GraphModule | Plan) -> MemoryPlan:
    """The positions of a subject's temporaries in the arena; see MemoryPlan.

    >>> import rlx, rlx.numpy as jnp
    >>> g = rlx.Graph.trace(lambda x: jnp.sort(jnp.sort(x) + 1.0), jnp.zeros((8, 8)))
    >>> plan = rlx.opt.plan_memory(g)
    >>> plan.arena, plan.efficiency
    (256, 1.0)
    """
    return MemoryPlan.of(_plan_of(subject))


def plan_memory_with_options(subject: Program | Graph | GraphModule | Plan, options: MemoryPlanOptions) -> MemoryPlan:
    """The memory plan with another alignment, or with elements of one size. Nothing is moved.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda x: jnp.sort(jnp.sort(x) + 1.0), jnp.zeros((8, 8)))
    >>> opt.plan_memory_with_options(g, opt.MemoryPlanOptions(element_bytes=2)).arena
    128
    """
    return MemoryPlan.of(_plan_of(subject), options)


def plan_memory_f32_uniform(subject: Program | Graph | GraphModule | Plan) -> MemoryPlan:
    """The memory plan with four bytes per element for all dtypes, for a device that only has float32.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda x: jnp.sort(jnp.sort(x) + 1), jnp.zeros((8, 8), jnp.int8))
    >>> opt.plan_memory_f32_uniform(g).arena, opt.plan_memory(g).arena
    (256, 64)
    """
    return plan_memory_with_options(subject, MemoryPlanOptions(element_bytes=4))


def plan_memory_backward(graph: Graph, wrt: Any = None) -> MemoryPlan:
    """The memory plan of the loss with its gradients: what a step of training needs beside its arguments.

    wrt: as in rlx.autodiff.grad_with_loss; all parameters by default.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda w, x: jnp.sum(jnp.tanh(x @ w)), jnp.ones((8, 8)), jnp.ones((64, 8)), params=["w"])
    >>> opt.plan_memory_backward(g).peak > opt.plan_memory(g).peak
    True
    """
    return plan_memory(grad_with_loss(graph, wrt))


def _plan_of(subject: Program | Graph | GraphModule | Plan) -> Plan:
    if isinstance(subject, Plan):
        return subject
    if isinstance(subject, GraphModule) and subject.stage is GraphStage.LIR:
        return subject.lir
    return lower_to_plan(program_of(subject))


# ------------------------------------------------------------------ backends
_VIEWS = frozenset("reshape transpose slice reverse broadcast_in_dim".split())


def is_pure_view(node: Node) -> bool:
    """Whether a node only indexes its operand in another way, and needs no memory.

    >>> import rlx
    >>> from rlx import opt
    >>> g = rlx.Graph("views")
    >>> x = g.input("x", rlx.Shape([2, 3]))
    >>> opt.is_pure_view(g.transpose(x, (1, 0))), opt.is_pure_view(x + 1.0)
    (True, False)
    """
    return str(node.op.kind) in _VIEWS


def supported_for_target(target: FusionTarget | str = FusionTarget.CPU) -> frozenset[str]:
    """The kinds of operations that a target runs itself, by its claims; the others run on the host.

    Raises: DeviceError if the target's device is not installed.

    >>> from rlx import opt
    >>> "tanh" in opt.supported_for_target("cpu"), "eig" in opt.supported_for_target("cuda")
    (True, False)
    """
    backend = FusionTarget(target).backend
    return frozenset(name for name in registry if _runs_itself(name, backend))


@cache
def _runs_itself(name: str, backend: Backend) -> bool:
    """Whether a device has kernels for a primitive: asked of the plan of a sample, where routines and sorts may lack.
    """
    primitive = registry[name]
    if not primitive.routine and name not in _SORTED:
        return True
    sample = next(iter(primitive.samples()), None)
    if sample is None:
        return primitive.decomposes or primitive.routine in ("", *backend.claims.routines)
    program = places.program_of(primitive, [type_of(x) for x in sample.args], dict(sample.params))
    try:
        context = Context.of(backend)
        form = compile_stages(program, context=context)[-1].form
    except RlxError:
        return False
    if isinstance(form, Program):
        return all(e.primitive.routine in ("", *backend.claims.routines) for e in form.equations)
    assert isinstance(form, Plan)
    own = (Library,) if backend.memory.host else (Library, Sort)  # sorts of NumPy are the processor's
    kernels = [k for k in all_kernels(form) if isinstance(k, own)]
    return all(backend.host_reason(k) is None for k in kernels)


_SORTED = ("sort", "top_k")


def supports_op(supported: Iterable[str], kind: str) -> bool:
    """Whether `supported` contains a kind; if it is empty, all kinds are supported.

    >>> from rlx import opt
    >>> opt.supports_op({"add"}, "tanh"), opt.supports_op((), "tanh")
    (False, True)
    """
    claims = frozenset(supported)
    return not claims or kind in claims


def legalize_for_backend(subject: Program | Graph | GraphModule, supported: Iterable[str]) -> list[UnsupportedKind]:
    """The unsupported kinds in a subject; nothing is changed.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda x: jnp.tanh(x) + 1.0, 1.0)
    >>> [lacking.kind for lacking in opt.legalize_for_backend(g, {"add"})]
    ['tanh']
    """
    return legalization.legalize_for_backend(program_of(subject), supported)


def rewrite_for_backend(
    subject: Subject, supported: Iterable[str] | None, config: KernelDispatchConfig | None = None
) -> Subject:
    """Replace unsupported kinds by their common forms; kinds without one stay.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(jnp.tanh, 1.0)
    >>> legal = opt.rewrite_for_backend(g, opt.supported_for_target() - {"tanh"})
    >>> "tanh" in {e.primitive.name for e in legal.program.equations}
    False
    """
    return _with_program(subject, legalization.rewrite_for_backend(program_of(subject), supported, config)[0])


def legalize_or_rewrite_for_backend(
    subject: Subject, supported: Iterable[str] | None, config: KernelDispatchConfig | None = None
) -> Subject:
    """As rewrite_for_backend, but raises LegalizeError if an unsupported kind is left.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(jnp.tanh, 1.0)
    >>> legal = opt.legalize_or_rewrite_for_backend(g, opt.supported_for_target() - {"tanh"})
    >>> "tanh" in {e.primitive.name for e in legal.program.equations}
    False
    """
    return _with_program(subject, legalization.legalize_or_rewrite(program_of(subject), supported, config)[0])


def prepare_graph_for_backend_with_report(
    subject: Subject,
    supported: Iterable[str] | None,
    config: KernelDispatchConfig | None = None,
    backend: str = "backend",
) -> tuple[Subject, KernelDispatchReport]:
    """The rewritten subject, and a report of the changes to each kind.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(jnp.tanh, 1.0)
    >>> legal, report = opt.prepare_graph_for_backend_with_report(g, opt.supported_for_target() - {"tanh"})
    >>> report.kinds(opt.DispatchPath.REWRITTEN)
    {'tanh': 1}
    """
    program, report = legalization.rewrite_for_backend(program_of(subject), supported, config, backend)
    return _with_program(subject, program), report


def analyze_dispatch(
    subject: Program | Graph | GraphModule,
    supported: Iterable[str] | None,
    config: KernelDispatchConfig | None = None,
) -> KernelDispatchReport:
    """The report of how each operation would be dispatched; nothing is rewritten.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(jnp.tanh, jnp.ones(2))
    >>> opt.analyze_dispatch(g, opt.supported_for_target() - {"tanh"}).kinds(opt.DispatchPath.REWRITTEN)
    {'tanh': 1}
    """
    return legalization.analyze_dispatch(program_of(subject), supported, config)


def format_dispatch_report(report: KernelDispatchReport) -> str:
    """The report as text.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> "tanh" in opt.format_dispatch_report(opt.analyze_dispatch(rlx.Graph.trace(jnp.tanh, jnp.ones(2)), None))
    True
    """
    return str(report)


def maybe_log_dispatch_report(report: KernelDispatchReport) -> None:
    """Print the report on standard error if RLX_EXPLAIN is set.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> opt.maybe_log_dispatch_report(opt.analyze_dispatch(rlx.Graph.trace(jnp.tanh, 1.0), None))
    """
    if config.explain:
        print(report, file=sys.stderr)
