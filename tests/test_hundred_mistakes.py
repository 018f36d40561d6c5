"""More than two hundred mistakes: each answer states the problem, the user's line, and a remedy that works.

The users come from NumPy, PyTorch, JAX and SciPy. A row whose remedy is empty is answered by another library, or by
Python, without one.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import linecache
import math
import re
import sys
import traceback
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import rlx
import rlx.experimental.ode
import rlx.lax
import rlx.nn
import rlx.numpy as jnp
import rlx.optim
import rlx.random
from rlx.advice import habits, refused_calls


class Row(NamedTuple):
    """A mistake, on the line that ends with `# here`; words of the answer; and the code without the mistake."""

    title: str
    code: str
    error: str
    problem: str
    remedy: str
    fixed: str


ROWS = (
    Row(
        "matmul of shapes that do not fit",
        "x @ x  # here",
        "ShapeError",
        "matmul got operands of shapes (2, 3) and (2, 3), which do not fit.",
        "The contracted sizes must be equal: transpose or reshape one of the operands.",
        "x @ x.T",
    ),
    Row(
        "sum of shapes that do not broadcast",
        "x + jnp.ones(4)  # here",
        "ShapeError",
        "add got operands whose shapes do not broadcast: float32[2,3] and float32[4].",
        "Axes are aligned from the last one and must be equal or 1: insert axes with x[:,",
        "x + jnp.ones(2)[:, None]",
    ),
    Row(
        "reshape to another size",
        "x.reshape(5, 5)  # here",
        "ShapeError",
        "cannot reshape float32[2,3] of 6 elements to shape (5, 5).",
        "The product of the new sizes must equal the number of elements.",
        "x.reshape(2, 3)",
    ),
    Row(
        "axis that an array lacks",
        "jnp.sum(x, axis=2)  # here",
        "AxisError",
        "sum got axis 2 for an array of 2 dimensions.",
        "Axes count from -2 to 1.",
        "jnp.sum(x, axis=1)",
    ),
    Row(
        "concatenate without a list",
        "jnp.concatenate(v, v)  # here",
        "InputTypeError",
        "concatenate got a second array, float32[3]: it takes one sequence of arrays.",
        "Put the arrays into brackets: concatenate([a, b]).",
        "jnp.concatenate([v, v])",
    ),
    Row(
        "stack of unequal shapes",
        "jnp.stack([v, jnp.ones(4)])  # here",
        "ShapeError",
        "stack got arrays of different shapes: (3,), (4,).",
        "Broadcast or pad them to one shape first.",
        "jnp.stack([v, jnp.ones(3)])",
    ),
    Row(
        "concatenate of unequal shapes",
        "jnp.concatenate([x, jnp.ones((2, 4))])  # here",
        "ShapeError",
        "concatenate along axis 0 got float32[2,3] and float32[2,4].",
        "All axes but that one must have equal sizes.",
        "jnp.concatenate([x, jnp.ones((2, 4))], axis=1)",
    ),
    Row(
        "ragged lists",
        "jnp.array([[1, 2], [3]])  # here",
        "ShapeError",
        "array got a nested sequence whose parts differ in length.",
        "Pad the rows to one length, or keep them in a list.",
        "jnp.array([[1, 2], [3, 0]])",
    ),
    Row(
        "index out of bounds",
        "x[7]  # here",
        "IndexBoundsError",
        "index 7 is out of bounds for axis 0 with size 2: the array has shape (2, 3).",
        "An axis of size n has the indices -n to n - 1, and takes one index. Indices in",
        "x[1]",
    ),
    Row(
        "too many indices",
        "x[0, 0, 0]  # here",
        "IndexBoundsError",
        "too many indices for array: array is 2-dimensional, but 3 were indexed: the",
        "An axis of size n has the indices -n to n - 1, and takes one index. Indices in",
        "x[0, 0]",
    ),
    Row(
        "float as index",
        "x[1.0]  # here",
        "DtypeError",
        "An index has dtype float32; indices are integers, slices or bool masks.",
        "Convert it with .astype(int).",
        "x[int(1.0)]",
    ),
    Row(
        "string as index",
        "x['a']  # here",
        "InputTypeError",
        "An array was indexed with the string 'a'.",
        "Indices are integers, slices and masks. If this should be a dict, look at the order",
        "x[0]",
    ),
    Row(
        "einsum of sizes that differ",
        "jnp.einsum('ij,jk->ik', x, x)  # here",
        "ShapeError",
        "einsum got the sizes 3 and 2 for the index 'j' of 'ij,jk': the operands are",
        "An index must have one size in all operands.",
        "jnp.einsum('ij,kj->ik', x, x)",
    ),
    Row(
        "squeeze of an axis of size 3",
        "jnp.squeeze(x, axis=1)  # here",
        "ShapeError",
        "squeeze got axis 1 of size 3 in an array of shape (2, 3).",
        "Only axes of size 1 can be squeezed; use x[..., 0] to pick one element.",
        "jnp.squeeze(x[:, :1], axis=1)",
    ),
    Row(
        "split in unequal parts",
        "jnp.split(v, 2)  # here",
        "ShapeError",
        "split cannot cut axis 0 of size 3 in 2 equal parts.",
        "Use rlx.numpy.array_split for parts of different sizes.",
        "jnp.array_split(v, 2)",
    ),
    Row(
        "dot of vectors of two lengths",
        "jnp.dot(v, jnp.ones(4))  # here",
        "ShapeError",
        "dot got operands of shapes (3,) and (4,), which do not fit.",
        "The contracted sizes must be equal: transpose or reshape one of the operands.",
        "jnp.dot(v, jnp.ones(3))",
    ),
    Row(
        "transpose by wrong axes",
        "x.transpose(0, 2)  # here",
        "AxisError",
        "transpose got axis 2 for an array of 2 dimensions.",
        "Axes count from -2 to 1.",
        "x.transpose(1, 0)",
    ),
    Row(
        "truth of an array",
        (
            """\
if x > 0:  # here

"""
            """\
    pass

"""
        ),
        "ShapeError",
        "The truth value of an array with more than one element is ambiguous: bool[2,3].",
        "Use x.any() or x.all().",
        (
            """\
if (x > 0).all():

"""
            """\
    pass

"""
        ),
    ),
    Row(
        "iterate over a scalar",
        (
            """\
for row in x.sum():  # here

"""
            """\
    pass

"""
        ),
        "ShapeError",
        "iteration over a 0-d array: it has no axis.",
        "Use x.item(), or x[None].",
        (
            """\
for row in x:

"""
            """\
    pass

"""
        ),
    ),
    Row(
        "inverse of a matrix that is not square",
        "jnp.linalg.inv(x)  # here",
        "ShapeError",
        "inv got an array of shape (2, 3).",
        "The last two axes must have one size.",
        "jnp.linalg.inv(x[:, :2] + jnp.eye(2))",
    ),
    Row(
        "operand that is a string",
        "jnp.sin('a')  # here",
        "InputTypeError",
        "An argument of sin is of type str, which is not an array, a number, or a tree",
        "Pass an array or a number.",
        "jnp.sin(float('1'))",
    ),
    Row(
        "operand that is None",
        "jnp.add(None, 1)  # here",
        "InputTypeError",
        "An argument of add is of type NoneType, which is not an array, a number, or a",
        "Pass an array or a number.",
        "jnp.add(0, 1)",
    ),
    Row(
        "list as operand",
        "jnp.sin([1.0, 2.0])  # here",
        "InputTypeError",
        "sin got a list; rlx functions take arrays and numbers.",
        "Convert it with rlx.numpy.asarray(...) first.",
        "jnp.sin(jnp.asarray([1.0, 2.0]))",
    ),
    Row(
        "negative number as unsigned",
        "jnp.array(-1, 'uint8')  # here",
        "DtypeOverflowError",
        "The Python integer -1 does not fit uint8.",
        "Use a signed dtype, for instance rlx.numpy.int32.",
        "jnp.array(-1, 'int8')",
    ),
    Row(
        "bitwise and of floats",
        "(x > 0) & x  # here",
        "DtypeError",
        "bitwise_and does not take float32.",
        "Convert the operand with .astype(...) first.",
        "(x > 0) & (x < 1)",
    ),
    Row(
        "unknown dtype",
        "x.astype('float31')  # here",
        "DtypeError",
        "'float31' is not a dtype that rlx has.",
        "Did you mean 'float32', 'float16' or 'bfloat16'?",
        "x.astype('float32')",
    ),
    Row(
        "array of strings",
        "jnp.array(['a', 'b'])  # here",
        "InputTypeError",
        "ndarray of dtype <U1 is not an array of numbers.",
        "Pass arrays of bool, integer, float or complex dtype; mark other arguments static",
        "jnp.array([ord(c) for c in 'ab'])",
    ),
    Row(
        "array of objects",
        "jnp.array([{}, {}])  # here",
        "InputTypeError",
        "ndarray of dtype object is not an array of numbers.",
        "Pass arrays of bool, integer, float or complex dtype; mark other arguments static",
        "[jnp.zeros(2), jnp.ones(2)]",
    ),
    Row(
        "big integer",
        "v.astype('int32') + 2**40  # here",
        "DtypeOverflowError",
        "The Python integer 1099511627776 does not fit int32.",
        "Use a wider dtype, for instance rlx.numpy.int64(value).",
        "v.astype('int64') + 2**40",
    ),
    Row(
        "negative size",
        "jnp.zeros(-1)  # here",
        "ShapeError",
        "zeros got the shape (-1,).",
        "Sizes cannot be negative.",
        "jnp.zeros(1)",
    ),
    Row(
        "write to an element",
        "x[0] = 1.0  # here",
        "ImmutableArrayError",
        "x[index] = value does not work: rlx arrays are immutable.",
        "Write x = x.at[index].set(value) instead.",
        "x = x.at[0].set(1.0)",
    ),
    Row(
        "write to a slice in place",
        "x[0, :] += 1.0  # here",
        "ImmutableArrayError",
        "x[index] = value does not work: rlx arrays are immutable.",
        "Write x = x.at[index].set(value) instead.",
        "x = x.at[0, :].add(1.0)",
    ),
    Row(
        "torch's in-place method",
        "x.add_(1.0)  # here",
        "MissingNameError",
        "An array has no attribute add_.",
        "Arrays are immutable: x = x.at[index].set(value), or .add, .multiply, ...; rlx.numpy",
        "x = x + 1.0",
    ),
    Row(
        "NumPy's out=",
        "jnp.add(x, x, out=x)  # here",
        "UnsupportedError",
        "add does not take out=.",
        "Arrays cannot be written to: use the result.",
        "x = jnp.add(x, x)",
    ),
    Row(
        "fill",
        "x.fill(0)  # here",
        "MissingNameError",
        "An array has no attribute fill.",
        "Write x = rlx.numpy.full_like(x, value).",
        "x = jnp.full_like(x, 0)",
    ),
    Row(
        "append",
        "v.append(1.0)  # here",
        "MissingNameError",
        "An array has no attribute append.",
        "Write x = rlx.numpy.append(x, values); in a loop, collect in a list and stack it, or",
        "v = jnp.append(v, 1.0)",
    ),
    Row(
        "write through NumPy",
        "np.asarray(x)[0] = 1.0  # here",
        "ValueError",
        "assignment destination is read-only",
        "",
        "np.array(x)[0] = 1.0",
    ),
    Row(
        "delete an element",
        "del v[0]  # here",
        "ImmutableArrayError",
        "del x[index] does not work: rlx arrays are immutable.",
        "Write x = rlx.numpy.delete(x, index).",
        "v = jnp.delete(v, 0)",
    ),
    Row(
        "misspelt function",
        "jnp.sinn(x)  # here",
        "MissingNameError",
        "rlx.numpy has no sinn.",
        "Did you mean sin, sinh or sinc?",
        "jnp.sin(x)",
    ),
    Row(
        "misspelt transform",
        "rlx.vamp(jnp.sin)  # here",
        "MissingNameError",
        "rlx has no vamp.",
        "Did you mean vmap?",
        "rlx.vmap(jnp.sin)",
    ),
    Row(
        "misspelt optimiser",
        "optim.adamm(1e-3)  # here",
        "MissingNameError",
        "rlx.optim has no adamm.",
        "Did you mean adam, nadam or adamw?",
        "optim.adam(1e-3)",
    ),
    Row(
        "misspelt function of another module",
        "jnp.sofmax(x)  # here",
        "MissingNameError",
        "rlx.numpy has no sofmax.",
        "Did you mean rlx.nn.softmax or fmax?",
        "rlx.nn.softmax(x)",
    ),
    Row(
        "function of another module",
        "rlx.softmax(x)  # here",
        "MissingNameError",
        "rlx has no softmax.",
        "Write rlx.nn.softmax.",
        "rlx.nn.softmax(x)",
    ),
    Row(
        "torch's Linear",
        "nn.Linear(3, 4)  # here",
        "MissingNameError",
        "rlx.nn has no Linear.",
        "Layers are functions of arrays, and parameters are trees: docs/layers.md shows",
        (
            """\
