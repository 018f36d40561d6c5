"""The nodes of ONNX graphs, and the table of operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import rlx
from rlx.errors import ConcretizationTypeError, UnsupportedError

__all__ = ["ArraySequence", "Node", "Operator", "known", "operator", "operators"]

Operator = Callable[..., Any]
operators: dict[tuple[str, str], Operator] = {}


class ArraySequence(tuple):
    """A sequence of arrays, or of sequences."""

    __slots__ = ()


class Node:
    """A node: its operator, attributes as Python values, number of results, and a function to run its subgraphs.

    `version` is the version of the model's operator set.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        version: int,
        attributes: Mapping[str, Any],
        results: Sequence[str],
        run: Callable[[Any, Sequence[Any]], list[Any]],
    ) -> None:
        self.kind, self.name, self.version = kind, name, version
        self.attributes, self.results, self.run = attributes, results, run

    def __getitem__(self, name: str) -> Any:
        """A required attribute."""
        return self.attributes[name]

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or its default."""
        return self.attributes.get(name, default)

    def wants(self, number: int) -> bool:
        """Whether a result is used."""
        return number < len(self.results) and self.results[number] != ""

    def unsupported(self, what: str, instead: str = "") -> UnsupportedError:
        """The error for an unsupported form of the operator."""
        return UnsupportedError(f"The node {self.name!r} ({self.kind}) {what}.", instead)


def operator(*names: str, domain: str = "") -> Callable[[Operator], Operator]:
    """Decorator: the function (node, *inputs) -> result or tuple of results of operators; an omitted input is None."""

    def enter(function: Operator) -> Operator:
        for name in names:
            operators[domain, name] = function
        return function

    return enter


def known(node: Node, value: Any, what: str) -> np.ndarray:
    """The numbers of an input that sets shapes. Raises ConcretizationTypeError if they are not known."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, rlx.core.Tracer):
        raise ConcretizationTypeError(
            f"The node {node.name!r} ({node.kind}) needs the values of its {what} during tracing.",
            "They set shapes: call the model without jit, or make them constants of the model.",
        )
    return np.asarray(value)
