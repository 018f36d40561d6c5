"""JAX's primitives by name: each is bound with JAX's operands and parameters, and records rlx's operation.

`translated` converts an equation of rlx to these primitives. A primitive of rlx that JAX lacks keeps its own name
and parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rlx import lax
from rlx.errors import UnsupportedError
from rlx.ir.program import Atom, Equation, Literal, Var
from rlx.ir.types import TensorType
from rlx.jaxnames.avals import AbstractArray, aval_of, tensor_type
from rlx.jaxnames.foreign_primitive import ForeignPrimitive
from rlx.jaxnames.jaxprs import ClosedJaxpr, staged
from rlx.lax import linalg
from rlx.ops.call import call, checkpoint, custom_jvp_call, custom_vjp_call
from rlx.ops.conditional import cond
from rlx.ops.scan import scan
from rlx.ops.stop_gradient import stop_gradient
from rlx.ops.while_loop import while_loop
from rlx.trace.flat import as_array
from rlx.trace.primitive import registry, type_of
from rlx.trace.tracing import close_over, trace_program

__all__ = ["PRIMITIVES", "NamedPrimitive", "translated"]


class NamedPrimitive:
    """One of JAX's primitives.

    >>> import rlx
    >>> from rlx.jaxnames.named_primitives import PRIMITIVES
    >>> PRIMITIVES["mul_p"].bind(2.0, 3.0)
    Array(6., dtype=float32, weak_type=True)
    """

    call_primitive = map_primitive = ref_primitive = False

    def __init__(self, name: str, function: Callable[..., Any], multiple_results: bool = False) -> None:
        self.name = name
        self.function = function
        self.multiple_results = multiple_results

    def bind(self, *args: Any, **params: Any) -> Any:
        """The operation on these operands: a list of results if there are several."""
        out = self.function(*args, **params)
        return list(out) if self.multiple_results else out

    impl = bind

    def bind_with_trace(self, trace: Any, args: Sequence[Any], *rest: Any) -> Any:
        """bind, for every trace."""
        return self.bind(*args, **rest[-1])

    def get_bind_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of bind."""
        return dict(params)

    def abstract_eval(self, *avals: Any, **params: Any) -> tuple[Any, frozenset[Any]]:
        """The avals of the results for operands of these avals, and effects."""

        def flat(*args: Any) -> list[Any]:
            out = self.bind(*args, **params)
            return list(map(as_array, out if self.multiple_results else [out]))

        program, _ = trace_program(flat, list(map(tensor_type, avals)), name=self.name)
        found: list[AbstractArray] = list(map(aval_of, program.output_types))
        return found if self.multiple_results else found[0], program.effects

    def __repr__(self) -> str:
        return self.name


Shown = tuple[Any, Sequence[Atom], Mapping[str, Any], Sequence[Var]]

# JAX's name -> rlx's name, of operations with the same operands and results; rlx.lax also has JAX's name
_SAME = {
    "abs": "absolute", "add": "add", "and": "bitwise_and", "clz": "count_leading_zeros", "div": "divide",
    "eq": "equal", "ge": "greater_equal", "gt": "greater", "le": "less_equal", "lt": "less", "max": "maximum",
    "min": "minimum", "ne": "not_equal", "neg": "negative", "not": "bitwise_not", "or": "bitwise_or", "pow": "power",
    "rem": "remainder", "sub": "subtract", "xor": "bitwise_xor", "regularized_incomplete_beta": "betainc",
    **{name: name for name in """atan2 bessel_i0e bessel_i1e ceil clamp complex conj digamma erf erf_inv erfc floor
    igamma igamma_grad_a igammac imag is_finite lgamma nextafter polygamma population_count random_gamma_grad real
    shift_left shift_right_arithmetic shift_right_logical sign square zeta""".split()},
}  # fmt: skip
_ACCURATE = """acos acosh asin asinh atan atanh cbrt cos cosh exp exp2 expm1 log log1p logistic rsqrt sin sinh sqrt tan
    tanh""".split()
