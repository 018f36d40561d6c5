"""The stages of a jitted call ahead of time: traced, lowered, compiled; and types of absent arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlx.array import parts_of
from rlx.call.argument_names import named_leaves
from rlx.call.compiled import CompiledProgram
from rlx.call.descriptions import ShapeDtypeStruct
from rlx.call.divisions import is_committed, placed_at
from rlx.call.hooks import chooser, sharding_hooks
from rlx.call.run import run_compiled
from rlx.errors import InputTypeError, ReferenceUseError, UnsupportedError
from rlx.ir.program import Program
from rlx.ir.types import TensorType
from rlx.offered_names import LateModule, offer_names
from rlx.trace.spanning import local_of, span_of
from rlx.trace.tracing import close_over
from rlx.trees import tree

if TYPE_CHECKING:
    from rlx.backends.base import Backend
    from rlx.ir import show, work
    from rlx.ir.mesh_division import MeshDivision
    from rlx.passes import pipeline
else:
    show, work = LateModule("rlx.ir.show"), LateModule("rlx.ir.work")
    pipeline = LateModule("rlx.passes.pipeline")

__all__ = ["ArgInfo", "Compiled", "Lowered", "MemoryAnalysis", "ShapeDtypeStruct", "Traced"]

offer_names(globals())


def _whole(structure: tree.TreeDef, values: Sequence[Any], of_parts: Callable[[Any, TensorType], Any]) -> Any:
    """The values in a structure; `of_parts` gives the value of an array of parts, from its local value and its type."""
    found = tree.unflatten(structure, values)
    return tree.map(lambda x: of_parts(local_of(x), span_of(x)) if parts_of(x) else x, found)


def _known(structure: tree.TreeDef, shardings: Sequence[Any] | None) -> Any:
    """The sharding of each leaf of a structure; if unknown, the sharding of an array without a place."""
    default = sharding_hooks.default_sharding()
    found = [s or default for s in shardings or [None] * structure.num_leaves]
    return _whole(structure, found, lambda _, span: span.device_sharding)


class ArgInfo(NamedTuple):
    """An argument of a staged call: its shape, its dtype, and whether a call gives it away.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.jit(jnp.sin).lower(jnp.ones(3)).args_info
    ((ArgInfo(shape=(3,), dtype=dtype('float32'), donated=False),), {})
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    donated: bool


class MemoryAnalysis(NamedTuple):
    """Static memory of a compiled call, in bytes.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> compiled = rlx.jit(lambda x: 2.0 * x).lower(jnp.ones(2)).compile()
    >>> compiled.memory_analysis().output_size_in_bytes
    8
    """

    argument_size_in_bytes: int
    output_size_in_bytes: int
    temp_size_in_bytes: int


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


_LONG = 200  # characters of types, beyond which a repr counts arrays instead


class _CallStage:
    """Common to all stages: the arguments and results of the call."""

    def __init__(self, traced: Traced) -> None:
        self._traced = traced

    def __repr__(self) -> str:
        args, kwargs = self.in_avals
        given = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])
        if len(given) > _LONG:
            given = f"{self.in_tree.num_leaves} arrays"
        result = repr(self.out_avals)
        if len(result) > _LONG:
            result = f"{self.out_tree.num_leaves} arrays"
        return f"{type(self).__name__}({self._traced.fun_name}: ({given}) -> {result}{self._contents()})"

    def _contents(self) -> str:
        """The end of the stage's repr: what it consists of."""
        return f", {_count(len(self._traced.program.equations), 'equation')}"

    @property
    def in_tree(self) -> tree.TreeDef:
        """The structure of (args, kwargs), static arguments left out."""
        return self._traced._arguments.in_tree

    @property
    def out_tree(self) -> tree.TreeDef:
        """The structure of the result."""
        return self._traced._result_tree

    @property
    def args_info(self) -> Any:
        """A tree of ArgInfo for (args, kwargs), static arguments left out."""
        arguments = self._traced._arguments
        pairs = zip(arguments.leaves, arguments.donated_leaves(), strict=True)
        infos = [ArgInfo(x.shape, x.dtype, d) for x, d in pairs]
        return _whole(self.in_tree, infos, lambda own, span: own._replace(shape=span.shape))

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """Positions of the leaves that a call gives away."""
        return tuple(i for i, d in enumerate(self._traced._arguments.donated_leaves()) if d)

    @property
    def in_avals(self) -> Any:
        """A tree of types for (args, kwargs), static arguments left out."""
        return _whole(self.in_tree, [x.type for x in self._traced._arguments.leaves], lambda _, span: span.unplaced)

    @property
    def out_avals(self) -> Any:
        """A tree of the results' types."""
        types = self._traced.program.output_types[: self.out_tree.num_leaves]
        return _whole(self.out_tree, types, lambda _, span: span.unplaced)

    @property
    def out_info(self) -> Any:
        """Shapes and dtypes of the results, and the shardings of those that devices or processes divide."""
        types = self._traced.program.output_types[: self.out_tree.num_leaves]
        places = self._traced._follow() or [None] * len(types)
        divided = [None if p is None or p.is_fully_replicated else p for p in places]
        pairs = zip(types, divided, strict=False)
        infos = [ShapeDtypeStruct(t.shape, t.dtype, t.weak, sharding=place) for t, place in pairs]
        described = lambda own, span: own.update(shape=span.shape, sharding=span.device_sharding)  # noqa: E731
        return _whole(self.out_tree, infos, described)


