"""Every mistake has a class, shows the user's line, and says what to write: the whole text of each."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from mistakes import Mistakes, line_of

import rlx
import rlx.numpy as jnp
from rlx import errors, lax
from rlx.backends import device_names
from rlx.errors import did_you_mean

CASES = Mistakes()
case = CASES.case


def ones(*shape: int) -> Any:
    """A float32 array."""
    return jnp.ones(shape, "float32")


def leak() -> Any:
    """A tracer whose function has ended."""
    kept = []

    def function(x: Any) -> Any:
        kept.append(x * 2)  # leaked
        return x

    rlx.jit(function)(1.0)
    return kept[0]


# --------------------------------------------------------------------- shapes and dtypes
@case(
    errors.ShapeError,
    "add got operands whose shapes do not broadcast: float32[2] and float32[3].",
    "Axes are aligned from the last one and must be equal or 1: insert axes with x[:, None] or use reshape.",
)
def shapes_that_do_not_broadcast() -> None:
    ones(2) + ones(3)  # here


@case(
    errors.ShapeError,
    "add got operands whose shapes do not broadcast: float32[2] and float32[3].",
    "Axes are aligned from the last one and must be equal or 1: insert axes with x[:, None] or use reshape.",
    inside="<lambda>",
)
def shapes_in_a_traced_function() -> None:
    rlx.jit(lambda x, y: x + y)(ones(2), ones(3))  # here


@case(
    errors.ShapeError,
    "matmul got operands of shapes (2, 3) and (4, 5), which do not fit.",
    "The contracted sizes must be equal: transpose or reshape one of the operands.",
)
def a_product_of_unequal_sizes() -> None:
    ones(2, 3) @ ones(4, 5)  # here


@case(
    errors.ShapeError,
    "cannot reshape float32[6] of 6 elements to shape (4, 2).",
    "The product of the new sizes must equal the number of elements.",
)
def a_reshape_of_another_size() -> None:
    ones(6).reshape(4, 2)  # here


@case(
    errors.DtypeError,
    "bitwise_and does not take float32.",
    "Convert the operand with .astype(...) first.",
)
def a_dtype_that_the_operation_has_not() -> None:
    ones(2) & ones(2)  # here


@case(
    errors.DtypeError,
    "lax.add got operands of dtypes float32, int32.",
    "rlx.lax functions do not promote: convert with .astype(...), or use rlx.numpy.add, which promotes for you.",
)
def dtypes_that_lax_does_not_promote() -> None:
    lax.add(ones(2), jnp.ones(2, "int32"))  # here


@case(
    errors.AxisError,
    "sum got axis 2 for an array of 1 dimensions.",
    "Axes count from -1 to 0.",
)
def an_axis_that_is_not_there() -> None:
    jnp.sum(ones(3), axis=2)  # here


@case(
    errors.ShapeError,
    "concatenate along axis 0 got float32[2,3] and float32[2,2].",
    "All axes but that one must have equal sizes.",
)
def a_concatenation_of_unequal_sizes() -> None:
    jnp.concatenate([ones(2, 3), ones(2, 2)], axis=0)  # here


@case(
    errors.DtypeOverflowError,
    "The Python integer 1000 does not fit int8.",
    "Use a wider dtype, for instance rlx.numpy.int64(value).",
)
def a_number_that_does_not_fit() -> None:
    jnp.ones(2, "int8") + 1000  # here


# --------------------------------------------------------------------- tracers where Python needs a value
@case(
    errors.TracerBoolConversionError,
    "bool() needs the value of a traced weak bool[], which is not known while tracing.",
    "Use rlx.numpy.where(condition, x, y) to choose between values, rlx.lax.cond to choose "
    "between computations, rlx.lax.while_loop for loops, or & | ~ in place of and / or / not.",
    inside="choose",
)
def a_tracer_in_if() -> None:
    @rlx.jit
    def choose(x):
        if x > 0:  # here
            return x
        return -x

    choose(1.0)


@case(
    errors.ConcretizationTypeError,
    "float() needs the value of a traced weak float32[], which is not known while tracing.",
    "Keep it an array: rlx.numpy functions take 0-d arrays wherever they take numbers. If it is a"
    " setting, mark it static in jit (static_argnums / static_argnames).",
    inside="<lambda>",
)
def a_tracer_in_float() -> None:
    rlx.jit(lambda x: float(x))(1.0)  # here


@case(
    errors.TracerIntegerConversionError,
    "int() needs the value of a traced weak float32[], which is not known while tracing.",
    "Keep it an array: rlx.numpy functions take 0-d arrays wherever they take numbers. If it is a"
    " setting, mark it static in jit (static_argnums / static_argnames).",
    inside="<lambda>",
)
def a_tracer_in_int() -> None:
    rlx.jit(lambda x: int(x))(1.0)  # here


@case(
    errors.TracerIntegerConversionError,
    "index() needs the value of a traced weak int32[], which is not known while tracing.",
    "A traced value cannot be a Python index, a size or an argument of range(): use x[i] on an "
    "rlx array, rlx.lax.dynamic_slice, rlx.lax.fori_loop, or mark the argument static "
    "(static_argnums).",
    inside="count",
)
def a_tracer_in_range() -> None:
    @rlx.jit
    def count(n):
        for _ in range(n):  # here
            pass

    count(3)


@case(
    errors.TracerIntegerConversionError,
    "index() needs the value of a traced weak int32[], which is not known while tracing.",
    "A traced value cannot be a Python index, a size or an argument of range(): use x[i] on an "
    "rlx array, rlx.lax.dynamic_slice, rlx.lax.fori_loop, or mark the argument static "
    "(static_argnums).",
    inside="<lambda>",
)
def a_tracer_as_a_list_index() -> None:
    rlx.jit(lambda n: [1, 2, 3][n])(1)  # here


@case(
    errors.TracerArrayConversionError,
    "A NumPy function (np.asarray or another) needs the value of a traced float32[3], which is "
    "not known while tracing.",
    "Use the function of the same name in rlx.numpy or rlx.scipy, or rlx.pure_callback for NumPy code.",
    inside="<lambda>",
)
def a_tracer_in_a_numpy_call() -> None:
    rlx.jit(lambda x: np.asarray(x))(ones(3))  # here


@case(
    errors.TracerArrayConversionError,
    "A NumPy function (np.asarray or another) gives the number of a traced float32[3] without its derivative: it"
    " depends on an argument by which lambda is differentiated.",
    "Keep it an array: rlx.numpy has the functions of math and NumPy, for instance rlx.numpy.sin. If a number without"
    " a derivative is meant, write rlx.lax.stop_gradient(x) first.",
    inside="<lambda>",
)
def a_differentiated_value_in_a_numpy_call() -> None:
    rlx.grad(lambda x: np.asarray(x).sum())(ones(3))  # here


@case(
    errors.ConcretizationTypeError,
    "float() gives the number of a traced weak float32[] without its derivative: it depends on"
    " an argument by which lambda is differentiated.",
    "Keep it an array: rlx.numpy has the functions of math and NumPy, for instance rlx.numpy.sin. If a number without"
    " a derivative is meant, write rlx.lax.stop_gradient(x) first.",
    inside="<lambda>",
)
def a_differentiated_value_in_math() -> None:
    rlx.grad(lambda x: math.sin(x) * x)(1.0)  # here


@case(
    errors.TracerHashError,
    "An rlx array cannot be hashed, so it cannot be a dict key or a set member.",
    "Use a plain Python value as the key, for instance x.item() of a concrete scalar.",
    inside="<lambda>",
)
def a_tracer_as_a_dict_key() -> None:
    rlx.jit(lambda x: {x: 1})(1.0)  # here


@case(
    errors.TracerHashError,
    "An rlx array cannot be hashed, so it cannot be a dict key or a set member.",
    "Use a plain Python value as the key, for instance x.item() of a concrete scalar.",
)
def an_array_as_a_dict_key() -> None:
    {ones(2): 1}  # here


@case(
    errors.ConcretizationTypeError,
    "item() needs the value of a traced weak float32[], which is not known while tracing.",
    "Keep it an array: rlx.numpy functions take 0-d arrays wherever they take numbers. If it is a"
    " setting, mark it static in jit (static_argnums / static_argnames).",
    inside="<lambda>",
)
def a_tracer_in_item() -> None:
    rlx.jit(lambda x: x.item())(1.0)  # here


@case(
    errors.NonConcreteBooleanIndexError,
    "A traced bool mask bool[3] is used as an index: the result's size would depend on its values.",
    "Use rlx.numpy.where(mask, x, other), x.at[...] with where, or rlx.numpy.nonzero(mask, size=...).",
    inside="<lambda>",
)
def a_traced_mask() -> None:
    rlx.jit(lambda x: x[x > 0])(ones(3))  # here


@case(
    errors.TracerBoolConversionError,
    "bool() needs the value of a traced bool[], which is not known while tracing.",
    "Use rlx.numpy.where(condition, x, y) to choose between values, rlx.lax.cond to choose "
    "between computations, rlx.lax.while_loop for loops, or & | ~ in place of and / or / not.",
    inside="<lambda>",
)
def a_batched_value_in_if() -> None:
    rlx.vmap(lambda x: 1 if x > 0 else 2)(ones(3))  # here


@case(
    errors.ShapeError,
    "len() of a 0-d array: it has no axis.",
    "Use x.size, or give the array an axis with x[None].",
    inside="<lambda>",
)
def the_length_of_a_traced_number() -> None:
    rlx.jit(lambda x: len(x))(1.0)  # here


# --------------------------------------------------------------------- tracers that outlive their function
@case(
    errors.UnexpectedTracerError,
    "A traced weak float32[] is used outside of the function that it was traced in (function). It was made at LEAKED.",
    "Return the value from the function instead of storing it in a global, an attribute or a list.",
)
def a_leaked_tracer() -> None:
    x = leak()
    x + 1  # here


@case(
    errors.UnexpectedTracerError,
    "A traced weak float32[] is used outside of the function that it was traced in (function). It was made at LEAKED.",
    "Return the value from the function instead of storing it in a global, an attribute or a list.",
)
def a_leaked_tracer_in_float() -> None:
    x = leak()
    float(x)  # here


@case(
    errors.UnexpectedTracerError,
    "A traced weak float32[] is used outside of the function that it was traced in (function). It was made at LEAKED.",
    "Return the value from the function instead of storing it in a global, an attribute or a list.",
)
def a_leaked_tracer_in_numpy() -> None:
    x = leak()
    np.asarray(x)  # here


@case(
    errors.UnexpectedTracerError,
    "A traced weak float32[] is used outside of the function that it was traced in (function). It was made at LEAKED.",
    "Return the value from the function instead of storing it in a global, an attribute or a list.",
)
def a_leaked_tracer_as_an_argument() -> None:
    x = leak()
    rlx.jit(lambda y: y)(x)  # here


@case(
    errors.UnexpectedTracerError,
    "A traced weak float32[] is used outside of the function that it was traced in (function). It was made at LEAKED.",
    "Return the value from the function instead of storing it in a global, an attribute or a list.",
    inside="<lambda>",
)
def a_leaked_tracer_in_another_trace() -> None:
    x = leak()
    rlx.jit(lambda y: y * x)(1.0)  # here


# --------------------------------------------------------------------- arguments
@case(
    errors.InputTypeError,
    "Argument 'x' of lambda is of type str, which is not an array, a number, or a tree of them: 'hello'.",
    "Pass an array or a number; mark a setting static, rlx.jit(f, static_argnames='x'); or register its class "
    "with rlx.tree.register_node.",
)
def an_argument_that_is_no_array() -> None:
    rlx.jit(lambda x: x)("hello")  # here


@case(
    errors.InputTypeError,
    "The result of lambda is of type str, which is not an array, a number, or a tree of them: 'hello'.",
    "Return arrays and numbers; keep other objects outside of the function, or return them from one that calls it.",
)
def a_result_that_is_no_array() -> None:
    rlx.jit(lambda x: "hello")(1.0)  # here


@case(
    errors.InputTypeError,
    "ndarray of dtype object is not an array of numbers.",
    "Pass arrays of bool, integer, float or complex dtype; mark other arguments static "
    "(static_argnums / static_argnames) or close over them.",
)
def an_array_of_objects() -> None:
    jnp.sin(np.array([1, None], object))  # here


@case(
    errors.InputTypeError,
    "Argument 'x' of lambda: ndarray of dtype <U1 is not an array of numbers.",
    "Pass arrays of bool, integer, float or complex dtype; mark other arguments static "
    "(static_argnums / static_argnames) or close over them.",
)
def an_array_of_text() -> None:
    rlx.jit(lambda x: x)(np.array(["a"]))  # here


@case(
    errors.InputTypeError,
    "sin got a list; rlx functions take arrays and numbers.",
    "Convert it with rlx.numpy.asarray(...) first.",
)
def a_list_for_an_array() -> None:
    jnp.sin([1.0])  # here


@case(
    errors.InputTypeError,
    "A masked array was passed; rlx would lose its mask.",
    "Use x.filled(value), or keep the mask as a second array with rlx.numpy.where.",
)
def a_masked_array() -> None:
    jnp.sin(np.ma.masked_array([1.0, 2.0], [True, False]))  # here


# --------------------------------------------------------------------- jit
@case(
    errors.NonHashableStaticArgumentError,
    "Static argument 1 of lambda is a list, which cannot be hashed: [1].",
    "Static arguments are part of the cache key: pass a tuple instead of a list, or make the argument dynamic.",
)
def an_unhashable_static_argument() -> None:
    rlx.jit(lambda x, n: x, static_argnums=1)(1.0, [1])  # here


@case(
    errors.NonHashableStaticArgumentError,
    "Static argument 'n' of lambda is a list, which cannot be hashed: [1].",
    "Static arguments are part of the cache key: pass a tuple instead of a list, or make the argument dynamic.",
)
def an_unhashable_static_keyword() -> None:
    rlx.jit(lambda x, n: x, static_argnames="n")(1.0, n=[1])  # here


@case(
    errors.OptionError,
    "jit got static_argnames='m', but lambda has no such argument.",
    "Its arguments are: n, x.",
)
def a_static_name_that_is_not_there() -> None:
    rlx.jit(lambda x, n: x, static_argnames="m")  # here


@case(
    errors.OptionError,
    "jit got static_argnums=2, but lambda takes 2 positional arguments.",
    "static_argnums counts positional arguments from 0.",
)
def a_static_number_that_is_not_there() -> None:
    rlx.jit(lambda x, n: x, static_argnums=2)  # here


@case(
    errors.OptionError,
    "jit does not know fast.",
    "It takes static_argnums, static_argnames, donate_argnums, donate_argnames, device and memory_limit.",
)
def an_unknown_option_of_jit() -> None:
    rlx.jit(lambda x: x, fast=True)  # here


@case(
    errors.InputTypeError,
    "lambda was compiled for (weak float32[]) and called with (float32[3]).",
    "Call the jitted function itself, which compiles for new arguments.",
)
def another_call_of_a_compiled_function() -> None:
    compiled = rlx.jit(lambda x: x + 1).lower(1.0).compile()
    compiled(ones(3))  # here


@case(
    errors.DonatedArrayError,
    "This array was donated to a jitted call and its memory has been given away.",
    "Use the call's result instead, or leave the argument out of donate_argnums.",
)
def a_donated_array() -> None:
    x = ones(3)
    rlx.jit(lambda v: v + 1, donate_argnums=0)(x)
    x + 1  # here


@case(
    errors.DonatedArrayError,
    "An argument of lambda (float32[3]) was donated to a jitted call and its memory has been given away.",
    "Use the call's result instead, or leave the argument out of donate_argnums.",
)
def a_donated_argument() -> None:
    x = ones(3)
    step = rlx.jit(lambda v: v + 1, donate_argnums=0)
    step(x)
    step(x)  # here


# --------------------------------------------------------------------- vmap
@case(
    errors.VmapAxisError,
    "vmap got in_axes with 2 entries for 1 positional arguments.",
    "Give in_axes one entry for each positional argument; None leaves an argument unmapped.",
)
def in_axes_of_another_length() -> None:
    rlx.vmap(lambda x: x, in_axes=(0, 0))(ones(3))  # here


@case(
    errors.VmapAxisError,
    "vmap got in_axes=0.5, a float.",
    "in_axes is an int, None, or a tuple with one entry for each positional argument.",
)
def in_axes_of_another_type() -> None:
    rlx.vmap(lambda x: x, in_axes=0.5)(ones(3))  # here


@case(
    errors.VmapAxisError,
    "vmap was asked to map axis 2 of an argument of shape (3,), which has 1 axes.",
    "Use an axis that the argument has, or None to leave it unmapped.",
)
def in_axes_beyond_the_axes() -> None:
    rlx.vmap(lambda x: x, in_axes=2)(ones(3))  # here


@case(
    errors.VmapAxisError,
    "vmap has no mapped argument: every entry of in_axes is None.",
    "Give at least one argument an axis, or pass axis_size.",
)
def in_axes_all_none() -> None:
    rlx.vmap(lambda x: x, in_axes=None)(ones(3))  # here


@case(
    errors.VmapAxisError,
    "vmap got mapped axes of different sizes [3, 4]: arguments of shapes (3,) (axis 0), (4,) (axis 0).",
    "All mapped axes have one size; leave an argument unmapped with None in in_axes.",
)
def mapped_axes_of_different_sizes() -> None:
    rlx.vmap(lambda x, y: x)(ones(3), ones(4))  # here


@case(
    errors.VmapAxisError,
    "vmap got out_axes=None for a result that depends on the mapped arguments.",
    "Use an int for this result, or reduce it over the axis inside (rlx.lax.psum).",
)
def out_axes_none_for_a_mapped_result() -> None:
    rlx.vmap(lambda x: x, out_axes=None)(ones(3))  # here


@case(
    errors.VmapAxisError,
    "vmap was asked to put the mapped axis at 3 of a result of shape (3,), which has 1 axes with it.",
    "out_axes counts from -1 to 0 for this result.",
)
def out_axes_beyond_the_axes() -> None:
    rlx.vmap(lambda x: x, out_axes=3)(ones(3))  # here


@case(
    errors.AxisNameError,
    "There is no mapped axis named 'i' here.",
    "Call the function under rlx.vmap(..., axis_name='i'), or in rlx.shard_map over a mesh that has it.",
)
def an_axis_name_that_is_not_there() -> None:
    lax.psum(ones(3), "i")  # here


# --------------------------------------------------------------------- derivatives
@case(
    errors.ScalarOutputError,
    "grad takes a function that returns one scalar; lambda returned float32[3].",
    "Reduce the result, for instance with .sum() or .mean(), or use rlx.jacrev or rlx.vmap(rlx.grad(f)).",
)
def grad_of_a_vector() -> None:
    rlx.grad(lambda x: x * 2)(ones(3))  # here


@case(
    errors.ScalarOutputError,
    "grad takes a function that returns one scalar; lambda returned a tuple of 2.",
    "Return the loss alone, (loss, auxiliary) with has_aux=True, or use rlx.jacrev.",
)
def grad_of_a_tree() -> None:
    rlx.grad(lambda x: (x, x))(1.0)  # here


@case(
    errors.DtypeError,
    "grad of <lambda> with respect to an argument of dtype int32: a derivative needs a float (or complex) argument.",
    "Convert it with .astype(float), write 2.0 instead of 2, choose other argnums, or pass "
    "allow_int=True to get zeros.",
)
def grad_of_an_integer() -> None:
    rlx.grad(lambda x: x * 2)(2)  # here


@case(
    errors.ScalarOutputError,
    "grad takes a function that returns one real number; lambda returned int32[].",
    "For a holomorphic function pass holomorphic=True; otherwise take the real part or convert to float.",
)
def grad_of_an_integer_result() -> None:
    rlx.grad(lambda x: jnp.argmax(x))(ones(3))  # here


@case(
    errors.ScalarOutputError,
    "grad takes a function that returns one real number; lambda returned weak complex64[].",
    "For a holomorphic function pass holomorphic=True; otherwise take the real part or convert to float.",
)
def grad_of_a_complex_result() -> None:
    rlx.grad(lambda x: x * 2)(1j)  # here


@case(
    errors.TreeMismatchError,
    "grad of <lambda> with respect to argument 1, but it was called with 1 positional argument.",
    "argnums counts positional arguments from 0; pass the argument by position.",
)
def grad_of_an_argument_that_is_not_there() -> None:
    rlx.grad(lambda x: x * 2, argnums=1)(1.0)  # here


@case(
    errors.DtypeError,
    "grad of <lambda> with holomorphic=True takes complex arguments, got float32.",
    "Convert the argument with .astype(rlx.numpy.complex64), or leave holomorphic out.",
)
def a_holomorphic_grad_of_a_real_number() -> None:
    rlx.grad(lambda x: x * 2, holomorphic=True)(1.0)  # here


@case(
    errors.InputTypeError,
    "lambda was differentiated with has_aux=True but did not return a pair (result, auxiliary); it returned float32[].",
    "Return (result, auxiliary) from the function, or leave has_aux out.",
)
def no_pair_with_has_aux() -> None:
    rlx.grad(lambda x: x * 2, has_aux=True)(1.0)  # here


@case(
    errors.TreeMismatchError,
    "jvp got a tangent of shape (2,) for a primal of shape (3,).",
    "A tangent has the shape and dtype of its primal.",
)
def a_tangent_of_another_shape() -> None:
    rlx.jvp(lambda x: x, (ones(3),), (ones(2),))  # here


@case(
    errors.DtypeError,
    "jvp got a tangent of dtype float64 for a primal of dtype float32.",
    "A tangent has the shape and dtype of its primal: use tangent.astype(primal.dtype).",
)
def a_tangent_of_another_dtype() -> None:
    rlx.jvp(lambda x: x, (ones(3),), (jnp.ones(3, "float64"),))  # here


@case(
    errors.TreeMismatchError,
    "The pullback of lambda got a cotangent of shape (2,) for a result of shape (3,).",
    "A cotangent has the shape and dtype of the result it belongs to.",
)
def a_cotangent_of_another_shape() -> None:
    rlx.vjp(lambda x: x, ones(3))[1](ones(2))  # here


@case(
    errors.NotLinearError,
    "sin is not linear in its operands, so it cannot be transposed.",
    "linear_transpose takes a function that is linear in its arguments, and a derivative rule is "
    "linear in the tangents: use rlx.vjp for other functions.",
)
def the_transpose_of_a_sine() -> None:
    rlx.linear_transpose(jnp.sin, 1.0)(1.0)  # here


@case(
    errors.CustomRuleError,
    "A function with custom_vjp met forward-mode autodiff (jvp, jacfwd, hessian).",
    "Give the function a custom_jvp rule, which serves both modes, or use jacrev.",
)
def forward_mode_of_a_custom_vjp() -> None:
    f = rlx.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, x), lambda res, ct: (ct,))
    rlx.jvp(f, (1.0,), (1.0,))  # here


@case(
    errors.MissingCustomRuleError,
    "lambda is a custom_jvp function without a rule.",
    "Give it one with @f.defjvp.",
)
def a_custom_function_without_a_rule() -> None:
    rlx.custom_jvp(lambda x: x)(1.0)  # here


# --------------------------------------------------------------------- devices
_DEVICES = (
    "Use one of these in jit(device=...), rlx.default_device(...) or RLX_DEVICE. The command rlx info says which are"
    " usable on this machine."
)


@case(
    errors.DeviceError,
    f"There is no device 'abacus'; rlx has backends for: {', '.join(device_names())}.",
    _DEVICES,
)
def an_unknown_device() -> None:
    rlx.devices("abacus")  # here


@case(
    errors.DeviceError,
    f"There is no device 'quantum'; rlx has backends for: {', '.join(device_names())}.",
    _DEVICES,
)
def an_unknown_default_device() -> None:
    with rlx.default_device("quantum"):  # here
        pass


@case(
    errors.DeviceError,
    f"There is no device 'abacus'; rlx has backends for: {', '.join(device_names())}.",
    _DEVICES,
)
def an_unknown_device_of_jit() -> None:
    rlx.jit(lambda x: x, device="abacus")(1.0)  # here


# --------------------------------------------------------------------- control flow
@case(
    errors.ControlFlowTypeError,
    "lax.scan: carry enters the body as float32[] and leaves it as float64[].",
    "A carry must keep its dtype: return carry.astype('float32'), or start with an initial value of dtype float64.",
    inside="<lambda>",
)
def a_carry_that_changes_its_dtype() -> None:
    lax.scan(lambda c, x: (c + jnp.float64(1), None), jnp.float32(0), None, length=3)  # here


@case(
    errors.ControlFlowTypeError,
    "lax.scan: carry enters the body as float32[] and leaves it as float32[2].",
    "A carry must keep its shape: return carry with shape (), or start with an initial value of shape (2,).",
    inside="<lambda>",
)
def a_carry_that_changes_its_shape() -> None:
    lax.scan(lambda c, x: (jnp.stack([c, c]), None), jnp.float32(0), None, length=3)  # here


@case(
    errors.ControlFlowTypeError,
    "lax.scan: the body returns a carry of another structure than it takes: a tuple of 2 for float32[].",
    "The body must return a carry with the structure of the initial one: the same nesting of tuples, "
    "lists and dicts, with the same keys.",
    inside="<lambda>",
)
def a_carry_that_changes_its_structure() -> None:
    lax.scan(lambda c, x: ((c, c), None), jnp.float32(0), None, length=3)  # here


@case(
    errors.ControlFlowTypeError,
    "lax.scan: f must return a pair (carry, y), got float32[].",
    "Return (carry, y); y may be None.",
    inside="<lambda>",
)
def a_scan_body_without_a_pair() -> None:
    lax.scan(lambda c, x: c, jnp.float32(0), None, length=3)  # here


@case(
    errors.ControlFlowTypeError,
    "lax.cond: result has different types: int32[] from false_fun, float32[] from true_fun.",
    "Convert one of them with .astype(...).",
    inside="<lambda>",
)
def branches_of_different_types() -> None:
    rlx.jit(lambda p: lax.cond(p, lambda: jnp.float32(1), lambda: jnp.int32(1)))(True)  # here


@case(
    errors.ControlFlowTypeError,
    "lax.cond: result has different types: float32[3] from false_fun, float32[2] from true_fun.",
    "The shapes must be equal: broadcast, pad or slice in the branches.",
    inside="<lambda>",
)
def branches_of_different_shapes() -> None:
    rlx.jit(lambda p: lax.cond(p, lambda: ones(2), lambda: ones(3)))(True)  # here


@case(
    errors.ShapeError,
    "lax.cond got a predicate of type bool[2].",
    "The predicate must be a scalar: reduce it with .all() or .any(), or use rlx.numpy.where to choose elementwise.",
)
def a_predicate_with_an_axis() -> None:
    lax.cond(ones(2) > 0, lambda x: x, lambda x: x, 1.0)  # here


@case(
    errors.ControlFlowTypeError,
    "lax.while_loop: carry enters the body as float32[] and leaves it as float64[].",
    "A carry must keep its dtype: return carry.astype('float32'), or start with an initial value of dtype float64.",
    inside="<lambda>",
)
def a_while_carry_that_changes() -> None:
    lax.while_loop(lambda c: c < 3, lambda c: c + jnp.float64(1), jnp.float32(0))  # here


def test_errors_keep_their_line_where_they_are_read() -> None:
    error = errors.CollectiveError("It failed.", "Do not.", "  at program.py:3")
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is errors.CollectiveError and str(found) == str(error) and found.instead == "Do not."


@pytest.mark.parametrize("name", CASES)
def test_whole_text(name: str) -> None:
    """Class, message, line and advice, and no other error before it."""
    CASES.check(name, LEAKED=f"{__file__}:{line_of(leak, '# leaked')[0]} (function)")


def test_every_public_class_is_an_rlx_error() -> None:
    """`except rlx.errors.RlxError` catches all; each is the built-in kind that NumPy code expects too."""
    classes = [getattr(errors, n) for n in errors.__all__ if isinstance(getattr(errors, n), type)]
    assert all(issubclass(c, errors.RlxError) and c.__doc__ for c in classes)
    assert issubclass(errors.ShapeError, ValueError) and issubclass(errors.DtypeError, TypeError)
    assert issubclass(errors.NonConcreteBooleanIndexError, IndexError)
    assert issubclass(errors.UnsupportedError, NotImplementedError)


def test_the_line_is_the_users_also_through_transforms() -> None:
    """However deep rlx is between."""

    def inner(x: Any) -> Any:
        return x + jnp.ones(4)  # deep

    with pytest.raises(errors.ShapeError) as caught:
        rlx.jit(rlx.vmap(rlx.grad(lambda x: lax.scan(lambda c, _: (inner(c), None), x, None, length=2)[0].sum())))(
            ones(2, 3)
        )
    assert f"test_errors.py:{line_of(inner, '# deep')[0]}, in inner" in str(caught.value)


def test_after_every_mistake_rlx_works() -> None:
    """No builder stays open, no cache is spoilt."""
    for mistake in CASES.values():
        with pytest.raises(mistake.error):
            mistake.function()
        assert float(jnp.float32(1.0) + 1) == 2.0
    assert float(rlx.jit(rlx.grad(lambda x: x * x))(3.0)) == 6.0


@pytest.mark.parametrize(
    ("module", "name"),
    [(rlx.nn, "cross_entropy"), (rlx.nn, "softmax_cross_entropy"), (rlx.optim, "cross_entropy")],
)
def test_advice_on_cross_entropy_is_right(module: Any, name: str) -> None:
    """What it says for integer labels, and what it says for probabilities, is the mean cross-entropy."""
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    advice = str(caught.value)
    logits = jnp.asarray([[9.0, 1.0, 2.0], [0.5, 5.0, 1.0], [1.0, 2.0, 4.0], [3.0, 2.0, 1.0]])
    labels = jnp.asarray([0, 1, 1, 2])
    expected = float(jnp.mean(rlx.nn.logsumexp(logits, 1) - logits[jnp.arange(4), labels]))
    of_integers = advice.partition("integer labels write ")[2].partition(";")[0]
    of_probabilities = advice.partition("probabilities, ")[2].partition(".mean()")[0] + ".mean()"
    for text, given in ((of_integers, labels), (of_probabilities, rlx.nn.one_hot(labels, 3))):
        assert abs(float(eval(text, {"rlx": rlx, "logits": logits, "labels": given})) - expected) < 1e-5


def test_names_that_are_near() -> None:
    """Those that differ in case alone are all told, the nearest first, with what is between the last two."""
    assert did_you_mean("abc", ["ABC", "abc", "xyz"]) == "Did you mean ABC or abc?"
    assert did_you_mean("sin_", ["sin", "Sin", "SIN"]) == "Did you mean sin, Sin or SIN?"
    assert did_you_mean("reshpae", ["ravel", "reshape"]) == "Did you mean reshape?"
    assert did_you_mean("reshpae", ["ravel", "reshape"], repr) == "Did you mean 'reshape'?"
    assert did_you_mean("x", ["ravel"]) == did_you_mean("x", []) == ""
