"""Numba's replacements of some scalar functions: LLVM's functions, or vectorisable straight-line code.

A source that uses `f` of scalar_functions.py contains `f_version` after it, if there is one.
"""

from llvmlite import ir
from numba.extending import intrinsic, overload

from rlx.backends.numba.scalar_functions import count_leading_zeros, fma, maximum, minimum, plus, population_count


def llvm_function(name, flags=()):
    """LLVM's function with this name, for numbers of one type."""

    def generate(context, builder, signature, arguments):
        kind = arguments[0].type
        function = builder.module.declare_intrinsic(name, [kind], ir.FunctionType(kind, [a.type for a in arguments]))
        return builder.call(function, arguments, fastmath=flags)

    return generate


@intrinsic
def llvm_maximum(context, x, y):
    return x(x, x), llvm_function("llvm.maximum", ("nsz",))


@overload(maximum)
def maximum_version(x, y):
    return lambda x, y: llvm_maximum(x, y)  # ty: ignore[missing-argument]


@intrinsic
def llvm_minimum(context, x, y):
    return x(x, x), llvm_function("llvm.minimum", ("nsz",))


@overload(minimum)
def minimum_version(x, y):
    return lambda x, y: llvm_minimum(x, y)  # ty: ignore[missing-argument]


@intrinsic
def llvm_plus(context, x, y):
    def generate(context, builder, signature, arguments):
        return builder.fadd(*arguments, flags=("reassoc", "contract"))

    return x(x, x), generate


@overload(plus)
def plus_version(x, y):
    return lambda x, y: llvm_plus(x, y)  # ty: ignore[missing-argument]


@intrinsic
def llvm_fma(context, x, y, z):
    return x(x, x, x), llvm_function("llvm.fma")


@overload(fma)
def fma_version(x, y, z):
    return lambda x, y, z: llvm_fma(x, y, z)  # ty: ignore[missing-argument]


@intrinsic
def llvm_population_count(context, x):
    return x(x), llvm_function("llvm.ctpop")


@overload(population_count)
def population_count_version(x):
    return lambda x: llvm_population_count(x)  # ty: ignore[missing-argument]


@intrinsic
def llvm_count_leading_zeros(context, x):
    def generate(context, builder, signature, arguments):
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return x(x), generate


@overload(count_leading_zeros)
def count_leading_zeros_version(x):
    return lambda x: llvm_count_leading_zeros(x)  # ty: ignore[missing-argument]
