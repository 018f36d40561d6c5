"""Jaxprs as data: equations over variables, and evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlx.array import ConcreteArray
from rlx.errors import TreeMismatchError
from rlx.ir.program import Atom, Literal, Program, Var
from rlx.jaxnames import core
from rlx.jaxnames.avals import AbstractArray, aval_of, tensor_type
from rlx.trace.flat import as_array
from rlx.trace.tracing import trace_program

__all__ = ["ClosedJaxpr", "Jaxpr", "JaxprEqn", "eval_jaxpr", "staged"]


@dataclass(eq=False)
class JaxprEqn:
    """An equation: outvars = primitive(invars, **params)."""

    invars: list[Atom]
    outvars: list[Var]
    primitive: Any
    params: Mapping[str, Any]
    effects: frozenset[Any] = frozenset()
    source_info: Any = None
    ctx: Any = None

    def replace(self, **fields: Any) -> JaxprEqn:
        """A copy with the given fields replaced."""
        return replace(self, **fields)

    def __repr__(self) -> str:
        return f"{self.primitive.name}: {len(self.invars)} -> {len(self.outvars)}"


@dataclass(eq=False)
class Jaxpr:
    """Equations between invars and outvars; constvars are arrays whose values are stored elsewhere.

    >>> import rlx
    >>> from rlx.jaxnames.views import eval_jaxpr, make_jaxpr
    >>> closed = make_jaxpr(lambda x: rlx.numpy.sin(x) * 2.0)(1.0)
    >>> [eqn.primitive.name for eqn in closed.jaxpr.eqns]
    ['sin', 'mul']
    >>> eval_jaxpr(closed.jaxpr, closed.consts, 0.0)
    [Array(0., dtype=float32, weak_type=True)]
    """

    constvars: Sequence[Var]
    invars: Sequence[Var]
    outvars: Sequence[Atom]
    eqns: Sequence[JaxprEqn]
    effects: frozenset[Any] = frozenset()
    debug_info: Any = None
    is_high: bool = field(default=False, repr=False)

    def replace(self, **fields: Any) -> Jaxpr:
        """A copy with the given fields replaced."""
        return replace(self, **fields)

    def __str__(self) -> str:
        names: dict[Var, str] = {}

        def name(atom: Atom) -> str:
            if isinstance(atom, Literal):
                return f"{atom.value}:{atom.type.strong()!r}"
            number = len(names)
            return names.setdefault(atom, ("" if number < 26 else chr(96 + number // 26)) + chr(97 + number % 26))

        def typed(atoms: Iterable[Atom]) -> str:
            return " ".join(f"{name(a)}:{a.aval!r}" for a in atoms)

        head = f"{{ lambda {typed(self.constvars)} ; {typed(self.invars)}. let"
        lines = []
        for e in self.eqns:
            params = " ".join(f"{k}={v}" for k, v in e.params.items() if v is not None)
            left = typed(e.outvars)
            lines.append(
                f"    {left} = {e.primitive.name}{f'[{params}]' if params else ''} {' '.join(map(name, e.invars))}"
            )
        return "\n".join((head, *lines, f"  in ({', '.join(map(name, self.outvars))},) }}"))

    __repr__ = __str__


class ClosedJaxpr:
    """A jaxpr and the values of its constants.

    >>> from rlx.jaxnames.views import ClosedJaxpr, make_jaxpr
    >>> closed = make_jaxpr(lambda x: x + 1.0)(1.0)
    >>> again = ClosedJaxpr(closed.jaxpr, closed.consts)
    >>> again.in_avals
    [ShapedArray(float32[], weak_type=True)]
    """

    def __init__(self, jaxpr: Jaxpr, consts: Sequence[Any] = ()) -> None:
        if len(consts) != len(jaxpr.constvars):
            raise TreeMismatchError(
                f"A jaxpr of {len(jaxpr.constvars)} constants got {len(consts)}.",
                "Pass jaxpr.consts, one value for each of jaxpr.constvars.",
            )
        self.jaxpr = jaxpr
        self.consts = list(consts)
        self.program: Program | None = None  # if this is a view of a program

    @property
    def eqns(self) -> Sequence[JaxprEqn]:
        """The equations."""
        return self.jaxpr.eqns

    @property
    def literals(self) -> list[Any]:
        """The constants."""
        return self.consts

    @property
    def effects(self) -> frozenset[Any]:
        """Effects of the equations."""
        return self.jaxpr.effects

    @property
    def in_avals(self) -> list[AbstractArray]:
        """Types of the inputs."""
        return [aval_of(tensor_type(v.aval)) for v in self.jaxpr.invars]

    @property
    def out_avals(self) -> list[AbstractArray]:
        """Types of the outputs."""
        return [aval_of(tensor_type(a.aval)) for a in self.jaxpr.outvars]

    def replace(self, jaxpr: Jaxpr | None = None, consts: Sequence[Any] | None = None) -> ClosedJaxpr:
        """A copy with the given fields replaced."""
        return ClosedJaxpr(self.jaxpr if jaxpr is None else jaxpr, self.consts if consts is None else consts)

    def map_jaxpr(self, function: Callable[[Jaxpr], Jaxpr]) -> ClosedJaxpr:
        """A copy with another jaxpr and the same constants."""
        return ClosedJaxpr(function(self.jaxpr), self.consts)

    def __repr__(self) -> str:
        return repr(self.jaxpr)


def eval_jaxpr(jaxpr: Any, consts: Sequence[Any], *args: Any, propagate_source_info: bool = True) -> list[Any]:
    """Run a jaxpr's equations on `args`, one after the other.

    Args:
      jaxpr: a Jaxpr.
      consts: values of its constvars.
      args: one array or number for each of its invars.
      propagate_source_info: accepted for JAX compatibility.

    Returns: a list of its outputs.

    >>> from rlx.jaxnames.views import eval_jaxpr, make_jaxpr
    >>> eval_jaxpr(make_jaxpr(lambda x: x * 2.0)(1.0).jaxpr, [], 4.0)
    [Array(8., dtype=float32, weak_type=True)]
    """
    if isinstance(jaxpr, Program):
        return core.eval_jaxpr(jaxpr, consts, *args)
    if len(args) != len(jaxpr.invars) or len(consts) != len(jaxpr.constvars):
        raise TreeMismatchError(
            f"A jaxpr of {len(jaxpr.constvars)} constants and {len(jaxpr.invars)} arguments got {len(consts)} and"
            f" {len(args)}.",
            "Pass one value for each of jaxpr.constvars, and one for each of jaxpr.invars.",
        )
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, map(as_array, args), strict=True))

    def read(atom: Atom) -> Any:
        return ConcreteArray(atom.value, atom.type.weak) if isinstance(atom, Literal) else env[atom]

    for e in jaxpr.eqns:
        outs = e.primitive.bind(*map(read, e.invars), **e.params)
        env.update(zip(e.outvars, outs if e.primitive.multiple_results else (outs,), strict=True))
    return list(map(read, jaxpr.outvars))


def staged(closed: Any) -> tuple[Program, list[Any]]:
    """The program of a jaxpr, whose leading inputs are the captured values, and those values.

    >>> from rlx.jaxnames.jaxprs import staged
    >>> from rlx.jaxnames.views import make_jaxpr
    >>> program, held = staged(make_jaxpr(lambda x: x + 1.0)(1.0))
    >>> len(program.equations), held
    (1, [])
    """
    if isinstance(closed, Jaxpr):
        closed = ClosedJaxpr(closed)
    source = closed if isinstance(closed, Program) else closed.program
    if source is not None:
        return source.replace(inputs=(*source.constvars, *source.inputs), constants=()), source.consts
    types = [tensor_type(v.aval) for v in closed.jaxpr.invars]
    return trace_program(lambda *args: list(map(as_array, eval_jaxpr(closed.jaxpr, closed.consts, *args))), types)
