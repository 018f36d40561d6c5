"""Which process of how many this is, by the variables that those who start processes set."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rlx.errors import ShardingError

__all__ = ["Place", "find_place"]


class Place(NamedTuple):
    """The rank of this process among so many, and who says so."""

    rank: int
    size: int
    source: str


# who sets them, and the names of rank and size
_VARIABLES = (
    ("MPICH", "PMI_RANK", "PMI_SIZE"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("MLX", "MLX_RANK", "MLX_WORLD_SIZE"),
    ("SLURM", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    # torchrun's names, which Ray's and Dask's trainers for torch set, too
    ("torchrun", "RANK", "WORLD_SIZE"),
)


def find_place(variables: Mapping[str, str] | None = None) -> Place | None:
    """What the environment says of this process; None if it says nothing.

    Raises: ShardingError for variables that hold no numbers, or a rank that is not among so many.

    >>> from rlx.distributed.environment import find_place
    >>> find_place({"PMI_RANK": "2", "PMI_SIZE": "4"})
    Place(rank=2, size=4, source='MPICH')
    """
    known = dict(os.environ if variables is None else variables)
    if "MLX_HOSTFILE" in known:  # of rings, where each process has an item
        known.setdefault("MLX_WORLD_SIZE", _count(known["MLX_HOSTFILE"]))
    for source, rank, size in _VARIABLES:
        if rank in known and size in known:
            found = known[rank].strip(), known[size].strip()
            if not all(word.isdigit() for word in found) or not int(found[0]) < int(found[1]):
                raise ShardingError(
                    f"{source}'s variables are {rank}={known[rank]!r} and {size}={known[size]!r}.",
                    f"{rank} is a number from 0 on, below {size}; unset them where no launcher has set them.",
                )
            return Place(int(found[0]), int(found[1]), source)
    return None


def _count(hosts: str) -> str:
    """How many processes a list of hosts is for, which is a file or its text; the text itself if it is no list."""
    try:
        text = Path(hosts).read_text() if os.path.isfile(hosts) else hosts
        return str(len(json.loads(text)))
    except ValueError:
        return hosts
