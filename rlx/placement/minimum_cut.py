"""The cheapest division of a program's units between two devices, as a minimum cut of a graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["CutGraph", "CutValue", "cut_cost", "minimum_cut"]

_SCALE = 1e12  # capacities are whole picoseconds, so that the flow ends
_FORBIDDEN = 1 << 62


class CutValue(NamedTuple):
    """A value between units: its maker, its readers, and the seconds of copies to the second device and back.

    maker, readers: numbers of units; None is the first device itself, which makes arguments and reads results.
    """

    maker: int | None
    readers: tuple[int | None, ...]
    there: float
    back: float


class CutGraph(NamedTuple):
    """Units with their seconds on the first and the second device (infinite: impossible there), and the values."""

    costs: tuple[tuple[float, float], ...]
    values: tuple[CutValue, ...]


def cut_cost(graph: CutGraph, second: Sequence[bool]) -> float:
    """The seconds of a division: each value is copied at most once. second: which units are on the second device.

    >>> graph = CutGraph(((1.0, 2.0), (5.0, 1.0)), (CutValue(0, (1,), 0.5, 0.5),))
    >>> cut_cost(graph, [False, True]), cut_cost(graph, [False, False])
    (2.5, 6.0)
    """

    def side(unit: int | None) -> bool:
        return unit is not None and second[unit]

    total = sum(costs[on] for costs, on in zip(graph.costs, second, strict=True))
    for value in graph.values:
        here = side(value.maker)
        if any(side(reader) != here for reader in value.readers):
            total += value.back if here else value.there
    return total


def minimum_cut(graph: CutGraph) -> list[bool]:
    """The cheapest division: which units are on the second device.

    The units are nodes between a source (the first device) and a sink; a value is a node beside its maker, so that its
    copy costs once (Goldberg, Tarjan 1988; the flow is found by blocking flows: Dinic 1970).

    >>> minimum_cut(CutGraph(((1.0, 2.0), (5.0, 1.0)), (CutValue(0, (1,), 0.5, 0.5),)))
    [False, True]
    """
    count = len(graph.costs)
    flow = _Flow(count + 2)
    source, sink = count, count + 1
    for unit, (first, second) in enumerate(graph.costs):
        flow.add(source, unit, _capacity(second))  # cut if the unit is on the second device
        flow.add(unit, sink, _capacity(first))
    for value in graph.values:
        maker = source if value.maker is None else value.maker
        readers = [source if reader is None else reader for reader in value.readers]
        away = flow.node()
        flow.add(maker, away, _capacity(value.there))
        home = flow.node()
        flow.add(home, maker, _capacity(value.back))
        for reader in readers:
            flow.add(away, reader, _FORBIDDEN)
            flow.add(reader, home, _FORBIDDEN)
    flow.run(source, sink)
    first = flow.reached(source)
    return [unit not in first for unit in range(count)]


def _capacity(seconds: float) -> int:
    return _FORBIDDEN if seconds >= 1e6 else round(seconds * _SCALE)


class _Flow:
    """A network with capacities, and its largest flow."""

    def __init__(self, nodes: int) -> None:
        self.edges: list[list[int]] = [[] for _ in range(nodes)]
        self.heads: list[int] = []
        self.left: list[int] = []
        self.level: list[int] = []

    def node(self) -> int:
        """A new node."""
        self.edges.append([])
        return len(self.edges) - 1

    def add(self, tail: int, head: int, capacity: int) -> None:
        """An edge, and its reverse without capacity."""
        if capacity and tail != head:
            for a, b, room in ((tail, head, capacity), (head, tail, 0)):
                self.edges[a].append(len(self.heads))
                self.heads.append(b)
                self.left.append(room)

    def run(self, source: int, sink: int) -> None:
        """Saturate the network: blocking flows along shortest paths until there is no path."""
        while self._levels(source, sink):
            current = [0] * len(self.edges)
            while self._push(source, sink, current):
                pass

    def reached(self, source: int) -> set[int]:
        """The nodes that the source can still reach."""
        found, queue = {source}, deque([source])
        while queue:
            for edge in self.edges[queue.popleft()]:
                head = self.heads[edge]
                if self.left[edge] and head not in found:
                    found.add(head)
                    queue.append(head)
        return found

    def _levels(self, source: int, sink: int) -> bool:
        """The distance of each node from the source; whether the sink can be reached."""
        self.level = [-1] * len(self.edges)
        self.level[source] = 0
        queue = deque([source])
        while queue:
            node = queue.popleft()
            for edge in self.edges[node]:
                head = self.heads[edge]
                if self.left[edge] and self.level[head] < 0:
                    self.level[head] = self.level[node] + 1
                    queue.append(head)
        return self.level[sink] >= 0

    def _push(self, source: int, sink: int, current: list[int]) -> int:
        """Push flow along one shortest path; 0 if there is none. current: each node's next edge to try."""
        path: list[int] = []
        node = source
        while node != sink:
            while current[node] < len(self.edges[node]):
                edge = self.edges[node][current[node]]
                head = self.heads[edge]
                if self.left[edge] and self.level[head] == self.level[node] + 1:
                    break
                current[node] += 1
            else:
                if not path:
                    return 0
                self.level[node] = -1  # a dead end
                node = self.heads[path.pop() ^ 1]
                continue
            path.append(edge)
            node = head
        pushed = min(self.left[edge] for edge in path)
        for edge in path:
            self.left[edge] -= pushed
            self.left[edge ^ 1] += pushed
        return pushed
