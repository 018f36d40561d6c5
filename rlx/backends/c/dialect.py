"""Kernels as C99 and libm: for the system's compiler, and for programs without rlx."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from rlx.backends.c.packed_sums import packed_sum_call
from rlx.backends.c.types import helper_name, literal, memory_type, register_type, suffix, unsigned
from rlx.backends.loops.dialect import Dialect, Parameter, bare
from rlx.code.functions import Function
from rlx.code.special import FUNCTIONS
from rlx.code.tree import Array, ForLoop
from rlx.ir.formats import FLOAT_FORMATS, INTEGER_FORMATS
from rlx.ir.kernels import Contract, Instruction, Library, Loops, Operand
from rlx.ir.packed_sums import PACKED_SUM
from rlx.ir.scalar import SPECIAL
from rlx.ir.types import compute_dtype, dtype_kind, is_complex, is_narrow

__all__ = ["C_KEYWORDS", "CDialect"]

_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_COUNT = re.compile(r"(?:U?INT64_C\(|\(u?int\d+_t\)\()?(\d+)[u)]?")  # a literal
_COMPARISONS = frozenset("eq ne lt le gt ge".split())
_LIBM = {
    "floor": "floor", "ceil": "ceil", "round_even": "rint", "trunc": "trunc", "sqrt": "sqrt", "cbrt": "cbrt",
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log1p": "log1p", "log2": "log2", "sin": "sin",
    "cos": "cos", "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh",
    "tanh": "tanh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "erf": "erf", "erfc": "erfc", "abs": "fabs",
    "pow": "pow", "atan2": "atan2", "nextafter": "nextafter", "copysign": "copysign", "fma": "fma", "rem": "fmod",
}  # fmt: skip
_HELPERS = {
    "min": "minimum", "max": "maximum", "div": "divide", "rem": "remainder", "abs": "absolute", "sign": "sign",
    "logistic": "logistic", "shift_left": "shift_left",
    "shift_right_logical": "shift_right_logical", "shift_right_arithmetic": "shift_right_arithmetic",
    "population_count": "population_count", "count_leading_zeros": "count_leading_zeros",
}  # fmt: skip
# SciPy's functions that libm provides, or code
_SPECIAL = frozenset({"lgamma", *FUNCTIONS} & SPECIAL.keys())

_KEYWORDS = """auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    alignas alignof and and_eq asm atomic bitand bitor bool catch class compl complex constexpr decltype delete errno
    explicit export false friend imaginary main memcpy memmove memset mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public signbit isfinite isnan isinf isnormal fpclassify this throw true
    try typeid typename using virtual xor xor_eq NAN INFINITY HUGE_VAL unix linux arena"""
# local variables of the functions of plans
_LOCALS = "arrays held"
_MATH = """acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh drem erf erfc exp exp10 exp2 expm1 fabs
    fdim finite floor fma fmax fmin fmod frexp gamma hypot ilogb isinf isnan j0 j1 jn ldexp lgamma llrint llround log
    log10 log1p log2 logb lrint lround modf nan nearbyint nextafter nexttoward pow pow10 remainder remquo rint round
    roundeven scalb scalbln scalbn significand signgam sin sincos sinh sqrt tan tanh tgamma trunc y0 y1 yn"""

C_KEYWORDS = frozenset(_KEYWORDS.split())

# the least rows, columns and depth for tiles; below, loops are as fast
_LEAST_TILED = (4, 8, 8)


class CDialect(Dialect):
    """C99 over pointers to dense arrays, with the helper functions of prelude.py.

    blas: whether matrix products call CBLAS, which must then be linked. taken: more names that functions cannot have.
    stops: see Dialect. tiles: whether large products have tiles on the stack; otherwise they are loops.
    """

    language = "C"
    functions: Mapping[str, str] = _LIBM  # of floats, by operation
    reserved = C_KEYWORDS | {*_LOCALS.split(), *(name + end for name in _MATH.split() for end in ("", "f", "l"))}

    def __init__(self, blas: bool = False, taken: Iterable[str] = (), stops: bool = False, tiles: bool = True) -> None:
        super().__init__()
        self.blas = blas
        self.stops = stops
        self.tiles = tiles
        self.reserved = CDialect.reserved | set(taken)

    def _call(self, operation: str, dtypes: Sequence[np.dtype], *arguments: str) -> str:
        name = self.helper(helper_name(operation, *dtypes))
        return f"{name}({', '.join(map(bare, arguments))})"

    def function(self, name: str, parameters: Sequence[Parameter], parallel: bool) -> tuple[str, ...]:
        """A static function of pointers; loops run in order."""
        return (f"static void {name}({', '.join(map(_declared, parameters))}) {{",)

    def scalar_function(self, function: Function, name: str) -> tuple[str, ...]:
        """A static function of registers."""
        parameters = ", ".join(f"{register_type(p.dtype)} {p.name}" for p in function.parameters)
        how = "static inline" if function.inline else "static"
        return (f"{how} {register_type(function.result)} {name}({parameters}) {{",)

    def type(self, dtype: np.dtype) -> str:
        """The type of a register."""
        return register_type(dtype)

    def suffix(self, dtype: np.dtype) -> str:
        """The end of the names of functions of floats."""
        return suffix(dtype)

    def for_loop(self, loop: ForLoop, start: str, stop: str, step: str) -> tuple[str, ...]:
        """for; with an OpenMP pragma that allows reordered float sums, if it has an effect."""
        reductions = loop.reductions
        reordered = reductions and all(r in ("add", "mul") and v.dtype.kind == "f" for v, r in reductions)
        head = self.counted(loop, start, stop, step)
        if not reordered:
            return (head,)
        clauses = " ".join(f"reduction({'+' if r == 'add' else '*'}:{v.name})" for v, r in reductions)
        self.helper("RLX_SIMD")
        return (f"RLX_SIMD({clauses})", head)

    def counted(self, loop: ForLoop, start: str, stop: str, step: str) -> str:
        """The head of a for loop."""
        words, name = self.words, loop.index.name
        test, change = f"{name} < {stop}", words.increase.format(name=name) if step == "1" else f"{name} += {step}"
        if loop.backward:
            start, test, change = f"{stop} - 1", f"{name} >= {start}", words.decrease.format(name=name)
        elif loop.advance == "divide":
            test, change = f"{name} >= {stop}", f"{name} /= {step}"
        elif loop.advance == "multiply":
            change = f"{name} *= {step}"
        first = words.first.format(type=self.type(loop.index.dtype), name=name, start=start)
        return f"for ({first}; {test}; {change}) {{"

    # ------------------------------------------------------------------ memory
    def load(self, dtype: np.dtype, array: str, position: str) -> str:
        """Load an element, decoded if it is narrow."""
        element = f"{array}[{bare(position)}]"
        if dtype.kind == "b":
            return f"({element} != 0)"
        return self._call("decode", [dtype], element) if is_narrow(dtype) else element

    def store(self, dtype: np.dtype, value_dtype: np.dtype, array: str, position: str, value: str) -> str:
        """Store an element, encoded if it is narrow and the value is not."""
        if is_narrow(dtype) and (value_dtype not in FLOAT_FORMATS):
            value = self._call("encode", [dtype], value)
        return f"{array}[{bare(position)}] = {bare(value)};"

    # ------------------------------------------------------------------ values
    def constant(self, dtype: np.dtype, number: bool | int | float) -> str:
        """A literal: decimal if that is short and exact, else hexadecimal."""
        return literal(dtype, number)

    def divisor(self, dtype: np.dtype, divisor: int) -> str:
        """A number of the index's type."""
        return self.constant(dtype, divisor) if dtype.kind == "u" else str(divisor)

    def widened(self, dtype: np.dtype, value: str) -> str:
        """Decode a code."""
        return self._call("decode", [dtype], value)

    def operation(self, instruction: Instruction, arguments: Sequence[str], dtypes: Sequence[np.dtype]) -> str:
        """Operators and libm functions with the same semantics, otherwise helper functions."""
        op, dtype = instruction.op, dtypes[0]
        if op == "cast":
            return self._cast(arguments[0], dtype, instruction.dtype)
        if op == "bitcast":
            return self._bitcast(arguments[0], dtype, instruction.dtype)
        if op == "select":
            form = self.words.select
            condition, yes, no = arguments if form.startswith("(") else map(bare, arguments)
            return form.format(condition=condition, yes=yes, no=no)
        if op in _COMPARISONS:
            return self._comparison(op, dtype, arguments)
        if dtype.kind == "b":
            return self._of_bools(op, arguments)
        if dtype_kind(dtype) == "f":
            return self._of_floats(instruction, arguments, dtype)
        return self._of_integers(op, arguments, dtype)

    def _comparison(self, op: str, dtype: np.dtype, arguments: Sequence[str]) -> str:
        left, right = arguments
        zero = self.constant(dtype, 0)
        if dtype_kind(dtype) == "u" and zero in arguments and op not in ("eq", "ne"):
            # always or never true: compilers warn about it
            swapped = op in ("gt", "le")
            test = self._call("less_than", [dtype], *((right, left) if swapped else (left, right)))
            return test if op in ("lt", "gt") else f"(!{test})"
        return f"({left} {_OPERATORS[op]} {right})"

    def _of_bools(self, op: str, arguments: Sequence[str]) -> str:
        if op == "not":
            return f"(!{arguments[0]})"
        symbol = "!=" if op == "xor" else self.words.all_of if op in ("min", "mul", "and") else self.words.any_of
        return f"({arguments[0]} {symbol} {arguments[1]})"

    def _of_floats(self, instruction: Instruction, arguments: Sequence[str], dtype: np.dtype) -> str:
        op = instruction.op
        if op in _OPERATORS:
            return f"({arguments[0]} {_OPERATORS[op]} {arguments[1]})"
        if op == "neg":
            return f"(-{arguments[0]})"
        if op in self.functions:
            return f"{self.functions[op]}{self.suffix(dtype)}({', '.join(map(bare, arguments))})"
        if op == "rsqrt":
            return f"({self.constant(dtype, 1)} / sqrt{self.suffix(dtype)}({bare(arguments[0])}))"
        if op == "is_finite":
            return f"(isfinite({bare(arguments[0])}) != 0)"
        if op in ("special", "erf_inv"):
            name = instruction.attribute or "inverse_erf"
            if name == "gamma":
                text = f"tgamma({bare(arguments[0])})"
            else:
                text = self._call(name, [np.dtype(np.float64)], *arguments)
            return f"(float){text}" if dtype.itemsize == 4 else text
        return self._call(_HELPERS[op], [dtype], *arguments)

    def _of_integers(self, op: str, arguments: Sequence[str], dtype: np.dtype) -> str:
        kind, wide = register_type(dtype), unsigned(dtype)
        plain = kind == wide
        if op in ("and", "or", "xor"):
            text = f"({arguments[0]} {_OPERATORS[op]} {arguments[1]})"
            return text if dtype.itemsize >= 4 else f"({kind}){text}"
        if op in ("add", "sub", "mul"):  # signed overflow is undefined, unsigned overflow wraps
            left, right = arguments if plain else (f"({wide}){a}" for a in arguments)
            text = f"({left} {_OPERATORS[op]} {right})"
            return text if plain else f"({kind}){text}"
        if op == "neg":
            text = f"(0 - {arguments[0] if plain else f'({wide}){arguments[0]}'})"
            return text if plain else f"({kind}){text}"
        if op == "not":
            return f"({kind})~{arguments[0]}"
        if op == "abs" and dtype_kind(dtype) == "u":
            return arguments[0]
        count = _COUNT.fullmatch(arguments[-1])
        if op in ("shift_left", "shift_right_logical") and count and int(count[1]) < 8 * dtype.itemsize:
            bits, symbol = (wide, "<<") if op == "shift_left" else (f"uint{8 * dtype.itemsize}_t", ">>")
            text = f"({arguments[0] if kind == bits else f'({bits}){arguments[0]}'} {symbol} {count[1]})"
            return text if plain else f"({kind}){text}"
        return self._call(_HELPERS[op], [compute_dtype(dtype)], *arguments)

    def _cast(self, value: str, source: np.dtype, target: np.dtype) -> str:
        if source in FLOAT_FORMATS:
            value, source = self.widened(source, value), np.dtype(np.float32)
        if target.kind == "b":
            return self._nonzero(value, source)
        if source.kind == "f" and dtype_kind(target) != "f":
            return self._call("cast", [source, target], value)
        if target.name == "float16" and source.name == "float64":
            value = self._call("round_to_odd", [source], value)
        else:
            value = self._converted(value, source, target)
        if target in FLOAT_FORMATS:
            return self._call("encode", [target], value)
        return self._call("decode", [target], self._call("encode", [target], value)) if is_narrow(target) else value

    def _nonzero(self, value: str, dtype: np.dtype) -> str:
        return f"({value} != 0)"

    def _converted(self, value: str, source: np.dtype, target: np.dtype) -> str:
        """A number in the compute dtype of another dtype."""
        kind = register_type(compute_dtype(target))
        return value if register_type(source) == kind else f"({kind}){value}"

    def _bitcast(self, value: str, source: np.dtype, target: np.dtype) -> str:
        if source in INTEGER_FORMATS:
            value = self._call("encode", [source], value)
        return self._call("decode", [target], value) if target in INTEGER_FORMATS else self._bits(value, source, target)

    def _bits(self, value: str, source: np.dtype, target: np.dtype) -> str:
        """The bits of a register as a register of another type."""
        if register_type(source) == register_type(target):
            return value
        if "f" in (source.kind, target.kind):
            return self._call("bits", [source, target], value)
        return f"({register_type(target)}){value}"

    def combine(self, reducer: str, dtype: np.dtype, left: str, right: str) -> str:
        """The reducer as an operation."""
        dtype = compute_dtype(dtype)
        return self.operation(Instruction(reducer, (0, 1), dtype), [left, right], [dtype, dtype])

    # ------------------------------------------------------------------ plans
    def pointer(self, dtype: np.dtype) -> str:
        """The type of pointers to elements of memory."""
        return f"{memory_type(dtype)} *"

    def view(self, array: Array, source: Array, offset: str) -> str:
        """A pointer."""
        kind = self.pointer(array.dtype)
        cast = "" if array.dtype == source.dtype else f"({kind})"
        place = source.name if offset == "0" else f"({source.name} + {offset})"
        return f"{kind}{array.name} = {cast}{place};"

    def part(self, array: Array, position: str, size: int) -> str:
        """A pointer with an offset."""
        return array.name if position == "0" else f"({array.name} + {position})"

    def has_function(self, name: str) -> bool:
        """Most of SciPy's have one; users' functions run on the host."""
        return name in _SPECIAL

    def spells(self, kernel: Loops) -> bool:
        """Special functions without C source run on the host."""
        return all(i.op != "special" or self.has_function(i.attribute) for i in kernel.instructions)

    def has_routine(self, kernel: Library) -> bool:
        """Convolutions with packed weights."""
        return kernel.routine == PACKED_SUM

    def multiplies(self, kernel: Contract) -> bool:
        """Products by tiles in registers, or by CBLAS, but not small ones."""
        if self.blas:
            return _fits_blas(kernel)
        sizes = (kernel.rows, kernel.columns, kernel.depth)
        small = any(n < least for n, least in zip(sizes, _LEAST_TILED, strict=True))
        return self.tiles and not (small or is_complex(kernel.out.buffer.dtype))

    def library_call(self, kernel: Contract | Library, *operands: str) -> str:
        """A call."""
        if isinstance(kernel, Library):
            helper, arguments = packed_sum_call(kernel, operands)
            return f"{self.helper(helper)}({', '.join(map(bare, arguments))});"
        lhs, rhs, out = operands
        if self.blas:
            return _blas(kernel, lhs, rhs, out)
        sizes, dtype = map(str, (kernel.rows, kernel.columns, kernel.depth)), kernel.out.buffer.dtype
        x, y = ((text, *map(str, o.strides[-2:])) for text, o in ((lhs, kernel.lhs), (rhs, kernel.rhs)))
        accumulate = literal(np.dtype(bool), kernel.accumulate)
        return f"{self._call('product', [dtype], *sizes, *x, *y, out, str(kernel.out.strides[-2]), accumulate)};"


