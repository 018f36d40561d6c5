"""Legalisation: rewrite a program to the operations that a backend claims, and report the changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from rlx.errors import RlxError
from rlx.graph.common_forms import COMMON_FORMS
from rlx.graph.control_lowering import CONTROL_KINDS, LowerControlFlow
from rlx.ir.program import Equation, Origin, Program
from rlx.passes.rebuild import bound, rebuilt, walk
from rlx.trace.lower import inline_calls, map_regions
from rlx.trace.primitive import type_of
from rlx.trace.tracing import trace_program

__all__ = [
    "DispatchPath",
    "KernelDispatchConfig",
    "KernelDispatchPolicy",
    "KernelDispatchReport",
    "KindDispatchSummary",
    "LegalizeError",
    "UnsupportedKind",
    "analyze_dispatch",
    "format_legalize_error",
    "legalize_for_backend",
    "legalize_or_rewrite",
    "rewrite_for_backend",
]


class KernelDispatchPolicy(Enum):
    """When an operation is passed to the backend unchanged, and when in its common form.

    Control flow is lowered only if the backend lacks it, or if it is named.

    >>> from rlx import opt
    >>> opt.KernelDispatchConfig().policy
    <KernelDispatchPolicy.PREFER_NATIVE: 'prefer native'>
    """

    PREFER_NATIVE = "prefer native"  # the common form only if the backend lacks the kind
    FORCE_COMMON = "force common"  # the common form if there is one
    FORCE_NATIVE = "force native"  # never a common form; an operation that the backend lacks is an error


@dataclass(frozen=True)
class KernelDispatchConfig:
    """A policy, exceptions by kind (native ones win), and the bound of unrolled while_loops.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> config = opt.KernelDispatchConfig(force_common_kinds=frozenset({"tanh"}))
    >>> g = rlx.Graph.trace(jnp.tanh, jnp.ones(2))
    >>> opt.analyze_dispatch(g, None, config).kinds(opt.DispatchPath.COMMON)
    {'tanh': 1}
    """

    policy: KernelDispatchPolicy = KernelDispatchPolicy.PREFER_NATIVE
    force_common_kinds: frozenset[str] = frozenset()
    force_native_kinds: frozenset[str] = frozenset()
    max_iterations: int | None = None


class DispatchPath(Enum):
    """How operations of a kind were dispatched.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda x: jnp.tanh(x) + 1.0, jnp.ones(2))
    >>> opt.analyze_dispatch(g, opt.supported_for_target() - {"tanh"}).kinds(opt.DispatchPath.REWRITTEN)
    {'tanh': 1}
    """

    NATIVE = "native"
    COMMON = "common"
    REWRITTEN = "rewritten"
    UNSUPPORTED = "unsupported"


class KindDispatchSummary(NamedTuple):
    """The number of operations of a kind that took a path.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> opt.analyze_dispatch(rlx.Graph.trace(jnp.tanh, jnp.ones(2)), None).summaries[0].count
    1
    """

    kind: str
    count: int
    path: DispatchPath


class UnsupportedKind(NamedTuple):
    """A kind that the backend does not claim: its count, first location, and the missing kinds of its common form.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda x: jnp.tanh(x), 1.0)
    >>> [(lacking.kind, lacking.count) for lacking in opt.legalize_for_backend(g, {"add"})]
    [('tanh', 1)]
    """

    kind: str
    count: int
    origin: Origin | None
    needs: tuple[str, ...] = ()


@dataclass
class KernelDispatchReport:
    """The decisions of legalisation. Native counts refer to the final program.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> report = opt.analyze_dispatch(rlx.Graph.trace(jnp.tanh, jnp.ones(2)), None)
    >>> report.kinds(opt.DispatchPath.NATIVE)
    {'tanh': 1}
    """

    backend: str
    policy: KernelDispatchPolicy
    claimed: int | None
    summaries: list[KindDispatchSummary] = field(default_factory=list)

    def kinds(self, path: DispatchPath) -> dict[str, int]:
        """Counts by kind of one path."""
        return {s.kind: s.count for s in self.summaries if s.path is path}

    @property
    def compile_ready(self) -> bool:
        """Whether nothing unsupported is left."""
        return not self.kinds(DispatchPath.UNSUPPORTED)

    def __str__(self) -> str:
        claims = "every kind" if self.claimed is None else f"{self.claimed} kinds"
        lines = [f"{self.backend}: {self.policy.value}, claims {claims}"]
        lines += [f"  {s.path.value:12}{s.count:5} x {s.kind}" for s in self.summaries]
        return "\n".join(lines)


class LegalizeError(RlxError, NotImplementedError):
    """A program has operations that a backend does not claim and that have no common form in its claims.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.opt.legalize_or_rewrite_for_backend(rlx.Graph.trace(jnp.tanh, 1.0), {"add"})
    Traceback (most recent call last):
        ...
    rlx.graph.legalize.LegalizeError: The backend backend does not support 1 kinds of operations:...
    """

    def __init__(self, backend: str, unsupported: Sequence[UnsupportedKind]) -> None:
        self.unsupported = list(unsupported)
        super().__init__(
            format_legalize_error(backend, unsupported),
            "Claim the kinds, give them a form with rlx.opt.common_form, or run the program elsewhere.",
            line="",
        )


def format_legalize_error(backend: str, unsupported: Sequence[UnsupportedKind]) -> str:
    """The kinds that a backend lacks, each with its count and location.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> lacking = opt.legalize_for_backend(rlx.Graph.trace(lambda x: jnp.tanh(x), 1.0), {"add"})
    >>> "tanh" in opt.format_legalize_error("small", lacking)
    True
    """
    lines = [f"The backend {backend} does not support {len(unsupported)} kinds of operations:"]
    for kind, count, origin, needs in unsupported:
        place = f", first at {origin}" if origin else ""
        why = f"its common form needs {', '.join(needs)}" if needs else "no common form is used"
        lines.append(f"  {kind}: {count} time{'s' * (count != 1)}{place} ({why})")
    return "\n".join(lines)


# ------------------------------------------------------------------ asking
def legalize_for_backend(program: Program, supported: Iterable[str]) -> list[UnsupportedKind]:
    """The kinds in a program and its regions that `supported` lacks; nothing is changed."""
    claims = frozenset(supported)
    counts: Counter[str] = Counter()
    first: dict[str, Origin | None] = {}
    for equation in _equations(inline_calls(program)):
        kind = equation.primitive.name
        if kind not in claims:
            counts[kind] += 1
            first.setdefault(kind, equation.origin)
    return [UnsupportedKind(kind, count, first[kind]) for kind, count in counts.items()]


def _equations(program: Program) -> list[Equation]:
    found = list(program.equations)
    for region in program.regions():
        found += _equations(region)
    return found


# ------------------------------------------------------------------ rewriting
class _Rewriting:
    """One walk over a program that replaces operations, and counts kept and replaced ones."""

    def __init__(self, supported: frozenset[str] | None, config: KernelDispatchConfig) -> None:
        self.supported = supported
        self.config = config
        self.control = LowerControlFlow(config.max_iterations)
        self.paths: Counter[tuple[str, DispatchPath]] = Counter()
        self.origins: dict[str, Origin | None] = {}
        self.needs: dict[str, tuple[str, ...]] = {}  # the kinds that the forms of unsupported kinds lack
        self._within: list[str] = []  # the kinds whose forms are being expanded

    def run(self, program: Program) -> Program:
        """The program rewritten."""
        return rebuilt(program, self.replace)

    def path_of(self, kind: str) -> DispatchPath:
        """The path of an operation."""
        claimed = self.supported is None or kind in self.supported
        kept = DispatchPath.NATIVE if claimed else DispatchPath.UNSUPPORTED
        config, policy = self.config, self.config.policy
        native = kind in config.force_native_kinds
        common = kind in config.force_common_kinds
        control = kind in CONTROL_KINDS
        has_form = control or (kind in COMMON_FORMS and kind not in self._within)
        if native or not has_form or (policy is KernelDispatchPolicy.FORCE_NATIVE and not common):
            return kept
        if common or (policy is KernelDispatchPolicy.FORCE_COMMON and not control):
            return DispatchPath.COMMON
        return kept if claimed else DispatchPath.REWRITTEN

    def replace(self, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """The equation itself, counted, or its form, also rewritten."""
        kind = equation.primitive.name
        path = self.path_of(kind)
        self.origins.setdefault(kind, equation.origin)
        if path in (DispatchPath.COMMON, DispatchPath.REWRITTEN):
            form, captured = self._form(equation, operands)
            missing = self._missing(kind, form)
            if missing:
                claimed = self.supported is None or kind in self.supported
                path = DispatchPath.NATIVE if claimed else DispatchPath.UNSUPPORTED
                self.needs[kind] = missing
        self.paths[kind, path] += 1
        if path in (DispatchPath.NATIVE, DispatchPath.UNSUPPORTED):
            return bound(map_regions(equation, self.run), operands)
        self._within.append(kind)
        try:
            return walk(form, [*captured, *operands], self.replace)
        finally:
            self._within.pop()

    def _missing(self, kind: str, form: Program) -> tuple[str, ...]:
        """The kinds that a form would need and that the backend lacks; those in regions are the user's own."""
        if kind in CONTROL_KINDS or self.supported is None:
            return ()
        trial = _Rewriting(self.supported, self.config)
        trial._within = [*self._within, kind]
        trial.run(form)
        return tuple(sorted(k for k, path in trial.paths if path is DispatchPath.UNSUPPORTED))

    def _form(self, equation: Equation, operands: Sequence[Any]) -> tuple[Program, list[Any]]:
        """The program that stands for an equation, one level down."""

        def write(*values: Any) -> Sequence[Any]:
            if equation.primitive.name in CONTROL_KINDS:
                return self.control.expand(equation, values)
            results = COMMON_FORMS[equation.primitive.name](*values, **equation.params)
            return results if equation.primitive.multiple else (results,)

        return trace_program(write, [type_of(x) for x in operands], None, equation.primitive.name)

    def report(self, backend: str) -> KernelDispatchReport:
        """The report so far."""
        order = list(DispatchPath)
        rows = [KindDispatchSummary(kind, count, path) for (kind, path), count in self.paths.items()]
        rows.sort(key=lambda s: (order.index(s.path), s.kind))
        claimed = None if self.supported is None else len(self.supported)
        return KernelDispatchReport(backend, self.config.policy, claimed, rows)


