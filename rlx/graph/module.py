"""GraphModule: a program at a stage of the compiler, HIR, MIR or LIR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from rlx.errors import RlxError
from rlx.graph.graph import Graph
from rlx.ir.kernels import Plan
from rlx.ir.program import Program
from rlx.ir.show import show_program
from rlx.ir.show_plan import describe_plan
from rlx.passes.pipeline import lower_program, optimize

__all__ = ["GraphModule", "GraphStage", "WrongStageError"]


class GraphStage(Enum):
    """HIR: as written, with calls. MIR: inlined and optimised. LIR: a plan of kernels in memory.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.GraphModule.from_graph(rlx.Graph.trace(jnp.sin, 1.0)).stage
    <GraphStage.HIR: 'hir'>
    """

    HIR = "hir"
    MIR = "mir"
    LIR = "lir"


class WrongStageError(RlxError, TypeError):
    """A module was asked for a form that its stage does not have.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> module = rlx.GraphModule.from_graph(rlx.Graph.trace(jnp.sin, 1.0))
    >>> module.lir
    Traceback (most recent call last):
        ...
    rlx.graph.module.WrongStageError: This module is at HIR; it was asked for LIR...
    """


class GraphModule:
    """A program and its stage. Lowering returns a new module and changes nothing in place.

    >>> import rlx
    >>> module = rlx.GraphModule.trace(lambda x: x + 1.0, rlx.numpy.zeros(2))
    >>> module.lower().stage, module.into_lir().stage
    (<GraphStage.MIR: 'mir'>, <GraphStage.LIR: 'lir'>)
    """

    def __init__(self, stage: GraphStage, content: Graph | Plan) -> None:
        self.stage = stage
        self._content = content

    # ------------------------------------------------------------------ constructors
    @classmethod
    def from_graph(cls, graph: Graph) -> GraphModule:
        """A module at HIR."""
        return cls(GraphStage.HIR, graph)

    @classmethod
    def define(cls, name: str, build: Callable[[Graph], Any]) -> GraphModule:
        """A module at HIR of the graph that `build(graph)` fills; it returns the outputs."""
        graph = Graph(name)
        outputs = build(graph)
        if outputs is not None:
            graph.set_outputs(outputs)
        return cls.from_graph(graph)

    @classmethod
    def trace(
        cls, function: Callable[..., Any], *args: Any, params: Sequence[str] = (), **kwargs: Any
    ) -> GraphModule:
        """A module at HIR of a function; see Graph.trace."""
        return cls.from_graph(Graph.trace(function, *args, params=params, **kwargs))

    @classmethod
    def from_mir(cls, program: Program | Graph) -> GraphModule:
        """A module at MIR: the program is taken as it is."""
        return cls(GraphStage.MIR, program if isinstance(program, Graph) else Graph.from_program(program))

    @classmethod
    def from_lir(cls, plan: Plan) -> GraphModule:
        """A module at LIR."""
        return cls(GraphStage.LIR, plan)

    # ------------------------------------------------------------------ contents
    def _at(self, *stages: GraphStage) -> Any:
        if self.stage not in stages:
            wanted = " or ".join(s.name for s in stages)
            raise WrongStageError(
                f"This module is at {self.stage.name}; it was asked for {wanted}.",
                "Use into_mir() or into_lir() to lower a module; raising is not possible.",
            )
        return self._content

    @property
    def hir(self) -> Graph:
        """The graph as written."""
        found: Graph = self._at(GraphStage.HIR)
        return found

    @property
    def mir(self) -> Program:
        """The optimised program."""
        found: Program = self._at(GraphStage.MIR).program
        return found

    @property
    def lir(self) -> Plan:
        """The plan."""
        found: Plan = self._at(GraphStage.LIR)
        return found

    def graph(self) -> Graph:
        """The graph of a module at HIR or MIR; raises WrongStageError at LIR."""
        found: Graph = self._at(GraphStage.HIR, GraphStage.MIR)
        return found

    # ------------------------------------------------------------------ lowering
    def lower(self) -> GraphModule:
        """The module lowered by one stage."""
        graph: Graph = self._at(GraphStage.HIR, GraphStage.MIR)
        if self.stage is GraphStage.HIR:
            return GraphModule(GraphStage.MIR, graph.with_program(optimize(graph.program)))
        return GraphModule(GraphStage.LIR, lower_program(graph.program))

    def into_mir(self) -> GraphModule:
        """The module at MIR."""
        return self.lower() if self.stage is GraphStage.HIR else self._checked(GraphStage.MIR)

    def into_lir(self) -> GraphModule:
        """The module at LIR."""
        return self if self.stage is GraphStage.LIR else self.into_mir().lower()

    def _checked(self, stage: GraphStage) -> GraphModule:
        self._at(stage)
        return self

    def inspect(self) -> str:
        """The module as text: a program as runnable Python, or the plan."""
        if self.stage is GraphStage.LIR:
            return describe_plan(self.lir)
        return show_program(self.graph().program)

    def __repr__(self) -> str:
        return f"<module {self._content.name} at {self.stage.name}>"
