"""How native code calls a compiled loop nest."""

from __future__ import annotations

from rlx.backends.cpu.runtime.native import NativeSignature, Word, native

__all__ = ["call_kernel", "run_chunk"]

# (slots, arguments, begin, end, chunk)
call_kernel = NativeSignature("void", ("i64", "i64", "i64", "i64", "i64"))


@native
def run_chunk(kernel: Word, slots: Word, row: Word, extent: Word, chunks: Word, chunk: Word) -> int:
    """One of the equal ranges that dimension 0 is cut in."""
    begin = extent * chunk // chunks
    end = extent * (chunk + 1) // chunks
    call_kernel(kernel, slots, row, begin, end, chunk)
    return 0
