"""What the tests of graphs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.graph import Graph, Session, Shape
from rlx.testing import assert_close

DEVICES = ["cpu", "reference"]


def run_one(build: Callable[..., Any], **inputs: np.ndarray) -> np.ndarray:
    """The output of a graph of named inputs, on every device; they agree."""
    graph = Graph("one")
    nodes = {name: graph.input(name, Shape.of(value)) for name, value in inputs.items()}
    graph.set_outputs(build(graph, **nodes))
    results = [np.asarray(Session(device).compile(graph).run(inputs)[0]) for device in DEVICES]
    assert_close(results[0], results[1])
    return results[0]


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)