w, b = jnp.ones((3, 4)), jnp.zeros(4)

"""
            """\
x @ w + b

"""
        ),
    ),
    Row(
        "torch's CrossEntropyLoss",
        "nn.CrossEntropyLoss()  # here",
        "MissingNameError",
        "rlx.nn has no CrossEntropyLoss.",
        "Write rlx.optim.softmax_cross_entropy_with_integer_labels(logits, labels).mean().",
        "rlx.optim.softmax_cross_entropy_with_integer_labels(x, jnp.array([0, 1])).mean()",
    ),
    Row(
        "torch's DataLoader",
        "rlx.DataLoader(x)  # here",
        "MissingNameError",
        "rlx has no DataLoader.",
        "Write rlx.data.DataLoader.",
        "list(rlx.data.batches(x, 1, seed=0))",
    ),
    Row(
        "torch's manual_seed",
        "rlx.manual_seed(0)  # here",
        "MissingNameError",
        "rlx has no manual_seed.",
        "Random numbers are functions of a key, without state: key = rlx.random.key(seed).",
        "key = rlx.random.key(0)",
    ),
    Row(
        "torch's no_grad",
        (
            """\
with rlx.no_grad():  # here

"""
            """\
    pass

"""
        ),
        "MissingNameError",
        "rlx has no no_grad.",
        "Leave it out: operations are recorded only inside rlx.grad, rlx.vjp and rlx.jvp.",
        "x.sum()",
    ),
    Row(
        "torch's tensor",
        "rlx.tensor([1.0])  # here",
        "MissingNameError",
        "rlx has no tensor.",
        "Write rlx.numpy.array(values).",
        "rlx.numpy.array([1.0])",
    ),
    Row(
        "torch's cuda",
        "x.cuda()  # here",
        "MissingNameError",
        "An array has no attribute cuda.",
        "Write rlx.device_put(x, device).",
        "rlx.device_put(x, 'cpu')",
    ),
    Row(
        "torch's backward",
        "x.sum().backward()  # here",
        "MissingNameError",
        "An array has no attribute backward.",
        "Derivatives are of functions: rlx.grad(f)(x).",
        "rlx.grad(lambda x: x.sum())(x)",
    ),
    Row(
        "torch's detach",
        "x.detach()  # here",
        "MissingNameError",
        "An array has no attribute detach.",
        "Write rlx.lax.stop_gradient(x).",
        "rlx.lax.stop_gradient(x)",
    ),
    Row(
        "torch's dim=",
        "jnp.sum(x, dim=1)  # here",
        "TypeError",
        "sum() got an unexpected keyword argument 'dim'",
        "Write axis= instead of dim=.",
        "jnp.sum(x, axis=1)",
    ),
    Row(
        "torch's keepdim=",
        "x.mean(1, keepdim=True)  # here",
        "TypeError",
        "mean() got an unexpected keyword argument 'keepdim'",
        "Write keepdims= instead of keepdim=.",
        "x.mean(1, keepdims=True)",
    ),
    Row(
        "torch's dim= of softmax",
        "nn.softmax(x, dim=-1)  # here",
        "TypeError",
        "softmax() got an unexpected keyword argument 'dim'",
        "Write axis= instead of dim=.",
        "nn.softmax(x, axis=-1)",
    ),
    Row(
        "torch's lr=",
        "optim.adam(lr=1e-3)  # here",
        "TypeError",
        "adam() got an unexpected keyword argument 'lr'",
        "Write learning_rate= instead of lr=.",
        "optim.adam(learning_rate=1e-3)",
    ),
    Row(
        "misspelt keyword",
        "optim.sgd(1e-3, momentun=0.9)  # here",
        "TypeError",
        "sgd() got an unexpected keyword argument 'momentun'",
        "Did you mean momentum=?",
        "optim.sgd(1e-3, momentum=0.9)",
    ),
    Row(
        "torch's in_dims=",
        "rlx.vmap(jnp.sin, in_dims=0)  # here",
        "TypeError",
        "vmap() got an unexpected keyword argument 'in_dims'",
        "Write in_axes= instead of in_dims=.",
        "rlx.vmap(jnp.sin, in_axes=0)",
    ),
    Row(
        "NumPy's size=",
        "random.normal(key, size=(3,))  # here",
        "TypeError",
        "normal() got an unexpected keyword argument 'size'",
        "Write shape= instead of size=.",
        "random.normal(key, shape=(3,))",
    ),
    Row(
        "keyword of a transform",
        "rlx.jit(jnp.sin, static_argnum=0)  # here",
        "OptionError",
        "jit does not know static_argnum.",
        "It takes static_argnums, static_argnames, donate_argnums, donate_argnames, device",
        "rlx.jit(jnp.sin, static_argnums=())",
    ),
    Row(
        "a second positional argument",
        "jnp.sin(v, v)  # here",
        "TypeError",
        "sin() takes 1 positional argument but 2 were given",
        "Its arguments are sin(x, /).",
        "jnp.sin(v)",
    ),
    Row(
        "NumPy's random",
        "jnp.random.normal(size=3)  # here",
        "MissingNameError",
        "rlx.numpy has no random.",
        "Write rlx.random, whose functions take a key: rlx.random.normal(rlx.random.key(0),",
        "rlx.random.normal(rlx.random.key(0), (3,))",
    ),
    Row(
        "sample without a key",
        "random.normal((3,))  # here",
        "InputTypeError",
        "random.normal takes a key, but got (3,) (tuple).",
        "Make a key with rlx.random.key(seed).",
        "random.normal(random.key(0), (3,))",
    ),
    Row(
        "seed instead of a key",
        "random.uniform(0, (3,))  # here",
        "InputTypeError",
        "random.uniform takes a key, but got 0 (int).",
        "Make a key with rlx.random.key(seed).",
        "random.uniform(random.key(0), (3,))",
    ),
    Row(
        "sample without arguments",
        "random.normal()  # here",
        "TypeError",
        "normal() missing 1 required positional argument: 'key'",
        "Its arguments are normal(key, shape=(), dtype=None).",
        "random.normal(random.key(0))",
    ),
    Row(
        "arithmetic on a key",
        "key + 1  # here",
        "TypePromotionError",
        "No implicit promotion between key<fry>[], int 1.",
        "Keys are not numbers: make others with rlx.random.split(key) or",
        "random.fold_in(key, 1)",
    ),
    Row(
        "bounds before the shape",
        "random.randint(key, 0, 10)  # here",
        "TypeError",
        "randint() missing 1 required positional argument: 'maxval'",
        "Its arguments are randint(key, shape, minval, maxval, dtype=None).",
        "random.randint(key, (3,), 0, 10)",
    ),
    Row(
        "loss that is an array",
        "rlx.grad(lambda x: x * 2)(x)  # here",
        "ScalarOutputError",
        "grad takes a function that returns one scalar; lambda returned float32[2,3].",
        "Reduce the result, for instance with .sum() or .mean(), or use rlx.jacrev or",
        "rlx.grad(lambda x: (x * 2).sum())(x)",
    ),
    Row(
        "loss without return",
        (
            """\
def loss(x):

"""
            """\
    (x * 2).sum()

"""
            """\
rlx.grad(loss)(x)  # here

"""
        ),
        "ScalarOutputError",
        "grad takes a function that returns one scalar; loss returned None.",
        "Write `return` in front of the loss: a function without it returns None.",
        (
            """\
def loss(x):

"""
            """\
    return (x * 2).sum()

"""
            """\
rlx.grad(loss)(x)

