"""Primitive: one class body defines everything about an operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rlx.array import (
    Array,
    ConcreteArray,
    array_of_type,
    asarray_numpy,
    is_concrete,
    is_divided,
    memory_of,
    parts_of,
    unshared,
    wrap,
)
from rlx.config import config
from rlx.errors import MissingRuleError, NanError, UnsupportedError, not_linear, out_of_memory
from rlx.ir.index_sets import Along, Reading
from rlx.ir.program import Atom, Equation, Program
from rlx.ir.types import TensorType, is_inexact, scalar_dtype
from rlx.trace import builder as builders
from rlx.trace.hooks import operations
from rlx.trace.places import Elsewhere, common_memory, followed, run_elsewhere
from rlx.trace.spanning import known_by_parts
from rlx.trace.strictness import check_ranks

__all__ = ["Linear", "Primitive", "Region", "Sample", "Zero", "primitive", "registry", "type_of"]

_NUMPY_AXES = 32  # some functions of NumPy support fewer axes than its arrays


class Zero:
    """A tangent or cotangent known to be zero: its type, and no value."""

    __slots__ = ("type",)

    def __init__(self, type: TensorType) -> None:
        self.type = type

    def __repr__(self) -> str:
        return f"Zero({self.type!r})"


class Linear:
    """An input that the equation is linear in, for transpose rules."""

    __slots__ = ("type",)

    def __init__(self, type: TensorType) -> None:
        self.type = type

    def __array__(self, *args: Any, **options: Any) -> Any:
        # a rule computes with it: two operands depend on the arguments, or the denominator does
        raise not_linear("The function")


class Sample(NamedTuple):
    """Inputs for the generic tests of a primitive: arrays and parameters."""

    args: tuple[Any, ...]
    params: dict[str, Any]


def type_of(value: Any) -> TensorType:
    """The TensorType of an Array, a NumPy array or a Python scalar.

    >>> import rlx
    >>> import numpy as np
    >>> rlx.typeof(np.zeros((2, 3)))
    float64[2,3]
    """
    if isinstance(value, (Array, Zero, Linear)):
        return value.type
    if isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic):
        return TensorType((), scalar_dtype(value, config.default_float, config.default_int), True)
    a = asarray_numpy(value)
    return TensorType(a.shape, a.dtype)


def host_operand(value: Any) -> np.ndarray:
    """As `to_numpy`; raises Elsewhere for an array that is not in the host's memory, or is known by parts."""
    if type(value) is ConcreteArray and (value._type is None or value._type.plain):
        return value.numpy()
    if memory_of(value) is not None or parts_of(value):
        raise Elsewhere
    return to_numpy(value)


def to_numpy(value: Any) -> np.ndarray:
    """An eager operand as a NumPy array that must not be written to: a result may be a view of it."""
    if type(value) is ConcreteArray:
        return value.numpy()
    if isinstance(value, builders.Tracer):
        raise builders.leaked(value)
    if isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic):
        return np.asarray(value, scalar_dtype(value, config.default_float, config.default_int))
    return unshared(asarray_numpy(value))


# switches of rlx.config, the values that they refuse, and the test
_REFUSED: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
    ("debug_nans", "a NaN", np.isnan),
    ("debug_infs", "an infinity", np.isinf),
)


def watching() -> bool:
    """Whether a switch checks every result: debug_nans or debug_infs."""
    return config.debug_nans or config.debug_infs


def refused(values: Sequence[Any], beside: Sequence[Any] = ()) -> str:
    """The refused values, by switch, in concrete `values` that are not in `beside`; "" if there are none."""

    def found(test: Callable[[Any], Any], among: Sequence[Any]) -> bool:
        arrays = map(to_numpy, among)
        return any(is_inexact(a.dtype) and bool(test(a).any()) for a in arrays)

    for switch, name, test in _REFUSED:
        if getattr(config, switch) and found(test, values) and not found(test, beside):
            return name
    return ""


