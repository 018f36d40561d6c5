"""rlx quantize: a model packed into a GGUF file."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlx.cli.generate import model_path
from rlx.cli.mistakes import FINE, Mistake, told
from rlx.cli.output import as_json
from rlx.errors import did_you_mean
from rlx.lm.converting import repack_gguf, save_gguf
from rlx.lm.loading import load
from rlx.lm.recipes import RECIPES

__all__ = ["add_options", "quantize"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `rlx quantize`."""
    parser.add_argument("model", metavar="MODEL", help="a model's folder, or a GGUF file")
    parser.add_argument("file", metavar="FILE", help="the GGUF file to write")
    parser.add_argument("--to", default="q4_k_m", metavar="RECIPE", help=f"{', '.join(RECIPES)} (q4_k_m)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def quantize(options: argparse.Namespace) -> int:
    """Write the file, and print its size."""
    recipe = options.to.lower()
    if recipe not in RECIPES:
        raise Mistake(
            f"There is no recipe {options.to}.", did_you_mean(recipe, RECIPES) or f"There are: {', '.join(RECIPES)}."
        )
    source, target = model_path(options.model), Path(options.file)
    if target.is_dir():
        raise Mistake(f"{target} is a folder.", "Name a file, such as model.gguf.")
    if source == target or (target.exists() and source.samefile(target)):
        raise Mistake("A file cannot be packed into itself.", "Name another file.")
    with told(str(source)):
        model = load(source)
        if source.is_file():
            repack_gguf(source, target, recipe, model.config)
        else:
            save_gguf(model, target, recipe, source.resolve().name)
    size = target.stat().st_size
    print(as_json({"file": str(target), "bytes": size}) if options.json else f"{target}: {size / 1e6:.1f} MB")
    return FINE
