"""The positions of a program's equations in its picture: in layers by depth, near their operands."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["layered"]


def layered(reads: Sequence[Sequence[int]]) -> list[tuple[float, int]]:
    """(column, layer) of each node of a graph whose edges lead forwards; `reads[n]` are the nodes that n reads.

    A node's layer is one below the lowest layer that it reads. Within its layer it is as close to the middle of its
    operands as its neighbours allow. Each edge is visited once.

    >>> from rlx.explain.page.layout import layered
    >>> layered([[], [], [0, 1], [2]])
    [(0.0, 0), (1.0, 0), (0.5, 1), (0.5, 2)]
    """
    layers: list[int] = []
    members: list[list[int]] = []
    for node, sources in enumerate(reads):
        layer = 1 + max((layers[s] for s in sources), default=-1)
        layers.append(layer)
        if layer == len(members):
            members.append([])
        members[layer].append(node)
    columns = [0.0] * len(reads)
    for nodes in members:
        wanted = {n: _middle([columns[s] for s in reads[n]], float(place)) for place, n in enumerate(nodes)}
        _spread(sorted(nodes, key=wanted.__getitem__), wanted, columns)
    return list(zip(columns, layers, strict=True))


def _middle(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _spread(nodes: Sequence[int], wanted: dict[int, float], columns: list[float]) -> None:
    """Place the nodes at least a column apart, and shift all by their average offset."""
    last = float("-inf")
    for node in nodes:
        last = columns[node] = max(wanted[node], last + 1.0)
    off = sum(columns[n] - wanted[n] for n in nodes) / len(nodes)
    for node in nodes:
        columns[node] -= off
