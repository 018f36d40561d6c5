"""The WGSL dialect: typed casts, no pointers, memory as 32-bit words behind functions of each array."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from rlx.backends.c.types import helper_name
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.loops.dialect import Parameter, bare
from rlx.backends.loops.printing import Printer
from rlx.backends.loops.words import LanguageWords
from rlx.backends.wgpu.helpers import Features, helpers_of
from rlx.backends.wgpu.memory_text import COMPONENTS, KernelModule, Windows, memory_text
from rlx.backends.wgpu.types import RESERVED, literal, memory_bits, type_name, wrapped
from rlx.code.functions import Function
from rlx.code.tree import Argument, Array
from rlx.ir.formats import FLOAT_FORMATS
from rlx.ir.kernels import Instruction, Loops
from rlx.ir.types import compute_dtype, dtype_kind, element_dtype, is_narrow

__all__ = ["DOUBLES", "LONGS", "WgslDialect"]

DOUBLES = frozenset(np.dtype(name) for name in ("float64", "complex128"))
LONGS = frozenset(np.dtype(name) for name in ("int64", "uint64"))

_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_OF_ORDERED_BOOLS = {"lt": "(!{} && {})", "le": "(!{} || {})", "gt": "({} && !{})", "ge": "({} || !{})"}
_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"}
_BUILTINS = {"floor": "floor", "ceil": "ceil", "round_even": "round", "trunc": "trunc", "sqrt": "sqrt", "abs": "abs"}
_HELPERS = {
    "min": "minimum", "max": "maximum", "rem": "remainder", "sign": "sign", "copysign": "copysign", "div": "divide",
}  # fmt: skip
_SHIFTS = frozenset("shift_left shift_right_logical shift_right_arithmetic".split())
_FLOAT32, _BOOL = np.dtype(np.float32), np.dtype(bool)
_COUNT = re.compile(r"(\d+)l?[iu]")

WGSL_WORDS = LanguageWords(
    head="",
    kernel="@compute @workgroup_size({items})\nfn",
    item="item",
    group="group",
    groups="launch[0].x",
    barrier="storageBarrier(); workgroupBarrier();",
    group_space="var<workgroup>",
    unroll="",
    unroll_by="",
    constant="let {name}: {type} = {value};",
    variable="var {name}: {type} = {value};",
    endless_loop="loop {",
    first="var {name}: {type} = {start}",
    increase="{name} += 1",
    decrease="{name} -= 1",
    select="select({no}, {yes}, {condition})",
    all_of="&&",
    any_of="||",
    converted="{type}({value})",
)
_COORDINATES = (
    "@builtin(local_invocation_index) local_item: u32, @builtin(workgroup_id) grid_place: vec3<u32>,"
    " @builtin(num_workgroups) grid_size: vec3<u32>"
)


class WgslDialect(DeviceDialect):
    """WGSL. Arrays are modules' variables, so that a kernel and what it needs are a module of their own.

    features: what the device has beyond WGSL. 64-bit integers without the feature are indices, and become 32-bit ones.
    """

    device = "wgpu"
    language = "WGSL"
    words = WGSL_WORDS
    launch_words = re.compile("")
    has_pointers = False
    takes_numbers = False
    reserved = RESERVED

    def __init__(self, features: Features) -> None:
        super().__init__(shuffles=False)
        self.reserved = RESERVED
        self.features = features
        self._roots: dict[str, str] = {}

        self.functions = _BUILTINS | ({"fma": "fma"} if features.fused else {})

    def type(self, dtype: np.dtype) -> str:
        """The type of a register."""
        return type_name(dtype, self.features.longs)

    def suffix(self, dtype: np.dtype) -> str:
        """Functions are overloaded."""
        return ""

    # ------------------------------------------------------------------ modules
    def kernel(
        self,
        name: str,
        parameters: Sequence[Parameter],
        items: int,
        body: Sequence[str],
        roomy: int = 0,
        numbers: Sequence[Argument] = (),
    ) -> str:
        """A module: the arrays' names, group arrays, and the entry point, which groups beyond the last one leave."""
        assert not numbers
        del roomy
        shared = [line for line in body if line.startswith(self.words.group_space)]
        places = [
            f"let {p.name}_start = launch[{n // 4}].{COMPONENTS[n % 4]} / {element_dtype(p.dtype).itemsize}u;"
            for n, p in enumerate(parameters, 1)
        ]
        head = ["let group = grid_place.x + grid_place.y * grid_size.x;", "if (group >= launch[0].x) { return; }"]
        lines = [*head, "let item = i32(local_item);", *places, *(line for line in body if line not in shared)]
        indented = (f"{self.extent}{line}" for line in lines)
        code = [*shared, f"{self.kernel_mark(items)} {name}({_COORDINATES}) {{", *indented, "}"]
        return KernelModule(name, tuple(p.name for p in parameters), "\n".join(code)).text()

    def program(self, kernels: Mapping[str, str]) -> str:
        """The modules, with their arrays in memory of their own."""
        return "\n".join(self.declared(KernelModule.read(text)) for text in kernels.values())

    def declared(
        self, module: KernelModule, sharing: Sequence[int] | None = None, windows: Windows | None = None
    ) -> str:
        """A module with the declarations that it needs. sharing: for each array, the number of its memory. windows: of
        memories that are larger than one binding."""
        memory = memory_text(module, sharing, self._updated_word, windows)
        return module.text("\n".join([*helpers_of(memory + module.code, self.features, Printer(self)), memory]))

    def _call(self, operation: str, dtypes: Sequence[np.dtype], *arguments: str) -> str:
        return f"{helper_name(operation, *dtypes)}({', '.join(map(bare, arguments))})"

    def calls_by_element(self, source: str) -> bool:
        """False: kernels take whole bindings."""
        return False

    # ------------------------------------------------------------------ blocks
    def scalar_function(self, function: Function, name: str) -> tuple[str, ...]:
        """A function of registers."""
        parameters = ", ".join(f"{p.name}: {self.type(p.dtype)}" for p in function.parameters)
        return (f"fn {name}({parameters}) -> {self.type(function.result)} {{",)

    # ------------------------------------------------------------------ registers
    def fitted(self, value: str, source: np.dtype, target: np.dtype) -> str:
        """A conversion."""
        kinds = self.type(source), self.type(target)
        if kinds[0] == kinds[1]:
            return value
        return f"{'rlx_wide' if kinds == ('i32', 'i64') else kinds[1]}({bare(value)})"

    def operands(self, instruction: Instruction, dtypes: Sequence[np.dtype]) -> Sequence[np.dtype]:
        """Operands of a comparison have the widest of their types; of arithmetic, the result's."""
        op = instruction.op
        if op in ("cast", "bitcast", "special") or any(dtype_kind(d) not in "iu" for d in dtypes[-2:]):
            return dtypes
        if op == "select":
            return dtypes[0], instruction.dtype, instruction.dtype
        common = max(dtypes, key=lambda d: (d.itemsize, d.kind == "u"))
        return [common if op in _COMPARISONS else instruction.dtype] * len(dtypes)

    # ------------------------------------------------------------------ memory
    def _place(self, array: Array, position: str) -> tuple[str, str]:
        """The parameter that an array belongs to, and the number of an element in it."""
        start = f"{array.name}_start"
        return self._roots.get(array.name, array.name), start if position == "0" else f"{start} + u32({bare(position)})"

    def read(self, array: Array, name: str, position: str, dtype: np.dtype) -> str:
        """A call that gets a word of memory, or an element of a local array; decoded if it is narrow."""
        held = array.dtype
        if array.space == "device":
            root, place = self._place(array, position)
            word = f"{root}_get{memory_bits(held)}({place})"
            value = self._of_word(held, word)
        else:
            value = f"{name}[{bare(position)}]"
        if is_narrow(held) and dtype != held:
            return self._call("decode", [held], value)
        return value

    def write(self, array: Array, name: str, position: str, dtype: np.dtype, value: str) -> str:
        """A call that puts a word in memory, or an assignment to an element of a local array."""
        held = array.dtype
        if is_narrow(held) and dtype not in (FLOAT_FORMATS if held in FLOAT_FORMATS else (held,)):
            value = self._call("encode", [held], self.fitted(value, dtype, compute_dtype(held)))
        elif not is_narrow(held):
            value = wrapped(self.fitted(value, dtype, held), held) if dtype != held else value
        if array.space != "device":
            return self.assign(f"{name}[{bare(position)}]", value)
        root, place = self._place(array, position)
        return f"{root}_put{memory_bits(held)}({place}, {self._as_word(held, value)});"

    def _of_word(self, dtype: np.dtype, word: str) -> str:
        """A register as it is in memory, given its word."""
        if dtype.kind == "b":
            return f"({word} != 0u)"
        kind, bits = self.type(dtype), memory_bits(dtype)
        if bits < 32:
            return word if kind == "u32" else wrapped(f"i32({word})", dtype)
        return word if kind in ("u32", "u64") else f"bitcast<{kind}>({word})"

    def _as_word(self, dtype: np.dtype, value: str) -> str:
        """The word of a register."""
        kind = self.type(dtype)
        if kind in ("u32", "u64"):
            return bare(value)
        if kind in ("bool", "i32"):
            return f"u32({bare(value)})"
        return f"bitcast<u{kind[1:]}>({bare(value)})"

    def array(self, array: Array) -> str:
        """A variable; those of groups move out of the kernel."""
        kind = self.type(array.dtype)
        for extent in reversed(array.shape):
            kind = f"array<{kind}, {extent}>"
        return f"{'var' if array.space == 'item' else self.words.group_space} {array.name}: {kind};"

    def view(self, array: Array, source: Array, offset: str) -> str:
        """The number of the element at which the view begins."""
        self._roots[array.name] = self._roots.get(source.name, source.name)
        scale = "" if source.dtype.itemsize == 1 else f" * {source.dtype.itemsize}u"
        start = f"{source.name}_start{scale}" + ("" if offset == "0" else f" + u32({bare(offset)})")
        return f"let {array.name}_start = ({start}) / {array.dtype.itemsize}u;"

    def atomic(self, reducer: str, array: Array, position: str, value: str) -> str:
        """A function of the array, which tries until no other item writes in between."""
        root, place = self._place(array, position)
        return f"{root}_update{memory_bits(array.dtype)}_{reducer}_{array.dtype.name}({place}, {bare(value)});"

    def _updated_word(self, reducer: str, dtype: np.dtype, word: str) -> tuple[str, str]:
        held, wide = self._of_word(dtype, word), compute_dtype(dtype)
        result = self.combine(reducer, wide, self._call("decode", [dtype], held) if is_narrow(dtype) else held, "value")
        held = self._call("encode", [dtype], result) if is_narrow(dtype) else result
        return self.type(wide), self._as_word(dtype, held)

    # ------------------------------------------------------------------ values
    def has_function(self, name: str) -> bool:
        """None: special functions need float64, and drivers take minutes to compile them."""
        return False

    def spells(self, kernel: Loops) -> bool:
        """No values of 64 bits that the device lacks; indices of 64 bits may be computed."""
        lacking = (frozenset() if self.features.longs else LONGS) | (frozenset() if self.features.doubles else DOUBLES)
        dtypes = {b.dtype for b in kernel.operands} | {i.dtype for i in kernel.instructions} - {np.dtype(np.int64)}
        return super().spells(kernel) and not dtypes & lacking

    def constant(self, dtype: np.dtype, number: bool | int | float) -> str:
        """A literal, or the bits of a number that has none."""
        return literal(number, self.type(_FLOAT32 if dtype in FLOAT_FORMATS else dtype))

    def position(self, terms: Sequence[tuple[int, str]], offset: int) -> str:
        """A sum of products, without negative factors: they are no numbers of unsigned types."""
        signed = sorted([*terms, *([(offset, "")] if offset or not terms else [])], key=lambda term: term[0] < 0)
        texts = [
            f"{abs(factor)} * {name}" if name and abs(factor) != 1 else name or str(abs(factor))
            for factor, name in signed
        ]
        signs = [" - " if factor < 0 else " + " for factor, _ in signed]
        first = "0 - " if signs[0] == " - " else ""
        return first + texts[0] + "".join(sign + text for sign, text in zip(signs[1:], texts[1:], strict=True))

    def divisor(self, dtype: np.dtype, divisor: int) -> str:
        """A number takes the other operand's type."""
        return str(divisor)

    def _comparison(self, op: str, dtype: np.dtype, arguments: Sequence[str]) -> str:
        left, right = arguments
        if dtype.kind == "b" and op in _OF_ORDERED_BOOLS:
            return _OF_ORDERED_BOOLS[op].format(left, right)
        if left == right and dtype.kind == "f" and op in ("eq", "ne"):  # compilers may assume that there is no NaN
            test = self._call("is_nan", [dtype], left)
            return test if op == "ne" else f"(!{test})"
        if op == "ne" and dtype.kind == "f":  # some compilers hold that NaN does not differ from a number
            return f"(!({left} == {right}))"
        return f"({left} {_COMPARISONS[op]} {right})"

    def _of_floats(self, instruction: Instruction, arguments: Sequence[str], dtype: np.dtype) -> str:
        op = instruction.op
        if op in _OPERATORS or op in self.functions or op in ("neg", "rsqrt"):
            return super()._of_floats(instruction, arguments, dtype)
        return self._call(_HELPERS.get(op, op), [dtype], *arguments)

    def _of_integers(self, op: str, arguments: Sequence[str], dtype: np.dtype) -> str:
        dtype, kind = compute_dtype(dtype), self.type(dtype)
        count = _COUNT.fullmatch(arguments[-1])
        if op in ("and", "or", "xor"):
            return f"({arguments[0]} {_OPERATORS[op]} {arguments[1]})"
        if op in ("add", "sub", "mul"):
            return wrapped(f"({arguments[0]} {_OPERATORS[op]} {arguments[1]})", dtype)
        if op == "neg":
            return wrapped(f"({literal(0, kind)} - {arguments[0]})", dtype)
        if op == "not":
            return wrapped(f"(~{arguments[0]})", dtype)
        if op == "abs":
            return arguments[0] if dtype.kind == "u" else wrapped(f"abs({bare(arguments[0])})", dtype)
        if op in ("min", "max"):
            return f"{op}({', '.join(map(bare, arguments))})"
        if op in _SHIFTS and count and dtype.itemsize >= 4 and int(count[1]) < 8 * dtype.itemsize:
            if op == "shift_left" or (op == "shift_right_logical") == (dtype.kind == "u"):
                return f"({arguments[0]} {'<<' if op == 'shift_left' else '>>'} {count[1]}u)"
        return self._call(_HELPERS.get(op, op), [dtype], *arguments)

    def _nonzero(self, value: str, dtype: np.dtype) -> str:
        return value if dtype.kind == "b" else f"({value} != {self.constant(dtype, 0)})"

    def _converted(self, value: str, source: np.dtype, target: np.dtype) -> str:
        return wrapped(self.fitted(value, source, compute_dtype(target)), target)

    def _bits(self, value: str, source: np.dtype, target: np.dtype) -> str:
        kinds = self.type(source), self.type(target)
        return wrapped(value if kinds[0] == kinds[1] else f"bitcast<{kinds[1]}>({bare(value)})", target)