def refuse(name: str, args: Sequence[Any], results: Sequence[Any]) -> None:
    """Raise NanError where results have a NaN or an infinity that no operand has, if a switch asks for it."""
    found = refused(results, args)
    if found:
        given = ", ".join(repr(type_of(a)) for a in args)
        values = "; ".join(filter(None, map(_values, map(to_numpy, args))))
        raise NanError(
            f"{name} made {found} from operands ({given}) without one{f': {values}' if values else ''}.",
            "Look at the operands with rlx.debug.print, or guard them with rlx.numpy.where before the operation.",
        )


_SHOWN = 8  # elements: of larger arrays the least and the greatest are shown


def _values(a: np.ndarray) -> str:
    """The values of a small array of numbers, or the range of a large one; "" if it has none."""
    if not a.size or not (is_inexact(a.dtype) or a.dtype.kind in "biu"):
        return ""
    if a.size <= _SHOWN:
        return " ".join(np.array2string(a, precision=6, separator=", ").split())
    if a.dtype.kind == "c":
        return f"absolute values from {abs(a).min():.6g} to {abs(a).max():.6g}"
    return f"values from {float(a.min()):.6g} to {float(a.max()):.6g}"


registry: dict[str, Primitive] = {}


def _missing(name: str) -> Callable[..., Any]:
    def rule(self: Primitive, *args: Any, **params: Any) -> Any:
        raise MissingRuleError(f"primitive {self.name!r} states no rule {name!r}")

    setattr(rule, "missing", name)  # noqa: B010
    return rule


