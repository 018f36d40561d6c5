"""Schemes: how the numbers of a weight are coded, and how many of them share a scale."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.errors import OptionError, did_you_mean
from rlx.forks import cached_property
from rlx.gguf.types import LAYOUTS, StorageType

__all__ = ["QuantScheme"]

# kind -> (bits of an element, block unless named, whether it has scales, zero points)
_KINDS: dict[str, tuple[int, int, bool, bool]] = {
    "int8": (8, 32, True, False),
    "int8a": (8, 32, True, True),
    "int4": (4, 32, True, False),
    "nf4": (4, 64, True, False),
    "mxfp4": (4, 32, True, False),
    "nvfp4": (4, 16, True, False),
    "fp8e4m3": (8, 1, False, False),
    "fp8e5m2": (8, 1, False, False),
}
_FIXED = {"mxfp4": 32, "nvfp4": 16}  # blocks that the format prescribes
_SCALE_BITS = {"mxfp4": 8, "nvfp4": 8}
_GGUF = {f"gguf_{kind.name.lower()}": kind for kind in StorageType if LAYOUTS[kind].elements > 1}
_GGUF |= {"gguf_f16": StorageType.F16, "gguf_bf16": StorageType.BF16}
# the names by which graphs know the K types
_GGUF_ALIASES = {f"gguf_q{bits}k": f"gguf_q{bits}_k" for bits in (2, 3, 4, 5, 6, 8)}


@dataclass(frozen=True)
class QuantScheme:
    """The encoding of a weight's numbers.

    Args:
      name: one of
        "int8/32": int8 with a float32 scale for every 32 neighbours (any block); codes from -127 to 127;
        "int8a/32": the same with a zero point for each block;
        "int4/32": (code - 8) * scale, two codes in a byte, the first in the low bits;
        "nf4/64": sixteen levels of a normal distribution, two in a byte, the first in the high bits;
        "mxfp4", "nvfp4/16": 4-bit floats with 8-bit scales; "nvfp4" also has a float32 scale for the whole array;
        "fp8e4m3", "fp8e5m2": 8-bit floats, without scales;
        "gguf_q4_0", "gguf_q4_k", ...: a storage type of GGUF files.

    Raises OptionError for another name.

    >>> from rlx.quant import QuantScheme
    >>> QuantScheme("int4/32").bits_per_element, QuantScheme("gguf_q4_0").bits_per_element
    (5.0, 4.5)
    """

    name: str

    def __post_init__(self) -> None:
        name = _GGUF_ALIASES.get(self.name, self.name)
        kind, slash, block = name.partition("/")
        if kind in _KINDS and not slash:
            name = kind if _KINDS[kind][1] == 1 else f"{kind}/{_KINDS[kind][1]}"
        object.__setattr__(self, "name", name)
        if name in _GGUF:
            return
        known = [*_KINDS, *_GGUF]
        if kind not in _KINDS or (slash and not (block.isascii() and block.isdecimal() and int(block) > 0)):
            raise OptionError(
                f"There is no quantisation scheme {self.name!r}.",
                did_you_mean(kind, known) or f"Supported: {', '.join(known)}; write the block after a slash: int8/32.",
            )
        if slash and (_KINDS[kind][1] == 1 or int(block) != _FIXED.get(kind, int(block))):
            raise OptionError(f"{kind} has no blocks of {block}.", f"Write {kind}.")
        if self.code_bits == 4 and self.block_size % 2:
            raise OptionError(f"{name} cuts bytes in two: they hold two codes.", "Choose an even block.")

    @classmethod
    def int8_block(cls, block_size: int = 32) -> QuantScheme:
        """int8 with a scale for each block."""
        return cls(f"int8/{block_size}")

    @classmethod
    def int8_block_asym(cls, block_size: int = 32) -> QuantScheme:
        """int8 with a scale and a zero point for each block."""
        return cls(f"int8a/{block_size}")

    @classmethod
    def int4_block(cls, block_size: int = 32) -> QuantScheme:
        """Four bits with a scale for each block."""
        return cls(f"int4/{block_size}")

    @classmethod
    def fp8_e4m3(cls) -> QuantScheme:
        """8-bit floats with four bits of exponent."""
        return cls("fp8e4m3")

    @classmethod
    def fp8_e5m2(cls) -> QuantScheme:
        """8-bit floats with five bits of exponent."""
        return cls("fp8e5m2")

    @classmethod
    def nvfp4_block(cls) -> QuantScheme:
        """4-bit floats with an 8-bit scale for every 16 neighbours."""
        return cls("nvfp4")

    @cached_property
    def kind(self) -> str:
        """The name without its block."""
        return self.name.partition("/")[0]

    @cached_property
    def storage(self) -> StorageType | None:
        """GGUF's type, if it is one."""
        return _GGUF.get(self.name)

    @property
    def is_gguf(self) -> bool:
        """Whether it is a storage type of GGUF files."""
        return self.storage is not None

    @property
    def code_bits(self) -> int:
        """Bits of a code, without scales; of a GGUF type rounded down from all it stores."""
        return (
            int(LAYOUTS[self.storage].nbytes * 8 // self.block_size)
            if self.storage is not None
            else _KINDS[self.kind][0]
        )

    @cached_property
    def block_size(self) -> int:
        """How many neighbours share a scale; 1 where there is none."""
        if self.storage is not None:
            return LAYOUTS[self.storage].elements
        block = self.name.partition("/")[2]
        return int(block) if block else _KINDS[self.kind][1] or _FIXED[self.kind]

    @property
    def has_scale(self) -> bool:
        """Whether scales are kept apart from the codes."""
        return not self.is_gguf and _KINDS[self.kind][2]

    @property
    def has_zero_point(self) -> bool:
        """Whether zero points are."""
        return not self.is_gguf and _KINDS[self.kind][3]

    @property
    def gguf_block_size(self) -> int:
        """Elements of a GGUF block; 0 for others."""
        return self.block_size if self.is_gguf else 0

    @property
    def gguf_block_bytes(self) -> int:
        """Bytes of a GGUF block; 0 for others."""
        return LAYOUTS[self.storage].nbytes if self.storage is not None else 0

    @property
    def bits_per_element(self) -> float:
        """Bits per element, scales and zero points included."""
        if self.storage is not None:
            return self.storage.bits
        scale = _SCALE_BITS.get(self.kind, 32) if self.has_scale else 0
        return self.code_bits + (scale + 32 * self.has_zero_point) / self.block_size

    def row_bytes(self, length: int) -> int:
        """The number of bytes of `length` neighbouring codes."""
        if self.storage is not None:
            return length // self.block_size * LAYOUTS[self.storage].nbytes
        return length * self.code_bits // 8

    def __str__(self) -> str:
        return self.name


def scheme_of(value: QuantScheme | StorageType | str) -> QuantScheme:
    """The scheme that a name, or a storage type, says."""
    if isinstance(value, QuantScheme):
        return value
    if isinstance(value, StorageType):
        return QuantScheme(f"gguf_{value.name.lower()}")
    return QuantScheme(value)
