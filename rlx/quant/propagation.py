"""Roundings in programs: those that change nothing are taken out, and how many bits a value was rounded to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rlx.errors import InputTypeError
from rlx.ir.program import Atom, Equation, Literal, Program, Var, dead_code, substitute
from rlx.quant.schemes import QuantScheme
from rlx.trace.lower import inline_calls

__all__ = ["quant_propagate", "quantized_weight_bits"]

_PRODUCT = "dequantized_product"
S = TypeVar("S")


class _Grid(NamedTuple):
    """The set of values that an element can have after a rounding with fixed scales.

    kind: of the rounding and its static arguments; scales: its operands, to be compared; axis: of scales, or None.
    """

    kind: tuple[Any, ...]
    scales: tuple[Any, ...]
    axis: int | None
    bits: int


def quant_propagate(subject: S) -> tuple[S, int]:
    """A program or graph without redundant roundings, and the number of removed roundings.

    Args: subject: a Program, as rlx.make_program makes it, or an rlx.Graph; of `fake_quantize` with a scale and
    `quantize_dequantize`.

    Roundings are tracked across operations that move elements (reshapes, transpositions, slices, maxima and relu): with
    one scale always, with scales along an axis if the axis stays whole. All other operations stay, and the results are
    bit-for-bit equal. Roundings with scales computed from the values are kept, and so are roundings with the derivative
    of tanh.

    Returns: the program or graph, and the number of roundings. Raises InputTypeError for anything else.

    >>> import numpy as np, rlx
    >>> from rlx import quant
    >>> f = lambda x: quant.fake_quantize(rlx.nn.relu(quant.fake_quantize(x, 0.5)), 0.5)
    >>> program, count = quant.quant_propagate(rlx.make_program(f)(np.ones(3, np.float32)))
    >>> count
    1
    """
    if isinstance(subject, Program):
        found: Any = _propagated(subject)
        return found
    remade, count = _propagated(_program_of(subject))
    return subject.with_program(remade), count  # ty: ignore[missing-attribute]


def quantized_weight_bits(subject: Any, value: Any) -> int | None:
    """The number of bits that a value of a program or graph was rounded to, or None.

    Args: subject: as `quant_propagate`; value: a variable of the program or a node of the graph. Of a product with a
    packed weight it is the bits of the weight's codes. Raises InputTypeError for another subject.

    >>> import numpy as np, rlx
    >>> from rlx import quant
    >>> f = lambda w: quant.fake_quantize(w, 0.5, bits=4).T
    >>> program = rlx.make_program(f)(np.ones((2, 3), np.float32))
    >>> quant.quantized_weight_bits(program, program.outputs[0])
    4
    """
    atom = getattr(value, "atom", value)
    program = subject if isinstance(subject, Program) else _program_of(subject)
    grids = _grids(program)
    if atom in grids:
        return grids[atom].bits
    for e in program.equations:
        if _block(e) == _PRODUCT and atom in e.outputs:
            return QuantScheme(e.params["attributes"]["scheme"]).code_bits
    return None


def _program_of(subject: Any) -> Program:
    program = getattr(subject, "program", None)
    if not isinstance(program, Program) or not hasattr(subject, "with_program"):
        raise InputTypeError(
            f"{type(subject).__name__} is neither a program nor a graph.",
            "Make one: rlx.make_program(function)(*arguments).",
        )
    return program


def _propagated(program: Program) -> tuple[Program, int]:
    whole = inline_calls(program, lambda e: e.primitive.claimable)
    grids = _grids(whole)
    replaced: dict[Var, Atom] = {}
    for e in whole.equations:
        source = e.inputs[0] if e.inputs else None
        grid = grids.get(e.outputs[0]) if _block(e) else None  # of blocks only roundings have one
        if grid is not None and isinstance(source, Var) and grids.get(source) == grid:
            replaced[e.outputs[0]] = replaced.get(source, source)
    return dead_code(substitute(whole, replaced)), len(replaced)


# ---------------------------------------------------------------- which numbers a value is among
def _grids(program: Program) -> dict[Var, _Grid]:
    found: dict[Var, _Grid] = {}
    constants = {var: value.numpy() for var, value in program.constants}
    for e in program.equations:
        grid = _rounding(e, constants) or _kept(e, found)
        if grid is not None:
            found[e.outputs[0]] = grid
    return found


def _block(e: Equation) -> str:
    return e.params["name"] if e.primitive.name == "block" else ""


def _rounding(e: Equation, constants: Mapping[Var, np.ndarray]) -> _Grid | None:
    """The grid of a rounding with fixed scales."""
    name = _block(e)
    if name not in ("fixed_rounding", "code_rounding"):
        return None
    told = e.params["attributes"]
    axis = None if told["axis"] is None else told["axis"] % len(e.inputs[0].type.shape)
    if told.get("straight_through") == "tanh":
        return None
    if name == "code_rounding" and not _has_zero(constants.get(e.inputs[2])):
        return None
    scales = tuple(_comparable(atom, constants) for atom in e.inputs[1:])
    return _Grid((name, told.get("straight_through"), e.inputs[0].type.dtype), scales, axis, told.get("bits", 8))


def _has_zero(zeros: np.ndarray | None) -> bool:
    """Whether 0 is among the numbers that codes with these zero points stand for."""
    return zeros is not None and bool((np.abs(zeros + 0.5) <= 127.5).all())


def _comparable(atom: Atom, constants: Mapping[Var, np.ndarray]) -> Any:
    value = atom.value if isinstance(atom, Literal) else constants.get(atom)
    return atom if value is None else (str(value.dtype), value.tobytes())


def _kept(e: Equation, grids: Mapping[Var, _Grid]) -> _Grid | None:
    """The grid of the operand, if the equation moves or picks its elements."""
    name = e.primitive.name
    if name in _PICKING:
        return _common(e.inputs[1:] if name == "select" else e.inputs, grids)
    if name == "concatenate":
        grid = _common(e.inputs, grids, zero=False)
        return None if grid is None or grid.axis == e.params["axis"] else grid
    rule = _MOVING.get(name)
    source = e.inputs[0] if e.inputs else None
    grid = grids.get(source) if rule is not None and isinstance(source, Var) else None
    if rule is None or grid is None:
        return None
    axis = rule(e, grid.axis)
    return None if axis is _LOST else grid._replace(axis=axis)


def _common(atoms: tuple[Atom, ...], grids: Mapping[Var, _Grid], zero: bool = True) -> _Grid | None:
    """The one grid of all operands; zeros are among the numbers of any."""
    rest = [a for a in atoms if not (zero and isinstance(a, Literal) and not a.value)]
    found = {grids.get(a) if isinstance(a, Var) else None for a in rest}
    return found.pop() if len(found) == 1 else None


_PICKING = ("select", "maximum", "minimum")
_LOST: Any = object()  # where scales no longer belong to an axis
Axis = int | None


def _reshaped(e: Equation, axis: Axis) -> Axis:
    if axis is None:
        return None
    before, after = e.inputs[0].type.shape, e.outputs[0].type.shape
    ahead = int(np.prod(before[:axis], dtype=np.int64))
    for place, size in enumerate(after):
        if size == before[axis] and int(np.prod(after[:place], dtype=np.int64)) == ahead:
            return place
    return _LOST


def _cut(e: Equation, axis: Axis) -> Axis:
    whole = axis is None or e.inputs[0].type.shape[axis] == e.outputs[0].type.shape[axis]
    return axis if whole else _LOST


def _reduced(e: Equation, axis: Axis) -> Axis:
    axes = [a % len(e.inputs[0].type.shape) for a in e.params["axes"]]
    if axis is None:
        return None
    return _LOST if axis in axes else axis - sum(a < axis for a in axes)


def _windowed(e: Equation, axis: Axis) -> Axis:
    padded = any(low or high for low, high in e.params["padding"])
    if e.params["op"] not in ("max", "min") or padded or any(d != 1 for d in e.params["base_dilation"]):
        return _LOST
    alone = axis is None or (e.params["window"][axis] == 1 and e.params["strides"][axis] == 1)
    return axis if alone else _LOST


def _reversed(e: Equation, axis: Axis) -> Axis:
    return _LOST if axis in e.params["axes"] else axis


_MOVING: dict[str, Callable[[Equation, Axis], Axis]] = {
    "reshape": _reshaped,
    "transpose": lambda e, axis: None if axis is None else e.params["permutation"].index(axis),
    "slice": _cut,
    "dynamic_slice": _cut,
    "reverse": _reversed,
    "broadcast_in_dim": lambda e, axis: (
        None if axis is None else e.params["dims"][axis] if e.inputs[0].type.shape[axis] > 1 else _LOST
    ),
    "reduce_max": _reduced,
    "reduce_min": _reduced,
    "reduce_window": _windowed,
    **{name: lambda e, axis: axis for name in ("stop_gradient", "checkpoint_name", "copy")},
}
