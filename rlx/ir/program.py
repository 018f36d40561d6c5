"""Program: a list of equations over typed variables, the one form of HIR and MIR."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import cell_name
from rlx.ir.dims import is_sized, key_of
from rlx.ir.types import TensorType

__all__ = [
    "Atom",
    "Equation",
    "Literal",
    "Origin",
    "Program",
    "Var",
    "dead_code",
    "encode_params",
    "fingerprint",
    "substitute",
]


class Origin(NamedTuple):
    """The line of the user's program that an equation came from."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{cell_name(self.file) or self.file}:{self.line} ({self.function})"

    def joined(self, other: Origin | None) -> Origin:
        """The origin of an equation that takes the place of an equal one as well."""
        return self


class Var:
    """A variable: defined once, by a program's inputs or by one equation.

    >>> import rlx
    >>> rlx.make_program(lambda x: x + 1.0)(1.0).inputs
    (Var(weak float32[]),)
    """

    __slots__ = ("type",)

    def __init__(self, type: TensorType) -> None:
        self.type = type

    @property
    def aval(self) -> TensorType:
        """The type, by JAX's name."""
        return self.type

    def __repr__(self) -> str:
        return f"Var({self.type!r})"


class Literal:
    """A scalar constant in an operand's place.

    >>> import rlx
    >>> rlx.make_program(lambda x: x + 1.0)(1.0).equations[0].inputs[1]
    Literal(array(1., dtype=float32), weak float32[])
    """

    __slots__ = ("type", "value")

    def __init__(self, value: np.ndarray, type: TensorType) -> None:
        self.value = value  # 0-d array of type.dtype, or a SizedScalar
        self.type = type

    @property
    def val(self) -> np.ndarray:
        """The value, by JAX's name."""
        return self.value

    @property
    def aval(self) -> TensorType:
        """The type, by JAX's name."""
        return self.type

    def __repr__(self) -> str:
        return f"Literal({self.value!r}, {self.type!r})"


Atom = Var | Literal
# JAX's names of the fields of equations and programs
_FIELDS = {"invars": "inputs", "outvars": "outputs", "eqns": "equations"}


class Equation:
    """outputs = primitive(inputs, **params), written by the user at `origin`.

    >>> import rlx
    >>> rlx.make_program(lambda x: x + 1.0)(1.0).equations[0]
    Equation(add, 2 -> 1)
    """

    __slots__ = ("inputs", "origin", "outputs", "params", "primitive")

    def __init__(
        self,
        primitive: Any,
        inputs: tuple[Atom, ...],
        params: Mapping[str, Any],
        outputs: tuple[Var, ...],
        origin: Origin | None = None,
    ) -> None:
        self.primitive = primitive
        self.inputs = inputs
        self.params = params
        self.outputs = outputs
        self.origin = origin

    @property
    def invars(self) -> list[Atom]:
        """The operands, by JAX's name."""
        return list(self.inputs)

    @property
    def outvars(self) -> list[Var]:
        """The results, by JAX's name."""
        return list(self.outputs)

    @property
    def source_info(self) -> Origin | None:
        """The line of the user's program, by JAX's name."""
        return self.origin

    @property
    def effects(self) -> frozenset[str]:
        """The primitive's name, if it must run even if its result is unused; empty without effects, as in JAX."""
        return frozenset((self.primitive.name,)) if self.primitive.effect(**self.params) else frozenset()

    def replace(self, **fields: Any) -> Equation:
        """The same equation with the given fields replaced, by rlx's names or JAX's (invars, outvars)."""
        new: dict[str, Any] = {f: getattr(self, f) for f in ("primitive", "inputs", "params", "outputs", "origin")}
        new |= {_FIELDS.get(name, name): value for name, value in fields.items()}
        return Equation(new["primitive"], tuple(new["inputs"]), new["params"], tuple(new["outputs"]), new["origin"])

    def __repr__(self) -> str:
        return f"Equation({self.primitive.name}, {len(self.inputs)} -> {len(self.outputs)})"


