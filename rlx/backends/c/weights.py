"""Names of a function's constants, and a file of them that the caller of the C function loads or maps."""

from __future__ import annotations

from typing import NamedTuple

from rlx.backends.loops.names import identifier, unused_name
from rlx.ir.kernels import Buffer, Plan, constants_of

__all__ = ["WeightFile", "named_constants"]

_BASIS, _PRIME = 0xCBF29CE484222325, 0x100000001B3
_WORD = (1 << 64) - 1


def named_constants(plan: Plan) -> dict[str, Buffer]:
    """The constants of a plan by distinct names."""
    found: dict[str, Buffer] = {}
    for number, buffer in enumerate(constants_of(plan)):
        label = identifier(buffer.name, "x") if buffer.name else f"constant_{number}"
        found[unused_name(label, found)] = buffer
    return found


class WeightFile(NamedTuple):
    """The bytes of a file, the places of constants in it, and the length of the part that describes these places."""

    data: bytes
    offsets: tuple[int, ...]
    head: int

    def digest(self) -> int:
        """FNV-1a, 64 bits wide, of the describing part (Fowler, Noll, Vo 1991)."""
        found = _BASIS
        for byte in self.data[: self.head]:
            found = (found ^ byte) * _PRIME & _WORD
        return found

    def check_lines(self, name: str, size: str) -> list[str]:
        """The C function that compares a file's size and its describing part with those of this file."""
        return [
            f"int {name}_accepts(const void *weights, int64_t bytes) {{",
            f"    uint64_t digest = UINT64_C({_BASIS:#x});",
            f"    if (bytes != {size}) return 0;",
            f"    for (int64_t n = 0; n < {self.head}; ++n)",
            f"        digest = (digest ^ ((const uint8_t *)weights)[n]) * UINT64_C({_PRIME:#x});",
            f"    return digest == UINT64_C({self.digest():#x});",
            "}",
        ]