class Traced(_CallStage):
    """A traced call: `program` is its HIR.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> traced = rlx.jit(lambda x: 2.0 * x).trace(jnp.ones(2))
    >>> traced
    Traced(lambda: (float32[2]) -> float32[2], 1 equation)
    >>> len(traced.program.equations)
    1
    """

    def __init__(self, jitted: Any, request: Any, entry: Any) -> None:
        super().__init__(self)
        self._jitted, self._request, self._arguments = jitted, request, request.arguments
        self._entry, self._captured = entry, entry.captured
        self._result_tree = entry.out_tree
        self.program: Program = entry.program
        self.fun_name = jitted.name

    def _follow(self) -> list[Any] | None:
        """How the results are divided, by how the arguments are."""
        return self._entry.follow(self._entry.operands(self._arguments.leaves))

    def closed(self) -> Program:
        """The program with the function's captured values as constants.

        Raises: ReferenceUseError if it writes to a Ref, or has one as an argument.
        """
        return close_over(self.program, self.outside())

    def division(self) -> MeshDivision | None:
        """The divisions of arrays of `closed` that shardings over several devices state; None without any.

        Raises ShardingError for shardings over several meshes.
        """
        given, marks = self._arguments.divisions, self._entry.marks
        results = self._follow() or [None] * len(self.program.outputs)
        if not (marks or any(given) or any(results)):
            return None
        return sharding_hooks.stated(self.closed(), given or [None] * len(self._arguments.leaves), marks, results)

    def backend(self) -> Backend:
        """The backend of the program, as a call with these arguments chooses it."""
        return self._jitted.backend_for(self._request, self.program, self._captured)

    def placement(self) -> Any:
        """The decision of the policy that chooses the program's device; None if no policy does."""
        if not self._jitted.automatic:
            return None
        committed = self._request.committed or any(map(is_committed, self._captured))
        return chooser.decided(self.closed(), self._jitted.policy, self.backend().memory if committed else None)

    @property
    def leaves(self) -> list[Any]:
        """The dynamic leaves of the arguments, as arrays."""
        return self._arguments.leaves

    def leaf_names(self) -> list[str]:
        """The parameter and path of each dynamic leaf: "x['a']"."""
        return [name for name, _ in named_leaves(self._arguments.tree())]

    def donated(self) -> list[bool]:
        """Which inputs of the program without captured values a call gives away."""
        return self._arguments.donated(self.program.inputs[len(self._captured) :])

    def outside(self) -> list[Any]:
        """The function's captured values: the program's first inputs. For a Ref, its current content.

        Raises: ReferenceUseError, like `closed`.
        """
        cells = self._entry.cells
        if self._arguments.cells or (cells is not None and cells.written):
            raise ReferenceUseError(
                f"{self.fun_name} uses a Ref, which a program alone cannot do.",
                "Call the function, or the result of lower().compile(); or pass values, and return new ones.",
            )
        return [*self._captured, *([] if cells is None else cells.contents())]

    @property
    def jaxpr(self) -> Program:
        """The program with the function's captured values as constants, by JAX's name."""
        return self.closed()

    def lower(self, *, lowering_platforms: tuple[str, ...] | None = None) -> Lowered:
        """The program after the compiler's passes, which are the same for every platform."""
        return Lowered(self)


