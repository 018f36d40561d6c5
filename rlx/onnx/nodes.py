"""What a node of an ONNX graph is, and the table of operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import rlx
from rlx.errors import ConcretizationTypeError, UnsupportedError

__all__ = ["Node", "Operator", "known", "operator", "operators"]

Operator = Callable[..., Any]
operators: dict[tuple[str, str], Operator] = {}


class Node:
    """A node: its operator, attributes as Python values, how many results are asked for, and how to run a graph in it.

    `version` is that of the operator set that the model was written for.
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
        """An attribute that has to be there."""
        return self.attributes[name]

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or what it is where the model does not say."""
        return self.attributes.get(name, default)

    def wants(self, number: int) -> bool:
        """Whether somebody uses a result."""
        return number < len(self.results) and self.results[number] != ""

    def unsupported(self, what: str, instead: str = "") -> UnsupportedError:
        """The error for a form of the operator that is not there."""
        return UnsupportedError(f"The node {self.name!r} ({self.kind}) {what}.", instead)


def operator(*names: str, domain: str = "") -> Callable[[Operator], Operator]:
    """Decorator: the function (node, *inputs) -> result or tuple of results of operators; an input left out is None."""

    def enter(function: Operator) -> Operator:
        for name in names:
            operators[domain, name] = function
        return function

    return enter


def known(node: Node, value: Any, what: str) -> np.ndarray:
    """The numbers of an input that decides shapes. Raises ConcretizationTypeError where they are not known."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, rlx.core.Tracer):
        raise ConcretizationTypeError(
            f"The node {node.name!r} ({node.kind}) needs the values of its {what} while the model is traced.",
            "They decide shapes: call the model without jit, or make them constants of the model.",
        )
    return np.asarray(value)
