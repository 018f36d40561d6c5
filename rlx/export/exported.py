"""rlx.export: functions as files that other processes call without their Python code."""

from __future__ import annotations

import importlib
import io
import itertools
import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import unwrap
from pathlib import Path
from types import CodeType
from typing import Any, BinaryIO

from rlx.array import Array
from rlx.call.jit import jit
from rlx.call.jitted import Jitted
from rlx.call.stages import ShapeDtypeStruct
from rlx.errors import FileFormatError, InputTypeError, OptionError, RlxError, ShapeError, UnsupportedError
from rlx.export.functions import FunctionTemplate, Source, derivative_of, function_of
from rlx.export.native import native_members, with_native_members
from rlx.export.sizes import Unknowns, bind_sizes, evaluate_shape, unknowns_in
from rlx.export.store import read_functions, write_functions
from rlx.export.templates import points_of
from rlx.ir.program import Program
from rlx.ir.types import TensorType, is_inexact
from rlx.ops.arithmetic import convert
from rlx.ops.call import call
from rlx.serialization.atomic import replace
from rlx.serialization.contents import Broken
from rlx.trace.builder import state
from rlx.trace.flat import shared_array
from rlx.transforms.custom_reverse import custom_vjp
from rlx.trees import tree
from rlx.trees.structure import TreeDef

__all__ = ["Exported", "deserialize", "export", "load_exported"]

MOST_SUSPECT = 1 << 20
MOST_SUSPECTS = 16


