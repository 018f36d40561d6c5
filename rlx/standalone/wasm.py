"""rlx.export_wasm: a function as a WebAssembly module without imports, with a JavaScript module and a page."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlx.backends.c.files import CFunction, Pointer
from rlx.errors import DeviceError, UnsupportedError
from rlx.installation import install_command
from rlx.ir.types import memory_dtype
from rlx.standalone.building import built
from rlx.standalone.c_files import c_function
from rlx.standalone.output_paths import without_ending, write_all

__all__ = ["WasmFiles", "export_wasm"]

_TARGET = ("-target", "wasm32-wasi", "-mexec-model=reactor")
_FLAGS = ("-std=c99", "-s", "-ffp-contract=off", "-fno-math-errno", "-fno-strict-aliasing")
_MOST_BYTES = 2**32 - 2**20  # of wasm32's memory, without the module's own data and stack
_TEMPLATES = Path(__file__).with_name("web")
_ARRAYS = {
    "float32": "Float32Array", "float64": "Float64Array", "int8": "Int8Array", "int16": "Int16Array",
    "int32": "Int32Array", "int64": "BigInt64Array", "uint8": "Uint8Array", "uint16": "Uint16Array",
    "uint32": "Uint32Array", "uint64": "BigUint64Array", "bool": "Uint8Array",
}  # fmt: skip


class WasmFiles(NamedTuple):
    """The contents of a WebAssembly module, of its JavaScript module, of their types, and of a page that shows them."""

    module: bytes
    javascript: str
    types: str
    page: str


def export_wasm(
    f: Callable[..., Any],
    *types: Any,
    path: str | Path | None = None,
    name: str | None = None,
    simd: bool = True,
    donate_argnums: int | Sequence[int] = (),
    params: Any = None,
    compiler: Sequence[str] | None = None,
) -> WasmFiles:
    """A WebAssembly module with `f` as a function. It imports nothing: browsers, Node and wasmtime run it.

    The module exports `memory`, the function, which takes the addresses of the leaves of arguments and results as the
    function of `rlx.export_c` does, and `__heap_base`, the first free address. The JavaScript module finds places for
    the leaves and presents them as typed arrays.

    Args:
      f: a function of arrays, as for jit; also its derivatives.
      types: an array, a number or a rlx.ShapeDtypeStruct for each argument, or a tree of those.
      path: the output files are path.wasm, path.js, path.d.ts and path.html; an ending .wasm is left out.
      name: the function's name; by default the last part of `path`, or the name of f.
      simd: whether to compile for speed, with vectors of 128 bits. Otherwise the module is as small as possible.
      donate_argnums: arguments that results replace; see rlx.export_c.
      params: the first argument of f, which becomes part of the module; see rlx.export_c.
      compiler: the command of a clang that compiles for wasm32-wasi. By default the compiler in the package ziglang,
        which the extra `wasm` installs.

    Raises: DeviceError without a compiler, or if it rejects the source; UnsupportedError, by name, for operations that
      only the host can run, and for more memory than 4 GiB.

    >>> import rlx, rlx.numpy as jnp
    >>> x = rlx.ShapeDtypeStruct((8,), "float32")
    >>> files = rlx.export_wasm(lambda x: jnp.tanh(x).sum(), x, name="total")  # doctest: +SKIP
    >>> files.module[:4]  # doctest: +SKIP
    b'\\x00asm'
    """
    stem = without_ending(path, ".wasm")
    own = None if stem is None else stem.name
    function = c_function(f, types, name or own, donate_argnums=donate_argnums, params=params)
    needed = function.arena_bytes() + sum(pointer.buffer.nbytes for pointer in function.pointers)
    if needed > _MOST_BYTES:
        raise UnsupportedError(
            f"{function.name} needs {needed / 2**30:.1f} GiB of memory, and WebAssembly has 4 GiB.",
            "Export a function of smaller arrays.",
        )
    module = _compiled(function, _command(compiler), ("-O3", "-msimd128") if simd else ("-Oz",))
    files = WasmFiles(module, *_texts(function, own or function.name))
    write_all(stem, dict(zip((".wasm", ".js", ".d.ts", ".html"), files, strict=True)))
    return files


# ------------------------------------------------------------------ compilation
def _command(compiler: Sequence[str] | None) -> Sequence[str]:
    """The command of the compiler."""
    if compiler is not None:
        return compiler
    if importlib.util.find_spec("ziglang") is None:
        raise DeviceError(
            "rlx.export_wasm needs a compiler for WebAssembly, and the package ziglang is not installed.",
            f"Install it: {install_command('wasm')}. Or pass the command of a clang for wasm32-wasi as compiler=.",
        )
    return [sys.executable, "-m", "ziglang", "cc"]


def _compiled(function: CFunction, command: Sequence[str], options: Sequence[str]) -> bytes:
    """The module."""
    exported = [f"-Wl,--export={symbol}" for symbol in (function.name, "__heap_base")]
    instead = "The compiler has to be a clang with a library for wasm32-wasi, such as the package ziglang."
    return built(function, command, [*_TARGET, *_FLAGS, *options, *exported], "WebAssembly", instead)


# ------------------------------------------------------------------ texts
def _texts(function: CFunction, file: str) -> tuple[str, str, str]:
    """The JavaScript module, its types, and the page."""
    arguments = {pointer.place.name for pointer in function.arguments}
    leaves = [_leaf(pointer, pointer.place.name in arguments) for pointer in function.pointers]
    rows = ",\n".join(f"  {json.dumps(leaf)}" for leaf in leaves)
    fields = {
        "NAME": function.name,
        "FILE": file,
        "LEAVES": f"[\n{rows},\n]",
        "ARRAYS": _typed(leaves, "array"),
        "ARGUMENTS": _typed([leaf for leaf in leaves if leaf["argument"]], "array"),
        "RESULTS": _typed([leaf for leaf in leaves if leaf["written"]], "array"),
    }
    javascript, types, page = (
        _filled((_TEMPLATES / template).read_text(encoding="utf-8"), fields)
        for template in ("module.js", "module.d.ts", "page.html")
    )
    return javascript, types, page


def _leaf(pointer: Pointer, argument: bool) -> dict[str, Any]:
    """A leaf, for JavaScript."""
    place, kind = pointer.place, pointer.place.type
    held = memory_dtype(kind.dtype)
    number = np.dtype(f"f{held.itemsize // 2}") if held.kind == "c" else held
    number = number if number.name in _ARRAYS else np.dtype(f"u{number.itemsize}")
    length = pointer.buffer.nbytes // number.itemsize
    return {
        "name": place.name, "meaning": place.meaning, "result": pointer.result or place.meaning,
        "dtype": kind.dtype.name, "shape": list(kind.shape), "array": _ARRAYS[number.name], "length": length,
        "bytes": length * number.itemsize, "argument": argument, "written": pointer.written,
    }  # fmt: skip


def _typed(leaves: Sequence[dict[str, Any]], field: str) -> str:
    lines = []
    for leaf in leaves:
        meaning = f"{leaf['meaning']}, {leaf['dtype']}{leaf['shape']}".replace("*/", "* /")
        lines += [f"  /** {meaning} */", f"  {leaf['name']}: {leaf[field]};"]
    return "\n".join(lines)


def _filled(text: str, fields: dict[str, str]) -> str:
    return re.sub(rf"\b({'|'.join(fields)})\b", lambda word: fields[word[0]], text)
