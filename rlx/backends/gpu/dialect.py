"""The C dialect with work-items: the common part of CUDA, HIP and OpenCL, and hooks for the words that differ."""

from __future__ import annotations

import re
from collections.abc import Container, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar, Literal

import numpy as np

from rlx.backends.c.dialect import CDialect
from rlx.backends.c.prelude import helpers_of
from rlx.backends.c.types import memory_type, register_type
from rlx.backends.gpu.epilogues import LibraryProduct
from rlx.backends.gpu.fragments import Fragments
from rlx.backends.loops.dialect import Parameter
from rlx.code.tree import Argument, Array, Divisor, ForLoop
from rlx.ir.fused_products import FusedProduct
from rlx.ir.kernels import Collective, Contract, Library, Sort
from rlx.ir.types import compute_dtype, is_complex, is_narrow

__all__ = ["DeviceDialect"]

_CALLED = "__attribute__((noinline))"
_WORD = re.compile(r"\w+")
_WORDS = {4: "uint32_t", 8: "uint64_t"}  # the types that memory exchanges atomically, by bytes


def _used(names: Container[str], text: str) -> list[str]:
    """The names that a text has as words, in its order."""
    return [word for word in dict.fromkeys(_WORD.findall(text)) if word in names]


def _declared_numbers(argument: Argument) -> list[tuple[str, str]]:
    """The types and names of the numbers that stand for an argument."""
    parts = ("multiplier", "shift") if isinstance(argument, Divisor) else ()
    return [(register_type(argument.dtype), argument.name), *(("uint32_t", f"{argument.name}_{p}") for p in parts)]