def _declared(parameter: Parameter) -> str:
    constant = "" if parameter.written else "const "
    apart = "restrict " if parameter.apart else ""
    return f"{constant}{memory_type(parameter.dtype)} *{apart}{parameter.name}"


def _blas_numbers(kernel: Contract) -> tuple[int, ...]:
    """The numbers of a call: rows, columns, depth, then the leading dimensions of both matrices and of the result."""
    row = kernel.out.strides[-2] if kernel.rows > 1 else kernel.columns
    leading = (_blas_layout(operand)[1] for operand in (kernel.lhs, kernel.rhs))
    return kernel.rows, kernel.columns, kernel.depth, *leading, row


def _fits_blas(kernel: Contract) -> bool:
    """Whether CBLAS, which takes sizes as int, computes a product."""
    numbers = _blas_numbers(kernel)
    return max(numbers) < 1 << 31 and 0 not in (*numbers[:3], kernel.batches)


def _blas(kernel: Contract, lhs: str, rhs: str, out: str) -> str:
    """A call of CBLAS."""
    dtype, (*sizes, x_row, y_row, row) = kernel.out.buffer.dtype, _blas_numbers(kernel)
    letter = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}[dtype.name]
    one, before = "1", "1" if kernel.accumulate else "0"
    if is_complex(dtype):
        one, before = (f"(const {memory_type(dtype)}[]){{{part}, 0}}" for part in (one, before))
    orders = (_blas_layout(operand)[0] for operand in (kernel.lhs, kernel.rhs))
    operands = (*orders, *sizes, one, bare(lhs), x_row, bare(rhs), y_row, before, bare(out), row)
    return f"cblas_{letter}gemm(CblasRowMajor, {', '.join(map(str, operands))});"


def _blas_layout(operand: Operand) -> tuple[str, int]:
    """Whether BLAS transposes an operand, and its leading dimension."""
    (rows, columns), (row, column) = operand.shape[-2:], operand.strides[-2:]
    if (column == 1 or columns == 1) and (rows == 1 or row >= columns):
        return "CblasNoTrans", row if rows > 1 else columns
    return "CblasTrans", column if columns > 1 else rows
