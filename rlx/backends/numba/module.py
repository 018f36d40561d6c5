"""A plan as the source of a module that needs only NumPy and Numba."""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from rlx.backends.loops.executable import elements
from rlx.backends.loops.place import FunctionParameter
from rlx.backends.loops.printing import Printer
from rlx.backends.loops.program import SourceUnit, unit_of_plan, unspelled
from rlx.backends.numba.dialect import PythonDialect, memory_name
from rlx.backends.numba.helpers import header, helpers_text
from rlx.code.special import FUNCTIONS
from rlx.errors import UnsupportedError
from rlx.ir.kernels import Plan, constants_of
from rlx.ir.scalar import SPECIAL, USER_FUNCTIONS
from rlx.ir.types import TensorType, is_complex, is_narrow
from rlx.version import __version__

__all__ = ["module_source"]

# SciPy functions that the math module provides
_IN_MATH = ("gamma", "lgamma")
# larger constants are encoded
_LITERAL_ELEMENTS = 64
_WIDTH = 100


def module_source(
    plan: Plan, name: str, arguments: Sequence[FunctionParameter], results: Sequence[FunctionParameter]
) -> str:
    """A module whose function `name` runs the plan; see rlx.export_numba.

    Raises UnsupportedError for kernels that such a module cannot contain.
    """
    dialect = PythonDialect(standalone=True, taken=[name, *(place.name for place in (*arguments, *results))])
    _refuse(name, [*unspelled(plan.kernels, dialect), *_unknown_types((*arguments, *results))])
    unit = unit_of_plan(plan, dialect, f"{name}_steps")
    functions, helpers = _functions(unit.helpers)
    _refuse(name, [h for h in helpers if h in USER_FUNCTIONS or (h in SPECIAL and h not in _IN_MATH)])
    parts = [
        "\n".join(f'{_dtype_name(t)} = np.dtype("{t.dtype.name}")' for t in _checked_types(arguments)),
        *_constants(plan),
        helpers_text(helpers),
        *functions.values(),
        *(function.text for function in unit.functions),
        _entry(plan, unit, name, arguments, results),
    ]
    body = "\n\n\n".join(filter(None, parts))
    return f"{_docstring(name, arguments, results)}\n\n{header(body)}\n\n\n{body}\n"


def _functions(helpers: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """The sources of special functions and of those that they call, and the helpers besides."""
    written: dict[str, str] = {}
    others: dict[str, None] = {}
    waiting = list(helpers)
    while waiting:
        name = waiting.pop(0)
        if name not in FUNCTIONS or name in _IN_MATH:
            others[name] = None
        elif name not in written:
            dialect = PythonDialect(standalone=True)
            written[name] = Printer(dialect).function(FUNCTIONS[name], name)
            waiting += dialect.helpers
    return written, list(others)


# ------------------------------------------------------------------ unsupported kernels
def _refuse(name: str, found: Iterable[str]) -> None:
    listed = ", ".join(dict.fromkeys(found))
    if listed:
        raise UnsupportedError(
            f"{name} cannot be a module of NumPy and Numba alone, which has no {listed}.",
            "Export a function without it, and compute that part outside.",
        )


def _unknown_types(places: Iterable[FunctionParameter]) -> Iterator[str]:
    for place in places:
        dtype = place.type.dtype
        if is_narrow(dtype) or dtype.kind not in "biufc":
            yield f"arrays of {dtype.name}"


# ------------------------------------------------------------------ source
def _constants(plan: Plan) -> Iterator[str]:
    """The plan's constants as arrays in the source."""
    for number, buffer in enumerate(constants_of(plan)):
        array = elements(buffer.elements)
        dtype = memory_name(buffer.dtype)
        if array.size <= _LITERAL_ELEMENTS and np.isfinite(array).all():
            numbers = textwrap.indent(textwrap.fill(", ".join(map(repr, array.tolist())), _WIDTH), "    ")
            yield f"constant{number} = np.array([\n{numbers}\n], {dtype})"
        else:
            code = base64.b64encode(array.tobytes()).decode()
            lines = "\n".join(f'    "{code[i : i + _WIDTH]}"' for i in range(0, len(code), _WIDTH))
            little = f'np.dtype("{array.dtype.newbyteorder("<").str}")'
            yield f"constant{number} = np.frombuffer(base64.b64decode(\n{lines}\n), {little}).astype({dtype})"


def _checked_types(arguments: Sequence[FunctionParameter]) -> list[TensorType]:
    """A type for each dtype of arrays with axes."""
    return list({p.type.dtype: p.type for p in arguments if p.type.shape}.values())


def _dtype_name(type: TensorType) -> str:
    return f"dtype_{type.dtype.name}"


def _docstring(name: str, arguments: Sequence[FunctionParameter], results: Sequence[FunctionParameter]) -> str:
    """The module's docstring, which describes each argument and result."""
    lines = [
        f'"""{name}, a function of numbers and arrays for Python and for @njit functions.',
        "",
        f"Written by rlx {__version__} (rlx.export_numba). It needs NumPy and Numba.",
        "Numba compiles it at the first call. Values without axes are numbers; several results are a tuple.",
        "",
        "Arguments:",
        *(f"  {place}" for place in arguments),
        "Results:",
        *(f"  {place}" for place in results),
        '"""',
    ]
    return "\n".join(line.rstrip() for line in lines)


def _argument(place: FunctionParameter) -> tuple[list[str], str]:
    """Statements that check an argument; and its elements in a row."""
    name, kind = place.name, place.type
    view = f".view({memory_name(kind.dtype)})" if is_complex(kind.dtype) else ""
    if not kind.shape:
        dtype = "np.bool_" if kind.dtype.kind == "b" else f"np.{kind.dtype.name}"
        return [], f"np.asarray({name}).astype({dtype}).reshape(1){view}"
    check = [
        f"    if {name}.shape != {kind.shape} or not {name}.dtype == {_dtype_name(kind)}:",
        f'        raise ValueError("{name} is {kind.dtype.name}{list(kind.shape)}")',
    ]
    return check, f"np.ascontiguousarray({name}).reshape({kind.size}){view}"


def _entry(
    plan: Plan,
    unit: SourceUnit,
    name: str,
    arguments: Sequence[FunctionParameter],
    results: Sequence[FunctionParameter],
) -> str:
    """The entry function of shaped arrays."""
    lines = ["@njit", f"def {name}({', '.join(place.name for place in arguments)}):"]
    passed, returned = [], []
    for place in arguments:
        check, elements_ = _argument(place)
        lines += check
        passed.append(elements_)
    for place in results:
        dtype, shape = place.type.dtype, place.type.shape
        lines.append(f"    {place.name} = np.empty({place.type.size * (1 + is_complex(dtype))}, {memory_name(dtype)})")
        view = f".view(np.{dtype.name})" if is_complex(dtype) else ""
        returned.append(f"{place.name}{view}" + (f".reshape{shape}".replace(",)", ")") if shape else "[0]"))
        passed.append(place.name)
    passed += [f"constant{n}" for n in range(len(constants_of(plan)))]
    lines += [
        f"    arena = np.empty({max(unit.arena, 1)}, np.uint8)",
        f"    {unit.entry.name}(",
        *(f"        {value}," for value in (*passed, "arena")),
        "    )",
        f"    return {', '.join(returned)}",
    ]
    return "\n".join(lines)
