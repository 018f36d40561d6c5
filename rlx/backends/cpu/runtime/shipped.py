"""Object code that travels: all that plans need to run where no cache is, as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx.backends.cpu.runtime.entry import RuntimeCode
from rlx.backends.cpu.runtime.executable import NativeExecutable
from rlx.backends.cpu.runtime.store import default_store, files_made_by
from rlx.ir.kernels import Plan

__all__ = ["object_code_of", "take_object_code"]


def object_code_of(plans: Sequence[Plan]) -> dict[str, bytes]:
    """The object code of plans and of what runs them, for processors as this one, by names that say for which."""

    def work() -> None:
        RuntimeCode("core").filler()
        for plan in plans:
            NativeExecutable(plan)

    return files_made_by(work)


def take_object_code(files: Mapping[str, bytes]) -> None:
    """Use what `object_code_of` made, if it was this compiler on such a processor. It is run: for trusted files."""
    default_store().take(files)