class DeviceDialect(CDialect):
    """C for a device. For each array, a kernel takes its memory and the byte offset where the array begins.

    shuffles: whether the work-items of a warp can read each other's registers. shared_launch: whether the kernels
    written now become parts of one launch (`sharing_launch`).
    """

    device: ClassVar[str]  # the device that compiles it
    has_pointers: ClassVar[bool] = True  # whether two arrays can exchange their places in memory
    takes_numbers: ClassVar[bool] = True  # whether launches pass sizes to kernels
    launch_words: ClassVar[re.Pattern[str]]  # words in users' kernels that require a separate launch

    def __init__(self, shuffles: bool = True) -> None:
        super().__init__()
        self.shuffles = shuffles
        self.shared_launch = False
        self._atomics: dict[str, tuple[str, np.dtype]] = {}
        self._vectors: dict[str, tuple[str, int]] = {}

    # ------------------------------------------------------------------ words
    def kernel_mark(self, items: int, roomy: int = 0) -> str:
        """The beginning of a kernel's declaration: see LanguageWords.kernel."""
        return self.words.kernel.format(items=items, roomy=f", {roomy}" if roomy else "")

    def shuffle(self, dtype: np.dtype, value: str, distance: str, warp: int) -> str:
        """A shuffle in which all work-items of a warp take part."""
        kind = register_type(dtype)
        wide = "int" if dtype.kind == "b" or dtype.itemsize < 4 else kind
        text = self.words.shuffle.format(value=f"({wide}){value}", distance=distance, warp=warp)
        return text if wide == kind else f"(({kind}){text})"

    def program_head(self, text: str) -> str:
        """Declarations that the device's compiler needs before helper functions and kernels."""
        names = [name for name in self.words.overloaded if f"{name}f(" in text]
        defined = (f"#define {name}f {self.words.overload.format(name=name)}" for name in names)
        return "\n".join([self.words.head, *defined])

    def _exchanged(self, word: str, place: str, before: str, after: str) -> str:
        """Atomic compare-and-swap of a uint32_t or uint64_t."""
        return self.words.exchange[word].format(place=place, before=f"({word}){before}", after=f"({word}){after}")

    # ------------------------------------------------------------------ users' kernels
    def calls_by_element(self, source: str) -> bool:
        """Whether a user's two-dimensional kernel can be called by each group along a third dimension."""
        return not self.launch_words.search(source)

    def kernel_of_batch(self, source: str, name: str, called: str, block: Sequence[int], starts: Sequence[str]) -> str:
        """The source of a user's kernel and of a kernel that calls it, in languages that users' kernels are written in.

        starts: the byte where each array of a call begins, by `element`, the group's index along the third dimension.
        """
        raise NotImplementedError

    # ------------------------------------------------------------------ programs
    def program(self, kernels: Mapping[str, str]) -> str:
        """The types and helper functions that kernels use, then the kernels: a program depends on nothing else."""
        body = "\n\n".join(kernels.values())
        atomics = [self.atomic_text(name, *self._atomics[name]) for name in _used(self._atomics, body)]
        body = "\n\n".join([*atomics, body])  # atomics may call helpers
        vectors = [
            # NVRTC ignores an alignment that follows the type
            f"typedef struct __attribute__((aligned({size}))) {{ {kind} of[{name.rpartition('_by_')[2]}]; }} {name};"
            for name in _used(self._vectors, body)
            for kind, size in (self._vectors[name],)
        ]
        helpers = self.helper_text(_used(self.helpers, body))
        text = "\n\n".join(part for part in (*vectors, helpers, body) if part)
        return f"{self.program_head(text)}\n{text}\n"

    def helper_text(self, helpers: Iterable[str]) -> str:
        """The source of helper functions."""
        return self.spelled(helpers)

    def spelled(self, helpers: Iterable[str]) -> str:
        """The source of helper functions; long ones are not inlined: device compilers inline all that they can."""
        return "\n\n".join(re.sub(r"^static double", f"static {_CALLED} double", h) for h in helpers_of(helpers))

    def kernel(
        self,
        name: str,
        parameters: Sequence[Parameter],
        items: int,
        body: Sequence[str],
        roomy: int = 0,
        numbers: Sequence[Argument] = (),
    ) -> str:
        """A kernel whose arrays have the names of the parameters. numbers: those that the launch passes."""
        space = self.words.global_space
        kinds = [f"{space} {'' if p.written else 'const '}{memory_type(p.dtype)} *" for p in parameters]
        taken = [f"{space} uint8_t *{p.name}_memory, const int64_t {p.name}_start" for p in parameters]
        taken += [f"const {kind} {name}" for a in numbers for kind, name in _declared_numbers(a)]
        arrays = ", ".join(taken)
        places = [self.words.place.format(memory=f"{p.name}_memory", start=f"{p.name}_start") for p in parameters]
        pointers = [
            f"{kind}{p.name} = ({kind}){place};".strip()
            for kind, p, place in zip(kinds, parameters, places, strict=True)
        ]
        lines = "\n".join(f"    {line}" for line in (*pointers, *body))
        return f"{self.kernel_mark(items, roomy)} {name}({arrays.replace('( ', '(')}) {{\n{lines}\n}}"

    def library_product(self, fused: FusedProduct) -> LibraryProduct | None:
        """A product in a library's form: with its reader as an epilogue, if it has one; None if no library takes it."""
        return None

    def multiplies(self, kernel: Contract) -> bool:
        """Whether a library of the device computes a product that no nest is fused with."""
        return self.library_product(FusedProduct(kernel)) is not None

    def why_not_routine(self, kernel: Library) -> str | None:
        """The reason that no library of the device computes a routine; None if one does."""
        return f"{self.language} has no {kernel.routine}"

    def library_of(self, kernel: Contract | Library) -> str:
        """The name of the library that computes a product or a routine; empty if none does."""
        if isinstance(kernel, Contract):
            product = self.library_product(FusedProduct(kernel))
            return "" if product is None else product.library
        return "" if self.why_not_routine(kernel) else self.routine_library(kernel.routine)

    def routine_library(self, routine: str) -> str:
        """The name of the library that computes a routine; empty if none does."""
        raise NotImplementedError

    def exchanges(self, kernel: Collective) -> bool:
        """Whether a library of the device executes a collective."""
        return False

    def fragments(self, dtype: np.dtype) -> Fragments | None:
        """The matrix unit for products of a dtype that sums in a wider one, if the device has one; float32 is then
        rounded to tf32."""
        return None

    def packed(self, dtype: np.dtype, low: str, high: str) -> str:
        """A word of two float32 registers that are rounded to a 16-bit dtype."""
        codes = [f"(uint32_t){self._call('encode', [dtype], number)}" for number in (low, high)]
        return f"({codes[0]} | {codes[1]} << 16)"

    def fuses(self, fused: FusedProduct) -> bool:
        """Whether rlx's kernel computes a product and the nests around it in one launch. Libraries cannot fuse nests
        that compute operands, but reading a convolution's windows in place is worth more than a library."""
        return fused.grows or not self.multiplies(fused.contract)

    def sorts(self, kernel: Sort) -> bool:
        """Sorts are supported, except of complex numbers, which the host sorts."""
        return not any(is_complex(b.dtype) for b in kernel.inputs)

    def has_routine(self, kernel: Library) -> bool:
        """Blocks that the device claims are supported; the host runs other routines."""
        return kernel.meaning is not None

    @contextmanager
    def sharing_launch(self) -> Generator[None]:
        """Within this context, kernels become parts of one launch: they have whole groups, and no library runs any."""
        before, self.shared_launch = self.shared_launch, True
        try:
            yield
        finally:
            self.shared_launch = before

    def divided_by(self, dividend: str, dtype: np.dtype, divisor: str) -> str:
        """A multiplication and a shift: see `Divisor`."""
        product = f"(uint64_t)(uint32_t){dividend} * {divisor}_multiplier"
        return f"({register_type(dtype)})((uint32_t)({product} >> 32) >> {divisor}_shift)"

    def remainder_by(self, dividend: str, dtype: np.dtype, divisor: str) -> str:
        """What the quotient leaves."""
        return f"({dividend} - {self.divided_by(dividend, dtype, divisor)} * {divisor})"

    def for_loop(self, loop: ForLoop, start: str, stop: str, step: str) -> tuple[str, ...]:
        """for; device compilers vectorise and reorder nothing, and need a hint to unroll."""
        head = self.counted(loop, start, stop, step)
        hint = self.words.unroll if loop.unrolled is True else self.words.unroll_by.format(count=loop.unrolled)
        return (hint, head) if loop.unrolled and hint else (head,)

    def coordinate(self, of: Literal["item", "group", "groups"], dtype: np.dtype) -> str:
        """A number of the launch; groups' numbers are cast, as languages differ in their types."""
        if of == "item":
            return self.words.item
        number = self.words.group if of == "group" else self.words.groups
        return self.words.converted.format(type=self.type(dtype), value=number)

    def launch_barrier(self, arrivals: str, awaited: str) -> tuple[str, ...]:
        """The first work-item of each group counts its arrival and watches the count, which may wrap around."""
        return (
            self.words.barrier,
            self.words.condition.format(condition=f"{self.words.item} == 0"),
            f"    {self.words.fence}",
            f"    {self._updated('add', np.dtype(np.uint32), arrivals, '1u')}",
            f"    while ((int32_t)({self.words.watched.format(pointer=arrivals)} - {awaited}) < 0) {{ }}",
            f"    {self.words.fence}",
            self.words.block_end,
            self.words.barrier,
        )

    def pointer(self, dtype: np.dtype) -> str:
        """The type of pointers to elements of the device's memory."""
        return f"{self.words.global_space} {memory_type(dtype)} *".strip()

    def array(self, array: Array) -> str:
        """A declaration; the compiler can store 16 bytes at once if rows consist of them."""
        if array.vector:
            return f"{self.vector(array.dtype, *array.shape)} {array.name};"
        kind = memory_type(array.words or array.dtype)
        name = array.name + "".join(f"[{extent}]" for extent in array.shape)
        if array.space == "item":
            return f"{kind} {name};"
        aligned = len(array.shape) > 1 and array.shape[-1] * array.dtype.itemsize % 16 == 0
        return f"{self.words.group_space} {kind} {name}{' __attribute__((aligned(16)))' if aligned else ''};"

    def viewed(self, array: Array, name: str) -> str:
        """A cast pointer."""
        return f"(({f'{self.words.group_pointer} {memory_type(array.dtype)}'.strip()} *){name})"

    def aligned(self, arrays: Sequence[str], nbytes: int) -> str:
        """A test of the last bits."""
        bits = " | ".join(f"(size_t){name}" for name in arrays)
        return f"((({bits}) & {nbytes - 1}) == 0)"

    def vector_read(self, target: Array, array: Array, position: str) -> str:
        """The declaration of a constant vector."""
        kind = self.vector(array.dtype, *target.shape)
        pointer = f"{self.words.global_space} const {kind} *".strip()
        return f"const {kind} {target.name} = *({pointer})&{array.name}[{position}];"

    def vector_write(self, array: Array, position: str, source: Array) -> str:
        """An assignment of a vector."""
        pointer = f"{self.words.global_space} {self.vector(array.dtype, *source.shape)} *".strip()
        return f"*({pointer})&{array.name}[{position}] = {source.name};"

    # ------------------------------------------------------------------ vectors
    def vector(self, dtype: np.dtype, width: int) -> str:
        """The name of a vector type, whose elements are loaded and stored at once."""
        kind = memory_type(dtype)
        name = f"{kind.removesuffix('_t')}_by_{width}"
        self._vectors[name] = (kind, width * dtype.itemsize)
        return name

    # ------------------------------------------------------------------ atomics
    def atomic(self, reducer: str, array: Array, position: str, value: str) -> str:
        """A call with a pointer."""
        return self._updated(reducer, array.dtype, f"{array.name} + {position}", value)

    def _updated(self, reducer: str, dtype: np.dtype, pointer: str, value: str) -> str:
        name, dtypes = self.words.atomics.get(reducer, ("", ()))
        if dtype.name not in dtypes:
            name = f"atomic_{reducer}_{dtype.name}"
            self._atomics[name] = (reducer, dtype)
        return f"{name}({pointer}, {value});"

    def atomic_text(self, name: str, reducer: str, dtype: np.dtype) -> str:
        """A compare-and-swap loop on the word that contains an element, until no other work-item wrote in between."""
        kind, wide = register_type(compute_dtype(dtype)), compute_dtype(dtype)
        space = self.words.global_space
        word = _WORDS.get(dtype.itemsize, "uint32_t")
        bits = 8 * dtype.itemsize
        held = memory_type(dtype)
        code = f"uint{bits}_t"
        number = np.dtype(f"uint{bits}")
        seen = "before" if bits >= 32 else f"({code})(before >> shift)"
        as_held = self._reinterpreted(number, dtype, seen)
        old = self._call("decode", [dtype], as_held) if is_narrow(dtype) else as_held
        if dtype.kind == "b":
            old = f"({old} != 0)"
        result = self.combine(reducer, wide, old, "value")
        new = self._call("encode", [dtype], result) if is_narrow(dtype) else result
        after = self._reinterpreted(dtype, number, f"({held}){new}" if dtype.kind == "b" else new)
        lines = [f"const {word} after = {after};"]
        locate = [f"{space} {word} *at = ({space} {word} *)place;"]
        if bits < 32:
            ones = (1 << bits) - 1
            locate = [
                f"{space} {word} *at = ({space} {word} *)((size_t)place & ~(size_t)3);",
                "const uint32_t shift = 8u * (uint32_t)((size_t)place & 3);",
            ]
            lines = [
                f"const uint32_t code = (uint32_t)({code}){after};",
                f"const {word} after = (before & ~({ones}u << shift)) | (code << shift);",
            ]
        exchange = self._exchanged(word, "at", "before", "after")
        return "\n".join(
            [
                f"static inline void {name}({space} {held} *place, {kind} value) {{",
                *(f"    {line.strip()}" for line in locate),
                f"    {word} before = {self._exchanged(word, 'at', '0', '0')};",
                "    for (;;) {",
                *(f"        {line}" for line in lines),
                f"        const {word} seen = {exchange};",
                "        if (seen == before) break;",
                "        before = seen;",
                "    }",
                "}",
            ]
        )

    def _reinterpreted(self, source: np.dtype, target: np.dtype, value: str) -> str:
        kinds = [memory_type(dtype) for dtype in (source, target)]
        if "float" in kinds or "double" in kinds:
            return self._call("bits", [source, target], value)
        return f"({kinds[1]})({value})"