class Exported:
    """A function as a program, with the types of its arguments and results. It can be called, saved and differentiated.

    Created by rlx.export(f)(*types) and by rlx.load_exported. Arguments must have the exported structure, shapes and
    dtypes; a symbolic size accepts any number. Under jit, vmap and grad it is a function like any other. It can be
    differentiated in reverse mode if the derivative was exported with it.

    >>> import rlx, rlx.numpy as jnp
    >>> exported = rlx.export(lambda x: jnp.sin(x).sum())(rlx.ShapeDtypeStruct((3,), "float32"))
    >>> exported.in_avals, exported.out_avals
    ((ShapeDtypeStruct(shape=(3,), dtype=float32),), (ShapeDtypeStruct(shape=(), dtype=float32),))
    >>> float(exported.call(jnp.zeros(3)))
    0.0
    """

    nr_devices = 1

    def __init__(
        self,
        functions: Sequence[FunctionTemplate],
        source: Source | None = None,
        platforms: Sequence[str] = (),
    ) -> None:
        self._functions = tuple(functions)
        self._source = source
        self.platforms = tuple(platforms)
        self._derivative: Exported | None = None
        self._traceable: dict[tuple[int, ...], Callable[..., Any]] = {}

    # ------------------------------------------------------------------ signature
    @property
    def fun_name(self) -> str:
        """The function's name."""
        return self._functions[0].name

    @property
    def in_tree(self) -> TreeDef:
        """The structure of (args, kwargs)."""
        return self._functions[0].in_tree

    @property
    def in_avals(self) -> tuple[ShapeDtypeStruct, ...]:
        """Types of the leaves of (args, kwargs); unknown sizes as names."""
        return self._functions[0].in_avals

    @property
    def out_tree(self) -> TreeDef:
        """The structure of the result."""
        return self._functions[0].out_tree

    @property
    def out_avals(self) -> tuple[ShapeDtypeStruct, ...]:
        """Types of the leaves of the result; unknown sizes as expressions."""
        return self._functions[0].out_avals

    @property
    def unknowns(self) -> Unknowns:
        """The names of the symbolic sizes, and the constraints on them."""
        return self._functions[0].unknowns

    @property
    def vjp_order(self) -> int | None:
        """The highest order of derivatives; None: no limit, as the traced function is available."""
        return None if self._source is not None else len(self._functions) - 1

    def program(self, **sizes: int) -> Program:
        """The program for given values of the sizes.

        >>> import rlx
        >>> x = rlx.ShapeDtypeStruct(rlx.export.symbolic_shape("b, 3"), "float32")
        >>> rlx.export(lambda x: x.sum(axis=1))(x).program(b=5).input_types
        (float32[5,3],)
        """
        function = self._functions[0]
        if set(sizes) != set(function.unknowns.names):
            given = f"got {', '.join(sorted(sizes)) or 'none'}"
            raise ShapeError(f"{self.fun_name} has the sizes {', '.join(function.unknowns.names) or 'none'}, {given}.")
        self._check_sizes(sizes)
        return function.program(sizes)

    def as_text(self) -> str:
        """The program as saved: Python syntax that is parsed and never executed."""
        return self._functions[0].text

    def stablehlo(self, **sizes: int) -> str:
        """The program as StableHLO text for given values of the sizes: a module with a function `main`.

        Its arguments and results are the leaves in order. XLA-based compilers read it (PJRT, IREE); special functions
        are CHLO operations, which these include.

        Raises UnsupportedError, with the user's line, for operations that StableHLO lacks: factorisations other than
        Cholesky's, most special functions and callbacks; also if random keys are arguments or results.

        >>> import rlx
        >>> print(rlx.export(lambda x: x + x)(rlx.ShapeDtypeStruct((3,), "float32")).stablehlo())
        module @lambda {
          func.func public @main(%arg0: tensor<3xf32>) -> (tensor<3xf32>) {
            %0 = "stablehlo.add"(%arg0, %arg0) : (tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>)
            func.return %0 : tensor<3xf32>
          }
        }
        <BLANKLINE>
        """
        writing = importlib.import_module("rlx.stablehlo.writing")  # not needed by processes that only run programs
        return writing.write_program(self.program(**sizes), self.fun_name)

    def mlir_module(self) -> str:
        """The program as StableHLO text, by JAX's name."""
        return self.stablehlo()

    def __repr__(self) -> str:
        ins, outs = (", ".join(map(_type_text, avals)) for avals in (self.in_avals, self.out_avals))
        return f"<Exported {self.fun_name}: ({ins}) -> ({outs})>"

    # ------------------------------------------------------------------ calling
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result. Raises InputTypeError for arguments of another structure or of other types."""
        return self.call(*args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The result for arguments of the exported structure, shapes and dtypes. See __call__."""
        function = self._functions[0]
        leaves, in_tree = tree.flatten((args, kwargs))
        if in_tree != function.in_tree:
            raise InputTypeError(
                f"{self.fun_name} was exported for arguments of structure {function.in_tree},"
                f" and called with {in_tree}.",
                "The first part is the tuple of positional arguments, the second the dict of keyword arguments.",
            )
        arrays = [shared_array(x, f"an argument of {self.fun_name}") for x in leaves]
        sizes = self._sizes(arrays)
        arrays = [_fitting(x, t) for x, t in zip(arrays, function.in_avals, strict=True)]
        if state.builder is None:
            outs = function.caller(sizes)(arrays)
        else:
            outs = self._recorded(sizes)(*arrays)
        return tree.unflatten(function.out_tree, outs)

    def _sizes(self, arrays: Sequence[Array]) -> dict[str, int]:
        """The sizes in the arguments. Raises InputTypeError, with a list, if they do not match."""
        function = self._functions[0]
        sizes = bind_sizes([t.shape for t in function.in_avals], [x.shape for x in arrays], function.unknowns.names)
        wrong = [
            f"leaf {number} is {x.type!r}, exported for {_type_text(t)}"
            for number, (x, t) in enumerate(zip(arrays, function.in_avals, strict=True))
            if not _dtype_fits(x.type, t) or not _shape_fits(x.shape, t.shape, sizes)
        ]
        if wrong or sizes is None:
            given = [f"leaf {n} is {x.type!r}, exported for {_type_text(t)}"
                     for n, (x, t) in enumerate(zip(arrays, function.in_avals, strict=True))]  # fmt: skip
            listed = "\n  ".join(wrong or given)
            raise InputTypeError(
                f"{self.fun_name} was called with types for which it was not exported:\n  {listed}",
                "Convert with .astype and .reshape, or export the function again for these types.",
            )
        self._check_sizes(sizes)
        return sizes

    def _check_sizes(self, sizes: Mapping[str, int]) -> None:
        broken = self._functions[0].unknowns.broken(sizes)
        if broken:
            said = ", ".join(f"{name} = {value}" for name, value in sizes.items())
            raise ShapeError(
                f"{self.fun_name} was exported for sizes with {broken[0]}, and got {said}.",
                "Call it with other arrays, or export it without the constraint.",
            )

    def _recorded(self, sizes: Mapping[str, int]) -> Callable[..., Any]:
        """A function of leaves for use during tracing: a call of the program, with its derivative."""
        key = tuple(sizes.values())
        found = self._traceable.get(key)
        if found is None:
            if self._source is not None:  # with its custom derivative rules
                found = partial(_called, self._source(sizes), self.fun_name)
            else:
                found = _differentiable(self, self._functions[0].program(sizes))
            self._traceable[key] = found
        return found

    # ------------------------------------------------------------------ derivatives
    def has_vjp(self) -> bool:
        """Whether it can be differentiated."""
        return self._source is not None or len(self._functions) > 1

    def vjp(self) -> Exported:
        """The derivative: a function of the argument leaves, followed by the cotangents of the results of real or
        complex dtype, that returns a tuple with the cotangents of the arguments of such dtypes.

        Raises UnsupportedError if the derivative was not saved.

        >>> import rlx
        >>> exported = rlx.export(lambda x, y: x * y)(2.0, 3.0)
        >>> [float(x) for x in exported.vjp().call(2.0, 3.0, 1.0)]
        [3.0, 2.0]
        """
        if self._derivative is None:
            self._derivative = self._derived()
        return self._derivative

    def _derived(self) -> Exported:
        first = self._functions[0]
        if self._source is None:
            if len(self._functions) == 1:
                raise UnsupportedError(
                    f"{self.fun_name} was saved without its derivative.",
                    "Save it with one: exported.save(path, vjp_order=1), or rlx.export(f)(...).serialize(vjp_order=1).",
                )
            return Exported(self._functions[1:], None, self.platforms)
        cotangents = [t for t in first.out_avals if is_inexact(t.dtype)]
        in_avals = [_strong(t) for t in (*first.in_avals, *cotangents)]
        in_tree = tree.structure((tuple([0] * len(in_avals)), {}))
        out_tree = tree.structure(tuple([0] * sum(is_inexact(t.dtype) for t in first.in_avals)))
        source = derivative_of(self._source)
        name = f"{first.name}_vjp"
        function = function_of(source, name, first.unknowns, in_tree, in_avals, lambda: out_tree)
        return Exported([function], source, self.platforms)

    def _through(self, order: int) -> list[FunctionTemplate]:
        """The function and its derivatives up to an order."""
        if order < 0:
            raise OptionError(f"vjp_order is {order}.", "Write 0 for none, 1 for gradients, 2 for second derivatives.")
        found, exported = [self._functions[0]], self
        for _ in range(order):
            exported = exported.vjp()
            found.append(exported._functions[0])
        return found

    # ------------------------------------------------------------------ files
    def serialize(self, vjp_order: int = 0, *, object_code: bool = False) -> bytearray:
        """The file's bytes, with derivatives up to an order. See `save`."""
        file = io.BytesIO()
        self._write(file, *self._parts(vjp_order, object_code))
        return bytearray(file.getbuffer())

    def save(self, path: str | os.PathLike[str], vjp_order: int = 0, *, object_code: bool = False) -> None:
        """Write a file that `rlx.load_exported` of this and later versions of rlx can read.

        It is a zip archive: programs as text, captured arrays as safetensors, and types, structures and checksums as
        JSON. It contains no pickle, and nothing in it is executed.

        Args:
          path: the file; it is replaced once the new one is complete.
          vjp_order: derivatives to save with it: 1 for gradients, 2 for gradients of gradients.
          object_code: also save this processor's plans and object code; `load_exported(path, trust=True)` then lowers
            and compiles nothing on such a processor. Not supported with unknown sizes.

        Raises: OptionError for a vjp_order below 0; UnsupportedError for more derivatives than it has, and for
          object_code with unknown sizes; OSError if the file cannot be written.

        >>> import rlx, rlx.numpy as jnp, tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "square.rlx"
        ...     rlx.export(lambda x: x * x)(3.0).save(path, vjp_order=1)
        ...     float(rlx.grad(rlx.load_exported(path))(3.0))
        6.0
        """
        parts = self._parts(vjp_order, object_code)
        replace(Path(path), lambda file: self._write(file, *parts))

    def _parts(self, vjp_order: int, object_code: bool) -> tuple[list[FunctionTemplate], Mapping[str, bytes]]:
        functions = self._through(vjp_order)
        for function in functions:
            function.read_again()
        return functions, self._object_code(functions) if object_code else {}

    def _write(self, file: BinaryIO, functions: Sequence[FunctionTemplate], native: Mapping[str, bytes]) -> None:
        write_functions(file, functions, self.platforms, native)

    def _object_code(self, functions: Sequence[FunctionTemplate]) -> Mapping[str, bytes]:
        if functions[0].unknowns.names:
            raise UnsupportedError(
                f"{self.fun_name} has unknown sizes, for which there is no object code.",
                "Export it for sizes that are numbers, or leave object_code out: the code is cached on disk.",
            )
        return native_members(functions)