class Primitive:
    """An operation: its type, meaning, derivative, transpose, batching and lowering.

    See docs/architecture.md for what each rule receives and returns. `@primitive` makes instances of subclasses,
    and raises MissingRuleError for a missing rule.

    >>> import rlx
    >>> import numpy as np
    >>> isinstance(rlx.ops.transcendental.exp, rlx.Primitive)
    True
    >>> rlx.ops.transcendental.exp(np.zeros(2, np.float32)).tolist()
    [1.0, 1.0]
    """

    name: str
    multiple = False
    region = False
    collective = False
    opaque = False  # never merged with an equal equation, never folded
    foldable = True  # may be computed when the program is compiled, even in a branch that is not taken
    broadcasts = False  # operands of different shapes are brought to one, as NumPy does
    across_words = ""  # the reduction over words that turns a result per word into a result per key
    inlined = False  # stands for a program, its `meaning`, whose equations replace it in MIR
    claimable = False  # a call that is kept, under params['name'], if the backend has a kernel for it
    exchanges = False  # an exchange between processes: a pass fills in its place in params
    routine = ""  # the library routine that computes it
    combination = "sum"  # how processes combine axes that axis_map drops: of ir.collectives.OPERATIONS; "": none
    linear_groups: tuple[tuple[int, ...], ...] = ()  # the result of `linear_in` for all types and params
    claimed_as = ""  # the name of the block of one equation, if the backend has a kernel for it

    type: Callable[..., Any] = _missing("type")
    reference: Callable[..., Any] = _missing("reference")
    jvp: Callable[..., Any] = _missing("jvp")
    transpose: Callable[..., Any] = _missing("transpose")
    batch: Callable[..., Any] = _missing("batch")
    lower: Callable[..., Any] = _missing("lower")
    decomposition: Callable[..., Any] = _missing("decomposition")  # the results of a routine by other primitives
    # (lanes, *operands, **params): if it writes into its first operand: the write where `lanes`, a bool or one for
    # each element of axis 0, are true; None if it writes across lanes
    write_in_lanes: Callable[..., Any] = _missing("write_in_lanes")

    @property
    def decomposes(self) -> bool:
        """Whether it states a decomposition."""
        return not hasattr(self.decomposition, "missing")

    @property
    def writes(self) -> bool:
        """Whether its result is its first operand with some elements overwritten."""
        return not hasattr(self.write_in_lanes, "missing")

    def claim(self, **params: Any) -> dict[str, Any]:
        """The attributes of that block."""
        return params

    def axis_map(self, *types: TensorType, **params: Any) -> tuple[tuple[int | None, ...], ...]:
        """For each operand, the fate of each axis if devices divide it: the number of an axis of every result; a
        negative number, equal for axes that are combined with one another and dropped; None for an axis that each
        device needs whole, which is the default."""
        return tuple((None,) * t.ndim for t in types)

    def divided(self, walk: Any, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """The division of the results over devices, for divided operands: for each axis the mesh axes, or None for an
        unknown value. The default uses `axis_map`; `walk` visits the operation's programs."""
        return walk.by_axes(equation, operands)

    def reads(self, known: Callable[[int], Any], *types: TensorType, **params: Any) -> Sequence[Reading | None]:
        """For each operand, the elements that an element of a result depends on; None if its derivative is zero.

        `known(number)` is an operand's value as a NumPy array, or None. The default uses `axis_map`."""
        return [Along(axes) for axes in self.axis_map(*types, **params)]

    @property
    def states_reading(self) -> bool:
        """Whether it states what it reads, by `reads` or by `axis_map`."""
        kind = type(self)
        return kind.reads is not Primitive.reads or kind.axis_map is not Primitive.axis_map

    def dependence(self, walk: Any, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """The input elements that each element of the results depends on, for operands' (transforms/dependence.py).
        The default uses `reads`; `walk` visits the operation's programs."""
        return walk.by_reading(equation, operands)

    def varies(self, *operands: frozenset[Any], **params: Any) -> Any:
        """The axes of a mesh over which the results differ between members, for the operands' axes; a tuple of such
        sets if the results differ over different axes."""
        return frozenset().union(*operands)

    def rounds(self, **params: Any) -> int | None:
        """The most runs of one of its programs per run of the operation; None if unknown."""
        return 1

    def linear_in(self, *types: TensorType, **params: Any) -> tuple[tuple[int, ...], ...]:
        """Groups of operands: with the others fixed, sums of a group's operands give the sum of the results."""
        return self.linear_groups

    def of_parts(self, shape: tuple[int, ...], /, **params: Any) -> dict[str, Any]:
        """The params of the operation on parts of its operands (by `axis_map`), whose result has this shape."""
        return params

    def effect(self, **params: Any) -> bool:
        """Whether the operation must run even if its result is unused, and in order."""
        return False

    @property
    def identity(self) -> str:
        """A name that distinguishes it from all other primitives in the fingerprint of a program."""
        return self.name

    def meaning(self, equation: Equation) -> Program:
        """The program of an equation, if the primitive is `inlined`: the program of a call."""
        return equation.params["program"]

    @property
    def multiple_results(self) -> bool:
        """Whether the result is a tuple, by JAX's name."""
        return self.multiple

    def get_bind_params(self, params: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments before the operands of `bind`, and its parameters, for interpreters like JAX's."""
        return [], dict(params)

    def samples(self) -> Iterator[Sample]:
        """Inputs on which the generic tests check every rule."""
        return iter(())

    def lift(self, builder: builders.Builder, args: Sequence[Any]) -> tuple[Atom, ...]:
        """The operands of an equation for `args`."""
        return tuple(map(builder.lift, args))

    def bind(self, *args: Any, **params: Any) -> Any:
        """Record the operation into the open builder, or run it at once if there is none."""
        builder = builders.state.builder
        if builder is not None:
            return builder.emit(self, args, params)
        if config.watched:
            return self.watched(args, params)
        try:
            return self.evaluate(args, params)
        except Elsewhere:
            pass  # errors there are not a consequence of this exception
        if known_by_parts(args):
            return operations.on_parts(self, args, params)
        return run_elsewhere(self, self.operands(args), params)

    __call__ = bind

    def operands(self, args: Sequence[Any]) -> list[ConcreteArray]:
        """Operands that do not run in NumPy as arrays: numbers and NumPy arrays on the host's memory."""
        return [a if is_concrete(a) else array_of_type(to_numpy(a), type_of(a)) for a in args]

    def run(self, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Run at once, in the memory of the operands."""
        try:
            return self.evaluate(args, params)
        except Elsewhere:
            pass
        return run_elsewhere(self, self.operands(args), params)

    def watched(self, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Run at once, by default on the default device, and check the result as switches require."""
        if known_by_parts(args):
            return operations.on_parts(self, args, params)
        if common_memory(self.name, args) is None:
            result = self.evaluate(args, params)
        else:
            result = run_elsewhere(self, self.operands(args), params)
        self.watch(args, result)
        return result

    def watch(self, args: Sequence[Any], result: Any) -> None:
        """Raise or warn if a switch requires it: an operation has run eagerly."""
        if self.broadcasts:
            check_ranks(self.name, [type_of(a).shape for a in args])
        if watching():
            refuse(self.name, args, result if self.multiple else (result,))

    def _refusal(self, args: Sequence[Any], params: dict[str, Any], error: Exception) -> Exception:
        """The exception for an `error` of the reference: preferably the type rule's."""
        try:
            types = self.type(*map(type_of, args), **params)
        except Exception as refusal:
            return refusal
        if isinstance(error, MemoryError) and type(error) is not MemoryError:  # NumPy's own; others may be a user's
            return out_of_memory(types if self.multiple else (types,), f", the result of {self.name}")
        axes = max((np.ndim(a) for a in args), default=0)
        if axes > _NUMPY_AXES:
            return UnsupportedError(
                f"{self.name} of {axes} axes does not run in NumPy, which computes outside of jit: {error}",
                f"Merge axes with reshape, down to {_NUMPY_AXES}, or call it in a function under rlx.jit.",
            )
        return error

    def evaluate(self, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Run eagerly on concrete values. Raises Elsewhere for values outside the host's memory."""
        arrays = [host_operand(a) for a in args]
        with np.errstate(all="ignore"):
            try:
                out = self.reference(*arrays, **params)
            except Exception as error:  # NumPy refused: the type rule says why, in rlx's own words
                found = self._refusal(args, params, error)
                if found is error:
                    raise
                raise found from None
        # strong operands give a strong result, unless a parameter asks for weakness (convert)
        for a in args:
            if type(a) is not ConcreteArray or a._weak or not (a._type is None or a._type.plain):
                return self._typed(args, params, out)
        if args and not params.get("weak"):
            return tuple(map(wrap, out)) if self.multiple else wrap(out)
        return self._typed(args, params, out)

    def _typed(self, args: Sequence[Any], params: dict[str, Any], out: Any) -> Any:
        """The results of the reference as arrays of the types that the type rule states."""
        given = list(map(type_of, args))
        types = self.type(*given, **params)
        outs = tuple(map(array_of_type, out, types)) if self.multiple else (array_of_type(out, types),)
        if any(map(is_divided, args)):
            outs = followed(self, args, given, params, outs)
        return outs if self.multiple else outs[0]

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"


class Region(Primitive):
    """A primitive whose params contain Programs. Its rules receive the transforms as first argument.

    jvp(self, t, primals, tangents, **params), transpose(self, t, cotangents, *inputs, **params),
    batch(self, t, size, inputs, dims, axis_name, **params), and
    split(self, t, equation, unknown) -> (known equations, linear equations): cuts an equation some of
    whose operands are unknown (tangents); together they define the equation's outputs.
    """

    region = True
    multiple = True
    split: Callable[..., Any] = _missing("split")


P = TypeVar("P", bound=Primitive)


def primitive(cls: type[P]) -> P:
    """Class decorator: check that every rule is stated, register, and return the instance.

    Raises MissingRuleError naming the rules that are missing.

    >>> import rlx
    >>> @rlx.primitive
    ... class Nothing(rlx.Primitive):
    ...     pass
    Traceback (most recent call last):
        ...
    rlx.errors.MissingRuleError: primitive 'Nothing' states no type, reference, jvp, transpose, batch, ...
    """
    rules = ["type", "reference", "jvp", "transpose", "batch", "lower"]
    rules += ["split"] if issubclass(cls, Region) else []
    absent = [r for r in rules if hasattr(getattr(cls, r), "missing")]
    name = getattr(cls, "name", None) or cls.__name__
    if absent:
        raise MissingRuleError(f"primitive {name!r} states no {', '.join(absent)}")
    instance = cls()
    instance.name = name
    instance.__doc__ = cls.__doc__
    registry[name] = instance
    return instance
