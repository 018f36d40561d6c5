"""The functions that generated kernels call, as self-contained sources and as functions of this process."""

from __future__ import annotations

import linecache
import re
import sys
import threading
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from rlx.backends.cpu.routines.special import PREFIX, bind_special
from rlx.backends.loops.printing import Printer
from rlx.backends.loops.straight_line import CONVERSIONS, ELEMENTARY, straight_line
from rlx.backends.numba.dialect import PythonDialect
from rlx.backends.numba.helper_names import DTYPES, GENERATED, definitions
from rlx.forks import reopen_after_fork
from rlx.ir.scalar import SPECIAL, USER_FUNCTIONS

__all__ = ["header", "helper_functions", "helpers_text", "numba_config", "run_text"]

# import line -> pattern of the code that needs it
_HEADER = {
    "import base64": r"\bbase64\.",
    "import math": r"(?<!\.)\bmath\.",
    "from fractions import Fraction": r"\bFraction\(",
    "from functools import partial": r"\bpartial\(",
    "import numba": r"\bnumba\.",
    "import numpy as np": r"\bnp\.",
    "from llvmlite import ir": r"\bir\.",
    "from numba import prange": r"\bprange\(",
    "from numba.extending import intrinsic": "@intrinsic",
}
_JIT = 'njit = partial(numba.njit, error_model="numpy")  # x / 0 is what it is in NumPy'
_OVERLOAD = 'overload = partial(numba.extending.overload, jit_options={"error_model": "numpy"})'


@cache
def _generated(name: str) -> tuple[str, frozenset[str]]:
    """The source of a function that is printed from code, and the helpers that it calls."""
    dialect = PythonDialect()
    mark, text = Printer(dialect).function(straight_line(name), name).split("\n", 1)
    # elementary functions are inlined where they are called, as versions of functions of any dtype
    return text if name not in CONVERSIONS else f"{mark}\n{text}", frozenset(dialect.helpers)


def _needed(names: Iterable[str]) -> list[str]:
    """The functions that implement helpers, each after its callees."""
    order: dict[str, None] = {}

    def visit(name: str) -> None:
        if name in order:
            return
        for used in sorted((_generated(name) if name in GENERATED else definitions()[name])[1]):
            if used in GENERATED or used in definitions():
                visit(used)
        order[name] = None
        if f"{name}_version" in definitions():
            visit(f"{name}_version")

    for name in names:
        visit(name)
    return list(order)


def _definition(name: str, names: Iterable[str]) -> str:
    """The decorated source of a helper; for an elementary function, with its versions among `names`."""
    if name in GENERATED:
        return _generated(name)[0]
    source = definitions()[name][0]
    if name in ELEMENTARY:
        versions = ", ".join(f'"{d}": {name}_{d}' for d in DTYPES if f"{name}_{d}" in names)
        return f"{source}\n\n\n@overload({name})\ndef {name}_version(x):\n    return {{{versions}}}[x.name]"
    decorated = source.startswith("@") or name.startswith("llvm_") or f"{name}_version" in definitions()
    return source if decorated or name == "odd_double" else f"@njit\n{source}"


def helpers_text(names: Iterable[str]) -> str:
    """Definitions of helpers and of their dependencies."""
    return _definitions_text(_needed(names))


def _definitions_text(names: list[str]) -> str:
    """The definitions of only these names; elementary functions follow their versions."""
    ordered = sorted(names, key=lambda name: name in ELEMENTARY)
    return "\n\n\n".join(_definition(name, names) for name in ordered)


def header(text: str) -> str:
    """The import lines that a source needs."""
    tail = [line for line, word in ((_JIT, "@njit"), (_OVERLOAD, "@overload")) if word in text]
    whole = "\n".join((*tail, text))
    imports = [line for line, needed in _HEADER.items() if re.search(needed, whole)]
    groups = [[i for i in imports if ("num" in i or "llvm" in i) == outside] for outside in (False, True)]
    return "\n\n".join("\n".join(group) for group in (*groups, tail) if group)


# ------------------------------------------------------------------ in this process
_modules: dict[bool, dict[str, Any]] = {False: {}, True: {}}  # compiled by Numba, and run by Python
_lock = threading.RLock()
reopen_after_fork(sys.modules[__name__])


def run_text(text: str, name: str, namespace: dict[str, Any]) -> None:
    """Execute definitions; tracebacks, debuggers and `inspect` show them under a name."""
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), namespace)


def helper_functions(names: Iterable[str]) -> dict[str, Any]:
    """The helpers with these names, defined on first use."""
    wanted = list(names)
    functions = _modules[bool(numba_config().DISABLE_JIT)]
    with _lock:
        own = [n for n in wanted if n not in functions and n not in SPECIAL and n not in USER_FUNCTIONS]
        own += [f"{n}_{dtype}" for n in own if n in ELEMENTARY for dtype in DTYPES]
        fresh = [n for n in _needed(own) if n not in functions]
        if fresh:
            text = _definitions_text(fresh)
            run_text(f"{header(text)}\n\n\n{text}\n", f"<rlx numba helpers {len(functions)}>", functions)
        for name in wanted:
            if name not in functions:
                functions[name] = _special(name)
        return {name: functions[name] for name in wanted}


def numba_config() -> Any:
    """Numba's settings, which are named after environment variables."""
    import numba

    return numba.config


def _special(name: str) -> Any:
    """A function from SciPy or from the user, by its native symbol."""
    from numba import types
    from numba.np.numpy_support import from_dtype

    if numba_config().DISABLE_JIT:
        return _evaluated(name)
    bind_special([PREFIX + name])
    if name in USER_FUNCTIONS:
        user = USER_FUNCTIONS[name]
        return types.ExternalFunction(PREFIX + name, from_dtype(user.result)(*map(from_dtype, user.operands)))
    return types.ExternalFunction(PREFIX + name, types.float64(*[types.float64] * SPECIAL[name].arity))


def _evaluated(name: str) -> Any:
    """The same function on NumPy scalars, for the interpreter."""

    def call(*numbers: Any) -> Any:
        found = USER_FUNCTIONS.get(name) or SPECIAL[name]
        return found.evaluate(*(np.asarray(x) for x in numbers))[()]

    call.__name__ = name
    return call


