"""The files of a firmware project, next to the function's own C file and header."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rlx.backends.c.files import CFunction, Pointer, c_array
from rlx.cortexm.processors import Processor

__all__ = ["PROJECT", "project_files"]

PROJECT = Path(__file__).with_name("project")
_MAIN = """/* The self test of NAME, or, if the file NAME.in exists, calls with its arguments.
   NAME.in contains the arguments that results replace, once, and then for every call the others. NAME.out receives
   the results of every call, and at its end the arguments that were replaced. */
#include "board.h"
#include "NAME.h"

/* arguments and results */
MEMORY

/* an example */
EXAMPLE

static int main_read(int32_t file, void *to, uint32_t bytes) {
    return board_read(file, to, bytes) == (int32_t)bytes;
}

static void main_copy(void *to, const void *from, uint32_t bytes) {
    volatile uint8_t *target = to;
    for (uint32_t n = 0; n < bytes; ++n) target[n] = ((const uint8_t *)from)[n];
}

static void main_number(char *text, int32_t number) { /* ten digits */
    for (int n = 9; n >= 0; --n, number /= 10) text[n] = (char)('0' + number % 10);
}

static void main_call(void) { NAME(PASSED); }

static void main_stack(void) {
    char text[] = "stack 0000000000\\n";
    main_number(text + 6, board_stack_bytes());
    board_print(text);
}

static int main_records(int32_t in) {
    const int32_t out = board_open("NAME.out", 1);
    int whole = 1;
READ_STATE
    while (whole) {
READ_OTHERS
        if (!whole) break;
        board_paint_stack();
        main_call();
WRITE_RESULTS
        NO_INPUT
    }
WRITE_STATE
    board_close(out);
    board_close(in);
    main_stack();
    return 0;
}

static int main_self_test(void) {
    int32_t wrong = 0;
COPY_EXAMPLE
    board_paint_stack();
    main_call();
COMPARE
    main_stack();
    board_print(wrong ? "NAME: the self test failed\\n" : "NAME: the self test passed\\n");
    return wrong != 0;
}

int main(void) {
    const int32_t in = board_open("NAME.in", 0);
    return in < 0 ? main_self_test() : main_records(in);
}
"""


def project_files(
    function: CFunction, processor: Processor, arguments: Sequence[np.ndarray], results: Sequence[np.ndarray]
) -> dict[str, str]:
    """The texts by file name. arguments: an example; results: of the example, for each pointer that is written."""
    source, header, *_ = function.texts()
    host = processor.machine is None
    fields = {
        "NAME": function.name,
        "COMPILER": "cc" if host else "arm-none-eabi-gcc",
        "OPTIONS": processor.options,
        "STARTER": "host" if host else "start",
        "LINKER": "" if host else "link.ld",
        "LINKING": "" if host else "-nostartfiles -T link.ld",
        "RUNNER": "./" if host else f"{' '.join(emulator(processor))} -kernel ",
        "FLASH_START": f"0x{processor.flash[0]:08X}",
        "FLASH_BYTES": str(processor.flash[1]),
        "RAM_START": f"0x{processor.ram[0]:08X}",
        "RAM_BYTES": str(processor.ram[1]),
    }
    names = ["board.h", "Makefile", *(["host.c"] if host else ["start.c", "link.ld"])]
    files = {name: _filled((PROJECT / name).read_text(encoding="utf-8"), fields) for name in names}
    files["Makefile"] = files["Makefile"].replace("./ ", "./").replace("-kernel  ", "-kernel ")
    own = {f"{function.name}.c": source, f"{function.name}.h": header}
    return files | own | {"main.c": _main(function, arguments, results)}


def emulator(processor: Processor) -> list[str]:
    """The command of QEMU, but for the program."""
    return [
        "qemu-system-arm", "-M", str(processor.machine), "-display", "none", "-monitor", "none", "-serial", "none",
        "-semihosting-config", "enable=on,target=native",
    ]  # fmt: skip


def _filled(text: str, fields: dict[str, str]) -> str:
    return re.sub(rf"\b({'|'.join(map(re.escape, fields))})(?=\b|_in\b)", lambda word: fields[word[0]], text)


def _main(function: CFunction, arguments: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> str:
    """main.c."""
    replaced = [p for p in function.arguments if p.written]
    others = [p for p in function.arguments if not p.written]
    written = [p for p in function.pointers if p.written]
    examples = [(f"example_{p.place.name}", p, x) for p, x in zip(function.arguments, arguments, strict=True)]
    expected = [(f"expected_{p.place.name}", p, x) for p, x in zip(written, results, strict=True)]
    fields = {
        "NAME": function.name,
        "MEMORY": "\n".join(f"static {_array(p)};" for p in function.pointers),
        "EXAMPLE": "\n".join(c_array(name, x) for name, _, x in (*examples, *expected)),
        "PASSED": ", ".join(f"main_{p.place.name}" for p in function.pointers),
        "READ_STATE": _lines(f"whole = whole && main_read(in, {_whole(p)});" for p in replaced),
        "READ_OTHERS": _lines(f"    whole = whole && main_read(in, {_whole(p)});" for p in others),
        "WRITE_RESULTS": _lines(f"    board_write(out, {_whole(p)});" for p in function.results),
        "WRITE_STATE": _lines(f"board_write(out, {_whole(p)});" for p in replaced),
        "COPY_EXAMPLE": _lines(
            f"main_copy(main_{p.place.name}, {name}, sizeof main_{p.place.name});" for name, p, _ in examples
        ),
        "COMPARE": _lines(line for name, p, x in expected for line in _compared(name, p, x)),
        "NO_INPUT": "" if others else "whole = 0;",
    }
    return re.sub(r"\b[A-Z][A-Z_]+\b|NAME", lambda word: fields.get(word[0], word[0]), _MAIN)


def _array(pointer: Pointer) -> str:
    head, name = pointer.declaration.removeprefix("const ").split(" *")
    return f"{head} main_{name}[{max(pointer.buffer.real_size, 1)}]"


def _whole(pointer: Pointer) -> str:
    return f"main_{pointer.place.name}, sizeof main_{pointer.place.name}"


def _lines(lines: object) -> str:
    return "\n".join(f"    {line}" for line in lines)  # ty: ignore[not-iterable]


def _compared(name: str, pointer: Pointer, expected: np.ndarray) -> list[str]:
    """Integers are equal, and floating numbers nearly."""
    own = f"main_{pointer.place.name}"
    if expected.dtype.kind not in "fc":
        differ = f"{own}[n] != {name}[n]"
    else:
        near = f"1e-5f * (1 + ({name}[n] < 0 ? -{name}[n] : {name}[n]))"
        differ = f"!({own}[n] - {name}[n] <= {near} && {name}[n] - {own}[n] <= {near})"
    count = max(pointer.buffer.real_size, 1)
    return [f"for (uint32_t n = 0; n < {count}u; ++n) wrong += {differ};"]
