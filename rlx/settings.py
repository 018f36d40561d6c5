"""The environment variables that rlx reads, and a warning for others that start with RLX_ and mean one of them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rlx.errors import did_you_mean, warn

__all__ = ["MEANT", "SETTINGS", "unread_settings", "warn_unread"]

# every variable that rlx reads
SETTINGS = """RLX_NUM_THREADS RLX_CACHE_DIR RLX_CACHE RLX_DEVICE RLX_CHECK RLX_EXPLAIN RLX_DUMP RLX_DISABLE_JIT
    RLX_NUM_CPU_DEVICES RLX_EXCESS_PRECISION RLX_DEBUG_NANS RLX_DEBUG_INFS RLX_METAL_KERNELS RLX_OPENBLAS_CORETYPE
    RLX_PROGRESS RLX_SYMBOLIC_SIZES RLX_TRACEBACK RLX_COLLECTIVE_TIMEOUT RLX_SAVE_TIMEOUT RLX_DETERMINISTIC
    RLX_CLBLAST RLX_DEVICES RLX_DENY_DEVICES RLX_PREFER_DEVICES RLX_BENCHMARK_PICK""".split()
_OWN = ("RLX_TEST_", "RLX_FUZZ_", "RLX_LAUNCH_")  # of the tests, and between processes
# variables that other programs of this name read, and what to use here
MEANT = {
    "RLX_ARENA_ALIGN": "use the option arena_alignment of CompileOptions",
    "RLX_DEVICE_CHAIN": "set RLX_PREFER_DEVICES",
    "RLX_DISPATCH_REPORT": "print rlx.inspect(f)(x).dispatch, or use the option verbose of CompileOptions",
    "RLX_FUSION_REPORT": "call inspect_fusion(f, x), or use the option verbose of CompileOptions",
    "RLX_IR_DUMP": "set RLX_DUMP to a folder",
    "RLX_METAL_NO_FUSION": "use FusionOptions(skip_fusion=True)",
    "RLX_VERBOSE": "set RLX_EXPLAIN=1",
}


def unread_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that rlx does not read although they look as if, and for each what was probably meant.

    >>> from rlx.settings import unread_settings
    >>> unread_settings({"RLX_IR_DUMP": "/tmp", "RLX_NUM_THREAD": "2", "RLX_OF_ANOTHER_PROGRAM": ""})
    {'RLX_IR_DUMP': 'set RLX_DUMP to a folder', 'RLX_NUM_THREAD': 'did you mean RLX_NUM_THREADS?'}
    """
    found = {}
    for name in environment:
        if not name.startswith("RLX_") or name in SETTINGS or name.startswith(_OWN):
            continue
        near = MEANT.get(name) or did_you_mean(name, SETTINGS)
        if near:
            found[name] = near[0].lower() + near[1:]
    return found


def warn_unread() -> None:
    """Warn of each such variable of this process."""
    for name, meant in unread_settings(os.environ).items():
        warn(f"rlx does not read the environment variable {name}: {meant}")