_ROUNDINGS = {"round": 0, "even": 1, "away": 0}
_LAX_NAMES = {"and": "bitwise_and", "not": "bitwise_not", "or": "bitwise_or", "xor": "bitwise_xor"}
_LAX_NAMES |= {"regularized_incomplete_beta": "betainc"}

PRIMITIVES: dict[str, NamedPrimitive] = {}


def _define(name: str, function: Callable[..., Any], multiple_results: bool = False, known_as: str = "") -> None:
    PRIMITIVES[f"{known_as or name}_p"] = NamedPrimitive(name, function, multiple_results)


def _elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of lax, ignoring the accuracy and the dtype, which have no effect here."""

    def compute(*args: Any, accuracy: Any = None, out_dtype: Any = None) -> Any:
        return function(*args)

    return compute


for _name in (*_SAME, *_ACCURATE, "mul"):
    _define(_name, _elementwise(getattr(lax, _LAX_NAMES.get(_name, _name))))


def _dropping(function: Callable[..., Any], *dropped: str, **renamed: str) -> Callable[..., Any]:
    """A function called with JAX's parameters: some dropped, others renamed to the function's names."""

    def compute(*args: Any, **params: Any) -> Any:
        return function(*args, **{renamed.get(k, k): v for k, v in params.items() if k not in dropped})

    return compute


def _reduction(name: str) -> Callable[..., Any]:
    function, equation = getattr(lax, f"reduce_{name}"), registry[f"reduce_{name}"]
    # along no axes it is also an equation, as in the displayed program
    return lambda x, *, axes, out_sharding=None: function(x, axes) if axes else equation(as_array(x), axes=())


def _collective(name: str) -> Callable[..., Any]:
    function = getattr(lax, name)
    return lambda *xs, axes, axis_index_groups=None: [function(x, axes) for x in xs]


for _name in ("sum", "prod", "max", "min", "and", "or", "xor"):
    _define(f"reduce_{_name}", _reduction(_name))
for _name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
    _define(_name, getattr(lax, _name))
_define("argmin", lambda x, *, axes, index_dtype: lax.argmin(x, axes[0], index_dtype))
_define("argmax", lambda x, *, axes, index_dtype: lax.argmax(x, axes[0], index_dtype))
for _name in ("scatter", "scatter_add", "scatter_mul", "scatter_min", "scatter_max", "scatter_sub"):
    _known = _name.replace("scatter_", "scatter-") if _name == "scatter_add" else _name
    _define(_known, _dropping(getattr(lax, _name), "update_jaxpr", "update_consts"), known_as=_name)

_define("add_any", lax.add, known_as="add_jaxvals")
_define("integer_pow", lambda x, *, y: lax.integer_pow(x, y))
_define("round", lambda x, *, rounding_method: lax.round(x, rounding_method))
_define("select_n", lax.select_n)
_define(
    "convert_element_type", lambda x, *, new_dtype, weak_type=False, sharding=None: _convert(x, new_dtype, weak_type)
)
_define("bitcast_convert_type", lax.bitcast_convert_type)
_define(
    "broadcast_in_dim",
    lambda x, *, shape, broadcast_dimensions, sharding=None: lax.broadcast_in_dim(x, shape, broadcast_dimensions),
)
_define("reshape", lambda x, *, new_sizes, dimensions=None, sharding=None: lax.reshape(x, new_sizes, dimensions))
_define("transpose", lax.transpose)
_define("squeeze", lax.squeeze)
_define("rev", lax.rev)
_define("slice", lax.slice)
_define("pad", lax.pad)
_define("concatenate", lambda *xs, dimension: lax.concatenate(xs, dimension))
_define("iota", lambda *, dtype, shape, dimension, sharding=None: lax.broadcasted_iota(dtype, shape, dimension))
_define("dot_general", _dropping(lax.dot_general, "out_sharding"))
_define("dynamic_slice", lambda x, *starts, slice_sizes: lax.dynamic_slice(x, _of_one_dtype(starts), slice_sizes))
_define(
    "dynamic_update_slice",
    lambda x, update, *starts: lax.dynamic_update_slice(x, update, _of_one_dtype(starts)),
)
_define("gather", lax.gather)
_define("conv_general_dilated", lambda *args, **params: _convolution(*args, **params))
_define("sort", lambda *xs, dimension, is_stable, num_keys: _sorted(xs, dimension, is_stable, num_keys), True)
_define("top_k", lambda x, *, k, axis=-1: _top_k(x, k, axis), True)
_define("stop_gradient", stop_gradient)
_define("copy", lambda x: registry["copy"].bind(x))
_define("optimization_barrier", lambda *xs: lax.optimization_barrier(xs), True)
_define("reduce_precision", lax.reduce_precision)
_define("tile", lax.tile)
_define("split", lambda x, *, sizes, axis: lax.split(x, sizes, axis), True)
_define("clamp", lax.clamp)
_define("mulhi", lax.mulhi)
_define("fft", lax.fft)
_define("rng_bit_generator", lax.rng_bit_generator, True)
_define("axis_index", lax.axis_index)
_define("all_gather", lax.all_gather)
_define("all_to_all", lax.all_to_all)
_define("ppermute", lax.ppermute)
_define("device_put", lambda *xs, **_: list(xs), True)
for _name in ("psum", "pmax", "pmin"):
    _define(_name, _collective(_name), True)
for _name in ("cholesky", "eig", "eigh", "lu", "qr", "schur", "svd", "triangular_solve", "tridiagonal_solve"):
    _define(_name, getattr(linalg, _name), _name not in ("cholesky", "triangular_solve", "tridiagonal_solve"))
for _name in ("hessenberg", "householder_product", "tridiagonal"):
    _define(_name, getattr(linalg, _name), _name != "householder_product")


def _convert(x: Any, dtype: Any, weak: bool) -> Any:
    converted = lax.convert_element_type(x, dtype)
    wanted = type_of(converted).dtype
    return registry["convert"].bind(converted, dtype=wanted, weak=True) if weak else converted


def _sorted(operands: Sequence[Any], dimension: int, is_stable: bool, num_keys: int) -> Sequence[Any]:
    found = lax.sort(tuple(operands), dimension=dimension, is_stable=is_stable, num_keys=num_keys)
    return found if isinstance(found, (tuple, list)) else (found,)


def _top_k(x: Any, k: int, axis: int) -> Sequence[Any]:
    return lax.top_k(x, k, axis=axis)


def _convolution(lhs: Any, rhs: Any, **params: Any) -> Any:
    return lax.conv_general_dilated(lhs, rhs, **params)


# ------------------------------------------------------------------ calls and control flow
def _jit(*args: Any, jaxpr: Any, name: str = "f", **_: Any) -> Any:
    program, held = staged(jaxpr)
    return call(*held, *args, program=program, name=name)


def _call(*args: Any, call_jaxpr: Any = None, subfuns: Sequence[Any] = (), **_: Any) -> Any:
    """A jaxpr, or a function of flat arrays (linear_util.WrappedFun), as a separate equation."""
    if call_jaxpr is not None:
        return _jit(*args, jaxpr=call_jaxpr)
    (function,) = subfuns
    operands = list(map(as_array, args))
    program, captured = trace_program(
        lambda *xs: list(map(as_array, function.call_wrapped(*xs))), [x.type for x in operands], name=function.__name__
    )
    return call(*captured, *operands, program=program, name=program.name)


def _scan(*args: Any, jaxpr: Any, num_consts: int, num_carry: int, length: int, reverse: bool = False, **_: Any) -> Any:
    body, held = staged(jaxpr)
    return scan(
        *held, *args, body=body, constants=num_consts + len(held), carries=num_carry, length=length, reverse=reverse
    )


def _while(*args: Any, cond_jaxpr: Any, cond_nconsts: int, body_jaxpr: Any, body_nconsts: int) -> Any:
    condition, first = staged(cond_jaxpr)
    body, second = staged(body_jaxpr)
    return while_loop(
        *first, *args[:cond_nconsts], *second, *args[cond_nconsts:],
        condition=condition, condition_constants=cond_nconsts + len(first),
        body=body, body_constants=body_nconsts + len(second),
    )  # fmt: skip


def _cond(index: Any, *args: Any, branches: Sequence[Any], **_: Any) -> Any:
    found = [staged(branch) for branch in branches]
    held = [value for _, values in found for value in values]
    programs, before = [], 0
    for program, values in found:
        own, rest = program.inputs[: len(values)], program.inputs[len(values) :]
        others = [Var(type_of(value)) for value in held]
        others[before : before + len(values)] = own
        programs.append(program.replace(inputs=(*others, *rest)))
        before += len(values)
    return cond(lax.convert_element_type(index, "int32"), *held, *args, branches=tuple(programs))


def _of_one_dtype(starts: Sequence[Any]) -> list[Any]:
    """Start indices in the form that rlx.lax takes: equations of rlx have them in any integer dtypes."""
    widest = max((type_of(s).dtype for s in starts), key=lambda dtype: dtype.itemsize, default=None)
    return [lax.convert_element_type(s, widest) for s in starts]


def _remat(*args: Any, jaxpr: Any, policy: Any = None, **_: Any) -> Any:
    program, held = staged(jaxpr)
    return checkpoint(*held, *args, program=program, policy=policy)


def _custom_jvp(*args: Any, call_jaxpr: Any, jvp_jaxpr_fun: Any, num_consts: int, **_: Any) -> Any:
    program, held = staged(call_jaxpr)
    return custom_jvp_call(*args, program=close_over(program, held), rule=jvp_jaxpr_fun, captured=num_consts)


def _custom_vjp(*args: Any, call_jaxpr: Any, fwd_jaxpr_thunk: Any, bwd: Any, num_consts: int, **_: Any) -> Any:
    program, held = staged(call_jaxpr)
    return custom_vjp_call(
        *args, program=close_over(program, held), forward=fwd_jaxpr_thunk, backward=bwd, captured=num_consts
    )


_define("jit", _jit, True)
_define("core_call", _call, True, known_as="call")
_define("closed_call", _call, True)
_define("scan", _scan, True)
_define("while", _while, True)
_define("cond", _cond, True)
_define("remat2", _remat, True, known_as="remat")
_define("custom_jvp_call", _custom_jvp, True)
_define("custom_vjp_call", _custom_vjp, True)


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise UnsupportedError(
            f"JAX's primitive {name} has no counterpart among rlx's.",
            f"Call the function of rlx.lax instead: jax.lax.{name}, if there is one.",
        )

    return refuse


# no program has equations of these: rlx uses other operations
for _name in """after_all approx_top_k create_token custom_lin dce_sink empty2 eq_to get le_to linear_solve
    lt_to lu_pivots_to_permutation cholesky_update name ormqr ragged_all_to_all random_bits random_fold_in random_gamma
    random_seed random_split random_wrap random_unwrap reduce reduce_window reduce_window_max reduce_window_min
    reduce_window_sum remat_opt rng_uniform select_and_gather_add select_and_scatter select_and_scatter_add
    sharding_constraint stack stage swap symmetric_product threefry2x32 unstack""".split():
    _define(_name, _refusing(_name), known_as=_name)


# ------------------------------------------------------------------ rlx's equations as JAX's
def _call_params(e: Equation) -> tuple[str, dict[str, Any]]:
    p = e.params
    n = len(e.inputs)
    return "jit", {
        "jaxpr": p["program"], "name": p.get("name", "f"), "donated_invars": (False,) * n, "keep_unused": False,
        "inline": False,
    }  # fmt: skip


def _named(name: str, **renamed: str) -> Callable[[Equation], tuple[str, dict[str, Any]]]:
    """JAX's name of an operation, and of its parameters, in their order; "" is a parameter that is always None."""

    def spell(e: Equation) -> tuple[str, dict[str, Any]]:
        return name, {jax_name: e.params[own] if own else None for jax_name, own in renamed.items()}

    return spell