def rewrite_for_backend(
    program: Program,
    supported: Iterable[str] | None,
    config: KernelDispatchConfig | None = None,
    backend: str = "backend",
) -> tuple[Program, KernelDispatchReport]:
    """The program with common forms, as configured; operations that cannot be replaced stay.

    `supported`: the kinds that the backend claims; None for all.
    """
    rewriting, rewritten = _rewrite(program, supported, config)
    return rewritten, rewriting.report(backend)


def _rewrite(
    program: Program, supported: Iterable[str] | None, config: KernelDispatchConfig | None
) -> tuple[_Rewriting, Program]:
    claims = None if supported is None else frozenset(supported)
    rewriting = _Rewriting(claims, config or KernelDispatchConfig())
    return rewriting, rewriting.run(inline_calls(program))


def legalize_or_rewrite(
    program: Program,
    supported: Iterable[str] | None,
    config: KernelDispatchConfig | None = None,
    backend: str = "backend",
) -> tuple[Program, KernelDispatchReport]:
    """As rewrite_for_backend; raises LegalizeError where something unsupported is left."""
    rewriting, rewritten = _rewrite(program, supported, config)
    report = rewriting.report(backend)
    missing = report.kinds(DispatchPath.UNSUPPORTED)
    if missing:
        rows = [
            UnsupportedKind(k, n, rewriting.origins[k], rewriting.needs.get(k, ()))
            for k, n in missing.items()
        ]
        raise LegalizeError(backend, rows)
    return rewritten, report


def analyze_dispatch(
    program: Program,
    supported: Iterable[str] | None,
    config: KernelDispatchConfig | None = None,
    backend: str = "backend",
) -> KernelDispatchReport:
    """The paths of a program's operations, without looking into common forms."""
    claims = None if supported is None else frozenset(supported)
    rewriting = _Rewriting(claims, config or KernelDispatchConfig())
    for equation in _equations(inline_calls(program)):
        rewriting.paths[equation.primitive.name, rewriting.path_of(equation.primitive.name)] += 1
    return rewriting.report(backend)
