"""jax.interpreters.ad: derivative rules for a library's primitives (equinox, lineax)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.errors import CustomRuleError, MissingRuleError
from rlx.jaxnames.core import View
from rlx.jaxnames.named_primitives import PRIMITIVES
from rlx.jaxnames.rules import DERIVATIVES, TRANSPOSES, UndefinedPrimal, Zero, instantiate_zeros
from rlx.ops.families import add_values
from rlx.trace import primitive as rlx_primitive
from rlx.trace.builder import Tracer

__all__ = [
    "CustomVJPException",
    "JVPTracer",
    "UndefinedPrimal",
    "Zero",
    "add_jaxvals",
    "add_jaxvals_p",
    "add_tangents",
    "defbilinear",
    "deflinear",
    "deflinear2",
    "defjvp",
    "defjvp2",
    "defjvp_zero",
    "get_primitive_transpose",
    "instantiate_zeros",
    "is_undefined_primal",
    "primitive_jvps",
    "primitive_transposes",
    "zeros_like_aval",
]

CustomVJPException = CustomRuleError  # raised by forward mode through a custom_vjp (diffrax's tests)
primitive_jvps = DERIVATIVES
primitive_transposes = TRANSPOSES
add_jaxvals = add_values
add_jaxvals_p = PRIMITIVES["add_jaxvals_p"]


class JVPTracer(metaclass=View):
    """A value of a function that is being differentiated: here, of any function that is being traced.

    >>> import rlx
    >>> from rlx.jaxnames.ad import JVPTracer
    >>> rlx.grad(lambda x: [x * x, print(isinstance(x, JVPTracer))][0])(1.0)
    True
    Array(2., dtype=float32, weak_type=True)
    """

    of = Tracer


def is_undefined_primal(x: Any) -> bool:
    """Whether this is the placeholder of an operand that an equation is linear in."""
    return type(x) is UndefinedPrimal


def _zero(x: Any) -> bool:
    return isinstance(x, rlx_primitive.Zero)


def add_tangents(x: Any, y: Any) -> Any:
    """The sum of two tangents, either of which may be a Zero."""
    return y if _zero(x) else x if _zero(y) else add_values(x, y)


def get_primitive_transpose(p: Any) -> Callable[..., Any]:
    """The transpose rule of a library's primitive. Raises MissingRuleError if there is none."""
    if p not in primitive_transposes:
        raise MissingRuleError(f"The primitive {p} has no transpose rule.", "Register one by deflinear2.")
    return primitive_transposes[p]


def zeros_like_aval(aval: Any) -> Any:
    """Zeros of a type.

    >>> import rlx.compat
    >>> from rlx.jaxnames.ad import zeros_like_aval
    >>> zeros_like_aval(rlx.compat.typeof(3.0)).item()
    0.0
    """
    return instantiate_zeros(Zero(aval))


def defbilinear(prim: Any, lhs_rule: Callable[..., Any], rhs_rule: Callable[..., Any]) -> None:
    """A primitive that is linear in each of two operands: rule(cotangent, x, y, **params) -> its cotangent.

    >>> import rlx
    >>> from rlx.jaxnames.ad import defbilinear
    >>> from rlx.jaxnames.foreign_primitive import ForeignPrimitive
    >>> product = ForeignPrimitive("product")
    >>> _ = product.def_impl(lambda x, y: x * y)
    >>> defbilinear(product, lambda ct, x, y: ct * y, lambda ct, x, y: ct * x)
    >>> float(rlx.grad(product.bind)(1.0, 3.0))
    3.0
    """

    def transpose(cotangent: Any, x: Any, y: Any, **params: Any) -> tuple[Any, Any]:
        if is_undefined_primal(x):
            return lhs_rule(cotangent, x, y, **params), None
        return None, rhs_rule(cotangent, x, y, **params)

    defjvp(prim, lambda t, x, y, **p: prim.bind(t, y, **p), lambda t, x, y, **p: prim.bind(x, t, **p))
    primitive_transposes[prim] = transpose


def deflinear2(primitive: Any, transpose_rule: Callable[..., Any]) -> None:
    """A primitive that is linear in all operands: transpose_rule(cotangent, *operands, **params) -> cotangents.

    >>> from rlx.jaxnames.ad import deflinear2
    >>> from rlx.jaxnames.foreign_primitive import ForeignPrimitive
    >>> import rlx
    >>> triple = ForeignPrimitive("triple")
    >>> _ = triple.def_impl(lambda x: 3 * x)
    >>> deflinear2(triple, lambda ct, x: [300 * ct])
    >>> float(rlx.grad(triple.bind)(1.0))
    300.0
    """

    def jvp(primals: Any, tangents: Any, **params: Any) -> Any:
        out = primitive.bind(*primals, **params)
        if all(map(_zero, tangents)):
            outs = out if primitive.multiple_results else [out]
            zeros = [Zero.from_primal_value(x) for x in outs]
            return out, zeros if primitive.multiple_results else zeros[0]
        return out, primitive.bind(*map(instantiate_zeros, tangents), **params)

    primitive_jvps[primitive] = jvp
    primitive_transposes[primitive] = transpose_rule


def deflinear(primitive: Any, transpose_rule: Callable[..., Any]) -> None:
    """As deflinear2, for a rule that does not see the operands."""
    deflinear2(primitive, lambda cotangent, *_, **params: transpose_rule(cotangent, **params))


def defjvp2(primitive: Any, *rules: Callable[..., Any] | None) -> None:
    """A rule for each operand: rule(tangent, result, *operands, **params) -> the tangent of the result, or None.

    >>> import rlx
    >>> from rlx.jaxnames.ad import defjvp
    >>> from rlx.jaxnames.foreign_primitive import ForeignPrimitive
    >>> own = ForeignPrimitive("own")
    >>> _ = own.def_impl(lambda x, y: x * y)
    >>> defjvp(own, lambda t, x, y: 10 * t * y, None)
    >>> float(rlx.grad(own.bind)(1.0, 2.0))
    20.0
    """

    def jvp(primals: Any, tangents: Any, **params: Any) -> Any:
        out = primitive.bind(*primals, **params)
        total: Any = Zero.from_primal_value(out)
        for rule, tangent in zip(rules, tangents, strict=True):
            if rule is not None and not _zero(tangent):
                total = add_tangents(total, rule(tangent, out, *primals, **params))
        return out, total

    primitive_jvps[primitive] = jvp


def defjvp(primitive: Any, *rules: Callable[..., Any] | None) -> None:
    """As defjvp2, for rules that do not see the result."""
    hiding = [rule and (lambda t, _, *xs, rule=rule, **params: rule(t, *xs, **params)) for rule in rules]
    defjvp2(primitive, *hiding)


def defjvp_zero(primitive: Any) -> None:
    """A primitive without a derivative: all tangents of its results are zero."""

    def jvp(primals: Any, tangents: Any, **params: Any) -> Any:
        out = primitive.bind(*primals, **params)
        zeros = [Zero.from_primal_value(x) for x in (out if primitive.multiple_results else [out])]
        return out, zeros if primitive.multiple_results else zeros[0]

    primitive_jvps[primitive] = jvp
