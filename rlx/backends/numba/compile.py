"""Units of Python source, compiled by Numba function by function; equal functions once per process.

Numba's own cache on disk is not used, because its key ignores a function's globals.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from rlx.backends.cpu.runtime.threads import get_num_threads
from rlx.backends.loops.dialect import Parameter
from rlx.backends.loops.executable import CompiledUnit
from rlx.backends.loops.program import GeneratedFunction, SourceUnit
from rlx.backends.numba.helpers import helper_functions, numba_config, run_text
from rlx.forks import reopen_after_fork, unforked
from rlx.interrupts import uninterrupted
from rlx.ir.types import memory_dtype

__all__ = ["compile_unit"]

_WORD = re.compile(r"[A-Za-z_]\w*")
_SPINS = "GOMP_SPINCOUNT"  # read when the library is loaded
# a function's key (see _function) -> the compiled function
_compiled: dict[str, Any] = {}
_lock = threading.RLock()
reopen_after_fork(sys.modules[__name__])


class _Threads:
    """Numba's threads: its work queue allows one caller at a time; records whether this process started them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process = 0
        reopen_after_fork(self)

    @property
    def lost(self) -> bool:
        """Whether they were started before a fork, after which GNU OpenMP would abort the process."""
        import numba

        return self._process not in (0, os.getpid()) and numba.threading_layer() == "omp"

    @contextmanager
    def running(self) -> Generator[None]:
        """Set the number of threads to rlx.set_num_threads, for this caller."""
        import numba

        with self._lock:
            before = numba.get_num_threads()
            numba.set_num_threads(min(get_num_threads(), numba_config().NUMBA_NUM_THREADS))
            self._process = os.getpid()
            try:
                yield
            finally:
                numba.set_num_threads(before)


def _start_threads() -> None:
    """Load the library of Numba's threads, which compiling would load otherwise."""
    import numba

    numba.get_num_threads()


@contextmanager
def _short_spins() -> Generator[None]:
    """Have GNU OpenMP, if it is loaded in this block, spin briefly at barriers before it sleeps.

    By default it spins for milliseconds. Beside one busy process, its threads then share a core, and each waits until
    the other's time slice ends: 8 ms for a loop of 0.05 ms. Settings of the environment stay.
    """
    if _SPINS in os.environ or "OMP_WAIT_POLICY" in os.environ:
        yield
        return
    os.environ[_SPINS] = "100"
    try:
        yield
    finally:
        os.environ.pop(_SPINS, None)


_threads = _Threads()


def compile_unit(unit: SourceUnit) -> CompiledUnit:
    """The unit's entry, compiled for the dtypes of its arrays."""
    if numba_config().DISABLE_JIT:
        return _surrounded(_entry(unit, False), lambda: np.errstate(all="ignore"))
    if not _contains(unit, "@njit(parallel=True)"):
        # a fork during a product would leave BLAS's locks taken in the child
        return _surrounded(_entry(unit, False), unforked if _contains(unit, "np.dot(") else nullcontext)
    with _lock, _short_spins():
        _start_threads()
    parallel = _surrounded(_entry(unit, True), _threads.running)

    def run(*arrays: np.ndarray) -> None:
        with unforked():
            (_entry(unit, False) if _threads.lost else parallel)(*arrays)

    return run


def _contains(unit: SourceUnit, words: str) -> bool:
    return any(words in function.text for function in unit.functions)


def _surrounded(entry: Any, surroundings: Callable[[], AbstractContextManager[Any]]) -> CompiledUnit:
    if surroundings is nullcontext:
        return entry

    def run(*arrays: np.ndarray) -> None:
        with surroundings():
            entry(*arrays)

    return run


@uninterrupted
def _entry(unit: SourceUnit, parallel: bool) -> Any:
    """The last function of a unit; compiles it and the functions that it calls, unless they are cached."""
    with unforked(), _lock:
        known: dict[str, tuple[str, Any]] = {}
        helpers = helper_functions(unit.helpers)
        for function in unit.functions:
            known[function.name] = _function(function, helpers, known, parallel)
        return known[unit.entry.name][1]


def _function(
    function: GeneratedFunction, helpers: dict[str, Any], known: dict[str, tuple[str, Any]], parallel: bool
) -> tuple[str, Any]:
    """A function and its key: its source without its name, the dtypes, and the keys of its callees."""
    called = [name for name in dict.fromkeys(_WORD.findall(function.text)) if name in known]
    text = function.text.replace(f"def {function.name}(", "def (", 1)
    mode = f"{parallel} {numba_config().DISABLE_JIT}"
    parts = [text, repr(function.parameters), mode, *(f"{name} {known[name][0]}" for name in called)]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    if key not in _compiled:
        namespace = {**helpers, **{name: known[name][1] for name in called}, "np": np}
        namespace |= _decorators(function.parameters, parallel)
        run_text(function.text + "\n", f"<rlx numba {function.name} {key[:8]}>", namespace)
        _compiled[key] = namespace[function.name]
    return key, _compiled[key]


def _decorators(parameters: tuple[Parameter, ...], threads: bool) -> dict[str, Any]:
    """The `njit` and `prange` for a function's source: compiles at once, for arrays of these dtypes."""
    import numba

    signature = numba.void(*map(_array_type, parameters))

    def njit(function: Any = None, *, parallel: bool = False) -> Any:
        made = numba.njit(signature, error_model="numpy", nogil=True, parallel=parallel and threads)
        return made if function is None else made(function)

    return {"njit": njit, "prange": numba.prange}


def _array_type(parameter: Parameter) -> Any:
    """The Numba type of a dense array, which is writable or read-only."""
    from numba import types
    from numba.np.numpy_support import from_dtype

    return types.Array(from_dtype(memory_dtype(parameter.dtype)), 1, "C", readonly=not parameter.written)