class Program:
    """inputs, equations in order, outputs.

    `constants` are arrays that the traced function closed over: (variable, array) pairs, hidden
    inputs whose values are known. Regions (the bodies of control flow) are Programs among an
    equation's params; they are closed: they use only the equation's inputs.
    """

    __slots__ = ("__weakref__", "_fingerprint", "constants", "equations", "inputs", "name", "outputs")

    def __init__(
        self,
        inputs: Iterable[Var],
        equations: Iterable[Equation],
        outputs: Iterable[Atom],
        constants: Iterable[tuple[Var, Any]] = (),
        name: str = "program",
    ) -> None:
        self.inputs = tuple(inputs)
        self.equations = tuple(equations)
        self.outputs = tuple(outputs)
        self.constants = tuple(constants)
        self.name = name
        self._fingerprint: bytes | None = None

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        """Types of the inputs, in order."""
        return tuple(v.type for v in self.inputs)

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        """Types of the outputs, in order."""
        return tuple(a.type for a in self.outputs)

    # ------------------------------------------------- JAX's names, for programs that walk over a jaxpr
    @property
    def jaxpr(self) -> Program:
        """The program itself: a Program contains its constants."""
        return self

    @property
    def eqns(self) -> list[Equation]:
        """The equations."""
        return list(self.equations)

    @property
    def invars(self) -> list[Var]:
        """The inputs."""
        return list(self.inputs)

    @property
    def outvars(self) -> list[Atom]:
        """The outputs."""
        return list(self.outputs)

    @property
    def constvars(self) -> list[Var]:
        """The variables of arrays that the function closed over."""
        return [v for v, _ in self.constants]

    @property
    def consts(self) -> list[Any]:
        """The arrays that the function closed over."""
        return [value for _, value in self.constants]

    literals = consts

    @property
    def in_avals(self) -> list[TensorType]:
        """Types of the inputs."""
        return list(self.input_types)

    @property
    def out_avals(self) -> list[TensorType]:
        """Types of the outputs."""
        return list(self.output_types)

    @property
    def effects(self) -> frozenset[str]:
        """The names of primitives that must run even if their results are unused."""
        return frozenset().union(*(e.effects for e in self.equations))

    def regions(self) -> Iterator[Program]:
        """Programs held by this program's equations, one level down."""
        for equation in self.equations:
            for value in equation.params.values():
                if isinstance(value, Program):
                    yield value
                elif isinstance(value, tuple):
                    yield from (v for v in value if isinstance(v, Program))

    def replace(self, **fields: Any) -> Program:
        """The same program with the given fields replaced, by rlx's names or JAX's (invars, eqns, outvars)."""
        fields = {_FIELDS.get(name, name): value for name, value in fields.items()}
        keep = {f: getattr(self, f) for f in ("inputs", "equations", "outputs", "constants", "name")}
        return Program(**{**keep, **fields})

    @property
    def fingerprint(self) -> bytes:
        """A hash of the structure: equal for programs equal up to variable names and origins."""
        if self._fingerprint is None:
            self._fingerprint = fingerprint(self)
        return self._fingerprint

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


_SMALL_CONSTANT = 1 << 16


def _constant_content(array: Any) -> Any:
    """Small constants count by content, large ones by identity (a cache that refers to them pins it)."""
    values = array.numpy() if hasattr(array, "numpy") else np.asarray(array)
    if values.nbytes <= _SMALL_CONSTANT:
        return np.ascontiguousarray(values)
    return (id(values), values.shape)