"""
        ),
    ),
    Row(
        "loss that returns a pair",
        "rlx.grad(lambda x: (x.sum(), x))(x)  # here",
        "ScalarOutputError",
        "grad takes a function that returns one scalar; lambda returned a tuple of 2.",
        "Return the loss alone, (loss, auxiliary) with has_aux=True, or use rlx.jacrev.",
        "rlx.grad(lambda x: (x.sum(), x), has_aux=True)(x)",
    ),
    Row(
        "gradient by an integer",
        "rlx.grad(lambda x: x ** 2)(3)  # here",
        "DtypeError",
        "grad of <lambda> with respect to an argument of dtype int32: a derivative needs",
        "Convert it with .astype(float), write 2.0 instead of 2, choose other argnums, or",
        "rlx.grad(lambda x: x ** 2)(3.0)",
    ),
    Row(
        "grad of a value",
        "rlx.grad(x.sum())(x)  # here",
        "InputTypeError",
        "grad takes a function, but got float32[].",
        "Pass the function and not its result: grad(f), not grad(f(x)).",
        "rlx.grad(lambda x: x.sum())(x)",
    ),
    Row(
        "argnums of a missing argument",
        "rlx.grad(lambda x: x.sum(), argnums=1)(x)  # here",
        "TreeMismatchError",
        "grad of <lambda> with respect to argument 1, but it was called with 1",
        "argnums counts positional arguments from 0; pass the argument by position.",
        "rlx.grad(lambda x: x.sum(), argnums=0)(x)",
    ),
    Row(
        "float in a loss",
        "rlx.grad(lambda x: float(x) ** 2)(3.0)  # here",
        "ConcretizationTypeError",
        "float() gives the number of a traced weak float32[] without its derivative: it",
        "Keep it an array: rlx.numpy has the functions of math and NumPy, for instance",
        "rlx.grad(lambda x: x ** 2)(3.0)",
    ),
    Row(
        "math in a loss",
        "rlx.grad(lambda x: math.sin(x))(3.0)  # here",
        "ConcretizationTypeError",
        "float() gives the number of a traced weak float32[] without its derivative: it",
        "Keep it an array: rlx.numpy has the functions of math and NumPy, for instance",
        "rlx.grad(lambda x: jnp.sin(x))(3.0)",
    ),
    Row(
        "NumPy in a loss",
        "rlx.grad(lambda x: np.asarray(x).sum())(x)  # here",
        "TracerArrayConversionError",
        "A NumPy function (np.asarray or another) gives the number of a traced",
        "Keep it an array: rlx.numpy has the functions of math and NumPy, for instance",
        "rlx.grad(lambda x: jnp.asarray(x).sum())(x)",
    ),
    Row(
        "text among the parameters",
        "rlx.grad(lambda p: p['w'].sum())({'w': x, 'name': 'mlp'})  # here",
        "InputTypeError",
        "The leaf ['name'] of an argument of grad(<lambda>) is of type str, which is not",
        "Pass arrays and numbers. Let the function capture other values, or register",
        "rlx.grad(lambda p: p['w'].sum())({'w': x})",
    ),
    Row(
        "tangent of another shape",
        "rlx.jvp(jnp.sin, (x,), (v,))  # here",
        "TreeMismatchError",
        "jvp got a tangent of shape (3,) for a primal of shape (2, 3).",
        "A tangent has the shape and dtype of its primal.",
        "rlx.jvp(jnp.sin, (x,), (jnp.ones_like(x),))",
    ),
    Row(
        "cotangent of another shape",
        "rlx.vjp(jnp.sin, x)[1](v)  # here",
        "TreeMismatchError",
        "The pullback of sin got a cotangent of shape (3,) for a result of shape (2, 3).",
        "A cotangent has the shape and dtype of the result it belongs to.",
        "rlx.vjp(jnp.sin, x)[1](jnp.ones_like(x))",
    ),
    Row(
        "bwd that returns no tuple",
        (
            """\
f = rlx.custom_vjp(lambda x: x * 2)

"""
            """\
f.defvjp(lambda x: (x * 2, x), lambda r, g: g * 2)

"""
            """\
rlx.grad(f)(1.0)  # here

"""
        ),
        "CustomRuleError",
        "The bwd rule of lambda must return a tuple with one cotangent for each of its 1",
        "Return (ct,), a tuple of one: with a comma.",
        (
            """\
f = rlx.custom_vjp(lambda x: x * 2)

"""
            """\
f.defvjp(lambda x: (x * 2, x), lambda r, g: (g * 2,))

"""
            """\
rlx.grad(f)(1.0)

"""
        ),
    ),
    Row(
        "if on a traced value",
        "rlx.jit(lambda x: x if x.sum() > 0 else -x)(x)  # here",
        "TracerBoolConversionError",
        "bool() needs the value of a traced bool[], which is not known while tracing.",
        "Use rlx.numpy.where(condition, x, y) to choose between values, rlx.lax.cond to",
        "rlx.jit(lambda x: jnp.where(x.sum() > 0, x, -x))(x)",
    ),
    Row(
        "range of a traced value",
        "rlx.jit(lambda n: sum(range(n)))(3)  # here",
        "TracerIntegerConversionError",
        "index() needs the value of a traced weak int32[], which is not known while tracing.",
        "A traced value cannot be a Python index, a size or an argument of range(): use x[i]",
        "rlx.jit(lambda n: lax.fori_loop(0, n, lambda i, s: s + i, 0))(3)",
    ),
    Row(
        "shape from a traced value",
        "rlx.jit(lambda n: jnp.zeros(n))(3)  # here",
        "ConcretizationTypeError",
        "zeros needs values that are not known while tracing: weak int32[].",
        "Shapes are static: pass Python integers.",
        "rlx.jit(lambda n: jnp.zeros(n), static_argnums=0)(3)",
    ),
    Row(
        "text as an argument",
        "rlx.jit(lambda x, mode: x)(v, 'a')  # here",
        "InputTypeError",
        "Argument 'mode' of lambda is of type str, which is not an array, a number, or a",
        "Pass an array or a number; mark a setting static, rlx.jit(f,",
        "rlx.jit(lambda x, mode: x, static_argnames='mode')(v, 'a')",
    ),
    Row(
        "mask as an index",
        "rlx.jit(lambda x: x[x > 0])(v)  # here",
        "NonConcreteBooleanIndexError",
        "A traced bool mask bool[3] is used as an index: the result's size would depend",
        "Use rlx.numpy.where(mask, x, other), x.at[...] with where, or",
        "rlx.jit(lambda x: jnp.where(x > 0, x, 0.0))(v)",
    ),
    Row(
        "item in jit",
        "rlx.jit(lambda x: x.sum().item())(v)  # here",
        "ConcretizationTypeError",
        "item() needs the value of a traced float32[], which is not known while tracing.",
        "Keep it an array: rlx.numpy functions take 0-d arrays wherever they take numbers. If",
        "rlx.jit(lambda x: x.sum())(v)",
    ),
    Row(
        "unhashable static argument",
        "rlx.jit(lambda x, c: x * c[0], static_argnums=1)(v, [2])  # here",
        "NonHashableStaticArgumentError",
        "Static argument 1 of lambda is a list, which cannot be hashed: [2].",
        "Static arguments are part of the cache key: pass a tuple instead of a list, or make",
        "rlx.jit(lambda x, c: x * c[0], static_argnums=1)(v, (2,))",
    ),
    Row(
        "leaked tracer",
        (
            """\
kept = []

"""
            """\
rlx.jit(lambda x: kept.append(x * 2))(v)

"""
            """\
kept[0] + 1  # here

"""
        ),
        "UnexpectedTracerError",
        "A traced float32[3] is used outside of the function that it was traced in",
        "Return the value from the function instead of storing it in a global, an attribute",
        (
            """\
kept = rlx.jit(lambda x: x * 2)(v)

"""
            """\
kept + 1

"""
        ),
    ),
    Row(
        "donated array",
        (
            """\
rlx.jit(lambda x: x + 1, donate_argnums=0)(donated)

"""
            """\
donated + 1  # here

"""
        ),
        "DonatedArrayError",
        "This array was donated to a jitted call and its memory has been given away.",
        "Use the call's result instead, or leave the argument out of donate_argnums.",
        (
            """\
result = rlx.jit(lambda x: x + 1, donate_argnums=0)(donated)

"""
            """\
result + 1

"""
        ),
    ),
    Row(
        "result that is no array",
        "rlx.jit(lambda x: object())(v)  # here",
        "InputTypeError",
        "The result of lambda is of type object, which is not an array, a number, or a",
        "Return arrays and numbers; keep other objects outside of the function, or return",
        "rlx.jit(lambda x: {'a': x})(v)",
    ),
    Row(
        "class instance as an argument",
        (
            """\
class Point:

"""
            """\
    x = 1.0

"""
            """\
rlx.jit(lambda p: p.x)(Point())  # here

