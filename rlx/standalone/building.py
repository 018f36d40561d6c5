"""Exported functions compiled by a C compiler."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rlx.backends.c.files import CFunction
from rlx.errors import DeviceError

__all__ = ["built"]

_SHOWN_LINES = 12


def built(function: CFunction, command: Sequence[str], options: Sequence[str], target: str, instead: str) -> bytes:
    """The file that a compiler writes for a function's source.

    target, instead: the product, and the advice in the error message.

    Raises DeviceError if the compiler cannot be started or rejects the source.
    """
    with tempfile.TemporaryDirectory(prefix="rlx-build-") as name:
        folder = Path(name)
        texts = function.texts()
        (folder / "unit.c").write_text(texts.source, encoding="utf-8")
        (folder / function.header).write_text(texts.header, encoding="utf-8")
        try:
            done = subprocess.run(
                [*command, *options, "unit.c", "-o", "unit.out", "-lm"],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
        except OSError as error:
            raise DeviceError(
                f"The compiler {shlex.join(command)} cannot be started: {error}.", "Pass another one as compiler=."
            ) from None
        if done.returncode != 0:
            said = "\n".join(done.stderr.splitlines()[:_SHOWN_LINES]) or f"exit status {done.returncode}"
            raise DeviceError(f"{shlex.join(command)} could not compile {function.name} for {target}:\n{said}", instead)
        return (folder / "unit.out").read_bytes()