_SPELLED: dict[str, Callable[[Equation], tuple[str, dict[str, Any]]]] = {
    **{own: _named(name) for name, own in _SAME.items()},
    **{name: _named(name, accuracy="") for name in _ACCURATE},
    "multiply": _named("mul", out_dtype=""),
    "integer_power": _named("integer_pow", y="exponent"),
    "convert": lambda e: (
        "convert_element_type",
        {"new_dtype": e.params["dtype"], "weak_type": bool(e.params.get("weak")), "sharding": None},
    ),
    "bitcast": _named("bitcast_convert_type", new_dtype="dtype"),
    "broadcast_in_dim": _named("broadcast_in_dim", shape="shape", broadcast_dimensions="dims", sharding=""),
    "reshape": _named("reshape", new_sizes="shape", dimensions="", sharding=""),
    "transpose": _named("transpose", permutation="permutation"),
    "reverse": _named("rev", dimensions="axes"),
    "slice": _named("slice", start_indices="starts", limit_indices="limits", strides="strides"),
    "pad": _named("pad", padding_config="config"),
    "concatenate": _named("concatenate", dimension="axis"),
    "iota": lambda e: (
        "iota",
        {
            "dtype": e.params["type"].dtype,
            "shape": e.params["type"].shape,
            "dimension": e.params["axis"],
            "sharding": None,
        },
    ),
    **{f"reduce_{n}": _named(f"reduce_{n}", axes="axes") for n in ("prod", "max", "min", "and", "or", "xor")},
    "reduce_sum": _named("reduce_sum", axes="axes", out_sharding=""),
    **{n: _named(n, axis="axis", reverse="reverse") for n in "cumsum cumprod cummax cummin cumlogsumexp".split()},
    **{
        n: lambda e, n=n: (n, {"axes": (e.params["axis"],), "index_dtype": e.params["index_dtype"]})
        for n in ("argmax", "argmin")
    },
    "dynamic_slice": _named("dynamic_slice", slice_sizes="sizes"),
    "dynamic_update_slice": _named("dynamic_update_slice"),
    "dot_general": lambda e: (
        "dot_general",
        {
            "dimension_numbers": e.params["dimension_numbers"],
            "precision": (lax.Precision.HIGH,) * 2 if e.params.get("tf32") else None,
            "preferred_element_type": e.params["preferred_dtype"],
            "out_sharding": None,
        },
    ),  # fmt: skip
    "sort": lambda e: (
        "sort",
        {"dimension": e.params["axis"], "is_stable": True, "num_keys": e.params["keys"]},
    ),  # fmt: skip
    "call": _call_params,
    "block": _call_params,
    "checkpoint": lambda e: (
        "remat",
        {"jaxpr": e.params["program"], "prevent_cse": True, "differentiated": False, "policy": e.params["policy"]},
    ),  # fmt: skip
    "custom_jvp_call": lambda e: (
        "custom_jvp_call",
        {
            "call_jaxpr": e.params["program"],
            "jvp_jaxpr_fun": e.params["rule"],
            "num_consts": e.params["captured"],
            "symbolic_zeros": False,
        },
    ),  # fmt: skip
    "custom_vjp_call": lambda e: (
        "custom_vjp_call",
        {
            "call_jaxpr": e.params["program"],
            "fwd_jaxpr_thunk": e.params["forward"],
            "bwd": e.params["backward"],
            "num_consts": e.params["captured"],
            "symbolic_zeros": False,
        },
    ),  # fmt: skip
    "scan": lambda e: (
        "scan",
        {
            "reverse": e.params["reverse"],
            "length": e.params["length"],
            "jaxpr": e.params["body"],
            "num_consts": e.params["constants"],
            "num_carry": e.params["carries"],
            "linear": (False,) * len(e.inputs),
            "unroll": 1,
        },
    ),  # fmt: skip
    "while_loop": _named(
        "while",
        cond_nconsts="condition_constants",
        cond_jaxpr="condition",
        body_nconsts="body_constants",
        body_jaxpr="body",
    ),  # fmt: skip
    "cond": _named("cond", branches="branches"),
    "stop_gradient": _named("stop_gradient"),
    "copy": _named("copy"),
    "optimization_barrier": _named("optimization_barrier"),
}
_own: dict[Any, NamedPrimitive] = {}