def _called(program: Program, name: str, *leaves: Any) -> tuple[Any, ...]:
    """A program's results for argument leaves, as a single equation."""
    constants = [value for _, value in program.constants]
    open_program = program.replace(inputs=[*(v for v, _ in program.constants), *program.inputs], constants=())
    return tuple(call(*constants, *leaves, program=open_program, name=name))


def _differentiable(exported: Exported, program: Program) -> Callable[..., Any]:
    """The program as a function of leaves with the exported derivative."""

    def run(*leaves: Any) -> tuple[Any, ...]:
        return _called(program, exported.fun_name, *leaves)

    def backward(leaves: Sequence[Any], cotangents: Sequence[Any]) -> tuple[Any, ...]:
        given = [c for c, t in zip(cotangents, program.output_types, strict=True) if is_inexact(t.dtype)]
        found = iter(exported.vjp().call(*leaves, *given))
        return tuple(next(found) if is_inexact(t.dtype) else None for t in program.input_types)

    run.__name__ = exported.fun_name
    function = custom_vjp(run)
    function.defvjp(lambda *leaves: (run(*leaves), leaves), backward)
    return function


def _strong(aval: ShapeDtypeStruct) -> ShapeDtypeStruct:
    return aval.update(weak_type=False) if is_inexact(aval.dtype) else aval


