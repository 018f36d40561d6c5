"""The cheapest division of a program's units between devices, as minimum cuts of graphs."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["CutGraph", "CutValue", "cheapest_division", "cut_cost", "minimum_cut"]

_SCALE = 1e12  # capacities are whole picoseconds, so that the flow ends
_FORBIDDEN = 1 << 62


class CutValue(NamedTuple):
    """A value between units: its maker, its readers, and the seconds of its copies, by the devices' numbers.

    maker, readers: numbers of units; None is the first device itself, which makes arguments and reads results.
    copies: `copies[a][b]` from device a to device b.
    """

    maker: int | None
    readers: tuple[int | None, ...]
    copies: tuple[tuple[float, ...], ...]


class CutGraph(NamedTuple):
    """Units with their seconds on each device (infinite: impossible there), the values, and each device's memory.

    memories: numbers; devices of one memory need no copies between them.
    """

    costs: tuple[tuple[float, ...], ...]
    values: tuple[CutValue, ...]
    memories: tuple[int, ...] = (0, 1)


def cut_cost(graph: CutGraph, places: Sequence[int]) -> float:
    """The seconds of a division: each value is copied at most once to a memory. places: the device of each unit.

    >>> graph = CutGraph(((1.0, 2.0), (5.0, 1.0)), (CutValue(0, (1,), ((0.0, 0.5), (0.5, 0.0))),))
    >>> cut_cost(graph, [0, 1]), cut_cost(graph, [0, 0])
    (2.5, 6.0)
    """
    total = sum(costs[place] for costs, place in zip(graph.costs, places, strict=True))
    for value in graph.values:
        here = _place(value.maker, places)
        total += _copies_from(graph, value, here, {_place(reader, places) for reader in value.readers})
    return total


def _place(unit: int | None, places: Sequence[int]) -> int:
    return 0 if unit is None else places[unit]


def _copies_from(graph: CutGraph, value: CutValue, here: int, devices: set[int]) -> float:
    """The seconds of a value's copies to the memories of some devices."""
    there = {graph.memories[d]: d for d in sorted(devices) if graph.memories[d] != graph.memories[here]}
    return sum(value.copies[here][d] for d in there.values())


def cheapest_division(graph: CutGraph) -> list[int]:
    """A cheap division: the device of each unit; for two devices, the cheapest one.

    For more devices, every pair of them divides its units anew by a minimum cut, until no pair saves anything (the
    swap moves of Boykov, Veksler and Zabih: Fast approximate energy minimization via graph cuts, 2001). This starts
    from several divisions, and the best end is returned: a minimum in the sense that no pair can improve it.

    >>> copies = ((0.0, 0.5, 0.5), (0.5, 0.0, 0.5), (0.5, 0.5, 0.0))
    >>> graph = CutGraph(((1.0, 2.0, 9.0), (5.0, 1.0, 9.0), (9.0, 9.0, 1.0)), (CutValue(0, (1, 2), copies),), (0, 1, 2))
    >>> cheapest_division(graph)
    [0, 1, 2]
    """
    devices = range(len(graph.memories))
    if len(devices) == 2:
        return minimum_cut(graph, [0] * len(graph.costs), 0, 1)
    found = [_settled(graph, start) for start in _starts(graph)]
    return min(found, key=lambda places: cut_cost(graph, places))


def _starts(graph: CutGraph) -> list[list[int]]:
    """Divisions to start from: each device alone, as far as it can, and each unit where it is quickest."""
    quickest = [costs.index(min(costs)) for costs in graph.costs]
    alone = [
        [d if math.isfinite(costs[d]) else best for costs, best in zip(graph.costs, quickest, strict=True)]
        for d in range(len(graph.memories))
    ]
    return [*alone, quickest]