"""
        ),
        "InputTypeError",
        "Argument 'p' of lambda is of type Point, which is not an array, a number, or a",
        "Pass an array or a number; mark a setting static, rlx.jit(f, static_argnames='p');",
        "rlx.jit(lambda p: p['x'])({'x': 1.0})",
    ),
    Row(
        "debug.print's format",
        "rlx.debug.print('x={}', y=x)  # here",
        "PrintFormatError",
        "debug.print: the format string names the value 0; given were 'y'.",
        "Pass it after the format string; double braces to print them.",
        "rlx.debug.print('x={y}', y=x)",
    ),
    Row(
        "jit of a value",
        "rlx.jit(x.sum())  # here",
        "OptionError",
        "jit takes a function, got ConcreteArray.",
        "Write rlx.jit(f) or @rlx.jit.",
        "rlx.jit(lambda x: x.sum())",
    ),
    Row(
        "unknown device",
        "rlx.device_put(x, 'gpuu')  # here",
        "DeviceError",
        "There is no device 'gpuu'; rlx has backends for: cpu, c, cuda, mlx, numba,",
        "Use one of these in jit(device=...), rlx.default_device(...) or RLX_DEVICE.",
        "rlx.device_put(x, 'cpu')",
    ),
    Row(
        "mapped axes of two sizes",
        "rlx.vmap(jnp.add)(v, jnp.ones(4))  # here",
        "VmapAxisError",
        "vmap got mapped axes of different sizes [3, 4]: arguments of shapes (3,) (axis",
        "All mapped axes have one size; leave an argument unmapped with None in in_axes.",
        "rlx.vmap(jnp.add, in_axes=(0, None))(v, jnp.ones(4))",
    ),
    Row(
        "vmap over a scalar",
        "rlx.vmap(jnp.sin)(1.0)  # here",
        "VmapAxisError",
        "vmap was asked to map axis 0 of an argument of shape (), which has 0 axes.",
        "Use an axis that the argument has, or None to leave it unmapped.",
        "rlx.vmap(jnp.sin)(v)",
    ),
    Row(
        "in_axes that do not fit",
        "rlx.vmap(jnp.add, in_axes=(0,))(v, v)  # here",
        "VmapAxisError",
        "vmap got in_axes with 1 entries for 2 positional arguments.",
        "Give in_axes one entry for each positional argument; None leaves an argument unmapped.",
        "rlx.vmap(jnp.add, in_axes=(0, 0))(v, v)",
    ),
    Row(
        "if under vmap",
        "rlx.vmap(lambda a: a if a > 0 else -a)(v)  # here",
        "TracerBoolConversionError",
        "bool() needs the value of a traced bool[], which is not known while tracing.",
        "Use rlx.numpy.where(condition, x, y) to choose between values, rlx.lax.cond to",
        "rlx.vmap(lambda a: jnp.where(a > 0, a, -a))(v)",
    ),
    Row(
        "axis name out of scope",
        "rlx.vmap(lambda a: lax.psum(a, 'batch'), axis_name='b')(v)  # here",
        "AxisNameError",
        "There is no mapped axis named 'batch' here: the axes in scope are 'b'.",
        "Write one of these names. To map another axis, call the function under rlx.vmap(...,",
        "rlx.vmap(lambda a: lax.psum(a, 'b'), axis_name='b')(v)",
    ),
    Row(
        "carry that grows",
        "lax.scan(lambda c, a: (jnp.append(c, a), a), v, v)  # here",
        "ControlFlowTypeError",
        "lax.scan: carry enters the body as float32[3] and leaves it as float32[4].",
        "A carry must keep its shape: return carry with shape (3,), or start with an initial",
        "lax.scan(lambda c, a: (c + a, a), v, v)",
    ),
    Row(
        "scan without a pair",
        "lax.scan(lambda c, a: c + a, 0.0, v)  # here",
        "ControlFlowTypeError",
        "lax.scan: f must return a pair (carry, y), got float32[].",
        "Return (carry, y); y may be None.",
        "lax.scan(lambda c, a: (c + a, None), 0.0, v)",
    ),
    Row(
        "scan's arguments swapped",
        "lax.scan(0.0, lambda c, a: (c, a), v)  # here",
        "ControlFlowTypeError",
        "lax.scan takes a function as f, but got float 0.0.",
        "Write rlx.lax.scan(f, init, xs), with f(carry, x) returning (carry, y).",
        "lax.scan(lambda c, a: (c, a), 0.0, v)",
    ),
    Row(
        "branches of two shapes",
        "lax.cond(True, lambda: v, lambda: v[:2])  # here",
        "ControlFlowTypeError",
        "lax.cond: result has different types: float32[2] from false_fun, float32[3]",
        "The shapes must be equal: broadcast, pad or slice in the branches.",
        "lax.cond(True, lambda: v, lambda: jnp.pad(v[:2], (0, 1)))",
    ),
    Row(
        "values as branches",
        "lax.cond(True, v, -v)  # here",
        "ControlFlowTypeError",
        "lax.cond takes a function as true_fun, but got float32[3].",
        "Pass functions, or choose between two values with rlx.numpy.where(condition, x, y).",
        "jnp.where(True, v, -v)",
    ),
    Row(
        "fori_loop's body with swapped arguments",
        "lax.fori_loop(0, 3, lambda c, i: c['a'] + i, {'a': 1.0})  # here",
        "InputTypeError",
        "An array was indexed with the string 'a'.",
        "Indices are integers, slices and masks. If this should be a dict, look at the order",
        "lax.fori_loop(0, 3, lambda i, c: {'a': c['a'] + i}, {'a': 1.0})",
    ),
    Row(
        "condition that is an array",
        "lax.while_loop(lambda c: c < 3, lambda c: c + 1, v)  # here",
        "ControlFlowTypeError",
        "lax.while_loop: cond_fun returned bool[3].",
        "It must return a scalar bool: compare, for instance with != 0, or reduce with .all()",
        "lax.while_loop(lambda c: (c < 3).any(), lambda c: c + 1, v)",
    ),
    Row(
        "carry of another structure",
        "lax.scan(lambda c, a: ({'h': c['h'], 'n': a}, a), {'h': 0.0}, v)  # here",
        "ControlFlowTypeError",
        "lax.scan: the body returns a carry of another structure than it takes: a dict with the keys 'h', 'n' for a",
        "The body must return a carry with the structure of the initial one: the same nesting",
        "lax.scan(lambda c, a: ({'h': c['h']}, a), {'h': 0.0}, v)",
    ),
    Row(
        "update without init",
        "optim.adam(1e-3).update({'w': x}, {'w': x})  # here",
        "TreeMismatchError",
        "The optimiser's update got a dict as state, which is a tuple of 2 parts.",
        "Make the state with state = optimizer.init(params), and pass on the one that update",
        (
            """\
optimizer = optim.adam(1e-3)

"""
            """\
optimizer.update({'w': x}, optimizer.init({'w': x}))

"""
        ),
    ),
    Row(
        "gradients of another structure",
        (
            """\
optimizer = optim.adam(1e-3)

"""
            """\
optimizer.update({'v': x}, optimizer.init({'w': x}))  # here

"""
        ),
        "TreeMismatchError",
        "tree.map got trees of different structures: the first tree is a dict with the keys 'v',",
        "The trees have the structure of the first, or go deeper where that has leaves:",
        (
            """\
optimizer = optim.adam(1e-3)

"""
            """\
optimizer.update({'w': x}, optimizer.init({'w': x}))

"""
        ),
    ),
    Row(
        "adamw without parameters",
        (
            """\
optimizer = optim.adamw(1e-3)

"""
            """\
optimizer.update(x, optimizer.init(x))  # here

"""
        ),
        "TreeMismatchError",
        "optim.add_decayed_weights needs the parameters, but update was called without.",
        "Call update(gradients, state, params).",
        (
            """\
optimizer = optim.adamw(1e-3)

"""
            """\
optimizer.update(x, optimizer.init(x), x)

"""
        ),
    ),
    Row(
        "optimizer.step",
        "optim.adam(1e-3).step()  # here",
        "MissingNameError",
        "rlx.optim.GradientTransformation has no step.",
        "Optimisers are functions of gradients: updates, state = optimizer.update(grads,",
        (
            """\
optimizer = optim.adam(1e-3)

"""
            """\
updates, state = optimizer.update(x, optimizer.init(x))

"""
            """\
optim.apply_updates(x, updates)

"""
        ),
    ),
    Row(
        "trees of different structures",
        "rlx.tree.map(jnp.add, {'a': v, 'b': v}, {'a': v})  # here",
        "TreeMismatchError",
        "tree.map got trees of different structures: the first tree is a dict with the keys 'a',",
        "The trees have the structure of the first, or go deeper where that has leaves:",
        "rlx.tree.map(jnp.add, {'a': v}, {'a': v})",
    ),
    Row(
        "rows of unequal number",
        "rlx.data.batches({'x': np.ones(3), 'y': np.ones(4)}, 2)  # here",
        "ShapeError",
        "batches got arrays with different numbers of rows: ['x'] has 3, ['y'] has 4.",
        "Give every array the same rows: cut them to the first 3, or find the missing ones.",
        "rlx.data.batches({'x': np.ones(3), 'y': np.ones(4)[:3]}, 2)",
    ),
    Row(
        "file of another format",
        "rlx.save(folder + '/a.pt', {'w': x})  # here",
        "FileFormatError",
        "a.pt ends in '.pt'.",
        "Files must end in .safetensors or .npz, folders of shards in .shards.",
        "rlx.save(folder + '/a.safetensors', {'w': x})",
    ),
    Row(
        "file that does not exist",
        "rlx.load(folder + '/none.safetensors')  # here",
        "FileNotFoundError",
        "No such file or directory",
        "",
        (
            """\
rlx.save(folder + '/some.safetensors', {'w': x})

"""
            """\
rlx.load(folder + '/some.safetensors')

"""
        ),
    ),
    Row(
        "file of other shapes",
        (
            """\
rlx.save(folder + '/b.npz', {'w': x})

"""
            """\
rlx.load(folder + '/b.npz', like={'w': v})  # here

"""
        ),
        "TreeMismatchError",
        "The file's array 'w' is float32[2, 3], the tree's leaf float32[3].",
        "Load without like=, and convert.",
        (
            """\
rlx.save(folder + '/b.npz', {'w': x})

"""
            """\
rlx.load(folder + '/b.npz', like={'w': x})

"""
        ),
    ),
    Row(
        "a NaN",
        (
            """\
with rlx.debug_nans(True):

"""
            """\
    jnp.log(-v)  # here

"""
        ),
        "NanError",
        "log made a NaN from operands (float32[3]) without one: [-1., -1., -1.].",
        "Look at the operands with rlx.debug.print, or guard them with rlx.numpy.where before",
        (
            """\
with rlx.debug_nans(True):

"""
            """\
    jnp.log(jnp.where(v > 0, v, 1.0))

