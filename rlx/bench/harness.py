"""rlx.bench.run: a function's time, alone or against others that compute the same."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlx.array import is_array
from rlx.bench.parity import Parity, parity
from rlx.bench.timing import percentile, times_in_turn
from rlx.call.device import block_until_ready
from rlx.call.jit import jit
from rlx.errors import OptionError
from rlx.explain.inspection import inspect
from rlx.ir.work import Work
from rlx.numpy import asarray
from rlx.trees import tree

__all__ = ["Result", "result_of", "run"]

ROUNDS, MOST_ROUNDS = 10, 10_000
SPREAD = 2.0  # from the quickest call to the 95th percentile: more says that something else ran
FEW_CALLS = 20  # of so few the percentiles say little


@dataclass(frozen=True)
class Result:
    """Times of a function's calls in seconds, and its work.

    name: of the function. calls: the number of timed calls. p50, p95, p99: percentiles.
    min: the fastest call. first_call: including tracing and compiling, unless the cache on disk has the code.
    gflops, gbytes: billions of operations and of bytes moved in a second, by rlx's count and the median; None where
    that is not known. parity: the distance of a peer's results from rlx's; None for rlx.
    peers: the results of the others by name. warnings: reasons to doubt the times.

    >>> from rlx import bench
    >>> found = bench.run(lambda x: x + 1, [1.0], rounds=1, name="add")
    >>> str(found).split(":")[0], found.min <= found.p50 <= found.p95 <= found.p99
    ('add', True)
    """

    name: str
    calls: int
    p50: float
    p95: float
    p99: float
    min: float
    first_call: float
    gflops: float | None = None
    gbytes: float | None = None
    parity: Parity | None = None
    peers: Mapping[str, Result] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [self._line(""), *(peer._line(f", {peer.p50 / self.p50:.2f} times") for peer in self.peers.values())]
        return "\n".join([*lines, *self.warnings])

    def _line(self, ratio: str) -> str:
        rates = f", {self.gflops:.3g} GFLOP/s, {self.gbytes:.3g} GB/s" if self.gflops is not None else ""
        differs = "" if self.parity is None or self.parity.holds else f", DIFFERS: {self.parity}"
        times = f"p50 {self.p50 * 1e6:.4g} us, p95 {self.p95 * 1e6:.4g} us, min {self.min * 1e6:.4g} us"
        return f"{self.name}: {times}{ratio}{rates}{differs}"


def run(
    f: Callable[..., Any],
    args: Sequence[Any],
    peers: Mapping[str, Callable[..., Any]] | None = None,
    rounds: int = ROUNDS,
    name: str | None = None,
) -> Result:
    """Time a function, alone or against others that compute the same. They alternate, in a new order each round.

    Args:
      f: a function of arrays; it is jitted if it is not.
      args: its arguments: arrays, or trees of them.
      peers: functions of other libraries by name. They get the arguments as NumPy arrays, and convert them before
        they are timed if they want others; their results are waited for where they have block_until_ready, and
        compared with those of `f` as NumPy sees them.
      rounds: the number of rounds; in each, a function is called for about 20 ms.
      name: of `f` in the Result; by default the function's name.

    Returns: the Result of `f`, which contains the peers' Results.

    Raises: OptionError if rounds is not from 1 to 10,000, or if a peer has the name of `f`. Exceptions of the
      functions are passed on.

    >>> import numpy as np
    >>> import rlx.numpy as jnp
    >>> from rlx import bench
    >>> found = bench.run(lambda x: jnp.tanh(x).sum(), [np.ones(1000)], {"numpy": lambda x: np.tanh(x).sum()}, rounds=2)
    >>> found.p50 > 0, found.peers["numpy"].parity.holds
    (True, True)
    """
    if not 1 <= rounds <= MOST_ROUNDS:
        raise OptionError(f"bench.run got rounds={rounds}.", f"Write 1 to {MOST_ROUNDS}.")
    function = f if hasattr(f, "lower") else jit(f)
    ours = tree.map(lambda x: asarray(x) if isinstance(x, np.ndarray) else x, list(args))
    theirs = tree.map(lambda x: np.asarray(x) if is_array(x) else x, list(args))
    name = name or getattr(f, "__name__", type(f).__name__)
    calls: dict[str, Callable[[], Any]] = {name: lambda: block_until_ready(function(*ours))}
    calls |= {peer: _waited(call, theirs) for peer, call in (peers or {}).items()}
    if len(calls) <= len(peers or {}):
        raise OptionError(f"bench.run got a peer called {name}, as the function is.", "Give it another name.")
    first = {key: _first(call) for key, call in calls.items()}
    times = dict(zip(calls, times_in_turn(list(calls.values()), rounds), strict=True))
    work = inspect(function)(*ours).work  # now: a first call compiles
    expected = first[name][0]
    found = {
        key: result_of(key, times[key], first[key][1], work, None if key == name else parity(expected, first[key][0]))
        for key in calls
    }
    own = found.pop(name)
    return replace(own, peers=found, warnings=_warnings(own, found))


def _waited(call: Callable[..., Any], args: Sequence[Any]) -> Callable[[], Any]:
    def run() -> Any:
        result = call(*args)
        for leaf in tree.leaves(result):
            if hasattr(leaf, "block_until_ready"):
                leaf.block_until_ready()
        return result

    return run


def _first(call: Callable[[], Any]) -> tuple[list[np.ndarray], float]:
    """The leaves of the first call's result, and its seconds."""
    start = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - start
    return [np.asarray(leaf) for leaf in tree.leaves(result)], seconds


def result_of(name: str, times: Sequence[float], first_call: float, work: Work, parity: Parity | None) -> Result:
    """The Result for the measured times of a function that does `work`."""
    ordered = sorted(times)
    middle = percentile(ordered, 0.5)
    known = work.exact and middle > 0
    return Result(
        name,
        len(ordered),
        middle,
        percentile(ordered, 0.95),
        percentile(ordered, 0.99),
        ordered[0],
        first_call,
        (work.flops + work.transcendentals) / middle / 1e9 if known else None,
        work.bytes / middle / 1e9 if known else None,
        parity,
    )


def _warnings(own: Result, peers: Mapping[str, Result]) -> tuple[str, ...]:
    """A sentence for each thing that speaks against the times."""
    found = []
    load, processors = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0, os.cpu_count() or 1
    if load > processors:
        found.append(f"the machine is busy: {load:.1f} processes want to run on {processors} processors")
    for result in (own, *peers.values()):
        if result.p95 > SPREAD * result.min and result.calls >= FEW_CALLS:
            found.append(
                f"{result.name} is not steady: one call in twenty takes {result.p95 / result.min:.1f} times as long as"
                " the quickest (other processes ran, or the processor changed its speed)"
            )
        if result.calls < FEW_CALLS:
            found.append(f"{result.name} was called {result.calls} times, too few for percentiles")
    return tuple(found)
