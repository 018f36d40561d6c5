"""What a driver knows of a kernel from its code, read from its text: bounds, shared memory, aligned loads."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass

_KERNEL = re.compile(
    r'extern "C" __global__ void (?:__launch_bounds__\((?P<items>\d+)[^)]*\) )?(?P<name>\w+)'
    r"\((?P<parameters>[^)]*)\) \{(?P<body>.*?)\n\}",
    re.DOTALL,
)
_BOUNDS = r"(?:__launch_bounds__\([^)]*\)\s*|__attribute__\(\(launch_bounds\([^)]*\)\)\)\s*)?"
_PARAMETERS = rf"(?:__global__|__attribute__\(\(global\)\))\s+void\s+{_BOUNDS}{{name}}\s*\((?P<parameters>[^)]*)\)"
_NUMBERS = {
    "int8_t": ctypes.c_int8, "uint8_t": ctypes.c_uint8, "int32_t": ctypes.c_int32, "int": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "float": ctypes.c_float,
    "double": ctypes.c_double, "long long": ctypes.c_int64,
}  # fmt: skip
_SHARED = re.compile(r"__shared__ (?P<kind>\w+) \w+(?P<sizes>(?:\[\d+\])+)")
_VECTOR = re.compile(r"aligned\((?P<bytes>\d+)\)\)\) \{[^}]*\} (?P<name>\w+);")
_AT_ONCE = re.compile(r"\*\((?:const )?(?P<kind>\w+_by_\d+) \*\)[&(]*(?P<array>\w+)")
_GUARD = re.compile(r"& \d+\) == 0")
_WIDTHS = {"float": 4, "double": 8, "bool": 1, "char": 1, "int": 4, "float4": 16}


@dataclass(frozen=True)
class KernelText:
    """items: most of a group; 0 where it is not said. shared: bytes. aligned: by the number of an array among the
    arguments, what its address has to be a multiple of. written: the numbers of arrays that
    are not constant. waits: whether groups wait for one another."""

    items: int = 0
    shared: int = 0
    aligned: tuple[tuple[int, int], ...] = ()
    waits: bool = False
    written: tuple[int, ...] = ()


def parameters_of(source: str, name: str) -> list[type] | None:
    """The C types of a kernel's parameters, by which the driver reads its arguments; None for another kind of text."""
    match = re.search(_PARAMETERS.format(name=name), source)
    if match is None:
        return None
    given = [" ".join(re.sub(r"\bconst\b|__restrict__", "", p).split()) for p in match["parameters"].split(",")]
    return [ctypes.c_void_p if "*" in p else _NUMBERS[p.rpartition(" ")[0]] for p in given if p]


def kernel_texts(source: str) -> dict[str, KernelText]:
    """The kernels of a program; those that are written in another way than rlx's are left out."""
    vectors = {match["name"]: int(match["bytes"]) for match in _VECTOR.finditer(source)}
    return {match["name"]: _read(match, vectors) for match in _KERNEL.finditer(source)}


def _read(match: re.Match[str], vectors: dict[str, int]) -> KernelText:
    arrays = re.findall(r"(\w+)_memory\b", match["parameters"])
    aligned: dict[int, int] = {}
    for name, nbytes in _unguarded(match["body"], vectors):
        if name in arrays:
            number = arrays.index(name)
            aligned[number] = max(aligned.get(number, 1), nbytes)
    shared = sum(_bytes(found["kind"], found["sizes"]) for found in _SHARED.finditer(match["body"]))
    constant = {*re.findall(r"const \w+ \*(\w+) =", match["body"])}
    written = tuple(number for number, name in enumerate(arrays) if name not in constant)
    return KernelText(int(match["items"] or 0), shared, tuple(aligned.items()), "awaited" in match["body"], written)


def _bytes(kind: str, sizes: str) -> int:
    bits = re.fullmatch(r"u?int(\d+)_t", kind)
    total = int(bits[1]) // 8 if bits else _WIDTHS[kind]
    for size in re.findall(r"\d+", sizes):
        total *= int(size)
    return total


def _unguarded(body: str, vectors: dict[str, int]) -> list[tuple[str, int]]:
    """Arrays of which several elements are loaded at once, outside of a block that has looked at the address."""
    found, guards = [], [False]
    for line in body.splitlines():
        for part in re.split(r"([{}])", line.replace("{{0}}", "")):
            if part == "{":
                guards.append(guards[-1] or bool(_GUARD.search(line)))
            elif part == "}":
                guards.pop()
            elif not guards[-1]:
                found += [(at["array"], vectors[at["kind"]]) for at in _AT_ONCE.finditer(part)]
    return found
