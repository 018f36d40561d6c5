"""jax.export: rlx.export, and JAX's additional names for platforms and versions of its format."""

from __future__ import annotations

from rlx.export import (
    Exported,
    SymbolicScope,
    deserialize,
    export,
    is_symbolic_dim,
    register_namedtuple_serialization,
    register_pytree_node_serialization,
    symbolic_args_specs,
    symbolic_shape,
)
from rlx.export.archive import VERSION

__all__ = [
    "DisabledSafetyCheck",
    "Exported",
    "SymbolicScope",
    "default_export_platform",
    "deserialize",
    "export",
    "is_symbolic_dim",
    "maximum_supported_calling_convention_version",
    "minimum_supported_calling_convention_version",
    "register_namedtuple_serialization",
    "register_pytree_node_serialization",
    "symbolic_args_specs",
    "symbolic_shape",
]

minimum_supported_calling_convention_version = maximum_supported_calling_convention_version = VERSION[0]


class DisabledSafetyCheck(str):
    """A check of JAX's exporter that can be disabled; rlx's programs run on every platform.

    >>> from rlx.jaxnames.exporting import DisabledSafetyCheck
    >>> DisabledSafetyCheck.platform() == DisabledSafetyCheck.platform()
    True
    """

    __slots__ = ()

    @classmethod
    def platform(cls) -> DisabledSafetyCheck:
        """The check of the platform that runs a program."""
        return cls("platform")

    @classmethod
    def custom_call(cls, target_name: str) -> DisabledSafetyCheck:
        """The check that a custom call has a stability guarantee."""
        return cls(f"custom_call:{target_name}")

    def is_custom_call(self) -> str | None:
        """The name of the custom call, if the check is for one."""
        kind, _, target = self.partition(":")
        return target if kind == "custom_call" else None


def default_export_platform() -> str:
    """The platform that a function is exported for by default."""
    return "cpu"
