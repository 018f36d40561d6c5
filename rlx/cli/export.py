"""rlx export: a function as a file that runs without its Python, or as source code of another language."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rlx
import rlx.cortexm
from rlx.cli.mistakes import FINE, Mistake, told
from rlx.cli.output import as_json
from rlx.cli.target import function_of, load, require_arguments, target_of, there
from rlx.cli.type_text import arguments_of
from rlx.errors import bytes_text
from rlx.fpga import HwTarget, IoConfig, OptTarget

__all__ = ["add_options", "export"]

MOST_ORDER = 8


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `rlx export`."""
    parser.add_argument("target", metavar="FILE:FUNCTION", help="a Python file or a module, and a function in it")
    types = 'such as "f32[batch,32] i32[]": sizes with names are any number'
    parser.add_argument("--args", action="append", default=[], metavar="TYPES", help=types)
    parser.add_argument("--cpu", help="cortexm: the processor, by default cortex-m4")
    formats = ["rlx", "cortexm", "fpga", *_WRITERS]
    parser.add_argument("--to", choices=formats, default="rlx", help="the format, by default rlx")
    file = "the file, by default FUNCTION with the format's ending; cortexm, fpga: a folder, by default FUNCTION"
    parser.add_argument("-o", "--output", metavar="PATH", help=file)
    parser.add_argument("--tune", choices=[t.value for t in OptTarget], help="fpga: the aim, by default precision")
    parser.add_argument("--family", choices=[t.value for t in HwTarget], help="fpga: the devices, by default generic")
    parser.add_argument("--io", choices=[io.value for io in IoConfig], help="fpga: the ports, by default memory")
    parser.add_argument("--vjp-order", type=int, default=0, metavar="N", help="save N derivatives with it")
    parser.add_argument("--object-code", action="store_true", help="put this processor's object code in")
    parser.add_argument("--json", action="store_true", help="print JSON")


def export(options: argparse.Namespace) -> int:
    """Export a function for types, save it, and print its signature or the files."""
    if not 0 <= options.vjp_order <= MOST_ORDER:
        raise Mistake(f"--vjp-order is {options.vjp_order}.", f"Write 0 to {MOST_ORDER}.")
    if options.to != "rlx" and (options.vjp_order or options.object_code):
        raise Mistake(f"--vjp-order and --object-code do not apply to --to {options.to}.", "Leave them out.")
    if options.cpu and options.to != "cortexm":
        raise Mistake(f"--cpu does not apply to --to {options.to}.", "Leave it out.")
    if options.to != "fpga" and (options.tune or options.family or options.io):
        raise Mistake("--tune, --family and --io apply to --to fpga only.", "Leave them out, or write --to fpga.")
    target = target_of(options.target)
    arguments = [a for text in options.args for a in arguments_of(text, symbolic=options.to in ("rlx", "c"))]
    name = target.function.rpartition(".")[2]
    with there(target, options.json):
        function = function_of(load(target), target)
        if options.to != "fpga":
            require_arguments(function, arguments)
        with told(options.target):
            if options.to == "fpga":
                found = _circuit(function, options, name)
            elif options.to == "rlx":
                found = _saved(function, arguments, Path(options.output or f"{name}.rlx"), options)
            elif options.to == "cortexm":
                found = _firmware(function, arguments, options.output or name, name, options.cpu or "cortex-m4")
            else:
                found = _written(options.to, function, arguments, options.output, name)
    print(as_json(found) if options.json else _summary(found))
    return FINE