class Lowered(_CallStage):
    """A traced and optimised call.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> lowered = rlx.jit(lambda x: 2.0 * x).lower(jnp.ones(2))
    >>> lowered
    Lowered(lambda: (float32[2]) -> float32[2], 1 equation)
    >>> lowered.out_info.shape
    (2,)
    """

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The optimised MIR as Python that runs."""
        if dialect not in (None, "mir"):
            raise UnsupportedError(f"A program of rlx has no text in {dialect!r}.", "Leave out the dialect.")
        traced = self._traced
        return show.show_program(pipeline.stages(close_over(traced.program, traced._captured))[-1].program)

    def cost_analysis(self) -> dict[str, float]:
        """Floating-point operations, transcendental functions and bytes of a call, by JAX's names."""
        return self.compile().cost_analysis()

    def compile(self, compiler_options: dict[str, Any] | None = None) -> Compiled:
        """Compile for the device."""
        if compiler_options:
            raise UnsupportedError(
                f"There are no compiler options {', '.join(compiler_options)}.",
                "rlx's options are the switches of rlx.config.",
            )
        return Compiled(self._traced)


class Compiled(_CallStage):
    """A compiled call: takes arguments of exactly the traced structure, shapes and dtypes.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> compiled = rlx.jit(lambda x: 2.0 * x).lower(jnp.ones(2)).compile()
    >>> compiled
    Compiled(lambda: (float32[2]) -> float32[2], 1 kernel on cpu)
    >>> compiled(jnp.array([1.0, 2.0])).tolist()
    [2.0, 4.0]
    """

    def __init__(self, traced: Traced) -> None:
        super().__init__(traced)
        closed = close_over(traced.program, traced._captured)
        limit = traced._jitted.memory_limit
        self._compiled = CompiledProgram(closed, traced.backend(), limit, given=traced.donated())
        self._places = traced._follow()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        jitted, arguments = self._traced._jitted, self._traced._arguments.again(args, kwargs)
        if jitted.request(arguments).key.signature != self._traced._request.key.signature:
            given = ", ".join(repr(x.type) for x in arguments.leaves)
            expected = ", ".join(repr(x.type) for x in self._traced._arguments.leaves)
            if arguments.in_tree != self.in_tree:
                expected, given = str(self.in_tree), str(arguments.in_tree)
            raise InputTypeError(
                f"{self._traced.fun_name} was compiled for ({expected}) and called with ({given}).",
                "Call the jitted function itself, which compiles for new arguments.",
            )
        entry = self._traced._entry
        outs = run_compiled(self._compiled, arguments, entry.operands(arguments.leaves))
        placed = outs if self._places is None else placed_at(outs, self._places)
        return jitted.delivered(tree.unflatten(self.out_tree, entry.returned(placed, arguments.cells)))

    @property
    def input_shardings(self) -> tuple[Any, dict[str, Any]]:
        """How the positional and the keyword arguments are divided: a sharding for each array."""
        arguments, keywords = _known(self.in_tree, self._traced._arguments.divisions)
        return self._traced._jitted.shardings_of_arguments(arguments), keywords

    @property
    def output_shardings(self) -> Any:
        """How the results are divided: a sharding for each array."""
        return self._traced._jitted.shardings_of_results(_known(self.out_tree, self._places))

    def _contents(self) -> str:
        kernels = 0 if self.plan is None else len(self.plan.kernels)
        return f", {_count(kernels, 'kernel')} on {self._compiled.backend.name}"

    @property
    def plan(self) -> Any:
        """The LIR plan, or None if nothing is computed."""
        executable = self._compiled.executable
        return None if executable is None else executable.plan

    def as_text(self) -> str:
        """The compiled code in readable form."""
        executable = self._compiled.executable
        return "" if executable is None else "\n\n".join(executable.texts().values())

    def cost_analysis(self) -> dict[str, float]:
        """Floating-point operations, transcendental functions and bytes of a call, by JAX's names."""
        done = work.Work() if self.plan is None else work.plan_work(self.plan)
        return {"flops": done.flops, "transcendentals": done.transcendentals, "bytes accessed": float(done.bytes)}

    def memory_analysis(self) -> MemoryAnalysis:
        """Bytes of arguments, results and temporaries."""
        program = self._traced.program
        return MemoryAnalysis(
            sum(t.nbytes for t in program.input_types),
            sum(t.nbytes for t in program.output_types),
            self.plan.arena if self.plan is not None else 0,
        )
