"""jax.experimental.layout: how arrays lie in memory. Here every one lies as its axes say (flax, orbax)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import rlx

__all__ = ["Format", "Layout", "device_put", "with_layout_constraint"]


@dataclass(frozen=True)
class Layout:
    """The order of axes in memory, slowest first; None for that of the shape.

    >>> from rlx.jaxnames.layout import Layout
    >>> Layout((0, 1)).major_to_minor
    (0, 1)
    """

    major_to_minor: tuple[int, ...] | None = None
    tiling: Any = None


@dataclass(frozen=True)
class Format:
    """A layout, and the sharding that says where the array lies.

    >>> from rlx.jaxnames.layout import Format
    >>> Format().layout is None
    True
    """

    layout: Layout | None = None
    sharding: Any = None


def with_layout_constraint(x: Any, layout: Layout) -> Any:
    """The array: there is one layout."""
    return x


def device_put(x: Any, device: Any = None, **options: Any) -> Any:
    """As rlx.device_put, which knows no Format: its sharding says the place.

    >>> from rlx.jaxnames.layout import Format, device_put
    >>> device_put(3.0, Format()).shape
    ()
    """
    return rlx.device_put(x, device.sharding if isinstance(device, Format) else device, **options)
