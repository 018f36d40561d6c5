"""The processes of a program: joining them, leaving them, and groups of some of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from rlx.distributed.arrivals import say_left
from rlx.distributed.environment import ProcessRank, find_place
from rlx.distributed.members import Member
from rlx.distributed.message_passing import world_member
from rlx.distributed.mlx_ring import ring_member
from rlx.distributed.torch_gloo import gloo_member
from rlx.errors import ShardingError, UnsupportedError
from rlx.ir.collectives import WORLD, Alone, Members, communicator, group_among, members

__all__ = ["barrier", "initialize", "is_initialized", "new_group", "process_count", "process_index", "shutdown"]

_LAUNCH = "Start processes with `rlx launch -n 4 program.py` or `mpiexec -n 4 python program.py`."
_MEMBER = "RLX_MEMBER"  # the number of the process that has joined; its child processes inherit the variable
_initialized = False


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: Any = None,
    **options: Any,
) -> None:
    """Join the processes that were started together, by MPI, mlx.launch or torchrun. A lone process is a group of one.

    Call it in every process before functions are traced; functions that were jitted before are traced again.

    Args:
      coordinator_address: accepted for compatibility with JAX; launchers know it.
      num_processes: the number of processes; None: from the variables of MPI, SLURM or torchrun.
      process_id: the rank of this process; None: from the same variables.
      local_device_ids: numbers of its devices: 0, [0] or None.
      options: further options of jax.distributed.initialize, which are about connections.

    Raises: ShardingError for numbers that contradict the environment, if it has been called before, and in processes
      that one of the processes has started;
      UnsupportedError for more processes than were started, and without mpi4py.

    >>> import rlx
    >>> rlx.distributed.initialize()
    >>> rlx.process_count(), rlx.distributed.is_initialized()
    (1, True)
    >>> rlx.distributed.shutdown()
    """
    global _initialized
    if is_initialized():
        raise ShardingError("distributed.initialize has been called before.", "Call shutdown() first, or call it once.")
    if local_device_ids not in (None, 0) and list(local_device_ids) != [0]:
        raise UnsupportedError(f"distributed.initialize got local_device_ids={local_device_ids}.", "There is device 0.")
    place = find_place(size=num_processes) or ProcessRank(0, 1, "nobody")
    _compare("num_processes", num_processes, place.size, place)
    _compare("process_id", process_id, place.rank, place)
    if place.size > 1:
        _refuse_child(place)
        world = _world(place)
        if (world.rank, world.size) != place[:2]:
            raise UnsupportedError(
                f"{place.source} says that this is process {place.rank} of {place.size}, MPI that it is {world.rank} of"
                f" {world.size}: they were not started by this MPI library.",
                f"{_LAUNCH} (Use the mpiexec of the package mpich if it is installed.)",
            )
        members.set_global(Members({WORLD: world}))
        os.environ[_MEMBER] = str(os.getpid())
    _initialized = True


def _refuse_child(place: ProcessRank) -> None:
    """Raises ShardingError in a process that a member has started, which has inherited the launcher's variables."""
    if os.environ.get(_MEMBER) == str(os.getppid()):
        raise ShardingError(
            f"This process was started by the process of rank {place.rank} of {place.size}, not by {place.source}.",
            'In a program that starts processes, call initialize under `if __name__ == "__main__":`.',
        )


def _world(place: ProcessRank) -> Member:
    """The group of all processes, by the transport of their launcher."""
    if place.source == "MLX":
        return ring_member(WORLD)
    if place.source == "torchrun" and "MASTER_ADDR" in os.environ:  # without an address they belong to another program
        return gloo_member(WORLD, place.size)
    return world_member(WORLD, place.rank, place.size)


def _compare(name: str, given: int | None, found: int, place: ProcessRank) -> None:
    if given in (None, found):
        return
    if place.size == 1:
        raise UnsupportedError(
            f"distributed.initialize got {name}={given}, but nothing in the environment says that other processes were"
            " started.", _LAUNCH,
        )  # fmt: skip
    raise ShardingError(
        f"distributed.initialize got {name}={given}, but {place.source} says {found}.", "Leave it out, or use that one."
    )


def is_initialized() -> bool:
    """Whether `initialize` has been called, and `shutdown` has not been called since.

    >>> import rlx
    >>> rlx.distributed.is_initialized()
    False
    """
    return _initialized


def shutdown() -> None:
    """Leave the other processes; from here on this process computes alone. Either all processes call it, or none.

    >>> import rlx
    >>> rlx.distributed.shutdown()
    """
    global _initialized
    if _initialized and process_count() > 1:
        barrier()
    members.set_global(Members({WORLD: Alone()}))
    say_left()
    _initialized = False


def process_index(group: str = WORLD) -> int:
    """The rank of this process in a group: 0, 1, 2, ...

    Raises: ShardingError for a group that this process does not belong to.

    >>> import rlx
    >>> rlx.distributed.process_index()
    0
    """
    return communicator(group).rank


def process_count(group: str = WORLD) -> int:
    """The number of processes in a group.

    Raises: ShardingError for a group that this process does not belong to.

    >>> import rlx
    >>> rlx.distributed.process_count()
    1
    """
    return communicator(group).size


def barrier(group: str = WORLD, name: str = "") -> None:
    """Wait for all processes of a group.

    Args: group: its name, from `new_group`. name: of the barrier, which must be the same in all processes.

    Raises: CollectiveError if a process does not arrive within RLX_COLLECTIVE_TIMEOUT seconds (30), or passes
      another name.

    >>> import rlx
    >>> rlx.distributed.barrier()
    """
    communicator(group).barrier(name)


def new_group(ranks: Sequence[int]) -> str:
    """Create a group of some of the processes, and return its name. All processes call it, in the same order.

    Args: ranks: the ranks of its members. Their ranks in the group are 0, 1, ... in this order.

    Raises: ShardingError for a rank that does not exist or is repeated; CollectiveError if processes pass others.

    >>> import rlx
    >>> from rlx.distributed import threads
    >>> def pairs() -> int:
    ...     low, high = rlx.distributed.new_group([0, 1]), rlx.distributed.new_group([2, 3])
    ...     own = low if rlx.process_index() < 2 else high
    ...     return int(rlx.distributed.all_reduce(rlx.process_index(), group=own))
    >>> threads.run(4, pairs)
    [1, 1, 5, 5]
    """
    size = communicator(WORLD).size
    wanted = [int(rank) for rank in ranks]
    if not wanted or len(set(wanted)) < len(wanted) or not all(0 <= rank < size for rank in wanted):
        raise ShardingError(f"new_group got the ranks {list(ranks)}.", f"Pass different numbers from 0 to {size - 1}.")
    return group_among(wanted)
