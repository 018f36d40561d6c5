"""rlx.memory: JAX's memory spaces; a device of rlx has one memory."""

from __future__ import annotations

import enum

from rlx.offered_names import offer_names

__all__ = ["Space"]

offer_names(globals())


class Space(enum.Enum):
    """A memory that may be a target of device_put. All names refer to the device's only memory.

    >>> import rlx
    >>> rlx.device_put(rlx.numpy.ones(2), rlx.memory.Space.Host).tolist()
    [1.0, 1.0]
    """

    Device = "device"
    Host = "host"
    Any = "any"
