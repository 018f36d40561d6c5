"""LLVM IR text to machine code, by llvmlite alone; object code back to addresses.

Every module has its own context, so that several threads can compile at once. LLVM's objects refer to one
another, so they are disposed of here, in order. llvmlite's wrappers would dispose of them in any order when
the garbage collector frees them after an error whose traceback referred to them.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

from rlx.backends.cpu.emit.ir_text import QUICK
from rlx.forks import unforked
from rlx.interrupts import uninterrupted

__all__ = ["assembly", "compile_ir", "define_symbols", "load_object", "optimized_ir", "processor"]

_lock = threading.Lock()
_kept: list[Any] = []  # code stays mapped for the life of the process
_machines: list[Any] = []  # target machines that no thread is using
_contexts: dict[int, Any] = {}  # a context always outlives its module


@lru_cache(maxsize=1)
def _target() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(llvm.get_process_triple())


def _new_machine() -> Any:
    import llvmlite.binding as llvm

    target = _target()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=2,
        reloc="static" if target.name.startswith("x86") else "default",
        codemodel="jitdefault",
        jit=True,
    )


@contextmanager
def _machine() -> Generator[Any, None, None]:
    """A target machine for exclusive use: code for this processor, placed anywhere in memory."""
    machine = None
    with suppress(IndexError):
        machine = _machines.pop()
    machine = machine or _new_machine()
    try:
        yield machine
    finally:
        _machines.append(machine)


def _unlocked(name: str) -> Any:
    """A function of the LLVM library without llvmlite's lock, which would make threads take turns.

    Only for work on one thread's own context and target machine.
    """
    from llvmlite.binding import ffi

    wrapper = getattr(ffi.lib, name)
    return getattr(wrapper, "_cfn", wrapper)


@contextmanager
def _module(ir: str) -> Generator[Any, None, None]:
    """The module of `ir`, in its own context. Raises RuntimeError for invalid IR."""
    import llvmlite.binding as llvm

    context = llvm.create_context()
    _contexts[id(context)] = context
    try:
        module = llvm.parse_assembly(ir, context)
    except RuntimeError:
        _close_context(context)
        raise
    try:
        yield module
    finally:
        module.close()
        _close_context(context)


def _close_context(context: Any) -> None:
    del _contexts[id(context)]
    context.close()


@contextmanager
def _optimized(ir: str, machine: Any) -> Generator[Any, None, None]:
    """The verified and optimized module of `ir`.

    Kernels are already unrolled, and have nothing to pack across statements: those
    passes would cost time for equal code.
    """
    import llvmlite.binding as llvm

    with _module(ir) as module:
        module.verify()
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        with llvm.create_pipeline_tuning_options(speed_level=2) as options:
            options.loop_vectorization = True
            options.slp_vectorization = False
            options.loop_unrolling = False
            with llvm.create_pass_builder(machine, options) as builder, builder.getModulePassManager() as passes:
                _unlocked("LLVMPY_RunNewModulePassManager")(passes, module, builder)
        yield module


class _StrengthReduction:
    """LLVM's loop strength reduction: it takes more than half of the time of making machine code for nests with many
    strides, and saves up to 6 % of the time of large ones. Results are the same."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._without = 0  # threads that compile quickly

    @contextmanager
    def left_out(self, quick: bool) -> Generator[None, None, None]:
        """Compile without it in a block, if `quick`. Another thread that compiles meanwhile does so, too."""
        if not quick:
            yield
            return
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        import llvmlite.binding as llvm

        with self._lock:
            before, self._without = self._without, self._without + change
            if bool(before) != bool(self._without):
                llvm.set_option("rlx", f"-disable-lsr={str(bool(self._without)).lower()}")


_strength_reduction = _StrengthReduction()


def _object_code(module: Any, machine: Any) -> bytes:
    from ctypes import string_at

    from llvmlite.binding import ffi

    with ffi.OutputString() as error:
        buffer = _unlocked("LLVMPY_TargetMachineEmitToMemory")(machine, module, 1, error)
        if not buffer:
            raise RuntimeError(str(error))
    try:
        start = ffi.lib.LLVMPY_GetBufferStart(buffer)
        return string_at(start, ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


@uninterrupted
def compile_ir(ir: str, symbol: str) -> tuple[bytes, int]:
    """Compile a module; returns its object code and the address of `symbol` in this process."""
    with unforked(), _machine() as machine, _optimized(ir, machine) as module:
        with _strength_reduction.left_out(ir.startswith(QUICK)):
            data = _object_code(module, machine)
    return data, load_object(data, symbol)


@uninterrupted
def assembly(ir: str) -> str:
    """Machine code of a module as text, for reading."""
    with unforked(), _machine() as machine, _optimized(ir, machine) as module:
        with _strength_reduction.left_out(ir.startswith(QUICK)):
            return str(machine.emit_assembly(module))


@uninterrupted
def optimized_ir(ir: str) -> str:
    """The module's LLVM IR after optimization, for reading."""
    with unforked(), _machine() as machine, _optimized(ir, machine) as module:
        return str(module)


@uninterrupted
def define_symbols(addresses: Mapping[str, int]) -> None:
    """Pass LLVM the addresses of the functions and data of these names."""
    with unforked():
        import llvmlite.binding as llvm

        for name, address in addresses.items():
            llvm.add_symbol(name, address)


@uninterrupted
def processor() -> tuple[str, Mapping[str, bool]]:
    """LLVM's name of this machine's processor, and which features it has."""
    with unforked():
        import llvmlite.binding as llvm

        return llvm.get_host_cpu_name(), llvm.get_host_cpu_features()


@uninterrupted
def load_object(data: bytes, symbol: str) -> int:
    """Map object code and return the address of `symbol`. Raises RuntimeError if that is not in it."""
    with unforked(), _lock:
        import llvmlite.binding as llvm

        machine = _target().create_target_machine(opt=3, jit=True)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        try:
            with llvm.ObjectFileRef.from_data(data) as code:
                if not code:
                    raise RuntimeError("this is not object code")
                engine.add_object_file(code)
            engine.finalize_object()
            address = int(engine.get_function_address(symbol))
            if not address:
                raise RuntimeError(f"object code does not define {symbol}")
            _kept.append(engine)
        except BaseException:
            engine.close()
            raise
        return address
