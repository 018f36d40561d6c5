"""rlx gguf: the contents of a GGUF file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rlx.cli.mistakes import FINE, Mistake, told
from rlx.cli.output import as_json
from rlx.errors import did_you_mean
from rlx.gguf.describe import describe
from rlx.gguf.file import GGUFFile

__all__ = ["add_options", "gguf"]

ACTIONS = {"inspect": "its head, its metadata and its tensors"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `rlx gguf`."""
    parser.add_argument("action", metavar="inspect", help="; ".join(f"{k}: {v}" for k, v in ACTIONS.items()))
    parser.add_argument("file", metavar="FILE", help="a GGUF file, or any part of one that was split")
    parser.add_argument("--json", action="store_true", help="print JSON")


def gguf(options: argparse.Namespace) -> int:
    """Print the contents of a file without reading its tensors."""
    if options.action not in ACTIONS:
        near = did_you_mean(options.action, ACTIONS)
        raise Mistake(f"rlx gguf has no action {options.action}.", near or f"Write {', '.join(ACTIONS)}.")
    if not Path(options.file).is_file():
        raise Mistake(f"There is no file {options.file}.", "Name a GGUF file.")
    with told(options.file):
        print(as_json(_contents(GGUFFile(options.file))) if options.json else describe(options.file))
    return FINE


def _contents(file: GGUFFile) -> dict[str, Any]:
    """The output of `describe` as data; arrays are replaced by their lengths."""
    metadata = {}
    for key in file.metadata:
        items = file.metadata.length(key)
        value = {"value": file.metadata[key]} if items is None else {"items": items}
        metadata[key] = {"kind": file.metadata.kind(key)} | value
    return {
        "files": [str(path) for path in file.paths],
        "version": file.version,
        "byte_order": file.byte_order,
        "alignment": file.alignment,
        "bytes": file.nbytes,
        "metadata": metadata,
        "tensors": [
            {"name": t.name, "type": t.kind.name, "shape": list(t.shape), "bytes": t.nbytes} for t in file.values()
        ],
    }