"""
        ),
    ),
    Row(
        "misspelt switch",
        "rlx.config.debug_nan = True  # here",
        "MissingNameError",
        "rlx has no switch named 'debug_nan'.",
        "Did you mean 'debug_nans'?",
        "rlx.config.debug_nans = False",
    ),
    Row(
        "mesh of more devices",
        "rlx.make_mesh((64,), ('data',))  # here",
        "ShardingError",
        "make_mesh needs 64 devices, but this process has 1.",
        "Set RLX_NUM_CPU_DEVICES=64 before importing rlx to divide the CPU into devices.",
        "rlx.make_mesh((1,), ('data',))",
    ),
    Row(
        "key of a dict with an array",
        "{x: 1}  # here",
        "TracerHashError",
        "An rlx array cannot be hashed, so it cannot be a dict key or a set member.",
        "Use a plain Python value as the key, for instance x.item() of a concrete scalar.",
        "{'x': 1}",
    ),
    Row(
        "name of an argument as argnums",
        "rlx.grad(lambda x, y: (x * y).sum(), argnums='y')(v, v)  # here",
        "OptionError",
        "The derivative of <lambda> got argnums='y'.",
        "argnums is the number of a positional argument, counted from 0, or a tuple of such",
        "rlx.grad(lambda x, y: (x * y).sum(), argnums=1)(v, v)",
    ),
    Row(
        "point given to grad itself",
        "rlx.grad(lambda x: x.sum(), v)(v)  # here",
        "OptionError",
        "The derivative of <lambda> got argnums=Array",
        "argnums is the number of a positional argument, counted from 0, or a tuple of such",
        "rlx.grad(lambda x: x.sum())(v)",
    ),
    Row(
        "tree.map with swapped arguments",
        "rlx.tree.map({'w': v}, jnp.sin)  # here",
        "InputTypeError",
        "tree.map takes a function as its first argument, but got a dict with the keys 'w'.",
        "Write rlx.tree.map(function, tree).",
        "rlx.tree.map(jnp.sin, {'w': v})",
    ),
    Row(
        "attribute of torch that is set",
        "v.requires_grad = True  # here",
        "MissingNameError",
        "An array has no attribute requires_grad.",
        "Derivatives are of functions: rlx.grad(f)(x).",
        "rlx.grad(lambda v: v.sum())(v)",
    ),
    Row(
        "assignment to x.at",
        "v.at[0] = 3.0  # here",
        "ImmutableArrayError",
        "x.at[index] = value does not work: rlx arrays are immutable.",
        "Write x = x.at[index].set(value).",
        "v = v.at[0].set(3.0)",
    ),
    Row(
        "x.at called",
        "v.at(0).set(3.0)  # here",
        "InputTypeError",
        "x.at(...) was called, but takes its index in brackets.",
        "Write x.at[index].set(value).",
        "v.at[0].set(3.0)",
    ),
    Row(
        "branches of switch that are not in a list",
        "lax.switch(0, jnp.sin, jnp.cos, v)  # here",
        "ControlFlowTypeError",
        "lax.switch takes a sequence of functions as branches, but got function <function sin at",
        "Write rlx.lax.switch(index, [f, g], x).",
        "lax.switch(0, [jnp.sin, jnp.cos], v)",
    ),
    Row(
        "shape in two arguments",
        "jnp.zeros(2, 3)  # here",
        "DtypeError",
        "3 is not a dtype that rlx has.",
        "A shape is one argument: zeros((2, 3)), not zeros(2, 3). x.reshape(shape) changes the",
        "jnp.zeros((2, 3))",
    ),
    Row(
        "shape of random numbers in two arguments",
        "random.normal(key, 2, 3)  # here",
        "DtypeError",
        "3 is not a dtype that rlx has.",
        "A shape is one argument: zeros((2, 3)), not zeros(2, 3). x.reshape(shape) changes the",
        "random.normal(key, (2, 3))",
    ),
    Row(
        "view as a shape",
        "x.view(-1)  # here",
        "DtypeError",
        "-1 is not a dtype that rlx has.",
        "A shape is one argument: zeros((2, 3)), not zeros(2, 3). x.reshape(shape) changes the",
        "x.reshape(-1)",
    ),
    Row(
        "misspelt name of a switch of JAX",
        "rlx.config.update('jax_enable_x46', True)  # here",
        "MissingNameError",
        "rlx has no switch named 'enable_x46'.",
        "Did you mean 'enable_x64'?",
        "rlx.config.update('jax_debug_nans', False)",
    ),
    Row(
        "numbers of classes as one-hot labels",
        "optim.softmax_cross_entropy(jnp.ones((3, 3)), jnp.array([0, 1, 2]))  # here",
        "DtypeError",
        "optim.softmax_cross_entropy takes one label for each class, but got int32[3] for logits",
        "These labels number the classes: use optim.softmax_cross_entropy_with_integer_labels,",
        "optim.softmax_cross_entropy_with_integer_labels(jnp.ones((3, 3)), jnp.array([0, 1, 2]))",
    ),
    Row(
        "scalar by keyword under vmap",
        "rlx.vmap(lambda x, y: x + y)(v, y=1.0)  # here",
        "VmapAxisError",
        "vmap was asked to map axis 0 of an argument of shape (), which has 0 axes.",
        "Use an axis that the argument has, or None to leave it unmapped. Keyword arguments are",
        "rlx.vmap(lambda x, y: x + y, in_axes=(0, None))(v, 1.0)",
    ),
    Row(
        "image with its channels last",
        "lax.conv(jnp.ones((1, 8, 8, 3)), jnp.ones((3, 3, 3, 4)), (1, 1), 'SAME')  # here",
        "ShapeError",
        "conv_general_dilated got 8 input features, 1 feature groups and a kernel for 3 features.",
        "Input features must equal the kernel's times feature_group_count. The default layouts",
        "lax.conv(jnp.ones((1, 3, 8, 8)), jnp.ones((4, 3, 3, 3)), (1, 1), 'SAME')",
    ),
    Row(
        "body of fori_loop without the counter",
        "lax.fori_loop(0, 3, lambda value: value + 1, v)  # here",
        "TypeError",
        "<lambda>() takes 1 positional argument but 2 were given",
        "fori_loop(lower, upper, body_fun, init_val) calls body_fun(i, value).",
        "lax.fori_loop(0, 3, lambda i, value: value + 1, v)",
    ),
    Row(
        "body of scan without the element",
        "lax.scan(lambda carry: carry, 0.0, v)  # here",
        "TypeError",
        "<lambda>() takes 1 positional argument but 2 were given",
        "scan(f, init, xs) calls f(carry, x), where x is None without xs.",
        "lax.scan(lambda carry, x: (carry + x, None), 0.0, v)",
    ),
    Row(
        "while_loop with a carry in parts",
        "lax.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x), (0, v))  # here",
        "TypeError",
        "<lambda>() missing 1 required positional argument: 'x'",
        "while_loop calls cond_fun(value) and body_fun(value): several values are one tuple,",
        "lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1]), (0, v))",
    ),
    Row(
        "branch of cond without the operand",
        "lax.cond(x.sum() > 0, lambda: v, lambda v: v, v)  # here",
        "TypeError",
        "<lambda>() takes 0 positional arguments but 1 was given",
        "cond(predicate, true_fun, false_fun, *operands) calls the chosen function with all",
        "lax.cond(x.sum() > 0, lambda v: v, lambda v: -v, v)",
    ),
    Row(
        "call of a gradient without an argument",
        "rlx.grad(lambda w, x: (w * x).sum())(v)  # here",
        "TypeError",
        "<lambda>() missing 1 required positional argument: 'x'",
        "The transformed function takes the arguments of the original one: pass all of them to",
        "rlx.grad(lambda w, x: (w * x).sum())(v, v)",
    ),
    Row(
        "call of a jitted function without an argument",
        "rlx.jit(lambda w, x: w * x)(v)  # here",
        "TypeError",
        "<lambda>() missing 1 required positional argument: 'x'",
        "The transformed function takes the arguments of the original one: pass all of them to",
        "rlx.jit(lambda w, x: w * x)(v, v)",
    ),
    Row(
        "max of two arrays",
        "jnp.max(v, v)  # here",
        "DtypeError",
        "max got an array as axis: float32[3].",
        "Use rlx.numpy.maximum(x, y) to compare two arrays.",
        "jnp.maximum(v, v)",
    ),
    Row(
        "learning rate that is text",
        "optim.adam('1e-3')  # here",
        "InputTypeError",
        "The learning rate is of type str, which is not an array, a number, or a tree of them:",
        "Pass a number or a schedule. Parameters are arguments of init and update: state =",
        "optim.adam(1e-3)",
    ),
    Row(
        "parameters as learning rate",
        "optim.sgd([v])  # here",
        "InputTypeError",
        "The learning rate is of type list, which is not an array, a number, or a tree of them:",
        "Pass a number or a schedule. Parameters are arguments of init and update: state =",
        "optim.sgd(0.1)",
    ),
    Row(
        "state of another optimiser",
        "optim.adam(1e-3).update(v, optim.sgd(1e-3).init(v))  # here",
        "TreeMismatchError",
        "The optimiser's update got the state of another one: a part is EmptyState, which has no",
        "Make the state with state = optimizer.init(params). For a state from a file, pass load",
        "optim.adam(1e-3).update(v, optim.adam(1e-3).init(v))",
    ),
    Row(
        "save with swapped arguments",
        "rlx.save({'w': v}, folder + '/w.npz')  # here",
        "InputTypeError",
        "save got dict {'w': Array([1., 1., 1.], dtype=float32)} as path.",
        "Write rlx.save(path, value): the path is first.",
        "rlx.save(folder + '/w.npz', {'w': v})",
    ),
    Row(
        "in_axes of another structure",
        "rlx.vmap(lambda p: p['w'], in_axes=({'w': 0},))({'w': v, 'b': v})  # here",
        "VmapAxisError",
        "vmap got in_axes=({'w': 0},), which does not fit the arguments at [0]: a dict with the",
        "in_axes is an int, None, or a tree of both with the arguments' structure (or a prefix",
        "rlx.vmap(lambda p: p['w'], in_axes=({'w': 0, 'b': 0},))({'w': v, 'b': v})",
    ),
    Row(
        "policy that is not a function",
        "rlx.checkpoint(jnp.sin, policy='dots')(v)  # here",
        "OptionError",
        "checkpoint got policy='dots', which is not a function.",
        "Pass one of rlx.checkpoint_policies, for instance rlx.checkpoint_policies.dots_saveable.",
        "rlx.checkpoint(jnp.sin, policy=rlx.checkpoint_policies.dots_saveable)(v)",
    ),
    Row(
        "keys from a key",
        "list(key)  # here",
        "ShapeError",
        "iteration over a 0-d array: it has no axis.",
        "Use rlx.random.split(key, num).",
        "list(random.split(key, 2))",
    ),
    Row(
        "SciPy's function that rlx does not have",
        "rlx.scipy.optimize.root_scalar(jnp.sin, bracket=[3.0, 4.0])  # here",
        "MissingNameError",
        "rlx.scipy.optimize has no root_scalar.",
        "Outside of jit, scipy.optimize.root_scalar takes rlx arrays and rlx functions.",
        "__import__('scipy.optimize').optimize.root_scalar(jnp.sin, bracket=[3.0, 4.0])",
    ),
    Row(
        "SciPy's solver in jit",
        "rlx.jit(lambda y: rlx.scipy.optimize.curve_fit(lambda t, a: a * t, v, y)[0])(v)  # here",
        "ConcretizationTypeError",
        "curve_fit calls SciPy on the host, which needs values, but an argument is a traced float32[3].",
        "Call curve_fit outside of jit, grad and vmap. There, rlx.scipy.optimize.minimize(method='BFGS') minimises",
        "rlx.jit(lambda y: rlx.scipy.optimize.minimize(lambda a: ((a * v - y) ** 2).sum(), y[:1], method='BFGS').x)(v)",
    ),
    Row(
        "derivative for SciPy's minimize",
        "rlx.scipy.optimize.minimize(lambda p: (p**2).sum(), v, method='L-BFGS-B', jac=rlx.grad(jnp.sum))  # here",
        "OptionError",
        "minimize does not take jac.",
        "rlx derives the Jacobian from the program of the function: leave it out.",
        "rlx.scipy.optimize.minimize(lambda p: (p**2).sum(), v, method='L-BFGS-B')",
    ),
    Row(
        "method of SciPy's minimize",
        "rlx.scipy.optimize.minimize(lambda p: (p**2).sum(), v, method='newton')  # here",
        "OptionError",
        "minimize has no method 'newton'.",
        "Use 'BFGS' or 'L-BFGS', or SciPy's L-BFGS-B, TNC, SLSQP, trust-constr, CG, Newton-CG,",
        "rlx.scipy.optimize.minimize(lambda p: (p**2).sum(), v, method='BFGS')",
    ),
    Row(
        "count with a fraction",
        "jnp.linspace(0.0, 1.0, 10.0)  # here",
        "TypeError",
        "'float' object cannot be interpreted as an integer",
        "Sizes and counts are integers: use // or int(...).",
        "jnp.linspace(0.0, 1.0, 10)",
    ),
    Row(
        "length of a transform with a fraction",
        "jnp.fft.fft(v, n=6 / 2)  # here",
        "TypeError",
        "'float' object cannot be interpreted as an integer",
        "Sizes and counts are integers: use // or int(...).",
        "jnp.fft.fft(v, n=6 // 2)",
    ),
    Row(
        "NumPy's function that rlx does not have",
        "jnp.savetxt(folder + '/v.txt', v)  # here",
        "MissingNameError",
        "rlx.numpy has no savetxt.",
        "Outside of jit, numpy.savetxt takes rlx arrays and rlx functions.",
        "np.savetxt(folder + '/v.txt', v)",
    ),
    Row(
        "shuffle of a loader",
        "rlx.data.DataLoader([1, 2], 1, shuffle=True)  # here",
        "TypeError",
        "DataLoader.__init__() got an unexpected keyword argument 'shuffle'",
        "Pass key=rlx.random.key(seed) to rlx.data.DataLoader, or seed= to rlx.data.batches.",
        "rlx.data.DataLoader([1, 2], 1, key=key)",
    ),
    Row(
        "workers of a loader of torch",
        "rlx.data.DataLoader([1, 2], 1, num_workers=2)  # here",
        "TypeError",
        "DataLoader.__init__() got an unexpected keyword argument 'num_workers'",
        "Write workers= instead of num_workers=.",
        "rlx.data.DataLoader([1, 2], 1, workers=2)",
    ),
    Row(
        "batches of no rows",
        "rlx.data.batches({'x': np.ones(3)}, 0)  # here",
        "OptionError",
        "A batch needs at least one row, got 0.",
        "Pass a size of at least 1.",
        "rlx.data.batches({'x': np.ones(3)}, 1)",
    ),
    Row(
        "text as a leaf of sin",
        "jnp.sin({'x': v})  # here",
        "InputTypeError",
        "An argument of sin is of type dict, which is not an array, a number, or a tree of them:",
        "Pass an array or a number.",
        "rlx.tree.map(jnp.sin, {'x': v})",
    ),
    Row(
        "SciPy inside of jit",
        "rlx.jit(lambda x: __import__('scipy.sparse').sparse.eye(3) @ x)(v)  # here",
        "TracerArrayConversionError",
        "A NumPy function (np.asarray or another) needs the value of a traced float32[3], which",
        "Use the function of the same name in rlx.numpy or rlx.scipy, or rlx.pure_callback for",
        "rlx.jit(lambda x: jnp.eye(3) @ x)(v)",
    ),
    Row(
        "rule of custom_vjp without the static argument",
        (
            "rule = rlx.custom_vjp(lambda n, x: x * n, nondiff_argnums=(0,))\n"
            "rule.defvjp(lambda n, x: (x * n, None), lambda r, g: (g,))\n"
            "rlx.grad(rule, argnums=1)(2, 3.0)  # here"
        ),
        "TypeError",
        "<lambda>() takes 2 positional arguments but 3 were given",
        "fwd takes the function's arguments and returns (result, residuals); bwd takes the",
        (
            "rule = rlx.custom_vjp(lambda n, x: x * n, nondiff_argnums=(0,))\n"
            "rule.defvjp(lambda n, x: (x * n, None), lambda n, r, g: (n * g,))\n"
            "rlx.grad(rule, argnums=1)(2, 3.0)"
        ),
    ),
    Row(
        "format of a vector",
        "print(f'{v:.2f}')  # here",
        "InputTypeError",
        "unsupported format string '.2f' for an array of shape (3,).",
        "Format one element, x[i], or write np.array2string(np.asarray(x), precision=3).",
        "print(f'{v[0]:.2f}')",
    ),
    Row(
        "restore with the keyword of load",
        "rlx.CheckpointManager(folder).restore(like={'w': v})  # here",
        "TypeError",
        "CheckpointManager.restore() got an unexpected keyword argument 'like'",
        "Write template= instead of like=.",
        "rlx.CheckpointManager(folder).all_steps()",
    ),
    Row(
        "checkify of JAX's path",
        "rlx.checkify.checkify(lambda x: x)(v)  # here",
        "MissingNameError",
        "rlx has no checkify.",
        "Write rlx.experimental.checkify.",
        "rlx.experimental.checkify.checkify(lambda x: x)(v)",
    ),
    Row(
        "dlpack of JAX's path",
        "rlx.dlpack.from_dlpack(v)  # here",
        "MissingNameError",
        "rlx has no dlpack.",
        "Write rlx.numpy.from_dlpack(x); arrays of rlx are passed to from_dlpack of other libraries.",
        "jnp.from_dlpack(v)",
    ),
    Row(
        "vmap with an axis",
        "rlx.vmap(lambda a: a, axis=0)(v)  # here",
        "TypeError",
        "vmap() got an unexpected keyword argument 'axis'",
        "Write in_axes= instead of axis=.",
        "rlx.vmap(lambda a: a, in_axes=0)(v)",
    ),
    Row(
        "SciPy's csr_matrix",
        "rlx.sparse.csr_matrix(x)  # here",
        "MissingNameError",
        "rlx.sparse has no csr_matrix.",
        "Write rlx.sparse.CSR(data, indices, indptr, shape), or rlx.sparse.fromscipy(matrix).",
        "rlx.sparse.CSR.from_dense(x)",
    ),
    Row(
        "JAX's BCOO",
        "rlx.sparse.BCOO.fromdense(x)  # here",
        "MissingNameError",
        "rlx.sparse has no BCOO.",
        "Write rlx.sparse.COO(data, row, col, shape), or rlx.sparse.fromscipy(matrix).",
        "rlx.sparse.COO.from_dense(x)",
    ),
    Row(
        "SciPy's toarray",
        "rlx.sparse.eye(3).toarray()  # here",
        "MissingNameError",
        "rlx.sparse.CSR has no toarray.",
        "Write A.todense().",
        "rlx.sparse.eye(3).todense()",
    ),
    Row(
        "element of a sparse matrix",
        "rlx.sparse.eye(3)[0, 0]  # here",
        "UnsupportedError",
        "A CSR matrix was indexed.",
        "Write A.todense()[index]; A.data has the stored elements.",
        "rlx.sparse.eye(3).todense()[0, 0]",
    ),
    Row(
        "sparse matrix in a function of arrays",
        "jnp.dot(rlx.sparse.eye(3), v)  # here",
        "InputTypeError",
        "A function of arrays got a sparse matrix: CSR(float64[3, 3], nnz=3).",
        "Write A @ x for a product, and A.todense() for an array.",
        "rlx.sparse.eye(3) @ v",
    ),
    Row(
        "sparse product of sizes that differ",
        "rlx.sparse.eye(3) @ jnp.ones(4)  # here",
        "ShapeError",
        "A sparse matrix of shape (3, 3) was multiplied with an array of shape (4,).",
        "The axis that is summed over has 3 elements.",
        "rlx.sparse.eye(3) @ v",
    ),
    Row(
        "dense matrix in a sparse solver",
        "rlx.sparse.spsolve(jnp.eye(3), v)  # here",
        "InputTypeError",
        "spsolve got ConcreteArray for a sparse matrix.",
        "Use sparse.from_dense(A); dense systems are solved by rlx.numpy.linalg.solve.",
        "rlx.sparse.spsolve(rlx.sparse.from_dense(jnp.eye(3)), v)",
    ),
    Row(
        "tolerance of a solver",
        "rlx.sparse.cg(rlx.sparse.eye(3), v, tolerance=1e-3)  # here",
        "TypeError",
        "cg() got an unexpected keyword argument 'tolerance'",
        "Write tol= instead of tolerance=.",
        "rlx.sparse.cg(rlx.sparse.eye(3), v, tol=1e-3)",
    ),
    Row(
        "sparse matrix of a traced array",
        "rlx.jit(lambda a: rlx.sparse.from_dense(a).nnz)(x)  # here",
        "ConcretizationTypeError",
        "CSR.from_dense got a traced array: the number of its nonzero elements is unknown.",
        "Pass it as nse, or make the matrix outside of the compiled function.",
        "rlx.jit(lambda a: rlx.sparse.from_dense(a, nse=6).nnz)(x)",
    ),
    Row(
        "camera that is None",
        "rlx.splat.render(x, x, x, v, x, None, 8, 8)  # here",
        "InputTypeError",
        "splat.render got NoneType for the camera.",
        "Use rlx.splat.Camera.",
        "rlx.splat.Camera.look_at((0.0, 0.0, -5.0), (0.0, 0.0, 0.0), fov_y=50.0, width=8, height=8)",
    ),
    Row(
        "curve of another size than its data",
        "rlx.scipy.optimize.curve_fit(lambda x, a: a * x, v, jnp.ones(4))  # here",
        "ShapeError",
        "curve_fit got a function with 3 values for ydata of 4.",
        "f(xdata, *parameters) returns one value for each element of ydata.",
        "rlx.scipy.optimize.curve_fit(lambda x, a: a * x, v, v)",
    ),
    Row(
        "method of least_squares",
        "rlx.scipy.optimize.least_squares(lambda x: x - 1, v, method='newton')  # here",
        "OptionError",
        "least_squares got method='newton'.",
        "Pass 'trf', 'dogbox' or 'lm'.",
        "rlx.scipy.optimize.least_squares(lambda x: x - 1, v, method='lm')",
    ),
    Row(
        "root of another number of equations",
        "rlx.scipy.optimize.root(lambda x: jnp.ones(4), v)  # here",
        "ShapeError",
        "root got a function with 4 results for 3 unknowns.",
        "Return one number for each unknown; least_squares takes any number.",
        "rlx.scipy.optimize.root(lambda x: x - 1, v)",
    ),
    Row(
        "odeint of SciPy's path",
        "rlx.scipy.integrate.odeint(lambda y, t: -y, 1.0, v)  # here",
        "MissingNameError",
        "rlx.scipy.integrate has no odeint.",
        "Write rlx.experimental.ode.odeint(f, y0, t).",
        "rlx.experimental.ode.odeint(lambda y, t: -y, 1.0, jnp.arange(3.0))",
    ),
    Row(
        "odeint's arguments swapped",
        "rlx.experimental.ode.odeint(lambda t, y: -y['a'], {'a': 1.0}, v)  # here",
        "InputTypeError",
        "An array was indexed with the string 'a'.",
        "Indices are integers, slices and masks. If this should be a dict, look at the order of the arguments:",
        "rlx.experimental.ode.odeint(lambda y, t: {'a': -y['a']}, {'a': 1.0}, jnp.arange(3.0))",
    ),
    Row(
        "arange with a step of 0",
        "jnp.arange(0, 10, 0)  # here",
        "OptionError",
        "arange got step=0.",
        "Pass a positive or negative step, or linspace(start, stop, num).",
        "jnp.arange(0, 10, 1)",
    ),
    Row(
        "dtype by position",
        "jnp.mean(v, 0, 1)  # here",
        "DtypeError",
        "1 is not a dtype that rlx has.",
        "The dtype is the argument in this place: pass one such as rlx.numpy.float32.",
        "jnp.mean(v, 0)",
    ),
    Row(
        "torch's size()",
        "x.size()  # here",
        "TypeError",
        "'int' object is not callable",
        "Write x.size, without parentheses.",
        "x.size",
    ),
    Row(
        "torch's size(0)",
        "x.size(0)  # here",
        "TypeError",
        "'int' object is not callable",
        "Write x.shape[0].",
        "x.shape[0]",
    ),
    Row(
        "NumPy's shape called",
        "x.shape()  # here",
        "TypeError",
        "'tuple' object is not callable",
        "Write x.shape, without parentheses.",
        "x.shape",
    ),
    Row(
        "parentheses for an index",
        "v[0](1)  # here",
        "TypeError",
        "'ConcreteArray' object is not callable",
        "An array is not a function: write brackets for an index, x[i], and * for a product.",
        "v[0] * 1",
    ),
    Row(
        "update with +=",
        "v.at[0] += 1  # here",
        "TypeError",
        "unsupported operand type(s) for +=: 'IndexReference' and 'int'",
        "Write x = x.at[index].add(values).",
        "v = v.at[0].add(1)",
    ),
    Row(
        "update without values",
        "v.at[0].set()  # here",
        "TypeError",
        "IndexReference.set() missing 1 required positional argument: 'values'",
        "Its arguments are set(self, values, **options).",
        "v.at[0].set(0.0)",
    ),
    Row(
        "len of a scalar",
        "len(jnp.array(3.0))  # here",
        "ShapeError",
        "len() of a 0-d array: it has no axis.",
        "Use x.size, or give the array an axis with x[None].",
        "len(v)",
    ),
    Row(
        "descending order by reverse",
        "jnp.sort(v, reverse=True)  # here",
        "TypeError",
        "sort() got an unexpected keyword argument 'reverse'",
        "Write descending= instead of reverse=.",
        "jnp.sort(v, descending=True)",
    ),
    Row(
        "bins by a rule",
        "jnp.histogram(v, bins='auto')  # here",
        "UnsupportedError",
        "histogram got bins='auto'.",
        "Pass a number, or the edges: np.histogram_bin_edges(x, bins) computes them.",
        "jnp.histogram(v, bins=3)",
    ),
    Row(
        "shape as the bound",
        "random.randint(key, 0, 10, (3,))  # here",
        "InputTypeError",
        "random.randint got the shape (3,) as its maxval.",
        "Write randint(key, shape, minval, maxval).",
        "random.randint(key, (3,), 0, 10)",
    ),
    Row(
        "fraction folded into a key",
        "random.fold_in(key, 1.5)  # here",
        "DtypeError",
        "random.fold_in takes an integer, but got weak float32[].",
        "Convert it with int(...).",
        "random.fold_in(key, 1)",
    ),
    Row(
        "array as the key of permutation",
        "random.permutation(v, key)  # here",
        "InputTypeError",
        "random.permutation takes a key, but got an array float32[3].",
        "Keys are made by rlx.random.key(seed); raw ones of 'threefry2x32' are uint32 arrays of shape (..., 2).",
        "random.permutation(key, v)",
    ),
    Row(
        "attention of other features",
        "nn.dot_product_attention(jnp.ones((2, 5, 16)), jnp.ones((2, 5, 8)), jnp.ones((2, 5, 8)))  # here",
        "ShapeError",
        "nn.dot_product_attention got query (2, 5, 16), key (2, 5, 8) and value (2, 5, 8).",
        "Shapes are (B, T, N, H), (B, S, K, H) and (B, S, K, H), with or without B, and N a multiple of K.",
        "nn.dot_product_attention(*[jnp.ones((2, 5, 8))] * 3)",
    ),
    Row(
        "initialiser called with a key",
        "nn.initializers.he_normal(key, (3, 3))  # here",
        "InputTypeError",
        "An initialiser's in_axis is an axis number or several, got key<fry>[].",
        "Make the initialiser first: rlx.nn.initializers.he_normal()(key, shape).",
        "nn.initializers.he_normal()(key, (3, 3))",
    ),
    Row(
        "optimiser that was not called",
        "optim.chain(optim.adam, optim.sgd(0.1)).init(v)  # here",
        "InputTypeError",
        "adam is not a gradient transformation.",
        "Call it: rlx.optim.adam(...) returns one.",
        "optim.chain(optim.adam(1e-3), optim.sgd(0.1)).init(v)",
    ),
    Row(
        "labels without a transformation",
        "optim.multi_transform({'a': optim.sgd(0.1)}, {'w': 'b'}).init({'w': v})  # here",
        "TreeMismatchError",
        "optim.partition got parameters with the labels 'b', which have no transformation.",
        "The labels of the transformations are 'a'.",
        "optim.multi_transform({'b': optim.sgd(0.1)}, {'w': 'b'}).init({'w': v})",
    ),
    Row(
        "accumulation over a fraction of steps",
        "optim.MultiSteps(optim.sgd(0.1), 2.5)  # here",
        "OptionError",
        "optim.MultiSteps got every_k_schedule=2.5.",
        "Pass an integer, or a function from the number of the update to an integer.",
        "optim.MultiSteps(optim.sgd(0.1), 2)",
    ),
    Row(
        "pair of vjp called",
        "rlx.vjp(lambda w: w * 2, v)(v)  # here",
        "TypeError",
        "'tuple' object is not callable",
        "vjp returns a pair: result, pullback = rlx.vjp(lambda w: w * 2, v).",
        "rlx.vjp(lambda w: w * 2, v)[1](v)",
    ),
    Row(
        "pullback with two cotangents",
        "rlx.vjp(lambda w: w * 2, v)[1](v, v)  # here",
        "TypeError",
        "Pullback.__call__() takes 2 positional arguments but 3 were given",
        "Its arguments are __call__(self, cotangent).",
        "rlx.vjp(lambda w: w * 2, v)[1](v)",
    ),
    Row(
        "shapes that do not fit inside vmap",
        "rlx.vmap(lambda a, b: a @ b)(x, jnp.ones((2, 4)))  # here",
        "ShapeError",
        "matmul got operands of shapes (3,) and (4,), which do not fit.",
        "The contracted sizes must be equal: transpose or reshape one of the operands. Inside of vmap, shapes",
        "rlx.vmap(lambda a, b: a @ b)(x, x)",
    ),
    Row(
        "print of a value without a format",
        "rlx.debug.print(v)  # here",
        "InputTypeError",
        "debug.print takes a format string first, but got float32[3].",
        "Write rlx.debug.print(\"x = {}\", x).",
        "rlx.debug.print('{}', v)",
    ),
    Row(
        "scan over a fraction of steps",
        "lax.scan(lambda c, a: (c, a), 0.0, None, length=2.5)  # here",
        "InputTypeError",
        "lax.scan got length=float 2.5.",
        "The number of steps is an integer: use // or int(...).",
        "lax.scan(lambda c, a: (c, a), 0.0, None, length=2)",
    ),
    Row(
        "body of fori_loop that returns nothing",
        "lax.fori_loop(0, 3, lambda i, c: None, 0.0)  # here",
        "ControlFlowTypeError",
        "lax.fori_loop: the body returns a carry of another structure than it takes: None for float32[].",
        "The body must return a carry with the structure of the initial one: the same nesting of tuples, lists",
        "lax.fori_loop(0, 3, lambda i, c: c, 0.0)",
    ),
    Row(
        "cond without a second branch",
        "lax.cond(True, lambda: 1)  # here",
        "TypeError",
        "cond() missing 1 required positional argument: 'false_fun'",
        "Its arguments are cond(pred, true_fun, false_fun, *operands, operand).",
        "lax.cond(True, lambda: 1, lambda: 2)",
    ),
    Row(
        "keep of a checkpoint manager",
        "rlx.CheckpointManager(folder, keep=3)  # here",
        "TypeError",
        "CheckpointManager.__init__() got an unexpected keyword argument 'keep'",
        "Write max_to_keep= instead of keep=.",
        "rlx.CheckpointManager(folder, max_to_keep=3)",
    ),
    Row(
        "description of a bar",
        "rlx.progress.scan(lambda c, a: (c, a), 0.0, v, description='x')  # here",
        "OptionError",
        "A progress bar got description='x'.",
        "Write label= instead of description=.",
        "rlx.progress.scan(lambda c, a: (c, a), 0.0, v, label='x', disable=True)",
    ),
    Row(
        "torch's batch_size",
        "rlx.data.batches(np.ones((4, 2)), batch_size=2)  # here",
        "TypeError",
        "batches() got an unexpected keyword argument 'batch_size'",
        "Write size= instead of batch_size=.",
        "rlx.data.batches(np.ones((4, 2)), size=2)",
    ),
    Row(
        "prefetch of a number",
        "rlx.data.prefetch(3)  # here",
        "InputTypeError",
        "prefetch takes an iterable, but got int 3.",
        "Pass batches: prefetch(rlx.data.batches(...)).",
        "rlx.data.prefetch([3])",
    ),
    Row(
        "misspelt default dtype",
        "rlx.config.default_float = 'flaot32'  # here",
        "DtypeError",
        "config.default_float got 'flaot32', which is not a dtype.",
        "Did you mean 'float32'?",
        "rlx.config.default_float = 'float32'",
    ),
    Row(
        "inspect of a value",
        "rlx.inspect(v)  # here",
        "InputTypeError",
        "inspect takes a function, but got float32[3].",
        "Pass the function and not its result: inspect(f), not inspect(f(x)).",
        "rlx.inspect(lambda a: a + 1)(v)",
    ),
    Row(
        "inspect without arguments",
        "rlx.inspect(lambda a: a + 1).hir  # here",
        "AttributeError",
        "'function' object has no attribute 'hir'",
        "rlx.inspect(lambda a: a + 1) is a function: call it with arguments, rlx.inspect(lambda a: a +",
        "rlx.inspect(lambda a: a + 1)(v).hir",
    ),
    Row(
        "profile with the arguments",
        "rlx.profile(lambda a: a + 1, v)  # here",
        "OptionError",
        "profile got runs=float32[3].",
        "Pass the arguments to the result: rlx.profile(f)(*args).",
        "rlx.profile(lambda a: a + 1, 1)",
    ),
    Row(
        "saved without a path",
        "rlx.export.export(rlx.jit(lambda a: a))(v).save()  # here",
        "TypeError",
        "Exported.save() missing 1 required positional argument: 'path'",
        "Its arguments are save(self, path, vjp_order=0, *, object_code=False).",
        "rlx.export.export(rlx.jit(lambda a: a))(v).save(folder + '/f.rlx')",
    ),
    Row(
        "GGUF file by load",
        "rlx.gguf.load('a.gguf')  # here",
        "MissingNameError",
        "rlx.gguf has no load.",
        "Write rlx.gguf.GGUFFile(path), or rlx.lm.load(path) for a language model.",
        "rlx.gguf.GGUFFile",
    ),
    Row(
        "unflatten's arguments swapped",
        "rlx.tree.unflatten([1, 2], rlx.tree.structure((1, 2)))  # here",
        "InputTypeError",
        "tree.unflatten takes a structure first, but got a list of 2.",
        "Write rlx.tree.unflatten(treedef, leaves); rlx.tree.structure(tree) is the structure of a tree.",
        "rlx.tree.unflatten(rlx.tree.structure((1, 2)), [1, 2])",
    ),
    Row(
        "switch entered without a call",
        (
            "with rlx.enable_x64:  # here\n"
            "    pass"
        ),
        "TypeError",
        "'function' object does not support the context manager protocol",
        "Call it: with rlx.enable_x64():",
        (
            "with rlx.enable_x64():\n"
            "    pass"
        ),
    ),
    Row(
        "module of torch's path",
        "import rlx.nn.functional  # here",
        "ModuleNotFoundError",
        "No module named 'rlx.nn.functional'",
        "The functions are in rlx.nn and rlx.numpy.",
        "import rlx.nn",
    ),
    Row(
        "import of torch's Tensor",
        "from rlx import Tensor  # here",
        "ImportError",
        "cannot import name 'Tensor' from 'rlx'",
        "Write rlx.numpy.array(values).",
        "from rlx import Array",
    ),
    Row(
        "import of torch's cat",
        "from rlx.numpy import cat  # here",
        "ImportError",
        "cannot import name 'cat' from 'rlx.numpy'",
        "Write rlx.numpy.concatenate(arrays, axis).",
        "from rlx.numpy import concatenate",
    ),
    Row(
        "import of a misspelt name",
        "from rlx.optim import adamm  # here",
        "ImportError",
        "cannot import name 'adamm' from 'rlx.optim'",
        "Did you mean adam, nadam or adamw?",
        "from rlx.optim import adam",
    ),
    Row(
        "class of layers",
        "class Net(nn.Module): ...  # here",
        "MissingNameError",
        "rlx.nn has no Module.",
        "Layers are functions of arrays, and parameters are trees: docs/layers.md shows layers, losses and a",
        "nn.relu(v)",
    ),
    Row(
        "custom_jvp's rule without a tangent",
        (
            "f = rlx.custom_jvp(lambda a: a)\n"
            "f.defjvp(lambda p, t: p[0])\n"
            "rlx.grad(f)(1.0)  # here"
        ),
        "CustomRuleError",
        "The custom_jvp rule of lambda must return a pair (result, tangent), got float32[].",
        "Return (f(*primals), tangent) from the rule.",
        (
            "f = rlx.custom_jvp(lambda a: a)\n"
            "f.defjvp(lambda p, t: (p[0], t[0]))\n"
            "rlx.grad(f)(1.0)"
        ),
    ),
)
LEAST = 200  # rows that are answered with line and remedy


def scope(folder: Path) -> dict[str, Any]:
    """The names that the snippets use."""
    modules = {"np": np, "rlx": rlx, "jnp": jnp, "math": math, "lax": rlx.lax, "nn": rlx.nn}
    modules |= {"optim": rlx.optim, "random": rlx.random}
    arrays = {"x": jnp.ones((2, 3)), "v": jnp.ones(3), "donated": jnp.ones(3), "key": rlx.random.key(0)}
    return {**modules, **arrays, "folder": str(folder)}


def run(code: str, names: dict[str, Any]) -> None:
    """Run a snippet as a file with source lines."""
    linecache.cache["snippet.py"] = len(code), None, code.splitlines(keepends=True), "snippet.py"
    exec(compile(code, "snippet.py", "exec"), names)


def answer_to(code: str, names: dict[str, Any]) -> tuple[str, str]:
    """The class of the error of a snippet, and its message as it is printed at the end of a program."""
    try:
        run(code, names)
    except Exception as error:
        with contextlib.redirect_stderr(io.StringIO()):
            sys.excepthook(type(error), error, error.__traceback__)
        return type(error).__name__, str(error)
    return "nothing", ""


def line_of(code: str) -> tuple[int, str]:
    """Number and text of the marked line."""
    return next((n, line) for n, line in enumerate(code.splitlines(), 1) if line.endswith("# here"))


@pytest.mark.selected("all")
@pytest.mark.parametrize("row", ROWS, ids=[row.title.replace(" ", "_") for row in ROWS])
def test_answers(row: Row, tmp_path: Path) -> None:
    kind, message = answer_to(row.code, scope(tmp_path))
    assert kind == row.error
    assert row.problem in message.splitlines()[0]
    if row.remedy:
        number, text = line_of(row.code)
        place, shown, remedy = message.splitlines()[1:4]
        assert place.startswith(f"  at snippet.py:{number}, in ")
        assert shown.strip() == text.strip()
        assert row.remedy in remedy
    run(row.fixed, scope(tmp_path))


def test_most_mistakes_are_answered() -> None:
    assert sum(bool(row.remedy) for row in ROWS) >= LEAST
    assert len({row.title for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize(
    "function", [jnp.sum, rlx.nn.softmax, rlx.optim.adam, rlx.random.normal, rlx.grad, rlx.lax.scan, jnp.linalg.norm]
)
def test_any_misspelt_keyword_is_answered(function: Any, tmp_path: Path) -> None:
    """With a similar keyword, or with all arguments."""
    kind, message = answer_to("function(zzz=1)  # here", {"function": function})
    assert kind == "TypeError"
    assert message.splitlines()[3].startswith("Its arguments are ")


def test_advice_names_what_exists() -> None:
    """Every name of rlx in the tables of names and keywords."""
    tables = [habits.ARRAY_NAMES, habits._ANYWHERE, refused_calls._ADVICE, *habits._MODULE_NAMES.values()]
    texts = " ".join(text for table in tables for text in table.values())
    paths = {path.rstrip(".") for path in re.findall(r"\brlx(?:\.[A-Za-z_]\w*)+", texts)}
    assert len(paths) > 50
    for path in paths:
        importlib.import_module("rlx.experimental.ode")
        assert reduce(getattr, path.split(".")[1:], rlx) is not None, path


def test_a_users_own_function_is_left_alone() -> None:
    """Only calls of rlx's functions get advice, also if a function of the user has the same name."""
    code = "def sum(x):\n    return x\nsum(1, dim=0)  # here"
    assert answer_to(code, {"jnp": jnp}) == ("TypeError", "sum() got an unexpected keyword argument 'dim'")


