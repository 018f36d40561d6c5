"""The subset of Python that the run-time system is written in."""

from __future__ import annotations

import ctypes

import pytest

from rlx.backends.cpu.runtime.compile import compile_ir
from rlx.backends.cpu.runtime.native import (
    NativeSignature,
    Word,
    address_of,
    atomic_add,
    compare_exchange,
    copy_bytes,
    external,
    load_byte,
    load_int32,
    maximum,
    minimum,
    native,
    stack,
)
from rlx.backends.cpu.runtime.native_compiler import module_text

LIMIT = 3
absolute = external("labs", "i64", "i64")
call_unary = NativeSignature("i64", ("i64",))


@native
def control(words: Word, count: Word) -> int:
    total = 0
    for i in range(1, count):
        if i == LIMIT or (i > 5 and not i == 7):
            continue
        if i == 9:
            break
        total += words[i]
    while total > 100:
        total = total // 2
    return total


@native
def successor(number: Word) -> int:
    return number + 1


@native
def operations(words: Word) -> int:
    scratch = stack(2)
    copy_bytes(scratch, words, 16)
    before = atomic_add(scratch + 8, 5)
    swapped = compare_exchange(scratch, words[0], 70) + compare_exchange(scratch, 1, 2)
    words[2] = load_int32(words) + load_byte(words)
    words[3] = minimum(before, maximum(-before, absolute(-4)))
    words[4] = call_unary(address_of(successor), successor(40))
    words[5] = (-7 // 2) * 100 + -7 % 3
    words[6] = (6 & 3) | (1 << 4) ^ (-16 >> 2)
    words[7] = (before > 3) + (before != 3)
    return scratch[0] + scratch[1] + swapped


@native
def unsupported(words: Word) -> int:
    return words[0] / 2


def run(function, words, *arguments):
    _, address = compile_ir(module_text([function]), function.name)
    memory = (ctypes.c_int64 * len(words))(*words)
    call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * (1 + len(arguments)))(address)
    return call(ctypes.addressof(memory), *arguments), list(memory)


@pytest.mark.parametrize("count", [0, 1, 2, 5, 8, 9, 10])
def test_control_flow(count):
    words = [n * n for n in range(10)]
    assert run(control, words, count)[0] == control.function(words, count)


def test_operations():
    result, words = run(operations, [-1, 10, 0, 0, 0, 0, 0, 0])
    assert result == 70 + 15 + 1
    assert words == [-1, 10, -1 + 255, 4, 42, -301, (6 & 3) | (1 << 4) ^ (-16 >> 2), 2]


def test_what_is_missing_is_refused():
    with pytest.raises(TypeError, match="unsupported: native code has no 'words"):
        module_text([unsupported])
