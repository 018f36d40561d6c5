"""LLVM IR text to machine code, through Numba's code generator; object code back to addresses."""

from __future__ import annotations

import itertools
import threading
from functools import lru_cache
from typing import Any

__all__ = ["assembly", "compile_ir", "load_object", "optimized_ir"]

_lock = threading.Lock()
_serial = itertools.count()
_kept: list[Any] = []  # code stays mapped for the life of the process


def _library(ir: str) -> Any:
    """A finalized Numba code library of `ir`; hold Numba's compiler lock around it."""
    import llvmlite.binding as llvm
    from numba.core.registry import cpu_target

    library = cpu_target.target_context.codegen().create_library(f"rlx_{next(_serial)}")
    library.enable_object_caching()
    library.add_llvm_module(llvm.parse_assembly(ir))
    library.finalize()
    return library


def compile_ir(ir: str, symbol: str) -> tuple[bytes, int]:
    """Compile a module; returns its object code and the address of `symbol` in this process."""
    from numba.core.compiler_lock import global_compiler_lock

    with global_compiler_lock:
        library = _library(ir)
        address = library.get_pointer_to_function(symbol)
        _kept.append(library)
        return bytes(library._compiled_object), address


def assembly(ir: str) -> str:
    """Machine code of a module as text, for reading."""
    from numba.core.compiler_lock import global_compiler_lock

    with global_compiler_lock:
        return str(_library(ir).get_asm_str())


def optimized_ir(ir: str) -> str:
    """The module's LLVM IR after optimization, for reading."""
    from numba.core.compiler_lock import global_compiler_lock

    with global_compiler_lock:
        return str(_library(ir).get_llvm_str())


@lru_cache(maxsize=1)
def _target() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple()


def load_object(data: bytes, symbol: str) -> int:
    """Map object code and return the address of `symbol`; needs llvmlite only."""
    import llvmlite.binding as llvm

    with _lock:
        machine = _target().create_target_machine(opt=3, jit=True)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        engine.finalize_object()
        address = int(engine.get_function_address(symbol))
        if not address:
            raise RuntimeError(f"object code does not define {symbol}")
        _kept.append(engine)
        return address
