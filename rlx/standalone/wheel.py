"""rlx.export_wheel: a function as a Python package that needs NumPy and no rlx."""

from __future__ import annotations

import ast
import base64
import hashlib
import io
import keyword
import re
import sysconfig
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlx.backends.c.compile import FLAGS
from rlx.backends.c.compile import compiler as system_compiler
from rlx.backends.c.files import CFunction, Pointer
from rlx.backends.loops.names import identifier
from rlx.backends.loops.place import FunctionParameter
from rlx.call.jit import jit
from rlx.errors import OptionError
from rlx.ir.types import is_complex, memory_dtype
from rlx.standalone.building import built
from rlx.standalone.c_files import c_function
from rlx.standalone.leaves import argument_names
from rlx.trees import tree

__all__ = ["WheelFile", "export_wheel"]

_TEMPLATES = Path(__file__).with_name("python")
_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # equal functions have equal files
_WEIGHTS = "weights.safetensors"
_NODES = (dict, list, tuple, type(None))


class WheelFile(NamedTuple):
    """The name of a wheel, which says for which processors it is, and its bytes."""

    name: str
    data: bytes


def export_wheel(
    f: Callable[..., Any],
    *types: Any,
    folder: str | Path | None = None,
    name: str | None = None,
    version: str = "0.1.0",
    params: Any = None,
    compiler: Sequence[str] | None = None,
    platform: str | None = None,
) -> WheelFile:
    """A Python wheel with `f` as a compiled function: `pip install` it where there is neither rlx nor a compiler.

    The package `name` has one function of the same name. It takes the arguments of f: trees of NumPy arrays of exactly
    these shapes. It returns the result's tree if that consists of dicts, lists and tuples, otherwise its leaves as a
    tuple. The package also contains the C source. The values of `params` are in a safetensors file, which is mapped.

    Args:
      f: a function of arrays, as for jit; also its derivatives.
      types: an array, a number or a rlx.ShapeDtypeStruct for each argument, or a tree of those.
      folder: where the wheel is written.
      name: the name of the package and of its function; by default the name of f.
      version: the version of the package.
      params: the first argument of f, which the package contains; see rlx.export_c.
      compiler: the command of a C compiler; by default the system's.
      platform: the tag of the platform, if the compiler is for another one: "manylinux_2_17_aarch64".

    Raises: OptionError for a name that is not a Python identifier, and for an invalid version; DeviceError without a
      compiler; the errors of rlx.export_c.

    >>> import numpy as np, rlx
    >>> wheel = rlx.export_wheel(lambda x: 2 * x, np.ones(3, "float32"), name="double")  # doctest: +SKIP
    >>> wheel.name  # doctest: +SKIP
    'double-0.1.0-py3-none-linux_x86_64.whl'
    """
    package = identifier(getattr(f, "__name__", "function"), "function") if name is None else name
    if not re.fullmatch(r"[A-Za-z]\w*", package, re.ASCII) or keyword.iskeyword(package):
        raise OptionError(
            f"A package cannot be called {package!r}.", "Write name= with letters, digits and underscores."
        )
    if not _VERSION.fullmatch(version):
        raise OptionError(f"{version!r} is not the version of a package.", 'Write numbers and dots, such as "1.2".')
    function = c_function(f, types, package, params=params, weights="source" if params is None else "file")
    command = system_compiler().command if compiler is None else compiler
    instead = "The compiler has to make shared libraries, as gcc and clang do."
    code = built(function, command, FLAGS, "a wheel", instead)
    texts = function.texts()
    files: dict[str, bytes] = {
        **_modules(f, types, params, function, package, version),
        _library(function): code,
        f"{function.name}.c": texts.source.encode(),
        function.header: texts.header.encode(),
    }
    if texts.weights:
        files[_WEIGHTS] = texts.weights
    wheel = _wheel(package, version, platform or _platform(), files)
    if folder is not None:
        (Path(folder) / wheel.name).write_bytes(wheel.data)
    return wheel


def _platform() -> str:
    """The tag of this platform."""
    return re.sub(r"[-.]", "_", sysconfig.get_platform())


def _library(function: CFunction) -> str:
    """The name of the shared library."""
    return f"lib{function.name}.so"


