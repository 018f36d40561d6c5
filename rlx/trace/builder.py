"""Builder: the program under construction, and the stack of open ones in this thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlx import errors
from rlx.array import Array, ConcreteArray, asarray_numpy, is_concrete, is_plain, number_array, parts_of, unshared, wrap
from rlx.config import config
from rlx.ir.dims import is_sized
from rlx.ir.program import Atom, Equation, Literal, Origin, Program, Var, named_axes
from rlx.ir.sized_scalars import SizedScalar
from rlx.ir.types import TensorType, scalar_dtype
from rlx.trace.hooks import operations
from rlx.trace.origins import current_origin

if TYPE_CHECKING:
    from typing_extensions import TypeIs

__all__ = ["Builder", "NamedAxis", "Tracer", "is_traced", "number_literal", "sized_tracer", "state"]


class NamedAxis(NamedTuple):
    """A mapped axis. `alone`: it is an axis of one device, with one member, which has no batch axis. `devices`: its
    members are several devices. `tracked`: reverse mode counts equal values of its members once.
    """

    name: Any
    size: int
    alone: bool
    devices: bool
    tracked: bool


class _TracingState(threading.local):
    """This thread's innermost open builder, the named axes in scope, and the axes of a mesh that vmap's divide."""

    builder: Builder | None = None
    axes: tuple[NamedAxis, ...] = ()
    dividing: tuple[Any, ...] = ()


state = _TracingState()


class Tracer(Array):
    """A value inside a program under construction: its builder, and its variable there.

    >>> import rlx
    >>> rlx.jit(lambda x: print(isinstance(x, rlx.core.Tracer), x.shape))(rlx.numpy.ones(2))
    True (2,)
    """

    __slots__ = ("atom", "builder", "type")

    def __init__(self, builder: Builder, atom: Atom) -> None:
        self.builder = builder
        self.atom = atom
        self.type = atom.type

    def known(self) -> ConcreteArray | None:
        """The value, if it follows from known inputs (un-jitted transforms); None otherwise."""
        return self.builder.answer(self.atom)

    def needed(self) -> ConcreteArray | None:
        """The value, if it is known or can be computed now. Raises UnexpectedTracerError after its function."""
        value = self.known()
        if value is None and self.builder.closed:
            raise leaked(self)
        if value is None and self.builder.found is not None:
            value = self.builder.found(self.builder, self.atom)
        return value

    def concrete(self) -> ConcreteArray:
        """The value if it is known; raises ConcretizationTypeError otherwise."""
        value = self.needed()
        if value is None:
            raise errors.ConcretizationTypeError(
                f"The value of a traced {self.type!r} is needed here, but it is not known while tracing.",
                "Keep the computation in rlx operations, or mark the argument static in jit.",
            )
        return value


def is_traced(x: Any) -> TypeIs[Tracer]:
    """Whether this is a value of a program under construction."""
    return isinstance(x, Tracer)


class HeldCell:
    """A cell of outside (see references.py) in a function that is being traced: its content there.

    var: stands for the content that it had outside, `outer`.
    """

    __slots__ = ("outer", "value", "var", "written")

    def __init__(self, var: Var, outer: Any, value: Any) -> None:
        self.var, self.outer, self.value, self.written = var, outer, value, False


class Builder:
    """Records equations. Opened and closed as a context manager; builders of a thread nest.

    Values from outside (arrays, or tracers of enclosing builders) become captures: hidden inputs.
    `known` maps variables to known values, so that tracers can answer questions.
    `snapshots` holds the contents of NumPy arrays when the function used them, by identity.
    `cells` holds the outer cells that were used;
    `answers`: values that are known outside are known inside. `own_only`: an operation without a value of this builder
    is recorded in the enclosing builder, or runs at once. `ruled`: how many of the innermost derivatives by
    the inputs are given by rules. `given` are the values that the inputs represent, `differentiated` the inputs by
    which a derivative is taken.
    `found` computes a value that is needed and unknown if the program will run at once; otherwise it returns None.
    """

    given: Sequence[Any] | None = None
    found: Callable[[Builder, Atom], ConcreteArray | None] | None = None
    cells: dict[Any, HeldCell] | None = None
    differentiated: Collection[Var] = ()
    answers = False
    own_only = False
    ruled = 0

    def __init__(self, name: str = "program") -> None:
        self.name = name
        self.parent: Builder | None = None
        self.closed = False
        self.equations: list[Equation] = []
        self.inputs: list[Var] = []
        self.captures: dict[int, tuple[Var, Any]] = {}
        self.known: dict[Var, ConcreteArray] = {}
        self.snapshots: dict[int, tuple[np.ndarray, ConcreteArray]] = {}
        self._origin_override: Origin | None = None
        self._producers: dict[Var, Equation] = {}
        self._indexed = 0
        self._facts: dict[str, dict[Var, Any]] = {}

    def __enter__(self) -> Builder:
        self.parent = state.builder
        if self.parent is not None:
            self.snapshots = self.parent.snapshots
        state.builder = self
        return self

    def __exit__(self, *exc: object) -> None:
        self.closed = True
        state.builder = self.parent

    def facts(self, kind: str) -> dict[Any, Any]:
        """What is known about variables beside their types: "places", their shardings; "varying", the mesh axes over
        which they differ (transforms/varying.py); "reductions", the axes over which they are parts of a sum, or copies
        (transforms/reductions.py); "moving", the derivatives that they have (transforms/moving.py)."""
        return self._facts.setdefault(kind, {})

    def at(self, origin: Origin | None) -> None:
        """Give the equations that follow this origin instead of the caller's line."""
        self._origin_override = origin

    def input(self, type: TensorType, known: Any = None) -> Tracer:
        """A new explicit input; `known` is its value where tracers may answer with it."""
        var = Var(type)
        self.inputs.append(var)
        if known is not None:
            self.known[var] = known
        return self.tracer(var)

    def lift(self, value: Any, dtype: np.dtype | None = None) -> Atom:
        """The operand that stands for `value` in this program."""
        if isinstance(value, Tracer):
            if value.builder is self:
                return value.atom
            if isinstance(value.atom, Literal):
                return value.atom
            return self._capture(value, value.type)
        if isinstance(value, (bool, int, float, complex)) and (dtype or not isinstance(value, np.generic)):
            weak_dtype = dtype or scalar_dtype(value, config.default_float, config.default_int)
            return number_literal(value, weak_dtype, True)
        if not is_plain(value):
            if is_concrete(value):  # literals are never keys, nor on a device
                return self._capture(value, value.type)
            if parts_of(value):
                raise errors.ShardingError(f"A {value.type!r} known by parts cannot be an operand of {self.name}.")
            array = asarray_numpy(value)
            value = wrap(array) if isinstance(value, np.generic) else self.snapshot(array)
        if value.ndim == 0:
            return Literal(value.numpy(), value.type)
        return self._capture(value, value.type)

    def snapshot(self, array: np.ndarray) -> ConcreteArray:
        """A copy of a NumPy array for a program to keep; shared by all uses while the array is unchanged."""
        found = self.snapshots.get(id(array))
        if found is not None and found[0] is array and _same_bits(array, found[1].numpy()):
            return found[1]
        kept = wrap(unshared(array))
        self.snapshots[id(array)] = array, kept
        return kept

    def _capture(self, value: Any, type: TensorType) -> Var:
        # keyed by identity; the entry itself keeps the value alive
        key = id(value.atom) if isinstance(value, Tracer) else id(value)
        found = self.captures.get(key)
        if found is not None:
            return found[0]
        if isinstance(value, Tracer):
            self._check_enclosing(value)
        var = Var(type)
        self.captures[key] = (var, value)
        return var

    def _check_enclosing(self, value: Tracer) -> None:
        outer = self.parent
        while outer is not None:
            if outer is value.builder:
                return
            outer = outer.parent
        raise leaked(value)

    def hold(self, cell: Any, outer: Any) -> HeldCell:
        """A cell of outside, used here for the first time: its content becomes an input."""
        var = Var(outer.type)
        known = (outer.known() if isinstance(outer, Tracer) else outer) if self.answers else None
        if known is not None:
            self.known[var] = known
        self.cells = self.cells or {}
        self.cells[cell] = HeldCell(var, outer, self.tracer(var))
        return self.cells[cell]

    def release(self, cells: Iterable[Any]) -> None:
        """Make the contents of the cells that were used the last captures, in this order."""
        held, self.cells = self.cells or {}, None
        for cell in cells:
            self.captures[id(held[cell].var)] = held[cell].var, held[cell].outer

    def emit(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Append an equation where it belongs; returns a tracer, or a tuple of them for multiple results."""
        home = self.home(args)
        if home is not self and self._hands_on(primitive, params):
            return self.hand_to(home, partial(primitive.bind, *args, **params))
        try:
            atoms = primitive.lift(self, args)
        except errors.ShardingError:  # for an array of parts
            atoms = None
        if atoms is None:
            return operations.on_parts(primitive, args, params)
        types = primitive.type(*[a.type for a in atoms], **params)
        origin = self._origin_override or current_origin()
        if primitive.multiple:
            outputs = tuple(map(Var, types))
            self.append(Equation(primitive, atoms, params, outputs, origin))
            return tuple([self.tracer(v) for v in outputs])
        output = Var(types)
        self.append(Equation(primitive, atoms, params, (output,), origin))
        return self.tracer(output)

    def home(self, values: Sequence[Any]) -> Builder | None:
        """The builder that records an operation on these values; None: it runs at once."""
        builder: Builder | None = self
        while builder is not None and builder.own_only:
            for x in values:
                if type(x) is Tracer:
                    if x.builder is builder:
                        return builder
                elif parts_of(x):
                    return builder
            builder = builder.parent
        return builder

    def _hands_on(self, primitive: Any, params: dict[str, Any]) -> bool:
        """Whether an operation on values of none of this builder's may happen before those that are recorded here."""
        if primitive.effect(**params):  # effects keep their order, and happen once if a function is traced twice
            return self.parent is None and not any(e.primitive.effect(**e.params) for e in self.equations)
        if not state.axes:
            return True
        return not any(True for _ in named_axes(params))

    def hand_to(self, home: Builder | None, run: Callable[[], Any]) -> Any:
        """Call `run` with another builder open; operations there get this builder's line."""
        state.builder = home
        if home is not None and self._origin_override is not None:
            before, home._origin_override = home._origin_override, self._origin_override
        try:
            return run()
        finally:
            state.builder = self
            if home is not None and self._origin_override is not None:
                home._origin_override = before

    def tracer(self, atom: Atom) -> Tracer:
        """A tracer for a value; all tracers are made here."""
        return Tracer(self, atom)

    def append(self, equation: Equation) -> None:
        """Append an equation to the program; all equations are appended here."""
        self.equations.append(equation)

    def enclose(self, start: int, primitive: Any, params: Mapping[str, Any]) -> None:
        """Replace the equations from number `start` on by one call of them, whose results are all of theirs."""
        body = self.equations[start:]
        if not body:
            return
        results = [v for e in body for v in e.outputs]
        made = set(results)
        taken = dict.fromkeys(a for e in body for a in e.inputs if isinstance(a, Var) and a not in made)
        inner = {v: Var(v.type) for v in (*taken, *results)}
        equations = [
            Equation(
                e.primitive,
                tuple([inner[a] if isinstance(a, Var) else a for a in e.inputs]),
                e.params,
                tuple([inner[v] for v in e.outputs]),
                e.origin,
            )
            for e in body
        ]
        program = Program([inner[v] for v in taken], equations, [inner[v] for v in results], (), self.name)
        del self.equations[start:]
        self._producers.clear()
        self._indexed = 0
        self.append(Equation(primitive, tuple(taken), {**params, "program": program}, tuple(results), body[0].origin))

    def inline(self, program: Program, args: Sequence[Any]) -> list[Tracer]:
        """Append a program's equations on `args`, of the types that it was traced for, as of the caller's line."""
        atoms: dict[Var, Atom] = dict(zip(program.inputs, map(self.lift, args), strict=True))
        for var, value in program.constants:
            atoms[var] = self.lift(value)
        origin = self._origin_override or current_origin()
        for e in program.equations:
            inputs = tuple([atoms[a] if type(a) is Var else a for a in e.inputs])
            outputs = tuple([Var(v.type) for v in e.outputs])
            self.append(Equation(e.primitive, inputs, e.params, outputs, origin))
            atoms.update(zip(e.outputs, outputs))  # noqa: B905  a check of the lengths costs time
        return [self.tracer(atoms[a] if type(a) is Var else a) for a in program.outputs]

    def close(self, outputs: Sequence[Any]) -> tuple[Program, list[Any]]:
        """The finished program with captures as leading inputs, and the captured values."""
        if self.cells:
            raise errors.ReferenceUseError(
                f"{self.name} uses a Ref from outside, which the tracing transform does not thread through.",
                "Pass ref[...] as an argument, return the new contents, and write them outside.",
            )
        atoms = [self.lift(v) for v in outputs]
        captured = list(self.captures.values())
        inputs = [var for var, _ in captured] + self.inputs
        program = Program(inputs, self.equations, atoms, (), self.name)
        return program, [value for _, value in captured]

    # ------------------------------------------------------------------ answers
    def producers(self) -> dict[Var, Equation]:
        """Which equation makes a variable."""
        for e in self.equations[self._indexed :]:
            for v in e.outputs:
                self._producers[v] = e
        self._indexed = len(self.equations)
        return self._producers

    def answer(self, atom: Atom) -> ConcreteArray | None:
        """The value of `atom` if it follows from known inputs by effect-free equations."""
        if isinstance(atom, Literal):
            return None if is_sized(atom.value) else wrap(atom.value, atom.type.weak)
        producers = self.producers()
        sources = dict(self.captures.values())
        stack = [atom]
        while stack:
            var = stack[-1]
            if isinstance(var, Literal) or var in self.known:
                stack.pop()
                continue
            equation = producers.get(var)
            if equation is None:
                value = sources.get(var)
                if isinstance(value, Tracer):
                    value = value.known()
                if value is None:
                    return None
                self.known[var] = value
                stack.pop()
                continue
            if equation.primitive.collective or equation.primitive.effect(**equation.params):
                return None
            pending = [a for a in equation.inputs if isinstance(a, Var) and a not in self.known]
            if pending:
                stack.extend(pending)
                continue
            self._run(equation)
            stack.pop()
        return self.known[atom]

    def _run(self, equation: Equation) -> None:
        args = [wrap(a.value, a.type.weak) if isinstance(a, Literal) else self.known[a] for a in equation.inputs]
        builder, state.builder = state.builder, None
        try:
            out = equation.primitive.run(args, dict(equation.params))
        finally:
            state.builder = builder
        outs = out if equation.primitive.multiple else (out,)
        self.known.update(zip(equation.outputs, outs, strict=True))


def number_literal(value: Any, dtype: np.dtype, weak: bool) -> Literal:
    """A Python number, or a symbolic size, as an operand. Raises DtypeOverflowError if it does not fit."""
    sized = is_sized(value) and dtype.kind != "c"
    made: Any = SizedScalar.of(value, dtype) if sized else number_array(value, dtype)
    return Literal(made, TensorType((), dtype, weak))


def sized_tracer(value: Any, dtype: np.dtype, weak: bool) -> Tracer | None:
    """A symbolic size as a value of the program under construction; None for other numbers."""
    if not is_sized(value) or state.builder is None:
        return None
    return state.builder.tracer(number_literal(value, dtype, weak))


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays are contiguous and have the same bytes."""
    if a is b:
        return True
    if a.shape != b.shape or a.dtype != b.dtype or not (a.flags.c_contiguous and b.flags.c_contiguous):
        return False
    words = np.dtype(f"u{np.gcd(a.dtype.itemsize, 8)}")
    return bool((a.reshape(-1).view(words) == b.reshape(-1).view(words)).all())


def leaked(tracer: Tracer) -> errors.UnexpectedTracerError:
    """The error for a tracer whose function has ended."""
    producer = next((e for e in tracer.builder.equations if tracer.atom in e.outputs), None)
    made = f" It was made at {producer.origin}." if producer is not None and producer.origin else ""
    if tracer.atom in tracer.builder.inputs:
        made = " It is an argument of that function."
    return errors.UnexpectedTracerError(
        f"A traced {tracer.type!r} is used outside of the function that it was traced in"
        f" ({tracer.builder.name}).{made}",
        "Return the value from the function instead of storing it in a global, an attribute or a list.",
    )
