"""rlx calibrate: measure a device's costs, which the choice of a device uses."""

from __future__ import annotations

import argparse

from rlx.cli.mistakes import FAILED, FINE, Mistake
from rlx.cli.output import as_json
from rlx.columns import aligned
from rlx.errors import RlxError
from rlx.placement import calibrate as measure

__all__ = ["add_options", "calibrate"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `rlx calibrate`."""
    parser.add_argument("--device", action="append", default=[], metavar="NAME", help="the default device without it")
    parser.add_argument("--seconds", type=float, default=20.0, help="probes start within this time (default: 20)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def calibrate(options: argparse.Namespace) -> int:
    """Measure each device and store the result."""
    if not options.seconds > 0:
        raise Mistake(f"--seconds is {options.seconds:g}.", "It must be above 0.")
    found = []
    for device in options.device or [None]:
        try:
            found.append(measure(device, options.seconds))
        except RlxError as error:
            raise Mistake(error.what, error.instead, FAILED) from None
    if options.json:
        print(as_json([{"device": r.device, "basis": r.basis, "costs": dict(r.costs)} for r in found]))
        return FINE
    for rates in found:
        rows = [(name, f"{seconds:.3g}") for name, seconds in sorted(rates.costs.items())]
        print("\n".join(aligned([(f"{rates.device}, {rates.basis}", "seconds a unit"), *rows], (1,))))
    return FINE
