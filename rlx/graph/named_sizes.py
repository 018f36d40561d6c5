"""Named sizes of graphs: calls that build a graph are kept, and made again with values for the names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from rlx.graph.types import Shape

__all__ = ["bound", "record_methods", "recorded", "renamed"]


def recorded(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a graph whose outermost calls the graph keeps."""

    name = getattr(method, "__name__", "")

    @wraps(method)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._recorded(name, method, args, kwargs)

    return called


Built = TypeVar("Built", bound=type)


def record_methods(cls: Built) -> Built:
    """A class decorator: every public method is recorded."""
    for name, value in list(vars(cls).items()):
        if not name.startswith("_") and name != "apply" and callable(value):
            setattr(cls, name, recorded(value))
    return cls


def bound(values: Any, sizes: Mapping[str, int]) -> Any:
    """Arguments with values in place of names: in shapes, and in lists and tuples that contain names and integers."""
    if isinstance(values, Shape):
        return values.bind(sizes)
    if isinstance(values, dict):
        return {key: bound(value, sizes) for key, value in values.items()}
    if type(values) in (list, tuple):
        return type(values)(sizes[v] if isinstance(v, str) and v in sizes else bound(v, sizes) for v in values)
    return values


def renamed(values: Any, nodes: Mapping[Any, Any]) -> Any:
    """Arguments with other nodes in place of those of the graph that was recorded, by their atoms."""
    if hasattr(values, "atom"):
        return nodes[values.atom]
    if isinstance(values, dict):
        return {key: renamed(value, nodes) for key, value in values.items()}
    if type(values) in (list, tuple):
        return type(values)(renamed(value, nodes) for value in values)
    return values
