"""The stages of a jitted call ahead of time: traced, lowered, compiled; and types of absent arrays."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx.array import Span
from rlx.call.compiled import CompiledProgram
from rlx.errors import DtypeError, InputTypeError, ReferenceUseError, ShapeError, UnsupportedError
from rlx.ir.mesh_division import MeshDivision
from rlx.ir.program import Program
from rlx.ir.show import show_program
from rlx.ir.types import TensorType
from rlx.ir.work import Work, plan_work
from rlx.offered_names import offer_names
from rlx.passes.pipeline import stages
from rlx.trace.flat import shared_array
from rlx.trace.primitive import type_of
from rlx.trace.spanning import ArrayOfParts
from rlx.trace.tracing import close_over, place_of
from rlx.trees import tree

__all__ = ["ArgInfo", "Compiled", "Lowered", "MemoryAnalysis", "ShapeDtypeStruct", "Traced"]

offer_names(globals())


class ShapeDtypeStruct:
    """The shape and dtype of an array, without values.

    Args:
      shape: sizes of the axes. dtype: of the elements. weak_type: whether the dtype yields to others.
      sharding: how the array would be divided: a sharding, or a PartitionSpec under rlx.set_mesh.

    Raises: DtypeError without a dtype; ShapeError for a size that is not a number; ShardingError or InputTypeError for
      a sharding that does not fit.

    >>> import rlx
    >>> rlx.ShapeDtypeStruct((2, 3), "float32")
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """

    __slots__ = ("_sharding", "dtype", "shape", "weak_type")

    def __init__(self, shape: Sequence[int], dtype: Any, weak_type: bool = False, *, sharding: Any = None) -> None:
        if dtype is None:
            raise DtypeError("A ShapeDtypeStruct got dtype=None.", "Name a dtype: it has no default.")
        self.shape = tuple(shape)
        if None in self.shape:
            raise ShapeError(f"A ShapeDtypeStruct got shape={self.shape}.", "Every size is a number.")
        self.dtype = TensorType((), dtype).dtype
        self.weak_type = weak_type
        self._sharding = sharding
        if sharding is not None:
            _shardings().check_described(sharding, self.shape)

    @property
    def sharding(self) -> Any:
        """How the array would be divided; None if not specified."""
        found = self._sharding
        return None if found is None else _shardings().resolve("ShapeDtypeStruct", found)

    @classmethod
    def like(cls, array: Any) -> ShapeDtypeStruct:
        """The shape and dtype of an array, or of a number.

        >>> import rlx
        >>> rlx.ShapeDtypeStruct.like(rlx.numpy.ones(3))
        ShapeDtypeStruct(shape=(3,), dtype=float32)
        """
        found = type_of(shared_array(array))
        return cls(found.shape, found.dtype, found.weak, sharding=place_of(array) or getattr(array, "_sharding", None))

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return TensorType(self.shape, self.dtype).size

    def update(self, **fields: Any) -> ShapeDtypeStruct:
        """The same with other fields.

        >>> import rlx
        >>> rlx.ShapeDtypeStruct((2,), "float32").update(shape=(3,)).shape
        (3,)
        """
        kept: dict[str, Any] = {"shape": self.shape, "dtype": self.dtype, "weak_type": self.weak_type}
        return ShapeDtypeStruct(**{**kept, "sharding": self._sharding, **fields})

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a ShapeDtypeStruct without axes")
        return self.shape[0]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShapeDtypeStruct):
            return False
        return (self.shape, self.dtype, self._sharding) == (other.shape, other.dtype, other._sharding)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype, self._sharding))

    def __repr__(self) -> str:
        sharding = "" if self._sharding is None else f", sharding={self._sharding}"
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{sharding})"


def _shardings() -> Any:
    """The module of shardings, loaded when one is used."""
    return importlib.import_module("rlx.sharding.trees")


def _whole(structure: tree.TreeDef, values: Sequence[Any], of_parts: Callable[[Any, Span], Any]) -> Any:
    """The values in a structure; `of_parts` gives the value of an array of parts, from its local value and its type."""
    found = tree.unflatten(structure, values)
    return tree.map(lambda x: of_parts(x.local, x.span) if isinstance(x, ArrayOfParts) else x, found)


def _known(structure: tree.TreeDef, shardings: Sequence[Any] | None) -> Any:
    """The sharding of each leaf of a structure; if unknown, the sharding of an array without a place."""
    default = importlib.import_module("rlx.sharding.shardings").default_sharding()
    found = [s or default for s in shardings or [None] * structure.num_leaves]
    return _whole(structure, found, lambda _, span: span.sharding)


def placed_at(outs: Sequence[Any], places: Sequence[Any]) -> list[Any]:
    """The results with these shardings, where known."""
    return [x if place is None else x.with_sharding(place) for x, place in zip(outs, places, strict=True)]


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
        return self._traced._request.in_tree

    @property
    def out_tree(self) -> tree.TreeDef:
        """The structure of the result."""
        return self._traced._result_tree

    @property
    def args_info(self) -> Any:
        """A tree of ArgInfo for (args, kwargs), static arguments left out."""
        request = self._traced._request
        pairs = zip(request.leaves, request.donated_leaves(), strict=True)
        infos = [ArgInfo(x.shape, x.dtype, d) for x, d in pairs]
        return _whole(self.in_tree, infos, lambda own, span: own._replace(shape=span.type.shape))

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """Positions of the leaves that a call gives away."""
        return tuple(i for i, d in enumerate(self._traced._request.donated_leaves()) if d)

    @property
    def in_avals(self) -> Any:
        """A tree of types for (args, kwargs), static arguments left out."""
        return _whole(self.in_tree, [x.type for x in self._traced._request.leaves], lambda _, span: span.type)

    @property
    def out_avals(self) -> Any:
        """A tree of the results' types."""
        types = self._traced.program.output_types[: self.out_tree.num_leaves]
        return _whole(self.out_tree, types, lambda _, span: span.type)

    @property
    def out_info(self) -> Any:
        """Shapes and dtypes of the results, and the shardings of those that processes divide."""
        types = self._traced.program.output_types[: self.out_tree.num_leaves]
        infos = [ShapeDtypeStruct(t.shape, t.dtype, t.weak) for t in types]
        return _whole(self.out_tree, infos, lambda own, span: own.update(shape=span.type.shape, sharding=span.sharding))


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

    def __init__(self, request: Any, entry: Any) -> None:
        super().__init__(self)
        self._request, self._entry, self._captured = request, entry, entry.captured
        self._result_tree = entry.out_tree
        self.program: Program = entry.program
        self.fun_name = request.jitted.name

    def _follow(self) -> list[Any] | None:
        """How the results are divided, by how the arguments are."""
        return self._entry.follow(self._entry.operands(self._request.leaves))

    def closed(self) -> Program:
        """The program with the function's captured values as constants.

        Raises: ReferenceUseError if it writes to a Ref, or has one as an argument.
        """
        return close_over(self.program, self.outside())

    def division(self) -> MeshDivision | None:
        """The divisions of arrays of `closed` that shardings over several devices state; None without any.

        Raises ShardingError for shardings over several meshes.
        """
        given, marks = self._request.divisions, self._entry.marks
        results = self._follow() or [None] * len(self.program.outputs)
        if not (marks or any(given) or any(results)):
            return None
        return importlib.import_module("rlx.sharding.propagation").stated(self.closed(), given, marks, results)

    def donated(self) -> list[bool]:
        """Which inputs of the program without captured values a call gives away."""
        return self._request.donated(self.program.inputs[len(self._captured) :])

    def outside(self) -> list[Any]:
        """The function's captured values: the program's first inputs. For a Ref, its current content.

        Raises: ReferenceUseError, like `closed`.
        """
        cells = self._entry.cells
        if self._request.cells or (cells is not None and cells.written):
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
        return show_program(stages(close_over(traced.program, traced._captured))[-1].program)

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
        jitted = traced._request.jitted
        backend = jitted.backend_for(traced._request, traced.program, traced._captured)
        closed = close_over(traced.program, traced._captured)
        self._compiled = CompiledProgram(closed, backend, jitted.memory_limit, given=traced.donated())
        self._places = traced._follow()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        request, traced = self._traced._request.again(args, kwargs), self._traced._request
        if request.signature != traced.signature:
            given = ", ".join(repr(x.type) for x in request.leaves)
            expected = ", ".join(repr(x.type) for x in traced.leaves)
            if request.in_tree != self.in_tree:
                expected, given = str(self.in_tree), str(request.in_tree)
            raise InputTypeError(
                f"{self._traced.fun_name} was compiled for ({expected}) and called with ({given}).",
                "Call the jitted function itself, which compiles for new arguments.",
            )
        entry = self._traced._entry
        outs = request.run(self._compiled, entry.operands(request.leaves))
        placed = outs if self._places is None else placed_at(outs, self._places)
        return request.jitted.delivered(tree.unflatten(self.out_tree, entry.returned(placed, request.cells)))

    @property
    def input_shardings(self) -> tuple[Any, dict[str, Any]]:
        """How the positional and the keyword arguments are divided: a sharding for each array."""
        arguments, keywords = _known(self.in_tree, self._traced._request.divisions)
        return self._traced._request.jitted.shardings_of_arguments(arguments), keywords

    @property
    def output_shardings(self) -> Any:
        """How the results are divided: a sharding for each array."""
        return self._traced._request.jitted.shardings_of_results(_known(self.out_tree, self._places))

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
        work = Work() if self.plan is None else plan_work(self.plan)
        return {"flops": work.flops, "transcendentals": work.transcendentals, "bytes accessed": float(work.bytes)}

    def memory_analysis(self) -> MemoryAnalysis:
        """Bytes of arguments, results and temporaries."""
        program = self._traced.program
        return MemoryAnalysis(
            sum(t.nbytes for t in program.input_types),
            sum(t.nbytes for t in program.output_types),
            self.plan.arena if self.plan is not None else 0,
        )
