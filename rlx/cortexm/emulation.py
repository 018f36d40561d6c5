"""Firmware on this computer: built by gcc, run by QEMU, and its instructions counted by function.

Counts are exact and the same in every run. They are instructions, not cycles: QEMU does not model a pipeline.
"""

from __future__ import annotations

import bisect
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlx.cortexm.processors import Processor
from rlx.cortexm.texts import PROJECT, emulator
from rlx.errors import DeviceError

__all__ = ["Run", "built", "missing_tools", "run", "sizes_of"]

_SHOWN_LINES = 15
_SECONDS = 600
_PACKAGES = {
    "make": "make", "cc": "gcc", "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "qemu-system-arm": "qemu-system-arm",
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """The outcome of a run of firmware.

    Attributes:
      output: the bytes of the file that it wrote, empty for a self test.
      text: the lines that it printed.
      stack: bytes of the stack that the last call and its callers used; 0 on "generic".
      instructions: of all calls together, by function; without the program's own main and start. Empty if they were
        not counted.

    >>> from rlx.cortexm import Run
    >>> Run(b"", "stack 0000000212", 212).instructions
    {}
    """

    output: bytes
    text: str
    stack: int
    instructions: Mapping[str, int] = field(default_factory=dict)


def missing_tools(processor: Processor) -> dict[str, str]:
    """The programs that building and running firmware lacks, each with the Debian packages that contain it.

    >>> import rlx.cortexm
    >>> "arm-none-eabi-gcc" in rlx.cortexm.missing_tools(rlx.cortexm.PROCESSORS["generic"])
    False
    """
    needed = ["make", "cc"] if processor.machine is None else [*_PACKAGES]
    return {name: _PACKAGES[name] for name in needed if shutil.which(name) is None}


def _require_tools(processor: Processor) -> None:
    missing = missing_tools(processor)
    if missing:
        raise DeviceError(
            f"Firmware for {processor.name} needs {', '.join(missing)}, which this computer lacks.",
            f"Install it (Debian: apt-get install {' '.join(missing.values())}).",
        )


def built(folder: Path, name: str, processor: Processor) -> Path:
    """Build a project; -> the program. Raises DeviceError without the tools, or with the compiler's lines."""
    _require_tools(processor)
    done = _finished(["make", f"{name}.elf"], folder)
    if done.returncode:
        shown = "\n".join(done.stderr.splitlines()[:_SHOWN_LINES])
        raise DeviceError(f"{name} cannot be built for {processor.name}:\n{shown}", "See the Makefile of the project.")
    return folder / f"{name}.elf"


def _finished(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
        timeout=_SECONDS,
    )  # fmt: skip


def run(folder: Path, name: str, processor: Processor, data: bytes | None, count: bool) -> Run:
    """Run a project on the bytes of its input file, or its self test without. Raises DeviceError if it fails."""
    program = built(folder, name, processor)
    with tempfile.TemporaryDirectory(prefix="rlx-cortexm-") as work:
        place = Path(work)
        if data is not None:
            (place / f"{name}.in").write_bytes(data)
        command = [str(program)] if processor.machine is None else [*emulator(processor), "-kernel", str(program)]
        counted = count and processor.machine is not None
        if counted:
            low = processor.flash[0]
            given = f"lo={low:x},hi={low + processor.flash[1]:x},to={place / 'counts'}"
            command += ["-plugin", f"{_plugin(place)},{given}"]
        done = _finished(command, place)
        if done.returncode:
            raise DeviceError(
                f"{name} ended with status {done.returncode} on {processor.name}: "
                f"{(done.stdout + done.stderr).strip()}",
                "Run `make run` in the project's folder to see it.",
            )
        output = place / f"{name}.out"
        text = done.stdout + done.stderr  # semihosting prints to either
        stack = next((int(line.split()[1]) for line in text.splitlines() if line.startswith("stack ")), 0)
        found = _by_function(place / "counts", folder, program) if counted else {}
        return Run(output.read_bytes() if output.exists() else b"", text, stack, found)


def _plugin(place: Path) -> Path:
    """The counter, compiled."""
    made = place / "count.so"
    done = _finished(["cc", "-O2", "-shared", "-fPIC", str(PROJECT / "count.c"), "-o", str(made)], place)
    if done.returncode:
        raise DeviceError(f"The counter of instructions cannot be built:\n{done.stderr}", "Install gcc.")
    return made


# ---------------------------------------------------------------- symbols
def _symbols(file: Path, *options: str) -> list[list[str]]:
    done = _finished(["arm-none-eabi-nm", *options, str(file)], file.parent)
    return [line.split() for line in done.stdout.splitlines()]


def _by_function(counts: Path, folder: Path, program: Path) -> dict[str, int]:
    """Counts by function, without those of main.c and start.c, most first."""
    functions = sorted(
        (int(row[0], 16), int(row[1], 16), row[3])
        for row in _symbols(program, "-S")
        if len(row) == 4 and row[2] in "tTwW"
    )
    starts = [start for start, _, _ in functions]
    own = {row[-1] for unit in ("main", "start") for row in _symbols(folder / f"{unit}.o", "--defined-only")}
    found: dict[str, int] = {}
    for line in counts.read_text().splitlines():
        address, number = line.split()
        at = bisect.bisect_right(starts, int(address, 16)) - 1
        inside = at >= 0 and int(address, 16) < starts[at] + functions[at][1]
        name = functions[at][2] if inside else "(library)"  # functions in assembler have no size
        if name not in own:
            found[name] = found.get(name, 0) + int(number)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def sizes_of(folder: Path, program: Path) -> dict[str, int]:
    """Bytes of flash (code and constants) and RAM of a program, without main.c and start.c."""

    def sections(file: Path) -> tuple[int, int]:
        row = _finished(["arm-none-eabi-size", str(file)], folder).stdout.splitlines()[1].split()
        text, data, bss = map(int, row[:3])
        return text + data, data + bss

    flash, ram = sections(program)
    for unit in ("main.o", "start.o"):
        own = sections(folder / unit)
        flash, ram = flash - own[0], ram - own[1]
    return {"flash": flash, "ram": ram}
