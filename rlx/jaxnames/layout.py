"""jax.experimental.layout: memory layouts of arrays. rlx has one, in the order of the axes (flax, orbax)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import rlx

__all__ = ["Format", "Layout", "device_put", "with_layout_constraint"]


@dataclass(frozen=True)
class Layout:
    """The order of axes in memory, slowest first; None for the order of the shape.

    >>> from rlx.jaxnames.layout import Layout
    >>> Layout((0, 1)).major_to_minor
    (0, 1)
    """

    major_to_minor: tuple[int, ...] | None = None
    tiling: Any = None
    sub_byte_element_size_in_bits: int = 0


@dataclass(frozen=True)
class Format:
    """A layout, and the array's sharding.

    >>> from rlx.jaxnames.layout import Format
    >>> Format().layout is None
    True
    """

    layout: Layout | None = None
    sharding: Any = None


def with_layout_constraint(x: Any, layouts: Any) -> Any:
    """The array: there is one layout."""
    return x


def device_put(x: Any, device: Any = None, **options: Any) -> Any:
    """As rlx.device_put, which does not take a Format: uses its sharding.

    >>> from rlx.jaxnames.layout import Format, device_put
    >>> device_put(3.0, Format()).shape
    ()
    """
    return rlx.device_put(x, device.sharding if isinstance(device, Format) else device, **options)
