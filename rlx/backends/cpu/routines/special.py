"""Special functions as native symbols `rlx_special_<name>`: a user's, and SciPy's (of float64).

A SciPy ufunc contains compiled loops, one for float64; a few lines of native code around it make one
call of it a scalar function. SciPy is imported only when a kernel needs one of them.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterable
from typing import Any

from rlx.backends.cpu.emit.kernel_code import TO_HALF
from rlx.backends.cpu.runtime.compile import define_symbols
from rlx.backends.cpu.runtime.store import default_store
from rlx.errors import UnsupportedError
from rlx.forks import reopen_after_fork
from rlx.ir.scalar import SPECIAL, USER_FUNCTIONS, SpecialFunction

__all__ = ["bind_special"]

PREFIX = "rlx_special_"
# numbers of dtypes in numpy/ndarraytypes.h
TYPE_NUMBERS = {"d": 12, "D": 15}

_bound: set[str] = set()
_lock = threading.RLock()
reopen_after_fork(sys.modules[__name__])


class _UfuncFields(ctypes.Structure):
    """The fields after the object head of a NumPy ufunc (numpy/ufuncobject.h)."""

    _fields_ = (
        ("inputs", ctypes.c_int),
        ("outputs", ctypes.c_int),
        ("operands", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("loops", ctypes.c_int),
        ("reserved", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("types", ctypes.POINTER(ctypes.c_char)),
    )


def _loop(ufunc: Any, function: SpecialFunction) -> tuple[int, int]:
    """Addresses of the ufunc's loop for a function's types and of that loop's data."""
    fields = _UfuncFields.from_address(id(ufunc) + object.__basicsize__)
    wanted = bytes([TYPE_NUMBERS[letter] for letter in function.taken + function.given])
    for number in range(fields.loops):
        types = fields.types[number * fields.operands : (number + 1) * fields.operands]
        if types == wanted:
            return fields.functions[number] or 0, fields.data[number] or 0
    raise UnsupportedError(f"SciPy's {ufunc.__name__} has no loop {function.signature}")


def _wrapper_text(name: str, function: SpecialFunction) -> str:
    """IR of a scalar function that runs the ufunc loop `rlx_loop_<name>` on one element."""
    letters = function.taken + function.given
    arity = function.arity
    parameters = ", ".join(f"double %x{n}" for n in range(arity))
    lines = [
        f"declare void @rlx_loop_{name}(ptr, ptr, ptr, ptr)",
        f"@rlx_data_{name} = external global i8",
        "@count = internal constant i64 1",
        f"@steps = internal constant [{len(letters)} x i64] zeroinitializer",
        f"define double @{PREFIX}{name}({parameters}) {{",
        f"%pointers = alloca [{len(letters)} x ptr]",
        f"%numbers = alloca [{len(letters) + letters.count('D')} x double], align 16",
    ]
    start = 0
    for n, letter in enumerate(letters):
        lines += [
            f"%begin{n} = getelementptr double, ptr %numbers, i64 {start}",
            f"%place{n} = getelementptr ptr, ptr %pointers, i64 {n}",
            f"store ptr %begin{n}, ptr %place{n}",
        ]
        start += 2 if letter == "D" else 1
    for n in range(arity):
        lines += [f"%number{n} = getelementptr double, ptr %numbers, i64 {n}", f"store double %x{n}, ptr %number{n}"]
    lines += [
        f"call void @rlx_loop_{name}(ptr %pointers, ptr @count, ptr @steps, ptr @rlx_data_{name})",
        f"%found = getelementptr double, ptr %numbers, i64 {arity + function.part}",
        "%result = load double, ptr %found",
        "ret double %result",
        "}",
    ]
    return "\n".join(lines) + "\n"


# polygamma(0, x) = digamma(x); polygamma(n, x) = (-1)^(n+1) n! zeta(n + 1, x)
POLYGAMMA_TEXT = """
declare double @rlx_special_digamma(double)
declare double @rlx_special_zeta(double, double)
declare double @rlx_special_gamma(double)
define double @rlx_special_polygamma(double %n, double %x) {
%first = fcmp oeq double %n, 0.0
br i1 %first, label %zeroth, label %higher
zeroth:
%digamma = call double @rlx_special_digamma(double %x)
ret double %digamma
higher:
%next = fadd double %n, 1.0
%zeta = call double @rlx_special_zeta(double %next, double %x)
%factorial = call double @rlx_special_gamma(double %next)
%product = fmul double %zeta, %factorial
%parity = frem double %n, 2.0
%odd = fcmp oeq double %parity, 1.0
%negative = fneg double %product
%signed = select i1 %odd, double %product, double %negative
ret double %signed
}
"""


# LLVM calls this function of compilers' libraries, which no library of ours has, where it finds that it may round a
# double to float16 at once: see narrow.round_to_odd
TO_HALF_TEXT = """
declare double @llvm.fabs.f64(double)
define half @__truncdfhf2(double %x) {
%nearest = fptrunc double %x to float
%back = fpext float %nearest to double
%bits = bitcast float %nearest to i32
%far = call double @llvm.fabs.f64(double %back)
%size = call double @llvm.fabs.f64(double %x)
%beyond = fcmp ogt double %far, %size
%less = sub i32 %bits, 1
%below = select i1 %beyond, i32 %less, i32 %bits
%odd = or i32 %below, 1
%inexact = fcmp one double %back, %x
%chosen = select i1 %inexact, i32 %odd, i32 %bits
%single = bitcast i32 %chosen to float
%half = fptrunc float %single to half
ret half %half
}
"""


def bind_special(externals: Iterable[str]) -> None:
    """Make the special functions among `externals` known to LLVM."""
    for symbol in externals:
        if symbol not in _bound and (symbol == TO_HALF or symbol.startswith(PREFIX)):
            with _lock:
                _bind(symbol)


def _bind(symbol: str) -> None:
    if symbol in _bound:
        return
    name = symbol.removeprefix(PREFIX)
    if name in USER_FUNCTIONS:
        define_symbols({symbol: USER_FUNCTIONS[name].address()})
        _bound.add(symbol)
        return
    if symbol == TO_HALF:
        text = TO_HALF_TEXT
    elif name == "polygamma":
        for part in ("digamma", "zeta", "gamma"):
            _bind(PREFIX + part)
        text = POLYGAMMA_TEXT
    elif name in SPECIAL:
        import scipy.special

        function = SPECIAL[name]
        ufunc = scipy.special._ufuncs._zeta if name == "zeta" else getattr(scipy.special, function.ufunc)
        loop, data = _loop(ufunc, function)
        define_symbols({f"rlx_loop_{name}": loop, f"rlx_data_{name}": data})
        text = _wrapper_text(name, function)
    else:
        raise UnsupportedError(f"the CPU has no special function {name!r}")
    key = symbol.encode() + text.encode()
    define_symbols({symbol: default_store().address(key, symbol, lambda: text)})
    _bound.add(symbol)