def _own_name(primitive: Any) -> Any:
    """An object for a primitive of rlx that JAX lacks; a library's primitive is its own object."""
    if isinstance(primitive, ForeignPrimitive):
        return primitive
    if primitive not in _own:

        def bind(*args: Any, **params: Any) -> Any:
            return primitive.bind(*args, **{name: _program_of(value) for name, value in params.items()})

        _own[primitive] = NamedPrimitive(primitive.name, bind, primitive.multiple)
    return _own[primitive]


def _program_of(value: Any) -> Any:
    """A parameter of rlx from its displayed form: programs instead of jaxprs."""
    if isinstance(value, tuple) and any(isinstance(v, ClosedJaxpr) for v in value):
        return tuple(map(_program_of, value))
    return close_over(*staged(value)) if isinstance(value, ClosedJaxpr) else value


def _broadcast(e: Equation) -> Iterator[Shown]:
    """Equations that bring operands to the result's shape. Literal numbers stay, except for select."""
    shape = e.outputs[0].type.shape
    cases = e.primitive.name == "select"
    for n, a in enumerate(e.inputs):
        if (
            a.type.shape != shape
            and not (isinstance(a, Literal) and not cases)
            and not (cases and n == 0 and not a.type.shape)
        ):
            wide = Var(TensorType(shape, a.type.dtype, a.type.weak))
            dims = tuple(range(len(shape) - a.type.ndim, len(shape)))
            yield (
                PRIMITIVES["broadcast_in_dim_p"],
                (a,),
                {"shape": shape, "broadcast_dimensions": dims, "sharding": None},
                (wide,),
            )


def translated(e: Equation) -> Iterator[Shown]:
    """An equation as JAX's: (primitive, operands, parameters, results), after equations that prepare its operands.

    >>> import rlx
    >>> from rlx.jaxnames.named_primitives import translated
    >>> program = rlx.make_program(lambda x: x ** 3)(3.0)
    >>> [(p, params) for e in program.equations for p, _, params, _ in translated(e)]
    [(integer_pow, {'y': 3})]
    """
    inputs: Sequence[Atom] = e.inputs
    if e.primitive.broadcasts and e.outputs[0].type.shape:
        for shown in _broadcast(e):
            yield shown
            (narrow,), (wide,) = shown[1], shown[3]
            inputs = [wide if a is narrow else a for a in inputs]
    if e.primitive.name == "select":
        predicate, on_true, on_false = inputs
        yield PRIMITIVES["select_n_p"], (predicate, on_false, on_true), {}, e.outputs
        return
    spell = None if isinstance(e.primitive, ForeignPrimitive) else _SPELLED.get(e.primitive.name)
    if spell is None:
        yield _own_name(e.primitive), inputs, e.params, e.outputs
        return
    name, params = spell(e)
    yield PRIMITIVES[f"{name}_p"], inputs, params, e.outputs