def _encode(value: Any, put: Callable[[bytes], None]) -> None:
    """Feed a parameter's content to a hash, tagged by type so that 1, 1.0 and True differ."""
    if is_sized(value):
        put(f"S{key_of(value)}".encode())
    elif isinstance(value, Program):
        put(b"P" + value.fingerprint)
    elif isinstance(value, np.ndarray):
        put(f"A{value.shape}{value.dtype.str}".encode() + value.tobytes())
    elif isinstance(value, (tuple, list)):
        put(f"({len(value)}".encode())
        for v in value:
            _encode(v, put)
    elif isinstance(value, Mapping):
        put(f"{{{len(value)}".encode())
        for k in sorted(value):
            put(str(k).encode())
            _encode(value[k], put)
    elif value is None or isinstance(value, (bool, int, float, complex, str, bytes, np.generic, np.dtype, TensorType)):
        put(f"{type(value).__name__}:{value!r};".encode())
    elif callable(getattr(value, "encode_key", None)):
        _encode(value.encode_key(), put)
    else:  # a Python object (callback, policy): equal only to itself
        put(f"@{type(value).__qualname__}:{id(value)};".encode())


def encode_params(params: Mapping[str, Any]) -> bytes:
    """The content of an equation's parameters as bytes, equal for equal parameters."""
    parts: list[bytes] = []
    _encode(params, parts.append)
    return b"".join(parts)


def fingerprint(program: Program) -> bytes:
    """Structural hash of a program: variables numbered in order, constants by identity."""
    digest = hashlib.blake2b(digest_size=16)
    put = digest.update
    numbers: dict[Var, int] = {}

    def atom(a: Atom) -> None:
        if isinstance(a, Literal):
            put(b"L%s" % repr(a.type).encode())
            _encode(a.value, put) if is_sized(a.value) else put(a.value.tobytes())
        else:
            put(b"v%d" % numbers[a])

    for v in program.inputs:
        numbers[v] = len(numbers)
        put(repr(v.type).encode())
    for v, array in program.constants:
        numbers[v] = len(numbers)
        put(b"C%s" % repr(v.type).encode())
        _encode(_constant_content(array), put)
    for e in program.equations:
        put(b"=" + e.primitive.identity.encode())
        for a in e.inputs:
            atom(a)
        _encode(e.params, put)
        for v in e.outputs:
            numbers[v] = len(numbers)
            put(repr(v.type).encode())
    put(b"->")
    for a in program.outputs:
        atom(a)
    return digest.digest()


def dead_code(program: Program, used_outputs: Iterable[bool] | None = None) -> Program:
    """The program without equations that no used output and no effect needs.

    `used_outputs` keeps only the marked outputs; inputs stay as they are.
    """
    outputs = program.outputs
    if used_outputs is not None:
        outputs = tuple(a for a, keep in zip(outputs, used_outputs, strict=True) if keep)
    live = {a for a in outputs if isinstance(a, Var)}
    kept: list[Equation] = []
    for e in reversed(program.equations):
        if e.primitive.effect(**e.params) or any(v in live for v in e.outputs):
            kept.append(e)
            live.update(a for a in e.inputs if isinstance(a, Var))
    constants = tuple((v, c) for v, c in program.constants if v in live)
    return Program(program.inputs, reversed(kept), outputs, constants, program.name)


def named_axes(params: Mapping[str, Any]) -> Iterator[Any]:
    """The mapped axes that an equation's parameters, or equations of the programs in them, name."""
    stack = [params]
    while stack:
        item = stack.pop()
        names = item.get("axis_name")
        yield from names if isinstance(names, tuple) else () if names is None else (names,)
        for value in item.values():
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, Program):
                    stack.extend(e.params for e in part.equations)


def substitute(program: Program, mapping: Mapping[Var, Atom]) -> Program:
    """The program with variables replaced where they are used; their definitions stay."""
    if not mapping:
        return program

    def new(a: Atom) -> Atom:
        return mapping.get(a, a) if isinstance(a, Var) else a

    equations = [
        Equation(e.primitive, tuple(map(new, e.inputs)), e.params, e.outputs, e.origin) for e in program.equations
    ]
    return program.replace(equations=equations, outputs=tuple(map(new, program.outputs)))