def _saved(function: Any, arguments: list[Any], path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Save a function for rlx.load_exported."""
    exported = rlx.export(function)(*arguments)
    content = bytes(exported.serialize(options.vjp_order, object_code=options.object_code))
    _write(path, content)
    return {"path": str(path), "bytes": len(content), "function": repr(exported)[len("<Exported ") : -1]}


def _firmware(function: Any, arguments: list[Any], folder: str, name: str, cpu: str) -> dict[str, Any]:
    """Write a firmware project."""
    firmware = rlx.cortexm.export(function, folder, *arguments, cpu=cpu, name=name)
    files = (path for path in sorted(firmware.folder.iterdir()) if path.suffix not in (".o", ".elf"))
    return {"files": [{"path": str(path), "bytes": path.stat().st_size} for path in files]}


def _written(form: str, function: Any, arguments: list[Any], output: str | None, name: str) -> dict[str, Any]:
    """Write the files of a format: the first one is the output."""
    path = Path(output) if output else Path(f"{name}.{_WRITERS[form][0]}")
    written = _WRITERS[form][1](function, arguments, path).items()
    files = {path.with_suffix(end) if end.startswith(".") else path.with_name(end): data for end, data in written}
    for file, content in files.items():
        _write(file, content)
    return {"files": [{"path": str(file), "bytes": len(content)} for file, content in files.items()]}


def _circuit(function: Any, options: argparse.Namespace, name: str) -> dict[str, Any]:
    """Write the folder of a circuit: `function` is an integer program, or returns one."""
    program = function if isinstance(function, rlx.quant.IntegerProgram) else function()
    chosen = {"tune": options.tune, "target": options.family, "io": options.io}
    chosen = {key: value for key, value in chosen.items() if value}
    project = rlx.fpga.export(program, options.output or name, **chosen)
    files = sorted(project.folder.iterdir())
    estimate = {field: getattr(project.estimate, field) for field in project.estimate.__slots__}
    return {"files": [{"path": str(f), "bytes": f.stat().st_size} for f in files if f.is_file()], "estimate": estimate}


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise Mistake(f"{path} cannot be written: {error.strerror or error}.", "Name a file with -o.") from None


def _summary(found: dict[str, Any]) -> str:
    """The files, for people."""
    if "files" in found:
        return "\n".join(f"{file['path']}: {bytes_text(file['bytes'])}" for file in found["files"])
    return f"{found['path']}: {found['function']}, {bytes_text(found['bytes'])}"


# ------------------------------------------------------------------ formats
def _c(function: Any, arguments: list[Any], path: Path) -> dict[str, bytes]:
    files = rlx.export_c(function, *arguments, name=path.stem)
    return {".c": files.source.encode(), ".h": files.header.encode()}


def _wasm(function: Any, arguments: list[Any], path: Path) -> dict[str, bytes]:
    files = rlx.export_wasm(function, *arguments, name=path.stem)
    return {
        ".wasm": files.module, ".js": files.javascript.encode(), ".d.ts": files.types.encode(),
        ".html": files.page.encode(),
    }  # fmt: skip


def _wgsl(function: Any, arguments: list[Any], path: Path) -> dict[str, bytes]:
    files = rlx.export_wgsl(function, *arguments, name=path.stem)
    return {".wgsl": files.wgsl.encode(), ".json": files.launches.encode(), ".js": files.javascript.encode()}


def _numba(function: Any, arguments: list[Any], path: Path) -> dict[str, bytes]:
    return {".py": rlx.export_numba(function, *arguments, name=path.stem).encode()}


def _stablehlo(function: Any, arguments: list[Any], path: Path) -> dict[str, bytes]:
    return {path.suffix: rlx.export(function)(*arguments).stablehlo().encode()}


def _onnx(function: Any, arguments: list[Any], path: Path) -> dict[str, bytes]:
    return {path.suffix: rlx.onnx.export(function, *arguments).SerializeToString()}


def _wheel(function: Any, arguments: list[Any], path: Path) -> dict[str, bytes]:
    wheel = rlx.export_wheel(function, *arguments, name=path.stem)
    return {wheel.name: wheel.data}


# the ending of a format's first file, and the contents of its files by ending or name
_WRITERS: dict[str, tuple[str, Callable[[Any, list[Any], Path], dict[str, bytes]]]] = {
    "c": ("c", _c),
    "numba": ("py", _numba),
    "onnx": ("onnx", _onnx),
    "stablehlo": ("mlir", _stablehlo),
    "wasm": ("wasm", _wasm),
    "wgsl": ("wgsl", _wgsl),
    "wheel": ("whl", _wheel),
}
