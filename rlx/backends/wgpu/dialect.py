"""The WGSL dialect: typed casts, no pointers, memory as 32-bit words behind functions of each array."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from rlx.backends.c.types import helper_name
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.words import DeviceWords
from rlx.backends.loops.dialect import Parameter, bare
from rlx.backends.loops.printing import Printer
from rlx.backends.loops.straight_line import WITHOUT_LIBRARY
from rlx.backends.wgpu.helpers import Features, helpers_of
from rlx.backends.wgpu.memory_text import COMPONENTS, KernelModule, Windows, memory_text
from rlx.backends.wgpu.types import RESERVED, literal, memory_bits, type_name, wrapped
from rlx.code.functions import Function
from rlx.code.tree import Argument, Array, ForLoop
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

WGSL_WORDS = DeviceWords(
    head="",
    kernel="@compute @workgroup_size({items})\nfn",
    item="item",
    group="group",
    barrier="storageBarrier(); workgroupBarrier();",
    group_space="var<workgroup>",
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

    def type(self, dtype: np.dtype) -> str:
        """The type of a register."""
        return type_name(dtype, self.features.longs)

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

    def for_loop(self, loop: ForLoop, start: str, stop: str, step: str) -> tuple[str, ...]:
        """for."""
        name, kind = loop.index.name, self.type(loop.index.dtype)
        first, test, change = start, f"{name} < {stop}", f"{name} += {step}"
        if loop.backward:
            first, test, change = f"{stop} - 1", f"{name} >= {start}", f"{name} -= 1"
        elif loop.advance == "divide":
            test, change = f"{name} >= {stop}", f"{name} /= {step}"
        elif loop.advance == "multiply":
            change = f"{name} *= {step}"
        return (f"for (var {name}: {kind} = {first}; {test}; {change}) {{",)

    def endless_loop(self) -> str:
        """loop."""
        return "loop {"

    # ------------------------------------------------------------------ registers
    def declare(self, name: str, dtype: np.dtype, expression: str) -> str:
        """let."""
        return f"let {name}: {self.type(dtype)} = {bare(expression)};"

    def variable(self, name: str, dtype: np.dtype, expression: str) -> str:
        """var."""
        return f"var {name}: {self.type(dtype)} = {bare(expression)};"

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

    def divided(self, dividend: str, dtype: np.dtype, divisor: int) -> str:
        """Division of non-negative numbers."""
        return f"{dividend} / {divisor}"

    def remainder(self, dividend: str, dtype: np.dtype, divisor: int) -> str:
        """The remainder of non-negative numbers."""
        return f"{dividend} % {divisor}"

    def coordinate(self, of: Literal["item", "group", "groups"], dtype: np.dtype) -> str:
        """A number of the launch."""
        return "item" if of == "item" else f"{self.type(dtype)}({'group' if of == 'group' else 'launch[0].x'})"

    def operation(self, instruction: Instruction, arguments: Sequence[str], dtypes: Sequence[np.dtype]) -> str:
        """Operators and built-in functions where they have the alphabet's meaning, otherwise helper functions."""
        op, dtype = instruction.op, dtypes[0]
        match op:
            case "cast":
                return self._cast(arguments[0], dtype, instruction.dtype)
            case "bitcast":
                return self._bitcast(arguments[0], dtype, instruction.dtype)
            case "select":
                condition, yes, no = map(bare, arguments)
                return f"select({no}, {yes}, {condition})"
            case _ if op in _COMPARISONS:
                return self._comparison(op, dtype, arguments)
        kind = dtype_kind(dtype)
        return {"b": self._of_bools, "f": self._of_floats}.get(kind, self._of_integers)(op, arguments, dtype)

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

    def _of_bools(self, op: str, arguments: Sequence[str], dtype: np.dtype) -> str:
        del dtype
        if op == "not":
            return f"(!{arguments[0]})"
        symbol = {"min": "&&", "mul": "&&", "and": "&&", "max": "||", "add": "||", "or": "||", "xor": "!="}[op]
        return f"({arguments[0]} {symbol} {arguments[1]})"

    def _of_floats(self, op: str, arguments: Sequence[str], dtype: np.dtype) -> str:
        match op:
            case "add" | "sub" | "mul" | "div":
                return f"({arguments[0]} {_OPERATORS[op]} {arguments[1]})"
            case "neg":
                return f"(-{arguments[0]})"
            case "rsqrt":
                return f"({self.constant(dtype, 1)} / sqrt({bare(arguments[0])}))"
            case "fma" if self.features.fused:
                return f"fma({', '.join(map(bare, arguments))})"
            case _ if op in _BUILTINS:
                return f"{_BUILTINS[op]}({bare(arguments[0])})"
        if op not in WITHOUT_LIBRARY:
            op = _HELPERS.get(op, op)
        return self._call(op, [dtype], *arguments)

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