def _type_text(aval: ShapeDtypeStruct) -> str:
    return f"{aval.dtype.name}[{','.join(map(str, aval.shape))}]"


def _shape_fits(shape: Sequence[int], expected: Sequence[Any], sizes: Mapping[str, int] | None) -> bool:
    if sizes is not None:
        return tuple(shape) == evaluate_shape(expected, sizes)
    if len(shape) != len(expected):
        return False
    return all(e == g or not isinstance(e, int) for e, g in zip(expected, shape, strict=True))


def _dtype_fits(type: TensorType, expected: ShapeDtypeStruct) -> bool:
    """Whether an argument has the exported dtype, or is a Python number that converts to it."""
    if type.dtype == expected.dtype:
        return True
    kinds = "biufc"
    wider = kinds.find(type.dtype.kind) <= kinds.find(expected.dtype.kind)
    return type.weak and not type.shape and wider and expected.dtype.kind in kinds


def _fitting(x: Array, expected: ShapeDtypeStruct) -> Any:
    """Convert an argument to the program's dtype and weak type."""
    if x.type.dtype == expected.dtype and x.type.weak == expected.weak_type:
        return x
    return convert(x, dtype=expected.dtype, weak=expected.weak_type)


# ------------------------------------------------------------------ export and loading
def export(
    fun_jit: Callable[..., Any], *, platforms: Sequence[str] | None = None, disabled_checks: Sequence[Any] = ()
) -> Callable[..., Exported]:
    """Export `fun_jit` as a program that can be saved and called without its Python code: rlx.export(f)(*types).

    The types are arrays, numbers or rlx.ShapeDtypeStruct, in trees as for f. Shapes may contain the symbolic sizes of
    rlx.export.symbolic_shape. Then f is traced for several sizes, and the programs must be equal except for numbers.

    Args:
      fun_jit: a function of arrays, jitted or not; pass f's static arguments as they are.
      platforms: accepted for compatibility with JAX, and recorded: programs run on every device.
      disabled_checks: accepted for compatibility with JAX.

    Returns: a function of types that returns an Exported.

    Raises (when called with types): UnsupportedError, with the user's line, for callbacks; ShapeError if the
      programs of two sizes differ; the errors of tracing.

    >>> import rlx, rlx.numpy as jnp
    >>> x = rlx.ShapeDtypeStruct(rlx.export.symbolic_shape("batch, 3"), "float32")
    >>> exported = rlx.export(lambda x: x / x.shape[0])(x)
    >>> exported
    <Exported lambda: (float32[batch,3]) -> (float32[batch,3])>
    >>> exported(jnp.ones((2, 3))).tolist(), exported(jnp.ones((1, 3))).tolist()
    ([[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]], [[1.0, 1.0, 1.0]])
    """
    jitted: Any = fun_jit if isinstance(fun_jit, Jitted) else jit(fun_jit)

    def exported(*args: Any, **kwargs: Any) -> Exported:
        return _exported(jitted, args, kwargs, tuple(platforms or ()))

    return exported