# ------------------------------------------------------------------ the modules
def _modules(
    f: Callable[..., Any], types: Sequence[Any], params: Any, function: CFunction, package: str, version: str
) -> dict[str, bytes]:
    """The package's Python files."""
    arguments = types if params is None else (params, *types)
    names = argument_names(f, arguments)[len(arguments) - len(types) :]
    leaves = [pointer.place.meaning for pointer in function.arguments]
    if not all(map(_is_expression, (*names, *leaves))):
        names = leaves = [pointer.place.name for pointer in function.arguments]
    fields = {
        "PACKAGE": package,
        "VERSION": version,
        "LIBRARY": _library(function),
        "SYMBOL": function.name,
        "POINTERS": str(len(function.pointers) + 1 + (function.weights is not None)),
        "MAPPED": "None" if function.weights is None else f'np.memmap(FOLDER / "{_WEIGHTS}", np.uint8, "r")',
        "ARENA": str(function.arena_bytes()),
        "ARGUMENT_ROWS": _table(repr((p.place.meaning, *_memory(p))) for p in function.arguments),
        "RESULT_ROWS": _table(repr(_memory(p)) for p in function.results),
        "PARAMETERS": ", ".join(names),
        "MEANING": "\n\n    ".join(
            _described("Arguments", function.arguments) + _described("Results", function.results)
        ),
        "LEAVES": ", ".join(leaves),
        "RETURNED": _returned(f, arguments, function.results),
    }
    word = re.compile(rf"\b({'|'.join(fields)})(?=\b|_in\b)")
    return {
        file: word.sub(lambda found: fields[found[0]], (_TEMPLATES / text).read_text(encoding="utf-8")).encode()
        for file, text in (("__init__.py", "package.txt"), ("_library.py", "library.txt"))
    }


def _memory(pointer: Pointer) -> tuple[str, tuple[int, ...]]:
    """The dtype in NumPy, without others, and the shape."""
    kind = pointer.place.type
    dtype = kind.dtype if kind.dtype.kind == "b" or is_complex(kind.dtype) else memory_dtype(kind.dtype)
    return dtype.name, tuple(kind.shape)


def _table(rows: Any) -> str:
    return "[" + "".join(f"\n    {row}," for row in rows) + "\n]"


def _described(title: str, pointers: Sequence[Pointer]) -> list[str]:
    """A paragraph of the function's documentation, if there are such leaves."""
    lines = (f"\n      {_line(pointer.place)}" for pointer in pointers)
    text = f"{title}:{''.join(lines)}".replace("\\", "/").replace('"""', "'''")
    return [text] if pointers else []


def _line(place: FunctionParameter) -> str:
    return f"{place.meaning}: {place.type.dtype.name}{list(place.type.shape)}"


def _is_expression(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    return True


class _Verbatim:
    """A value that is printed as this text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _returned(f: Callable[..., Any], arguments: Sequence[Any], results: Sequence[Pointer]) -> str:
    """The result as an expression of its leaves."""
    leaves = [_Verbatim(f"results[{n}]") for n in range(len(results))]
    whole = tree.unflatten(jit(f).trace(*arguments).out_tree, leaves)
    return repr(whole if _is_plain(whole) else tuple(leaves))


def _is_plain(value: Any) -> bool:
    """Whether Python's own classes and leaves are all that a tree is made of."""
    if type(value) not in _NODES:
        return isinstance(value, _Verbatim)
    parts = value.values() if isinstance(value, dict) else value or ()
    return all(map(_is_plain, parts))


# ------------------------------------------------------------------ the file
def _wheel(package: str, version: str, platform: str, files: Mapping[str, bytes]) -> WheelFile:
    """A wheel with one package (PEP 427)."""
    tag, about = f"py3-none-{platform}", f"{package}-{version}.dist-info"
    metadata = f"""Metadata-Version: 2.1
Name: {package}
Version: {version}
Summary: A function written by rlx
Requires-Python: >=3.9
Requires-Dist: numpy>=1.24
"""
    wheel = f"Wheel-Version: 1.0\nGenerator: rlx\nRoot-Is-Purelib: false\nTag: {tag}\n"
    members = {f"{package}/{file}": data for file, data in files.items()}
    members |= {f"{about}/METADATA": metadata.encode(), f"{about}/WHEEL": wheel.encode()}
    record = "".join(f"{member},{_checksum(data)},{len(data)}\n" for member, data in members.items())
    members[f"{about}/RECORD"] = f"{record}{about}/RECORD,,\n".encode()
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            information = zipfile.ZipInfo(member, _EPOCH)
            information.external_attr = 0o644 << 16
            archive.writestr(information, data, zipfile.ZIP_DEFLATED)
    return WheelFile(f"{package}-{version}-{tag}.whl", written.getvalue())


def _checksum(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
