"""LLVM IR text to machine code, by llvmlite alone; object code back to addresses.

Every module lives in a context of its own, so that several threads can compile at once.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

from rlx.forks import unforked

__all__ = ["assembly", "compile_ir", "define_symbol", "load_object", "optimized_ir"]

_lock = threading.Lock()
_kept: list[Any] = []  # code stays mapped for the life of the process
_thread = threading.local()


@lru_cache(maxsize=1)
def _target() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(llvm.get_process_triple())


def _machine() -> Any:
    """This thread's target machine: code for this processor, placed anywhere in memory."""
    machine = getattr(_thread, "machine", None)
    if machine is None:
        import llvmlite.binding as llvm

        target = _target()
        machine = _thread.machine = target.create_target_machine(
            cpu=llvm.get_host_cpu_name(),
            features=llvm.get_host_cpu_features().flatten(),
            opt=2,
            reloc="static" if target.name.startswith("x86") else "default",
            codemodel="jitdefault",
            jit=True,
        )
    return machine


def _unlocked(name: str) -> Any:
    """A function of the LLVM library without llvmlite's lock, which would make threads take turns.

    Only for work on one thread's own context and target machine.
    """
    from llvmlite.binding import ffi

    wrapper = getattr(ffi.lib, name)
    return getattr(wrapper, "_cfn", wrapper)


def _optimized(ir: str) -> Any:
    """The verified and optimized module of `ir`.

    Kernels come unrolled as they should be, and leave nothing to pack across statements: those
    passes would cost time for equal code.
    """
    import llvmlite.binding as llvm

    machine = _machine()
    module = llvm.parse_assembly(ir, llvm.create_context())
    module.verify()
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = True
    options.slp_vectorization = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    passes = builder.getModulePassManager()
    _unlocked("LLVMPY_RunNewModulePassManager")(passes, module, builder)
    return module


def _object_code(module: Any) -> bytes:
    from ctypes import string_at

    from llvmlite.binding import ffi

    with ffi.OutputString() as error:
        buffer = _unlocked("LLVMPY_TargetMachineEmitToMemory")(_machine(), module, 1, error)
        if not buffer:
            raise RuntimeError(str(error))
    try:
        start = ffi.lib.LLVMPY_GetBufferStart(buffer)
        return string_at(start, ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def compile_ir(ir: str, symbol: str) -> tuple[bytes, int]:
    """Compile a module; returns its object code and the address of `symbol` in this process."""
    with unforked():
        data = _object_code(_optimized(ir))
    return data, load_object(data, symbol)


def assembly(ir: str) -> str:
    """Machine code of a module as text, for reading."""
    with unforked():
        return str(_machine().emit_assembly(_optimized(ir)))


def optimized_ir(ir: str) -> str:
    """The module's LLVM IR after optimization, for reading."""
    with unforked():
        return str(_optimized(ir))


def define_symbol(name: str, address: int) -> None:
    """Tell LLVM where the function or data called `name` is."""
    import llvmlite.binding as llvm

    with unforked():
        llvm.add_symbol(name, address)


def load_object(data: bytes, symbol: str) -> int:
    """Map object code and return the address of `symbol`."""
    import llvmlite.binding as llvm

    with unforked(), _lock:
        machine = _target().create_target_machine(opt=3, jit=True)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        engine.finalize_object()
        address = int(engine.get_function_address(symbol))
        if not address:
            raise RuntimeError(f"object code does not define {symbol}")
        _kept.append(engine)
        return address
