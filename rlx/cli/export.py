"""rlx export: a function as a file that runs without its Python."""

from __future__ import annotations

import argparse
from pathlib import Path

import rlx
from rlx.cli.mistakes import FINE, Mistake, told
from rlx.cli.output import as_json
from rlx.cli.target import function_of, load, require_arguments, target_of, there
from rlx.cli.type_text import arguments_of
from rlx.errors import bytes_text

__all__ = ["add_options", "export"]

MOST_ORDER = 8


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `rlx export`."""
    parser.add_argument("target", metavar="FILE:FUNCTION", help="a Python file or a module, and a function in it")
    types = 'such as "f32[batch,32] i32[]": sizes with names are any number'
    parser.add_argument("--args", action="append", default=[], metavar="TYPES", help=types)
    parser.add_argument("-o", "--output", metavar="PATH", help="the file, by default FUNCTION.rlx")
    parser.add_argument("--vjp-order", type=int, default=0, metavar="N", help="save N derivatives with it")
    parser.add_argument("--object-code", action="store_true", help="put this processor's object code in")
    parser.add_argument("--json", action="store_true", help="print JSON")


def export(options: argparse.Namespace) -> int:
    """Export a function for types, save it, and print its signature."""
    if not 0 <= options.vjp_order <= MOST_ORDER:
        raise Mistake(f"--vjp-order is {options.vjp_order}.", f"Write 0 to {MOST_ORDER}.")
    target = target_of(options.target)
    arguments = [a for text in options.args for a in arguments_of(text, symbolic=True)]
    name = target.function.rpartition(".")[2]
    path = Path(options.output or f"{name}.rlx")
    with there(target, options.json):
        function = function_of(load(target), target)
        require_arguments(function, arguments)
        with told(options.target):
            exported = rlx.export(function)(*arguments)
            content = bytes(exported.serialize(options.vjp_order, object_code=options.object_code))
    try:
        path.write_bytes(content)
    except OSError as error:
        raise Mistake(f"{path} cannot be written: {error.strerror or error}.", "Name a file with -o.") from None
    found = {"path": str(path), "bytes": len(content), "function": repr(exported)[len("<Exported ") : -1]}
    print(as_json(found) if options.json else f"{found['path']}: {found['function']}, {bytes_text(len(content))}")
    return FINE
