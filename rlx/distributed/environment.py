"""The rank of this process and the number of processes, from the environment variables of launchers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rlx.errors import ShardingError

__all__ = ["LAUNCHERS", "Launcher", "ProcessRank", "find_place"]


class ProcessRank(NamedTuple):
    """The rank of this process, the number of processes, and the launcher that set them."""

    rank: int
    size: int
    source: str


class Launcher(NamedTuple):
    """The variables that a launcher sets in each process.

    depth: launchers start only launchers of a greater depth. size: "" if no variable has it.
    beside: the launcher is used only if one of these variables is set.
    """

    source: str
    depth: int
    rank: str
    size: str
    beside: tuple[str, ...] = ()


# RANK and WORLD_SIZE alone may have been exported manually: they must agree with every launcher
_BY_HAND = 0
# if several agree, the first one of the greatest depth is used
LAUNCHERS = (
    Launcher("torchrun", 4, "RANK", "WORLD_SIZE", ("TORCHELASTIC_RUN_ID",)),
    Launcher("MLX", 4, "MLX_RANK", "MLX_WORLD_SIZE"),
    Launcher("MPICH", 3, "PMI_RANK", "PMI_SIZE"),
    Launcher("Open MPI", 3, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    Launcher("MVAPICH", 3, "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    Launcher("PMIx", 3, "PMIX_RANK", ""),
    # other launchers for torch: DeepSpeed's and Ray's; some of them run under MPI, and repeat its ranks
    Launcher("torchrun", 3, "RANK", "WORLD_SIZE", ("LOCAL_RANK",)),
    Launcher("Flux", 2, "FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    Launcher("jsrun", 2, "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    Launcher("SLURM", 1, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    Launcher("torchrun", _BY_HAND, "RANK", "WORLD_SIZE"),
)


class _Claim(NamedTuple):
    """The rank and size that one launcher has set; size: None if it does not set it."""

    launcher: Launcher
    rank: int
    size: int | None
    variables: str

    def __str__(self) -> str:
        size = "" if self.size is None else f" of {self.size}"
        return f"{self.launcher.source} says that this is process {self.rank}{size} ({self.variables})"


def find_place(variables: Mapping[str, str] | None = None, size: int | None = None) -> ProcessRank | None:
    """The rank and size that the environment specifies for this process; None if it specifies none.

    If several launchers are found, the innermost one counts: the one that the others have started.

    Args: size: the number of processes, for launchers that only set the rank.

    Raises: ShardingError for variables that are not numbers, for a rank that is not less than the size, and for
      launchers that contradict each other.

    >>> from rlx.distributed.environment import find_place
    >>> find_place({"PMI_RANK": "2", "PMI_SIZE": "4"})
    ProcessRank(rank=2, size=4, source='MPICH')
    """
    known = dict(os.environ if variables is None else variables)
    if "MLX_HOSTFILE" in known:  # the list of a ring has an entry for each process
        known.setdefault("MLX_WORLD_SIZE", _count(known["MLX_HOSTFILE"]))
    claims = [claim for launcher in LAUNCHERS if (claim := _claim(launcher, known)) is not None]
    if not claims:
        return None
    found = max(claims, key=lambda claim: claim.launcher.depth)
    for other in claims:
        if other is not found:
            _check_agreement(found, other)
    told = next((c.size for c in (found, *claims) if c.size is not None and c.rank == found.rank), size)
    if told is None:
        raise ShardingError(
            f"{found}, but not how many processes there are.",
            "Call rlx.distributed.initialize(num_processes=...) with their number.",
        )
    return ProcessRank(found.rank, told, found.launcher.source)


def _claim(launcher: Launcher, known: Mapping[str, str]) -> _Claim | None:
    """The claim of a launcher; None if its variables are not set, or belong to a row above."""
    names = [name for name in (launcher.rank, launcher.size) if name]
    if not all(name in known for name in names):
        return None
    if launcher.beside and not any(name in known for name in launcher.beside):
        return None
    if any(row.rank == launcher.rank and _is_meant(row, known) for row in LAUNCHERS[: LAUNCHERS.index(launcher)]):
        return None
    words = [known[name].strip() for name in names]
    said = ", ".join(f"{name}={known[name]}" for name in names)
    if not all(word.isdecimal() for word in words) or (launcher.size and not int(words[0]) < int(words[1])):
        raise ShardingError(
            f"The variables of {launcher.source} are {said}.",
            f"{launcher.rank} must be an integer from 0 on{f', below {launcher.size}' if launcher.size else ''}."
            " Unset them if they were not set by a launcher.",
        )
    rank, *size = map(int, words)
    return _Claim(launcher, rank, size[0] if size else None, said)


def _is_meant(launcher: Launcher, known: Mapping[str, str]) -> bool:
    return not launcher.beside or any(name in known for name in launcher.beside)


def _check_agreement(inner: _Claim, outer: _Claim) -> None:
    """Raise ShardingError if one launcher cannot have started the other one.

    Launchers of one depth are the same launcher under two names. A launcher that was started by another in each of its
    processes has at least as many processes. With fewer, several jobs would each believe to be the whole program.
    """
    sizes = None not in (inner.size, outer.size)
    same = outer.launcher.depth in (inner.launcher.depth, _BY_HAND)
    if same and inner.rank == outer.rank and (not sizes or inner.size == outer.size):
        return
    if not same and not (sizes and inner.size < outer.size):  # ty: ignore[unsupported-operator]
        return
    raise ShardingError(
        f"Two launchers contradict each other: {inner}, {outer}.",
        "Start the program with only one of them, or unset the variables of the other.",
    )


def _count(hosts: str) -> str:
    """The number of processes in a list of hosts, from a file or a string; the string itself if it is not a list."""
    try:
        text = Path(hosts).read_text() if os.path.isfile(hosts) else hosts
        return str(len(json.loads(text)))
    except ValueError:
        return hosts
