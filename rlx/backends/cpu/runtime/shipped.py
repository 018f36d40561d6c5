"""Portable object code: the files that plans need to run without a cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx.backends.cpu.runtime.entry import RuntimeCode
from rlx.backends.cpu.runtime.executable import NativeExecutable
from rlx.backends.cpu.runtime.store import default_store, files_made_by
from rlx.ir.kernels import Plan

__all__ = ["object_code_of", "take_object_code"]


def object_code_of(plans: Sequence[Plan]) -> dict[str, bytes]:
    """Object code of plans and their run-time system, for processors like this one, by names that identify it."""

    def work() -> None:
        RuntimeCode("core").filler()
        for plan in plans:
            NativeExecutable(plan)

    return files_made_by(work)


def take_object_code(files: Mapping[str, bytes]) -> None:
    """Use files of `object_code_of`, if compiler and processor match. The code is executed: only for trusted files."""
    default_store().take(files)