def test_functions_of_one_name_are_told_apart() -> None:
    """A program that uses np.sum and jnp.sum."""
    code = "np.sum([1])\njnp.sum(jnp.ones(2), dim=0)  # here"
    assert answer_to(code, {"np": np, "jnp": jnp})[1].endswith("Write axis= instead of dim=.")
    other = "jnp.sum(jnp.ones(2))\nnp.sum([1], dim=0)  # here"
    assert "instead of" not in answer_to(other, {"np": np, "jnp": jnp})[1]


def test_printed_errors_have_the_remedy() -> None:
    """Also where no hook prints them: logging.exception, print_exc, pytest."""
    try:
        jnp.sum(jnp.ones(3), dim=0)
    except TypeError:
        assert traceback.format_exc().rstrip().endswith("Write axis= instead of dim=.")


def test_a_refused_call_inside_of_a_transform_is_explained_at_once() -> None:
    """Without a hook: the error passes through rlx."""
    with pytest.raises(TypeError, match=r"Write axis= instead of dim=\."):
        rlx.grad(lambda x: jnp.sum(x, dim=0).sum())(jnp.ones((2, 3)))
    with pytest.raises(TypeError, match=r"Write axis= instead of dim=\."):
        rlx.nn.softmax(jnp.ones(3), dim=0)
