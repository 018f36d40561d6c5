"""Advice on expressions and imports that Python refuses before rlx sees them.

`x.shape()`, `x(0)`, `x.at[0] += 1`, `rlx.inspect(f).hir`, `from rlx import Tensor`.
"""

from __future__ import annotations

import ast
import linecache
import re
import sys
from types import FrameType, ModuleType, TracebackType
from typing import Any

from rlx.advice.habits import remedy_for
from rlx.errors import is_ours, source_line

__all__ = ["called_function", "explain_use"]

_IMPORTED = re.compile(r"cannot import name '(\w+)' from '(rlx[\w.]*)'")
_NO_MODULE = re.compile(r"No module named '(rlx(?:\.\w+)*)\.(\w+)'")
_CALLED = re.compile(r"'(\w+)' object is not callable")
_OPERATION = re.compile(r"unsupported operand type\(s\) for ([^ :]+): 'IndexReference' and .*")
_ENTERED = "'function' object does not support the context manager protocol"
_WITH = re.compile(r"\s*with ([A-Za-z_][\w.]*\w)(?: as \w+)?:")
_READ = re.compile(r"'function' object has no attribute '(\w+)'")

_PROPERTIES = ("shape", "size", "ndim", "dtype", "itemsize", "nbytes", "T", "mT", "real", "imag")
_UPDATES = {"+=": "add", "-=": "subtract", "*=": "multiply", "/=": "divide", "**=": "power"}
_PAIRS = {"vjp": "result, pullback", "linearize": "result, linear", "jvp": "result, tangent"}
_PAIRS["value_and_grad"] = "value, gradient"
_LATER = ("inspect", "profile", "make_program", "make_jaxpr", "eval_shape")


def explain_use(error: BaseException) -> None:
    """Add the user's line and the remedy to an error of Python about a use of rlx. Other errors are left alone.

    >>> from rlx.advice.refused_uses import explain_use
    >>> try:
    ...     from rlx.numpy import cat
    ... except ImportError as error:
    ...     explain_use(error)
    ...     print(str(error).splitlines()[-1])
    Write rlx.numpy.concatenate(arrays, axis).
    """
    place = _last(error.__traceback__)
    if place is None:
        return
    remedy = _of_import(str(error)) if isinstance(error, ImportError) else _of_expression(str(error), place)
    if remedy:
        code, line = place.tb_frame.f_code, place.tb_lineno
        error.args = ("\n".join([str(error), source_line(code.co_filename, line, code.co_name), remedy]),)
        if isinstance(error, ImportError):
            error.msg = error.args[0]


def called_function(traceback: TracebackType | None) -> Any:
    """The function whose call failed, if the user's source names it; else None.

    >>> from rlx.advice.refused_uses import called_function
    >>> called_function(None) is None
    True
    """
    place = _last(traceback)
    node = None if place is None else _expression(place)
    return None if place is None or not isinstance(node, ast.Call) else _value(node.func, place.tb_frame)


def _last(traceback: TracebackType | None) -> TracebackType | None:
    """The last entry outside of the import system; None if it is in rlx, whose own errors are its own."""
    found = None
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith("<frozen"):
            found = traceback
        traceback = traceback.tb_next
    return None if found is None or is_ours(found.tb_frame.f_code.co_filename) else found


def _of_import(said: str) -> str:
    found = _IMPORTED.match(said)
    if found is not None:
        return remedy_for(found[2], found[1])
    found = _NO_MODULE.fullmatch(said)
    return "" if found is None else remedy_for(found[1], found[2])


def _of_expression(said: str, place: TracebackType) -> str:
    """The remedy for the expression that failed."""
    known = [pattern.fullmatch(said) for pattern in (_CALLED, _OPERATION, _READ)]
    if said != _ENTERED and not any(known):
        return ""
    called, operation, read = known
    if operation is not None:
        return _of_update(operation[1])
    if said == _ENTERED:
        return _of_context(place)
    node = _expression(place)
    if read is not None and isinstance(node, ast.Attribute):
        return _of_attribute(node, place.tb_frame)
    return _of_call(called[1], node, place.tb_frame) if called is not None and isinstance(node, ast.Call) else ""


def _of_update(operator: str) -> str:
    method = _UPDATES.get(operator)
    if method is None:
        return "Read elements with x[index]; x.at[index].set(values) gives a new array."
    return f"Write x = x.at[index].{method}(values)."


def _of_context(place: TracebackType) -> str:
    line = _WITH.match(linecache.getline(place.tb_frame.f_code.co_filename, place.tb_lineno))
    name = ast.parse(line[1], mode="eval").body if line is not None else None
    return f"Call it: with {line[1]}():" if line is not None and name and _is_rlx(name, place.tb_frame) else ""


def _of_call(kind: str, node: ast.Call, frame: FrameType) -> str:
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr in _PROPERTIES and _is_array(function.value, frame):
        text = ast.unparse(function)
        one = len(node.args) == 1 and function.attr in ("shape", "size")
        shape = ast.unparse(function.value) + ".shape"
        return f"Write {shape}[{ast.unparse(node.args[0])}]." if one else f"Write {text}, without parentheses."
    if kind == "tuple" and isinstance(function, ast.Call) and _is_rlx(function.func, frame):
        name = getattr(function.func, "attr", getattr(function.func, "id", ""))
        return f"{name} returns a pair: {_PAIRS[name]} = {ast.unparse(function)}." if name in _PAIRS else ""
    if kind in ("ConcreteArray", "Tracer"):
        return "An array is not a function: write brackets for an index, x[i], and * for a product."
    return ""


def _of_attribute(node: ast.Attribute, frame: FrameType) -> str:
    call = node.value
    name = getattr(call.func, "attr", getattr(call.func, "id", "")) if isinstance(call, ast.Call) else ""
    if not isinstance(call, ast.Call) or name not in _LATER or not _is_rlx(call.func, frame):
        return ""
    text = ast.unparse(call)
    return f"{text} is a function: call it with arguments, {text}(*args).{node.attr}."


# ------------------------------------------------------------------ the source
def _expression(place: TracebackType) -> ast.expr | None:
    """The expression that an instruction of a traceback belongs to; None if the source is unknown."""
    code = place.tb_frame.f_code
    first, last, start, end = list(code.co_positions())[place.tb_lasti // 2]
    if first is None or last is None or start is None or end is None:
        return None
    lines = [linecache.getline(code.co_filename, n).encode() for n in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        return ast.parse(f"({b''.join(lines).decode()})", mode="eval").body
    except (SyntaxError, UnicodeDecodeError):
        return None


def _value(node: ast.expr, frame: FrameType) -> Any:
    """The value of a name, or of a module's attribute; None for all else, which is not computed again."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, frame)
        return vars(owner).get(node.attr) if isinstance(owner, ModuleType) else None
    return None


def _is_rlx(node: ast.expr, frame: FrameType) -> bool:
    return (getattr(_value(node, frame), "__module__", None) or "").partition(".")[0] == "rlx"


def _is_array(node: ast.expr, frame: FrameType) -> bool:
    array = getattr(sys.modules.get("rlx.array"), "Array", ())
    return isinstance(_value(node, frame), array)
