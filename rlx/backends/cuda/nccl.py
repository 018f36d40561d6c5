"""Collectives between processes with a GPU each, by NCCL between the GPUs' memories, on the kernels' stream.

Processes find one another, and agree on the next operation, through the group's Communicator on the host. That
Communicator also executes the operations that NCCL lacks, with copies on the host.
"""

from __future__ import annotations

import hashlib
import socket
import sys
from collections.abc import Callable, Sequence
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rlx.errors import CollectiveError
from rlx.installation import install_command
from rlx.ir.collectives import Communicator, Exchange, communicator, exchange_where_it_lies
from rlx.ir.kernels import Collective

__all__ = ["NcclGroup", "NcclGroups", "takes"]

# NCCL's constants for dtypes and reductions, from nccl.h
_BYTES = 1
_TYPES = {
    "bool": 1, "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5,
    "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9, "complex64": 7, "complex128": 8,
}  # fmt: skip
_OPERATIONS = {"sum": 0, "prod": 1, "max": 2, "min": 3}
_OF_BOOLS = {"or": "max", "and": "min", "max": "max", "min": "min"}
_REDUCES = ("all_reduce", "reduce_scatter", "reduce")
_DIGEST = 16
_IDENTITY = 128  # bytes of the identifier of an NCCL group


def takes(what: Exchange, dtype: np.dtype) -> bool:
    """Whether NCCL executes a collective: all that move bytes, and most reductions."""
    if what.kind not in _REDUCES:
        return True
    known = _OF_BOOLS if dtype.kind == "b" else ("sum",) if dtype.kind == "c" else _OPERATIONS
    return what.mode == "fast" and dtype.name in _TYPES and what.op in known


class NcclGroup:
    """A member of a group of processes in NCCL, with the same ranks as in `host`, which connected them.

    nccl: CuPy's module. clear: fills a number of bytes from an address on with zeros, on a stream.
    """

    def __init__(self, nccl: Any, host: Communicator, clear: Callable[[int, int, int], None]) -> None:
        self._nccl, self._clear = nccl, clear
        self.rank, self.size = host.rank, host.size
        own = np.frombuffer(nccl.get_unique_id() if self.rank == 0 else bytes(_IDENTITY), np.uint8).copy()
        common = np.empty_like(own)
        host.broadcast(own, common, 0)
        self._comm = nccl.NcclCommunicator(self.size, common.tobytes(), self.rank)

    def carry_out(
        self, what: Exchange, shape: Sequence[int], dtype: np.dtype, source: int, target: int, stream: int
    ) -> None:
        """Queue a collective of an array of this shape at address `source`; the result is stored at `target`."""
        nbytes = prod(shape) * dtype.itemsize
        count = prod(shape) * (2 if dtype.kind == "c" else 1)
        number = _TYPES.get(dtype.name, _BYTES)
        op = _OPERATIONS.get(_OF_BOOLS.get(what.op, what.op) if dtype.kind == "b" else what.op, 0)
        match what.kind:
            case "all_reduce":
                self._comm.allReduce(source, target, count, number, op, stream)
            case "all_gather":
                self._comm.allGather(source, target, nbytes, _BYTES, stream)
            case "reduce_scatter":
                self._comm.reduceScatter(source, target, count // self.size, number, op, stream)
            case "broadcast":
                self._comm.broadcast(source, target, nbytes, _BYTES, what.root, stream)
            case "reduce":
                self._comm.reduce(source, target, count, number, op, what.root, stream)
                if self.rank != what.root:
                    self._clear(target, nbytes, stream)
            case "all_to_all":
                row = nbytes // self.size
                everyone = [(source + rank * row, target + rank * row, rank) for rank in range(self.size)]
                self._swap([(at, to) for at, _, to in everyone], [(at, of) for _, at, of in everyone], row, stream)
            case "permute":
                sent = [(source, to) for of, to in what.pairs if of == self.rank]
                come = [(target, of) for of, to in what.pairs if to == self.rank]
                self._swap(sent, come, nbytes, stream)
                if not come:
                    self._clear(target, nbytes, stream)

    def _swap(
        self, sent: Sequence[tuple[int, int]], come: Sequence[tuple[int, int]], nbytes: int, stream: int
    ) -> None:
        """Messages of one length, as (address, other rank), all at once."""
        self._nccl.groupStart()
        for address, rank in sent:
            self._comm.send(address, nbytes, _BYTES, rank, stream)
        for address, rank in come:
            self._comm.recv(address, nbytes, _BYTES, rank, stream)
        self._nccl.groupEnd()


class NcclGroups:
    """The groups of this process for one GPU, created for their first collective.

    nccl: CuPy's module, or None if NCCL is not installed. device: the GPU's name on this machine.
    """

    def __init__(self, nccl: Any, device: str, clear: Callable[[int, int, int], None]) -> None:
        self._nccl, self._clear = nccl, clear
        self._device = f"{socket.gethostname()} {device}"
        self._known: WeakKeyDictionary[Communicator, NcclGroup | None] = WeakKeyDictionary()

    def carry_out(self, kernel: Collective, source: int, target: int, stream: int) -> bool:
        """Queue a collective of an array at an address; returns False if it has to use the host."""
        what, dtype, shape = kernel.exchange, kernel.input.buffer.dtype, kernel.input.shape
        host = communicator(what.group)
        if host.size == 1 or not takes(what, dtype):
            return False
        if host not in self._known:
            self._known[host] = self._joined(host, what.described(shape, dtype))
        group = self._known[host]
        if group is None:
            return False

        def queued() -> None:
            try:
                group.carry_out(what, shape, dtype, source, target, stream)
            except self._nccl.NcclError as error:
                raise CollectiveError(f"NCCL failed in the group {what.group!r}: {error}.", _LOOK) from None

        exchange_where_it_lies(what, kernel.mark, shape, dtype, queued, kernel.origins)
        return True

    def _joined(self, host: Communicator, text: str) -> NcclGroup | None:
        """The group, if each of its processes has a different GPU: NCCL refuses processes that share one.

        All processes call this together, before any data is exchanged. Raises CollectiveError in each of them if one of
        them lacks NCCL.
        """
        host.settle()
        mark = hashlib.blake2b(b"NCCL", digest_size=_DIGEST).digest()
        host.agree(mark, f"{text}, from GPU to GPU")
        named = hashlib.blake2b(self._device.encode(), digest_size=_DIGEST).digest()
        own = np.frombuffer(bytes([self._nccl is not None]) + named, np.uint8).copy()
        every = np.empty((host.size, 1 + _DIGEST), np.uint8)
        host.all_gather(own, every)
        if len({row[1:].tobytes() for row in every}) < host.size or sys.platform not in _WITH_NCCL:
            return None
        lacking = [str(rank) for rank in range(host.size) if not every[rank, 0]]
        if lacking:
            raise CollectiveError(
                f"NCCL, which executes {text} from GPU to GPU, is not installed for "
                f"{'rank' if len(lacking) == 1 else 'ranks'} {', '.join(lacking)} of {host.size}.",
                f"Install it for each of them: {install_command('cuda')} includes it (nvidia-nccl-cu13).",
            )
        return NcclGroup(self._nccl, host, self._clear)


_WITH_NCCL = ("linux",)  # on other systems GPUs exchange data through the host
_LOOK = "Set NCCL_DEBUG=INFO in the environment for more information."