def _exported(jitted: Jitted, args: tuple[Any, ...], kwargs: dict[str, Any], platforms: tuple[str, ...]) -> Exported:
    leaves, structure = tree.flatten((args, kwargs))
    unknowns = unknowns_in([x for x in leaves if isinstance(x, ShapeDtypeStruct)])
    trees: list[TreeDef] = []
    avals: list[list[ShapeDtypeStruct]] = []
    programs: dict[tuple[int, ...], Program] = {}

    def source(sizes: Mapping[str, int]) -> Program:
        key = tuple(sizes[name] for name in unknowns.names)
        if key not in programs:
            concrete = [_concrete(x, sizes) if isinstance(x, ShapeDtypeStruct) else x for x in leaves]
            own_args, own_kwargs = tree.unflatten(structure, concrete)
            traced = jitted.trace(*own_args, **own_kwargs)
            trees[:] = [traced.in_tree, traced.out_tree]
            avals[:] = [[ShapeDtypeStruct(t.shape, t.dtype, t.weak) for t in traced.program.input_types]]
            programs[key] = traced.closed()
        return programs[key]

    first = source(points_of(unknowns, jitted.name)[0])
    in_avals = [ShapeDtypeStruct(t.shape, t.dtype, t.weak) for t in first.input_types]
    if unknowns.names:
        # static arguments are not leaves of the program: match the others in order
        given = [x for x in leaves if hasattr(x, "shape")]
        in_avals = given if len(given) == len(in_avals) else _with_names(leaves, in_avals)
        in_avals = [_as_struct(x, t) for x, t in zip(in_avals, first.input_types, strict=True)]
    suspects = _numbers_in(getattr(unwrap(jitted), "__code__", None)) if unknowns.names else ()
    function = function_of(source, jitted.name, unknowns, trees[0], in_avals, lambda: trees[1], suspects)
    return Exported([function], source, platforms)


def _numbers_in(code: CodeType | None) -> set[int]:
    """Numbers in the code of a function, with which it may compare sizes."""
    constants = () if code is None else code.co_consts
    inner = (_numbers_in(c) for c in constants if isinstance(c, CodeType))
    numbers = {c for c in constants if type(c) is int and 1 < c < MOST_SUSPECT}
    return set(sorted(numbers.union(*inner))[:MOST_SUSPECTS])


