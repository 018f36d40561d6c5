"""The capabilities of rlx.numpy, by the array API standard: __array_namespace_info__()."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array import Device
from rlx.config import config
from rlx.errors import DtypeError
from rlx.numpy.placement import HOST, check_placement
from rlx.numpy.promotion import complex_dtype

__all__ = ["NamespaceInfo", "namespace_info"]

_NAMES: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
_UNIONS = {
    "integral": ("signed integer", "unsigned integer"),
    "numeric": ("signed integer", "unsigned integer", "real floating", "complex floating"),
}


class NamespaceInfo:
    """Answers about rlx.numpy: capabilities, devices, and dtypes with their defaults.

    Source: Python array API standard 2024.12, inspection.

    >>> import rlx.numpy as jnp
    >>> jnp.__array_namespace_info__().default_device()
    Device(cpu:0)
    """

    def capabilities(self) -> dict[str, Any]:
        """Whether masks index, whether shapes may depend on data, and the largest number of axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """The device of new arrays."""
        return HOST

    def devices(self) -> list[Device]:
        """The available devices."""
        return [HOST]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """The dtypes that Python numbers become, and the dtype of indices."""
        check_placement(device)
        return {
            "real floating": config.default_float,
            "complex floating": complex_dtype(config.default_float),
            "integral": config.default_int,
            "indexing": config.default_int,
        }

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None) -> dict[str, np.dtype]:
        """The standard's dtypes of a kind, or of several, by name; all of them for None."""
        check_placement(device)
        kinds = tuple(_NAMES) if kind is None else kind if isinstance(kind, tuple) else (kind,)
        found: dict[str, np.dtype] = {}
        for wanted in kinds:
            for part in _UNIONS.get(wanted, (wanted,)):
                if part not in _NAMES:
                    raise DtypeError(
                        f"{wanted!r} is not a kind of dtypes.", f"Use one of {', '.join((*_NAMES, *_UNIONS))}."
                    )
                found.update((name, np.dtype(name)) for name in _NAMES[part])
        return found


def namespace_info() -> NamespaceInfo:
    """The capabilities of rlx.numpy, by the array API standard.

    Returns: a NamespaceInfo.

    >>> import rlx.numpy as jnp
    >>> jnp.__array_namespace_info__().capabilities()["boolean indexing"]
    True
    """
    return NamespaceInfo()
