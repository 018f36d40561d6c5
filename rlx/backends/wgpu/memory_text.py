"""Arrays of a kernel in WGSL: storage bindings of 32-bit words, and the functions that get and put elements.

Kernels only call these functions, so that the same code runs whether arrays have buffers of their own or share one:
WebGPU forbids two writable bindings of one buffer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rlx.ir.types import supported_dtypes

__all__ = ["COMPONENTS", "KernelModule", "Windows", "memory_text", "modules_of"]

COMPONENTS = "xyzw"
_HEAD = re.compile(r"^// kernel (\w+):(.*)$", re.MULTILINE)
_DTYPES: dict[str, np.dtype] = {dtype.name: dtype for dtype in supported_dtypes}
_CODE = "// code"
Updated = Callable[[str, np.dtype, str], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class KernelModule:
    """A kernel's name, the names of its arrays, and its code without declarations of memory."""

    name: str
    arrays: tuple[str, ...]
    code: str

    def text(self, declarations: str = "") -> str:
        """The module as text, with declarations if there are any."""
        head = f"// kernel {self.name}: {' '.join(self.arrays)}"
        return "\n".join([head, *([declarations] if declarations else []), _CODE, self.code])

    @staticmethod
    def read(text: str) -> KernelModule:
        """The module of a text."""
        head, _, code = text.partition(f"\n{_CODE}\n")
        match = _HEAD.match(head)
        assert match, head
        return KernelModule(match[1], tuple(match[2].split()), code.strip("\n"))


def modules_of(source: str) -> list[KernelModule]:
    """The modules of a program."""
    starts = [match.start() for match in _HEAD.finditer(source)]
    return [KernelModule.read(source[a:b]) for a, b in zip(starts, [*starts[1:], len(source)], strict=True)]


class Windows(NamedTuple):
    """Bindings of one memory after another, each of `nbytes`; counts: their number for each memory."""

    nbytes: int
    counts: Sequence[int]


def memory_text(
    module: KernelModule, sharing: Sequence[int] | None, updated: Updated, windows: Windows | None = None
) -> str:
    """The declarations of a module's memory.

    sharing: for each array, the number of its memory; None: all differ. updated: the type of the value of an atomic
    update, and the word that follows, given the reducer, the dtype and the word before. windows: the bindings of
    memories that are larger than one binding.
    """
    numbers = range(len(module.arrays)) if sharing is None else sharing
    calls = {
        name: dict.fromkeys(re.findall(rf"\b{name}_((?:get|put|update)\d+\w*)\(", module.code))
        for name in module.arrays
    }
    kinds: dict[int, str] = {}
    for name, number in zip(module.arrays, numbers, strict=True):
        needed = max(map(_word, calls[name]), key=_WORDS.index, default="u32")
        kinds[number] = max(kinds.get(number, "u32"), needed, key=_WORDS.index)
    bindings = {n: [f"memory_{n}"] for n in sorted(kinds)}
    if windows is not None:
        bindings = {n: [f"memory_{n}_{k}" for k in range(windows.counts[n])] for n in sorted(kinds)}
    functions: list[str] = []
    for name, number in zip(module.arrays, numbers, strict=True):
        if calls[name]:
            made = [*_BASIC[kinds[number]].values(), *(_made(c, updated) for c in calls[name] if c[3:] != "32")]
            length = 1 if windows is None else windows.nbytes // (8 if kinds[number] == "atomic<u64>" else 4)
            functions += [_bound(text.replace("NAME", name), bindings[number], length) for text in made]
    places = [(kinds[n], binding) for n, names in bindings.items() for binding in names]
    memory = [
        f"@group(0) @binding({place}) var<storage, read_write> {binding}: array<{kind}>;"
        for place, (kind, binding) in enumerate(places, 1)
    ]
    launch = f"@group(0) @binding(0) var<uniform> launch: array<vec4<u32>, {len(module.arrays) // 4 + 1}>;"
    return "\n".join([launch, *memory, *functions])


def _bound(function: str, bindings: Sequence[str], length: int) -> str:
    """A function of one element of MEMORY: its text, or one text for each binding of `length` elements."""
    if len(bindings) == 1:
        return function.replace("MEMORY", bindings[0])
    match = _ELEMENT.search(function)
    if match is None:
        return function
    head, _, rest = function.partition("{")
    body = rest.rpartition("}")[0].strip()
    end = "" if body.startswith("return") else " return;"
    lines = [f"    let element = {match[1]};"]
    for number, binding in enumerate(bindings):
        start = f" - {number * length}u" if number else ""
        text = body.replace(match[0], f"{binding}[element{start}]")
        last = number == len(bindings) - 1
        lines.append(f"    {text}" if last else f"    if (element < {(number + 1) * length}u) {{ {text}{end} }}")
    return "\n".join([head + "{", *lines, "}"])


