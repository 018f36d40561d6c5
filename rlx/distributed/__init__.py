"""Collectives and groups for programs that run as several processes. See docs/distributed.md."""

from __future__ import annotations

from rlx.distributed.arrays import all_gather, all_reduce, all_to_all, broadcast, permute, reduce_scatter
from rlx.distributed.processes import (
    barrier,
    initialize,
    is_initialized,
    new_group,
    process_count,
    process_index,
    shutdown,
)
from rlx.offered_names import offer_names

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "initialize",
    "is_initialized",
    "new_group",
    "permute",
    "process_count",
    "process_index",
    "reduce_scatter",
    "shutdown",
]

offer_names(globals())
