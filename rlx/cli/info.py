"""rlx info: the environment for a bug report: rlx.print_environment_info and more."""

from __future__ import annotations

import argparse
import re
from importlib import metadata
from typing import Any

import rlx
from rlx.backends.cpu.runtime.compile import processor
from rlx.backends.cpu.runtime.store import user_folder
from rlx.cli.device_states import STATES, Machine, device_states
from rlx.cli.mistakes import FINE
from rlx.cli.output import as_json, short_path

__all__ = ["add_options", "info", "installed"]

_OTHERS = ("numba", "llvmlite", "scipy", "optree", "ml_dtypes", "opt_einsum", "scipy-openblas32", "jax", "torch")
_LINE = re.compile(r"(\w+)(?:: *|=)(.*)")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `rlx info`."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def info(options: argparse.Namespace) -> int:
    """Print versions, devices, the processor, the cache folder and the settings.

    Then the devices that are usable, those that are installable, with the command, and the others, with the reason.
    """
    told = _environment()
    if options.json:
        print(as_json(told))
        return FINE
    states = told.pop("device_states")
    width = max(map(len, told)) + 1
    for name, value in told.items():
        text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        print(f"{name + ':':{width}} {text}")
    for state in STATES:
        print(f"{state} devices:")
        for name, text in states[state].items():
            print(f"  {name}: {text}" if text else f"  {name}")
    return FINE


def _environment() -> dict[str, Any]:
    text = rlx.print_environment_info(return_string=True) or ""
    found: dict[str, Any] = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is not None:
            found[match[1]] = short_path(match[2])
    folder = user_folder()
    name, features = processor()
    vectors = [f for f in ("avx2", "fma", "avx512f", "amx-tile", "neon", "sve") if features.get(f)]
    found["packages"] = {name: version for name in _OTHERS if (version := installed(name))}
    found["processor"] = " ".join([name, *vectors])
    found["threads"] = rlx.get_num_threads()
    found["cache"] = "off" if folder is None else short_path(folder.parent)
    states = device_states(Machine())
    found["device_states"] = {state: {d.name: d.text for d in states if d.state == state} for state in STATES}
    return found


def installed(package: str) -> str:
    """The version of a package that is installed, without importing it; empty if there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