def _as_struct(leaf: Any, type: TensorType) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(leaf.shape if isinstance(leaf, ShapeDtypeStruct) else type.shape, type.dtype, type.weak)


def _with_names(leaves: Sequence[Any], in_avals: Sequence[ShapeDtypeStruct]) -> list[Any]:
    """The leaves that are arguments of the program, including numbers unless they are static."""
    arrays = [x for x in leaves if not isinstance(x, str)]
    if len(arrays) != len(in_avals):
        raise UnsupportedError(
            "Unknown sizes cannot be combined with static arguments.",
            "Export a function that contains the static arguments: rlx.export(lambda x: f(x, 3)).",
        )
    return arrays


def _concrete(leaf: ShapeDtypeStruct, sizes: Mapping[str, int]) -> ShapeDtypeStruct:
    return leaf.update(shape=evaluate_shape(leaf.shape, sizes))


def load_exported(path: str | os.PathLike[str], *, trust: bool = False) -> Exported:
    """Load a function that `Exported.save` wrote.

    Args:
      path: the file. Its arrays are mapped: they take memory only when read.
      trust: use plans and object code from the file. This process then runs native code from the file, so use it only
        for files that you created. Without it, and on other processors, programs are compiled, or read from the cache.

    Nothing in the file is executed or unpickled: programs are parsed from text, checksums are compared, and types are
    inferred again from the operations.

    Raises: FileFormatError for a file that is broken, truncated, of another format or a newer version, or that needs
      operations that are not defined here; OSError if it cannot be read.

    >>> import rlx, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "double.rlx"
    ...     rlx.export(lambda x: {"twice": 2.0 * x})(1.0).save(path)
    ...     rlx.load_exported(path)(4.0)
    {'twice': Array(8., dtype=float32, weak_type=True)}
    """
    source = Path(path)
    with source.open("rb") as file:
        empty = os.fstat(file.fileno()).st_size == 0
        data = memoryview(b"") if empty else memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return _loaded(data, str(source), trust)


def deserialize(blob: bytes | bytearray | memoryview, *, trust: bool = False) -> Exported:
    """Load a function from the bytes of `Exported.serialize`. See `load_exported`.

    >>> import rlx
    >>> saved = rlx.export(lambda x: x + 1.0)(1.0).serialize()
    >>> float(rlx.export.deserialize(saved).call(4.0))
    5.0
    """
    return _loaded(memoryview(bytes(blob)), "The data", trust)


def _loaded(data: memoryview, what: str, trust: bool) -> Exported:
    reason = ""
    try:
        functions, platforms, native = read_functions(data)
        _check(functions)
    except Broken as broken:
        functions, platforms, native = [], (), {}
        reason = str(broken)
    except RlxError as error:
        functions, platforms, native = [], (), {}
        reason = error.what
    if not functions:
        instead = "rlx.export(f)(*types).save(path) makes one."
        raise FileFormatError(f"{what} is not an exported function: {reason.rstrip('.')}.", instead)
    if trust and native:
        functions = with_native_members(functions, native)
    return Exported(functions, None, platforms)


def _check(functions: Sequence[FunctionTemplate]) -> None:
    """Read the programs of a file, and compare the types of derivatives. Raises FileFormatError and Broken."""
    for function in functions:
        function.check()
    for order, (first, derived) in enumerate(itertools.pairwise(functions), 1):
        cotangents = [t for t in first.out_avals if is_inexact(t.dtype)]
        given = [(t.shape, t.dtype) for t in (*first.in_avals, *cotangents)]
        found = [(t.shape, t.dtype) for t in first.in_avals if is_inexact(t.dtype)]
        types = [[(t.shape, t.dtype) for t in avals] for avals in (derived.in_avals, derived.out_avals)]
        if types != [given, found]:
            raise Broken(f"its derivative of order {order} has other types than the function")
