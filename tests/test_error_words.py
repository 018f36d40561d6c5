"""What rlx says of mistakes at its edges: memory, sizes, names, trees, carries. The whole text of each."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from mistakes import Mistakes

import rlx
import rlx.lax
import rlx.nn
import rlx.numpy as jnp
import rlx.optim
import rlx.random
from rlx import errors, lax
from rlx.advice.habits import ARRAY_NAMES
from rlx.array import ConcreteArray

CASES = Mistakes()
case = CASES.case
# 2**60 bytes and more: no machine has so many addresses, so that nothing is ever allocated
WIDE = (2**30, 2**28)


def ones(*shape: int) -> Any:
    """A float32 array."""
    return jnp.ones(shape, "float32")


# --------------------------------------------------------------------- memory and sizes
_LESS = (
    "Check the shapes; compute less at once, with rlx.lax.map(f, xs, batch_size=...) or rlx.lax.scan; or use a"
    " narrower dtype."
)
_LESS_IN_JIT = (
    "Check the shapes; compute less at once, with rlx.lax.map(f, xs, batch_size=...) or rlx.lax.scan; keep less"
    " for derivatives, with rlx.checkpoint or rlx.jit(memory_limit=...)."
)


@case(errors.OutOfMemoryError, "There is no memory for float32[1073741824,268435456] (1.0 EiB).", _LESS)
def ones_without_memory() -> None:
    jnp.ones(WIDE)  # here


@case(errors.OutOfMemoryError, "There is no memory for float32[1073741824,1073741824] (4.0 EiB).", _LESS)
def an_identity_without_memory() -> None:
    jnp.eye(2**30)  # here


@case(errors.OutOfMemoryError, "There is no memory for int64[288230376151711744] (2.0 EiB).", _LESS)
def a_range_without_memory() -> None:
    jnp.arange(2**58)  # here


@case(
    errors.OutOfMemoryError,
    "There is no memory for float32[1073741824,268435456] (1.0 EiB), the result of add.",
    _LESS,
)
def a_sum_without_memory() -> None:
    jnp.broadcast_to(1.0, WIDE) + ones(1)  # here


@case(
    errors.OutOfMemoryError,
    "lambda needs 1.0 EiB for its results and 0 B for temporaries, which the machine does not have. The largest"
    " values: float32[1073741824,268435456] (1.0 EiB) of cumsum.",
    _LESS_IN_JIT,
    inside="<lambda>",
)
def a_result_without_memory() -> None:
    rlx.jit(lambda x: jnp.cumsum(x + jnp.zeros(WIDE), 1))(1.0)  # here


@case(
    errors.OutOfMemoryError,
    "total needs 4 B for its results and 2.0 EiB for temporaries, which the machine does not have. The largest"
    " values: float32[1073741824,268435456] (1.0 EiB) of sort.",
    _LESS_IN_JIT,
    inside="total",
)
def temporaries_without_memory() -> None:
    @rlx.jit
    def total(x):
        wide = jnp.sort(x + jnp.arange(2.0**28) * jnp.ones(WIDE), axis=1)  # here
        return wide.sum()

    total(1.0)


@case(
    errors.ShapeError,
    "float32[4294967296,4294967296] has 18446744073709551616 elements: more bytes than memory has addresses.",
    "Check the sizes: an array has less than 2**63 bytes.",
)
def a_size_that_overflows() -> None:
    jnp.zeros((2**32, 2**32))  # here


@case(
    errors.ShapeError,
    "float32[4294967296,4294967296] has 18446744073709551616 elements: more bytes than memory has addresses.",
    "Check the sizes: an array has less than 2**63 bytes.",
    inside="<lambda>",
)
def a_size_that_overflows_in_jit() -> None:
    rlx.jit(lambda: jnp.zeros((2**32, 2**32)))()  # here


@case(
    errors.ShapeError,
    "float32[1152921504606846976,10] has 11529215046068469760 elements: more bytes than memory has addresses.",
    "Check the sizes: an array has less than 2**63 bytes.",
)
def a_tile_that_overflows() -> None:
    jnp.tile(ones(10), 2**60)  # here


@case(
    errors.ShapeError,
    "float32[10,4611686018427387904] has 46116860184273879040 elements: more bytes than memory has addresses.",
    "Check the sizes: an array has less than 2**63 bytes.",
)
def a_repeat_that_overflows() -> None:
    jnp.repeat(ones(10), 2**62)  # here


@case(
    errors.ShapeError,
    "An array of 70 axes would be needed.",
    "Arrays have at most 64 axes: merge some with reshape.",
)
def more_axes_than_arrays_have() -> None:
    jnp.ones((1,) * 70)  # here


@case(
    errors.ShapeError,
    "An array of 65 axes would be needed.",
    "Arrays have at most 64 axes: merge some with reshape.",
    inside="<lambda>",
)
def an_axis_too_many_in_jit() -> None:
    rlx.jit(lambda x: x[None] + 1)(np.ones((1,) * 64))  # here


@case(
    errors.UnsupportedError,
    "sort of 40 axes does not run in NumPy, which computes outside of jit: this function only supports up to 32"
    " dimensions but the array has 40.",
    "Merge axes with reshape, down to 32, or call it in a function under rlx.jit.",
)
def more_axes_than_numpy_takes() -> None:
    jnp.sort(jnp.ones((2,) + (1,) * 39), 0)  # here


@case(errors.ShapeError, "tile got the repetitions (2.5,).", "Sizes must be integers: use // to divide, or int(...).")
def a_tile_of_no_whole_number() -> None:
    jnp.tile(ones(2), 2.5)  # here


@case(errors.ShapeError, "zeros got the shape (3.0, 2).", "Sizes must be integers: use // to divide, or int(...).")
def a_shape_of_no_whole_number() -> None:
    jnp.zeros((6 / 2, 2))  # here


@case(errors.ShapeError, "tile got the repetitions (-1,).", "Sizes cannot be negative.")
def a_negative_tile() -> None:
    jnp.tile(ones(2), -1)  # here


@case(errors.ShapeError, "repeat got the negative number of repeats -1.", "Pass numbers >= 0.")
def a_negative_repeat() -> None:
    jnp.repeat(ones(2), -1)  # here


@case(errors.DtypeError, "repeat got repeats of dtype float64.", "Pass integers: .astype(int).")
def a_repeat_of_no_whole_number() -> None:
    jnp.repeat(ones(2), np.array([1.5, 2.0]))  # here


@case(
    errors.ShapeError,
    "repeat got 2 repeats for an axis of size 3.",
    "Give one for each element of the axis, or one for all; without axis= all elements are in a row.",
)
def repeats_of_another_length() -> None:
    jnp.repeat(ones(3), np.array([1, 2]))  # here


# --------------------------------------------------------------------- functions of arrays
@case(
    errors.InputTypeError,
    "concatenate got a second array, float32[2]: it takes one sequence of arrays.",
    "Put the arrays into brackets: concatenate([a, b]).",
)
def a_concatenation_without_brackets() -> None:
    jnp.concatenate(ones(2), ones(2))  # here


@case(
    errors.InputTypeError,
    "vstack got a second array, float32[2,2]: it takes one sequence of arrays.",
    "Put the arrays into brackets: vstack([a, b]).",
)
def a_stack_without_brackets() -> None:
    jnp.vstack(ones(2, 2), ones(2, 2))  # here


@case(
    errors.ShapeError,
    "concatenate got 0-d arrays, which have no axis to join.",
    "Use rlx.numpy.stack([a, b]), which makes one.",
)
def a_concatenation_of_numbers() -> None:
    jnp.concatenate([1.0, 2.0])  # here


@case(
    errors.ShapeError,
    "einsum got the subscripts 'ij,jk->ik' for 2 operands, and 1: float32[2,3].",
    "Give one group of letters for each operand, with commas between them.",
)
def an_einsum_without_an_operand() -> None:
    jnp.einsum("ij,jk->ik", ones(2, 3))  # here


@case(
    errors.InputTypeError,
    "einsum got its subscripts 'ij->ji' after an operand.",
    "They must come first: einsum('ij->ji', x).",
)
def an_einsum_with_its_subscripts_behind() -> None:
    jnp.einsum(ones(2, 3), "ij->ji")  # here


@case(
    errors.ShapeError,
    "einsum cannot read the subscripts 'ij,jk->il': Output character 'l' did not appear in the input.",
    "Write letters for the axes of each operand, and after an arrow the result's letters, which all occur among"
    " the operands': 'ij,jk->ik'.",
)
def an_einsum_with_an_unknown_letter() -> None:
    jnp.einsum("ij,jk->il", ones(2, 3), ones(3, 4))  # here


@case(
    errors.ShapeError,
    "einsum got the sizes 3 and 4 for the index 'j' of 'ij,jk': the operands are float32[2,3], float32[4,4].",
    "An index must have one size in all operands.",
)
def an_einsum_of_unequal_sizes() -> None:
    jnp.einsum("ij,jk->ik", ones(2, 3), ones(4, 4))  # here


@case(
    errors.ImmutableArrayError,
    "put writes into its argument, and rlx arrays are immutable.",
    "Write x = rlx.numpy.put(x, ..., inplace=False), or x = x.at[index].set(values).",
)
def a_put_of_numpy() -> None:
    np.put(ones(3), [0], [9])  # here


@case(
    errors.ImmutableArrayError,
    "copyto writes into its argument, and rlx arrays are immutable.",
    "Write x = rlx.numpy.where(condition, values, x).",
)
def a_copyto_of_numpy() -> None:
    np.copyto(ones(3), 0.0)  # here


@case(
    errors.ShapeError,
    "nn.one_hot got num_classes=-2 for x of shape (1,).",
    "It is the size of the new axis, one more than the largest x: 0 or more.",
)
def a_negative_number_of_classes() -> None:
    rlx.nn.one_hot(jnp.array([1]), -2)  # here


@case(
    errors.ShapeError,
    "frombuffer cannot read elements of float32 (4 bytes each) from 3 bytes: buffer size must be a multiple of"
    " element size.",
    "Pass the dtype of the bytes, for instance dtype=rlx.numpy.uint8, with count= and offset= that fit.",
)
def a_buffer_of_another_dtype() -> None:
    jnp.frombuffer(b"abc")  # here


@case(
    errors.ShapeError,
    "The truth value of an array with more than one element is ambiguous: bool[3].",
    "Use x.any() or x.all().",
)
def the_truth_of_an_array() -> None:
    if ones(3) == ones(3):  # here
        pass


@case(errors.ShapeError, "iteration over a 0-d array: it has no axis.", "Use x.item(), or x[None].")
def iteration_over_a_number() -> None:
    list(jnp.float32(1))  # here


@case(
    errors.ShapeError,
    "float() got float32[3]: only arrays with one element can be converted.",
    "Pick an element, x[i], or reduce the array, for instance with .sum().",
)
def a_number_of_several() -> None:
    float(ones(3))  # here


@case(
    errors.IndexBoundsError,
    "index 5 is out of bounds for axis 0 with size 3: the array has shape (3,).",
    "An axis of size n has the indices -n to n - 1, and takes one index. Indices in arrays are not checked:"
    " see x.at[index].get(mode=...).",
)
def an_index_out_of_bounds() -> None:
    ones(3)[5]  # here


@case(
    errors.PrintFormatError,
    "debug.print: the format string names the value 'y'; given were 0.",
    "Pass it after the format string as y=...; double braces to print them.",
    inside="<lambda>",
)
def a_print_of_an_unknown_name() -> None:
    rlx.jit(lambda x: rlx.debug.print("{y}", x))(1.0)  # here


@case(errors.OptionError, "set_num_threads got 0.", "The number of threads is 1 to 256.")
def no_threads() -> None:
    rlx.set_num_threads(0)  # here


# --------------------------------------------------------------------- trees
_ALIKE = "The trees have the structure of the first, or go deeper where that has leaves: rlx.tree.structure shows it."


@case(
    errors.TreeMismatchError,
    "tree.map got trees of different structures: the first tree at ['p'] is a dict with the keys 'a', 'b', tree 2 at"
    " ['p'] is a dict with the keys 'a'.",
    _ALIKE,
)
def a_tree_without_a_key() -> None:
    rlx.tree.map(lambda x, y: x + y, {"p": {"a": 1, "b": 2}}, {"p": {"a": 1}})  # here


@case(
    errors.TreeMismatchError,
    "tree.map got trees of different structures: the first tree is a list of 2, tree 3 is a tuple of 2.",
    _ALIKE,
)
def a_list_for_a_tuple() -> None:
    rlx.tree.map(lambda x, y, z: x, [1, 2], [3, 4], (1, 2))  # here


@case(
    errors.TreeMismatchError,
    "tree.map got trees of different structures: the first tree at [1] is None, tree 2 at [1] is int 3.",
    _ALIKE,
)
def a_leaf_for_none() -> None:
    rlx.tree.map_with_path(lambda path, x, y: x, (1, None), (2, 3))  # here


# --------------------------------------------------------------------- names
@case(errors.MissingNameError, "rlx.numpy has no tahn.", "Did you mean tan, tanh or atan?")
def a_misspelt_function() -> None:
    jnp.tahn(1.0)  # here


@case(errors.MissingNameError, "rlx.lax has no fori_lop.", "Did you mean fori_loop?")
def a_misspelt_loop() -> None:
    lax.fori_lop(0, 1, lambda i, x: x, 1.0)  # here


@case(errors.MissingNameError, "rlx.nn has no sofmax.", "Did you mean softmax?")
def a_misspelt_activation() -> None:
    rlx.nn.sofmax(ones(2))  # here


@case(errors.MissingNameError, "rlx.random has no uniforn.", "Did you mean uniform?")
def a_misspelt_distribution() -> None:
    rlx.random.uniforn(rlx.random.key(0))  # here


@case(errors.MissingNameError, "rlx.optim has no Adamm.", "Did you mean adam, nadam or adamw?")
def a_misspelt_optimiser() -> None:
    rlx.optim.Adamm(1e-3)  # here


@case(errors.MissingNameError, "rlx has no gradd.", "Did you mean grad?")
def a_misspelt_transformation() -> None:
    rlx.gradd(lambda x: x)  # here


@case(errors.MissingNameError, "rlx.numpy.linalg has no invert.", "Write rlx.numpy.invert.")
def a_name_of_another_module() -> None:
    jnp.linalg.invert(ones(2, 2))  # here


@case(errors.MissingNameError, "rlx.numpy has no relu.", "Write rlx.nn.relu.")
def an_activation_of_numpy() -> None:
    jnp.relu(1.0)  # here


@case(errors.MissingNameError, "rlx.numpy has no cat.", "Write rlx.numpy.concatenate(arrays, axis).")
def a_function_of_pytorch() -> None:
    jnp.cat([ones(2), ones(2)])  # here


@case(
    errors.MissingNameError,
    "rlx.nn has no dropout.",
    "Write rlx.numpy.where(rlx.random.bernoulli(key, keep, x.shape), x / keep, 0).",
)
def a_layer_that_is_not_there() -> None:
    rlx.nn.dropout(ones(2), 0.5)  # here


@case(
    errors.MissingNameError,
    "rlx.random has no seed.",
    "Random numbers are functions of a key, without state: key = rlx.random.key(seed).",
)
def a_global_seed() -> None:
    rlx.random.seed(0)  # here


@case(
    errors.MissingNameError,
    "An array has no attribute unsqueeze.",
    "Write rlx.numpy.expand_dims(x, axis), or x[None].",
    inside="<lambda>",
)
def a_method_of_pytorch() -> None:
    rlx.jit(lambda x: x.unsqueeze(0))(1.0)  # here


@case(errors.MissingNameError, "An array has no attribute detach.", "Write rlx.lax.stop_gradient(x).")
def a_detached_array() -> None:
    ones(2).detach()  # here


@case(
    errors.MissingNameError,
    "An array has no attribute append.",
    "Write x = rlx.numpy.append(x, values); in a loop, collect in a list and stack it, or use rlx.lax.scan.",
)
def an_array_as_a_list() -> None:
    ones(2).append(3)  # here


@case(
    errors.MissingNameError,
    "An array has no attribute mul_.",
    "Arrays are immutable: x = x.at[index].set(value), or .add, .multiply, ...; rlx.numpy makes new ones.",
)
def a_method_that_writes() -> None:
    ones(2).mul_(2.0)  # here


@case(errors.MissingNameError, "An array has no attribute tanh.", "Write rlx.numpy.tanh(x).")
def a_function_as_a_method() -> None:
    ones(2).tanh()  # here


@case(errors.MissingNameError, "rlx has no switch named 'chek'.", "Did you mean 'check'?")
def a_misspelt_switch() -> None:
    rlx.config.update("chek", True)  # here


@case(errors.MissingNameError, "rlx has no switch named 'debug_nan'.", "Did you mean 'debug_nans'?")
def a_misspelt_switch_of_jax() -> None:
    rlx.config.update("jax_debug_nan", True)  # here


@case(errors.DtypeError, "'flaot32' is not a dtype that rlx has.", "Did you mean 'float32'?")
def a_misspelt_dtype() -> None:
    jnp.zeros(3, dtype="flaot32")  # here


@case(errors.DtypeError, "'bflaot16' is not a dtype that rlx has.", "Did you mean 'bfloat16' or 'float16'?")
def a_misspelt_dtype_of_astype() -> None:
    ones(2).astype("bflaot16")  # here


@case(
    errors.DtypeError,
    "'text' is not a dtype that rlx has.",
    "The dtype is the argument in this place: pass one such as rlx.numpy.float32.",
)
def a_dtype_like_no_other() -> None:
    jnp.zeros(3, dtype="text")  # here


# --------------------------------------------------------------------- arguments and results
@case(
    errors.InputTypeError,
    "Argument 'self' of f is of type Model, which is not an array, a number, or a tree of them: Model().",
    "A method's object is its first argument: mark it static, @functools.partial(rlx.jit, static_argnums=0),"
    " which traces once for each object; or register its class with rlx.tree.register_dataclass, so that its"
    " arrays are traced.",
)
def a_method_under_jit() -> None:
    class Model:
        def __repr__(self):
            return "Model()"

        @rlx.jit
        def f(self, x):
            return x

    Model().f(1.0)  # here


@case(
    errors.InputTypeError,
    "Argument 'setting'['mode'] of f is of type str, which is not an array, a number, or a tree of them: 'fast'.",
    "Trees hold arrays and numbers: take it out of the tree, or mark the whole argument static"
    " (static_argnames='setting') if it can be hashed, or register its class with rlx.tree.register_node.",
)
def a_text_in_a_tree() -> None:
    @rlx.jit
    def f(x, *, setting):
        return x

    f(1.0, setting={"size": 3, "mode": "fast"})  # here


@case(
    errors.InputTypeError,
    "Argument 1 of lambda is of type str, which is not an array, a number, or a tree of them: 'fast'.",
    "Pass an array or a number; mark a setting static, rlx.jit(f, static_argnums=1); or register its class with"
    " rlx.tree.register_node.",
)
def an_argument_without_a_name() -> None:
    rlx.jit(lambda *args: args[0])(1.0, "fast")  # here


@case(
    errors.NonHashableStaticArgumentError,
    "Static argument 1 of lambda is an rlx array, which cannot be hashed: Array([1.], dtype=float32).",
    "Static arguments are part of the cache key: leave an array out of static_argnums and static_argnames, so that"
    " it is traced.",
)
def a_static_array() -> None:
    rlx.jit(lambda x, y: x * y, static_argnums=1)(1.0, ones(1))  # here


@case(
    errors.NonHashableStaticArgumentError,
    "Static argument 'y' of lambda is a dict, which cannot be hashed: {'k': 2}.",
    "Static arguments are part of the cache key: pass a tuple of pairs or a frozen dataclass instead of a dict, or"
    " make the argument dynamic.",
)
def a_static_dict() -> None:
    rlx.jit(lambda x, y: x, static_argnames="y")(1.0, y={"k": 2})  # here


@case(
    errors.ScalarOutputError,
    "grad takes a function that returns one scalar; loss returned None.",
    "Write `return` in front of the loss: a function without it returns None.",
)
def a_loss_that_is_not_returned() -> None:
    def loss(x):
        x * x

    rlx.grad(loss)(2.0)  # here


# --------------------------------------------------------------------- loops
_SHAPE = "A carry must keep its shape: return carry{0} with shape (), or start with an initial value of shape (2,)."


@case(
    errors.ControlFlowTypeError,
    "lax.scan: carry['a'] enters the body as float32[] and leaves it as float32[2].",
    _SHAPE.format("['a']"),
    inside="body",
)
def the_line_of_a_body_of_scan() -> None:
    def body(carry, x):
        double = jnp.stack([carry["a"], x])  # here
        return {"a": double}, x

    lax.scan(body, {"a": jnp.float32(0)}, ones(3))


@case(
    errors.ControlFlowTypeError,
    "lax.fori_loop: carry[1] enters the body as float32[] and leaves it as float32[2].",
    _SHAPE.format("[1]"),
    inside="body",
)
def the_line_of_a_body_of_fori_loop() -> None:
    def body(i, carry):
        double = jnp.stack([carry[1], carry[1]])  # here
        return carry[0], double

    lax.fori_loop(0, 3, body, (jnp.float32(0), jnp.float32(1)))


@case(
    errors.ControlFlowTypeError,
    "lax.fori_loop: carry enters the body as float32[] and leaves it as float64[].",
    "A carry must keep its dtype: return carry.astype('float32'), or start with an initial value of dtype float64.",
    inside="body",
)
def the_line_of_a_body_of_a_loop_with_a_traced_bound() -> None:
    def body(i, carry):
        return carry + jnp.float64(1)  # here

    rlx.jit(lambda n: lax.fori_loop(0, n, body, jnp.float32(1)))(3)


@case(
    errors.ControlFlowTypeError,
    "lax.while_loop: carry enters the body as float32[] and leaves it as float32[2].",
    _SHAPE.format(""),
    inside="body",
)
def the_line_of_a_body_of_while_loop() -> None:
    def body(carry):  # here
        return np.ones(2, "float32")

    lax.while_loop(lambda carry: carry < 3, body, jnp.float32(1))


@case(
    errors.ControlFlowTypeError,
    "lax.fori_loop: the body returns a carry of another structure than it takes: a tuple of 2 for int32[].",
    "The body must return a carry with the structure of the initial one: the same nesting of tuples, lists and dicts,"
    " with the same keys.",
    inside="body",
)
def a_structure_that_changes_in_fori_loop() -> None:
    def body(i, carry):
        carry = carry + 1  # here
        return carry, carry

    lax.fori_loop(0, 3, body, 1)


@case(
    errors.ControlFlowTypeError,
    "lax.while_loop: cond_fun returned float32[].",
    "It must return a scalar bool: compare, for instance with != 0, or reduce with .all() or .any().",
    inside="unfinished",
)
def the_line_of_a_condition() -> None:
    def unfinished(carry):
        return carry - 3  # here

    lax.while_loop(unfinished, lambda carry: carry, jnp.float32(1))


@case(
    errors.UnexpectedTracerError,
    "A traced weak float32[] is used outside of the function that it was traced in (scan_body). It is an argument of"
    " that function.",
    "Return the value from the function instead of storing it in a global, an attribute or a list.",
)
def a_carry_that_leaks() -> None:
    kept = []

    def body(carry, x):
        kept.append(carry)
        return carry + x, None

    lax.scan(body, 0.0, ones(3))
    np.asarray(kept[0])  # here


@pytest.mark.parametrize("name", CASES)
def test_whole_text(name: str) -> None:
    """Class, message, line and advice, and no other error before it."""
    CASES.check(name)


# --------------------------------------------------------------------- what stands behind the cases
MODULES = [rlx, jnp, jnp.linalg, jnp.fft, lax, rlx.nn, rlx.random, rlx.optim]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_name_is_found_with_a_letter_too_many(module: Any) -> None:
    """Each public name of each module, misspelt, is among the names that the message offers."""
    for name in module.__all__:
        wrong = f"{name}{name[-1]}q"
        if len(name) < 4 or name.startswith("_") or hasattr(module, wrong):
            continue
        with pytest.raises(errors.MissingNameError) as caught:
            getattr(module, wrong)
        assert name in str(caught.value).rpartition("Did you mean")[2], str(caught.value)


def test_a_missing_name_is_an_attribute_error_to_python() -> None:
    """hasattr and getattr with a default work; what Python asks of every object costs no text."""
    x = jnp.ones(2)
    for owner in (*MODULES, x, rlx.config):
        assert not hasattr(owner, "no_such_name") and getattr(owner, "no_such_name", 1) == 1
        with pytest.raises(AttributeError) as caught:
            owner.__no_such_name__  # noqa: B018
        assert not isinstance(caught.value, errors.RlxError)
    with pytest.raises(ImportError):
        from rlx.nn import no_such_name  # noqa: F401


@pytest.mark.parametrize("wrong, guess", [("jnp.reshpae", "reshape?"), ("jnp.ones(2).reshpae", "'reshape'?")])
@pytest.mark.selected(1)
def test_one_guess_stands_on_the_screen(wrong: str, guess: str) -> None:
    """Python's own of a method, rlx's of a function."""
    script = f"import rlx.numpy as jnp\n{wrong}"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stderr
    assert shown.count("Did you mean") == 1 and guess in shown, shown


def test_names_of_other_libraries_are_not_there() -> None:
    """Neither to hasattr nor to dir, of arrays and tracers; each says what to write."""
    seen = []
    rlx.jit(lambda x: seen.append(x) or x)(1.0)
    for x in (jnp.ones(2), seen[0]):
        names = [name for name in ARRAY_NAMES if name != "numpy" or not isinstance(x, ConcreteArray)]
        assert not set(names) & set(dir(x)) and not any(hasattr(x, name) for name in names)
        for name in names:
            with pytest.raises(errors.MissingNameError) as caught:
                getattr(x, name)
            assert caught.value.instead, name
    assert {"numpy", "reshape", "shape"} <= set(dir(jnp.ones(2)))


@pytest.mark.parametrize("rank", [33, 64])
def test_jit_takes_as_many_axes_as_arrays_have(rank: int) -> None:
    """Elementwise operations that broadcast, reductions and derivatives."""
    shape = [1] * rank
    shape[0], shape[5], shape[-1] = 2, 3, 2
    x = np.arange(12, dtype=np.float32).reshape(shape)
    other = np.ones([1] * (rank - 1) + [2], np.float32)
    np.testing.assert_array_equal(rlx.jit(lambda x: x + other)(x), x + other)
    np.testing.assert_array_equal(rlx.jit(lambda x: (x * other).sum(5))(x), x.sum(5))
    np.testing.assert_array_equal(rlx.jit(rlx.grad(lambda x: (x * x * other).sum()))(x), 2 * x)


def test_a_loop_whose_weak_carries_widen_one_after_another() -> None:
    """A dtype goes from carry to carry, however many they are."""

    def body(i: Any, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        return (jnp.float64(1), *carry[:-1])

    found = lax.fori_loop(0, 9, body, (0,) * 9)
    assert {x.dtype for x in found} == {np.dtype("f8")} and [float(x) for x in found] == [1.0] * 9