def _word(call: str) -> str:
    """The type of the words in memory that a function of an array needs: atomic ones, if it changes a part."""
    if call.startswith("update64"):
        return "atomic<u64>"
    return "atomic<u32>" if call.startswith("update") or call in ("put8", "put16") else "u32"


_WORDS = ("u32", "atomic<u32>", "atomic<u64>")
_ELEMENT = re.compile(r"MEMORY\[([^\]]*)\]")  # each function has one
# functions of whole words
_BASIC = {
    "u32": {
        "get": "fn NAME_get32(i: u32) -> u32 { return MEMORY[i]; }",
        "put": "fn NAME_put32(i: u32, word: u32) { MEMORY[i] = word; }",
    },
    "atomic<u32>": {
        "get": "fn NAME_get32(i: u32) -> u32 { return atomicLoad(&MEMORY[i]); }",
        "put": "fn NAME_put32(i: u32, word: u32) { atomicStore(&MEMORY[i], word); }",
    },
    "atomic<u64>": {
        "get": """fn NAME_get32(i: u32) -> u32 {
    return u32((atomicLoad(&MEMORY[i / 2u]) >> (32u * (i % 2u))) & 0xfffffffflu);
}""",
        "put": """fn NAME_put32(i: u32, word: u32) {
    atomicAnd(&MEMORY[i / 2u], 0xffffffff00000000lu >> (32u * (i % 2u)));
    atomicOr(&MEMORY[i / 2u], u64(word) << (32u * (i % 2u)));
}""",
    },
}


def _made(call: str, updated: Updated) -> str:
    """The function of other elements: parts of words, pairs of words, and atomic updates."""
    match = re.fullmatch(r"(get|put|update)(\d+)(?:_([a-z]+)_(\w+))?", call)
    assert match, call
    way, bits, reducer, dtype = match.groups()
    if way == "update":
        return _update(int(bits), reducer, _DTYPES[dtype], updated)
    if bits == "64":
        return _PAIRS[way]
    part = _PART.replace("SHARE", str(32 // int(bits))).replace("BITS", bits)
    text = _PARTS[way].replace("PART", part)
    mask = f"{(1 << int(bits)) - 1:#x}u"
    return text.replace("MASK", mask).replace("BITS", bits).replace("SHARE", str(32 // int(bits)))


_PART = "(i % SHAREu) * BITSu"
# stores of parts of a word are atomic: other items may own its other parts
_PARTS = {
    "get": "fn NAME_getBITS(i: u32) -> u32 { return (NAME_get32(i / SHAREu) >> (PART)) & MASK; }",
    "put": """fn NAME_putBITS(i: u32, word: u32) {
    atomicAnd(&MEMORY[i / SHAREu], ~(MASK << (PART)));
    atomicOr(&MEMORY[i / SHAREu], (word & MASK) << (PART));
}""",
}
_PAIRS = {
    "get": "fn NAME_get64(i: u32) -> u64 { return u64(NAME_get32(2u * i)) | (u64(NAME_get32(2u * i + 1u)) << 32u); }",
    "put": """fn NAME_put64(i: u32, word: u64) {
    NAME_put32(2u * i, u32(word & 0xfffffffflu));
    NAME_put32(2u * i + 1u, u32(word >> 32u));
}""",
}


def _update(bits: int, reducer: str, dtype: np.dtype, updated: Updated) -> str:
    """Compute what follows from a word until no other item has changed it since."""
    share, mask = max(1, 32 // bits), (1 << bits) - 1
    kind, after = updated(reducer, dtype, "before" if bits >= 32 else f"((before >> shift) & {mask:#x}u)")
    if bits < 32:
        after = f"(before & ~({mask:#x}u << shift)) | (({after} & {mask:#x}u) << shift)"
    return f"""fn NAME_update{bits}_{reducer}_{dtype.name}(i: u32, value: {kind}) {{
    let shift = (i % {share}u) * {bits % 32}u;
    loop {{
        let before = atomicLoad(&MEMORY[i / {share}u]);
        let after = {after};
        if (atomicCompareExchangeWeak(&MEMORY[i / {share}u], before, after).exchanged) {{ break; }}
    }}
}}"""
