"""The memory plan of a compiled call as an object: lifetimes and offsets, as text and as a picture."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rlx.errors import RlxError, bytes_text
from rlx.ir.kernels import Buffer, Plan, nested_plans
from rlx.ir.show_plan import buffer_names, kernel_name
from rlx.planning.arena import MemoryBlock, most_live
from rlx.planning.memory import blocks_of, offsets_of
from rlx.storage import ALIGNMENT

__all__ = ["Lifetime", "MemoryPlan", "MemoryPlanOptions"]

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 860, 420, 90, 34, 26
_COLOURS = "#4e79a7 #f28e2b #59a14f #e15759 #76b7b2 #edc948 #b07aa1 #ff9da7 #9c755f #86bcb6".split()


@dataclass(frozen=True)
class MemoryPlanOptions:
    """How temporaries would be placed.

    alignment: every offset is a multiple of this number of bytes. element_bytes: the size of an element;
    None for the size of its dtype.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> compiled = rlx.jit(lambda x: jnp.sort(jnp.sort(x) + 1.0)).lower(jnp.zeros((8, 8))).compile()
    >>> MemoryPlan.of(compiled.plan, MemoryPlanOptions(alignment=4096)).arena
    4096
    """

    alignment: int = ALIGNMENT
    element_bytes: int | None = None

    def __post_init__(self) -> None:
        sizes = (self.alignment, 1 if self.element_bytes is None else self.element_bytes)
        if any(not isinstance(n, int) or n < 1 for n in sizes):
            raise RlxError(f"{self} cannot be planned with.", "Alignment and element_bytes are positive integers.")


class Lifetime(NamedTuple):
    """A temporary: its offset in the arena, and the first and last kernel that need it.

    `alias` names the temporary whose memory it reuses in the kernel that writes it.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> compiled = rlx.jit(lambda x: jnp.sort(jnp.sort(x) + 1.0)).lower(jnp.zeros((8, 8))).compile()
    >>> plan = MemoryPlan.of(compiled.plan)
    >>> [(buffer.offset, buffer.nbytes) for buffer in plan.buffers][:1]
    [(0, 256)]
    """

    name: str
    dtype: str
    size: int
    nbytes: int
    offset: int
    first: int
    last: int
    alias: str | None


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of one call. Print it, or see `report()`, `svg()` and `save_svg(path)`.

    arguments, outputs, constants: bytes outside the arena. arena: bytes of the arena. peak: the largest
    number of bytes that are live at once (in the kernel numbered peak_kernel), a lower bound for any
    arena. kernels: their labels. nested: the plans inside loops and branches, by
    the kernels that contain them; each has its own arena after this one.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> compiled = rlx.jit(lambda x: jnp.sort(jnp.sort(x) + 1.0)).lower(jnp.zeros((8, 8))).compile()
    >>> plan = MemoryPlan.of(compiled.plan)
    >>> plan.arguments, plan.outputs, plan.peak <= plan.arena
    (256, 256, True)
    """

    name: str
    arguments: int = 0
    outputs: int = 0
    constants: int = 0
    arena: int = 0
    peak: int = 0
    peak_kernel: int = 0
    buffers: tuple[Lifetime, ...] = ()
    kernels: tuple[str, ...] = ()
    nested: tuple[tuple[str, MemoryPlan], ...] = ()

    @classmethod
    def of(cls, plan: Plan, options: MemoryPlanOptions | None = None) -> MemoryPlan:
        """The memory of a plan; with options, as these would place it."""
        chosen = options or MemoryPlanOptions()
        blocks = blocks_of(plan.kernels, chosen.alignment, chosen.element_bytes)
        offsets, arena = plan.offsets, plan.arena
        if options is not None:
            offsets, arena = offsets_of(blocks)
        peak = most_live(blocks)
        inner = [
            (f"kernel {number}", cls.of(held, options))
            for number, kernel in enumerate(plan.kernels)
            for held in nested_plans(kernel)
        ]
        return cls(
            plan.name,
            sum(buffer.nbytes for buffer in plan.inputs),
            sum(buffer.nbytes for buffer in plan.outputs),
            sum(buffer.nbytes for buffer in plan.buffers if buffer.role == "constant"),
            arena,
            peak.size,
            peak.kernel,
            tuple(_lifetimes(plan, blocks, offsets, chosen.element_bytes)),
            tuple(map(kernel_name, plan.kernels)),
            tuple(inner),
        )

    @property
    def temporaries(self) -> int:
        """Bytes of the arena."""
        return self.arena

    @property
    def efficiency(self) -> float:
        """The least arena there could be, as a part of this one; 1 is perfect."""
        return self.peak / self.arena if self.arena else 1.0

    # -------------------------------------------------------------- text
    def report(self) -> str:
        """Arena, peak and efficiency, and a line for each temporary: offset, size, lifetime, alias."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield (
            f"arguments {self.arguments} B, outputs {self.outputs} B, temporaries {self.temporaries} B,"
            f" constants {self.constants} B"
        )
        at = f" in kernel {self.peak_kernel} ({self.kernels[self.peak_kernel]})" if self.buffers else ""
        yield (
            f"arena {bytes_text(self.arena)}; peak live {bytes_text(self.peak)}{at}, which is the lower bound:"
            f" efficiency {self.efficiency:.1%}"
        )
        if self.buffers:
            yield f"  {'offset':>12} {'bytes':>12}  {'kernels':>11}  buffer"
        for buffer in sorted(self.buffers, key=lambda b: (b.offset, b.first)):
            alias = f"  in place of {buffer.alias}" if buffer.alias else ""
            kernels = f"{buffer.first}-{buffer.last}"
            yield (
                f"  {buffer.offset:>12} {buffer.nbytes:>12}  {kernels:>11}"
                f"  {buffer.name} {buffer.dtype}[{buffer.size}]{alias}"
            )
        for where, plan in self.nested:
            yield f"  inside {where}, {plan.name}:"
            yield from (f"    {line}" for line in plan._lines())

    def __str__(self) -> str:
        return self.report()

    def __repr__(self) -> str:
        return self.report()

    # -------------------------------------------------------------- picture
    def svg(self) -> str:
        """The arena as a picture: kernels from left to right, offsets from bottom to top, a box a buffer."""
        return "\n".join(self._picture())

    def save_svg(self, path: str | Path) -> Path:
        """Write the picture to a file; -> its path."""
        target = Path(path)
        target.write_text(self.svg() + "\n", encoding="utf-8")
        return target

    def _repr_html_(self) -> str:
        return f"{self.svg()}\n<pre>{html.escape(self.report())}</pre>"

    def _picture(self) -> Iterator[str]:
        plot_width, plot_height = _WIDTH - _LEFT - 10, _HEIGHT - _TOP - _BOTTOM
        column = plot_width / max(len(self.kernels), 1)
        scale = plot_height / max(self.arena, 1)
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}"'
            f' height="{_HEIGHT}" font-family="monospace" font-size="11">'
        )
        yield f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
        title = f"{self.name}: arena {bytes_text(self.arena)}, peak {bytes_text(self.peak)}, {self.efficiency:.1%}"
        yield f'<text x="{_LEFT}" y="20" font-size="13">{html.escape(title)}</text>'
        base = _TOP + plot_height
        for part in range(5):
            y = base - part * plot_height / 4
            yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - 10}" y2="{y:.1f}" stroke="#ddd"/>'
            label = bytes_text(self.arena * part // 4)
            yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        for number, buffer in enumerate(self.buffers):
            x, y = _LEFT + buffer.first * column, base - (buffer.offset + buffer.nbytes) * scale
            width, height = (buffer.last - buffer.first + 1) * column, buffer.nbytes * scale
            yield (
                f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
                f' fill="{_COLOURS[number % len(_COLOURS)]}" fill-opacity="0.75" stroke="white" stroke-width="0.5">'
                f"<title>{html.escape(self._tooltip(buffer))}</title></rect>"
            )
        yield f'<text x="{_LEFT}" y="{_HEIGHT - 8}">kernel 0</text>'
        end = f"kernel {max(len(self.kernels) - 1, 0)}"
        yield f'<text x="{_WIDTH - 10}" y="{_HEIGHT - 8}" text-anchor="end">{end}</text>'
        yield "</svg>"

    def _tooltip(self, buffer: Lifetime) -> str:
        alias = f", in place of {buffer.alias}" if buffer.alias else ""
        return (
            f"{buffer.name} {buffer.dtype}[{buffer.size}]: {bytes_text(buffer.nbytes)} at {buffer.offset}, kernels"
            f" {buffer.first} ({self.kernels[buffer.first]}) to {buffer.last} ({self.kernels[buffer.last]}){alias}"
        )


def _lifetimes(
    plan: Plan, blocks: list[MemoryBlock], offsets: Mapping[Buffer, int], element_bytes: int | None
) -> Iterator[Lifetime]:
    names = buffer_names(plan)
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for position, kernel in enumerate(plan.kernels):
        for buffer in (*kernel.reads, *kernel.writes):
            first.setdefault(buffer, position)
            last[buffer] = position
    for block in blocks:
        before: str | None = None
        for buffer in block.buffers:
            name = names.get(buffer, buffer.name or "temporary")
            nbytes = buffer.nbytes if element_bytes is None else buffer.size * element_bytes
            yield Lifetime(
                name, buffer.dtype.name, buffer.size, nbytes, offsets[buffer], first[buffer], last[buffer], before
            )
            before = name