def _settled(graph: CutGraph, places: list[int]) -> list[int]:
    """A division that no pair of devices can improve."""
    cost = cut_cost(graph, places)
    pairs = list(itertools.combinations(range(len(graph.memories)), 2))
    improved = True
    while improved:
        improved = False
        for a, b in pairs:
            changed = minimum_cut(graph, places, a, b)
            now = cut_cost(graph, changed)
            if now < cost - 1e-9 * cost:
                places, cost, improved = changed, now, True
    return places


def minimum_cut(graph: CutGraph, places: Sequence[int], a: int, b: int) -> list[int]:
    """The cheapest division in which only units on the devices a and b have moved, and only between these two.

    The units are nodes between a source (device a) and a sink (device b); a value is a node beside its maker, so that
    its copy costs once (Goldberg, Tarjan 1988; the flow is found by blocking flows: Dinic 1970).

    >>> minimum_cut(CutGraph(((1.0, 2.0), (5.0, 1.0)), ()), [0, 0], 0, 1)
    [0, 1]
    """
    cut = _PairCut(graph, places, a, b)
    for unit, costs in enumerate(graph.costs):
        if unit in cut.moving:
            cut.prefer(unit, costs[a], costs[b])
    for value in graph.values:
        cut.value(value)
    first = cut.first()
    return [places[u] if u not in cut.moving else a if u in first else b for u in range(len(graph.costs))]


class _PairCut:
    """The network of a minimum cut between two devices, with the units of all other devices where they are."""

    def __init__(self, graph: CutGraph, places: Sequence[int], a: int, b: int) -> None:
        self.graph, self.places, self.a, self.b = graph, places, a, b
        count = len(graph.costs)
        self.moving = {unit for unit in range(count) if places[unit] in (a, b)}
        self.flow = _Flow(count + 2)
        self.source, self.sink = count, count + 1

    def first(self) -> set[int]:
        """The nodes of device a after the cut."""
        self.flow.run(self.source, self.sink)
        return self.flow.reached(self.source)

    def node(self, unit: int | None) -> int | None:
        """The node of a unit that moves, or of a fixed unit of device a or b; None on other devices."""
        if unit in self.moving:
            return unit
        return {self.a: self.source, self.b: self.sink}.get(_place(unit, self.places))

    def prefer(self, node: int, on_a: float, on_b: float) -> None:
        """Costs of a node on either device."""
        self.flow.add(self.source, node, _capacity(on_b))
        self.flow.add(node, self.sink, _capacity(on_a))

    def value(self, value: CutValue) -> None:
        """The costs of a value's copies."""
        graph, a, b = self.graph, self.a, self.b
        nodes = [self.node(reader) for reader in value.readers]
        fixed = {_place(r, self.places) for r, n in zip(value.readers, nodes, strict=True) if n is None}
        there = {graph.memories[d] for d in fixed}
        readers = [n for n in nodes if n is not None]
        maker = self.node(value.maker)
        if maker is None:
            here = _place(value.maker, self.places)
            for device in (a, b) if graph.memories[a] != graph.memories[b] else ():
                if graph.memories[device] not in {*there, graph.memories[here]}:
                    self.reads(self.sink if device == a else self.source, value.copies[here][device], readers)
            return
        if maker not in (self.source, self.sink):
            self.prefer(maker, *(_copies_from(graph, value, device, fixed) for device in (a, b)))
        if graph.memories[a] != graph.memories[b]:
            for device, other, home in ((a, b, True), (b, a, False)):
                if graph.memories[other] not in there:
                    self.reads(maker, value.copies[device][other], readers, home)

    def reads(self, maker: int, seconds: float, readers: Sequence[int], home: bool | None = None) -> None:
        """The cost of a copy if any reader is not on the maker's device. home: only if the maker is on a, or on b."""
        if home is None:
            home = maker == self.source
        copy = self.flow.node()
        self.flow.add(*((maker, copy) if home else (copy, maker)), _capacity(seconds))
        for reader in readers:
            self.flow.add(*((copy, reader) if home else (reader, copy)), _FORBIDDEN)


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
