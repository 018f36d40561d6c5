"""Selection, complex parts, and changes of dtype."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from rlx.array import is_divided, wrap
from rlx.errors import DtypeError
from rlx.ir.index_sets import Elements, Reading, numbered
from rlx.ir.types import TensorType, bits_of, is_complex, is_float, is_inexact, is_integer, is_key, is_narrow
from rlx.ops.families import (
    Elementwise,
    NonDifferentiable,
    broadcast_shapes,
    broadcast_to,
    in_compute_dtype,
    refuse_keys,
    sample_array,
)
from rlx.trace.places import followed
from rlx.trace.primitive import Linear, Sample, Zero, host_operand, primitive, registry, type_of

__all__ = [
    "bitcast",
    "complex",
    "conj",
    "convert",
    "convert_array",
    "float_dtype_of",
    "imag",
    "real",
    "select",
]


def float_dtype_of(dtype: np.dtype) -> np.dtype:
    """The dtype of a complex number's parts; a real dtype itself."""
    return np.dtype(f"f{dtype.itemsize // 2}") if is_complex(dtype) else dtype


# ------------------------------------------------------------- selection
@primitive
class select(Elementwise):
    """on_true where the bool predicate is true, elsewhere on_false."""

    linear_groups = ((1, 2),)

    def type(self, *types: TensorType, **params: Any) -> TensorType:
        predicate, *cases = types
        if predicate.dtype != np.dtype(bool):
            raise DtypeError(
                f"select got a predicate of dtype {predicate.dtype.name}.",
                "Compare it first, for instance x != 0.",
            )
        common = super().type(*cases)
        return common.update(shape=broadcast_shapes(self.name, types))

    def takes(self, dtype: np.dtype) -> bool:
        """Cases may be keys."""
        return is_key(dtype) or super().takes(dtype)

    def _literal_dtype(self, args: Sequence[Any]) -> np.dtype | None:
        return super()._literal_dtype(args[1:])

    def reads(self, known: Any, *types: TensorType, **params: Any) -> Sequence[Reading | None]:
        """Both cases; the chosen elements if the predicate is known."""
        predicate = known(0)
        if predicate is None:
            return super().reads(known, *types, **params)
        shape = self.type(*types).shape
        cases = [np.broadcast_to(numbered(t.shape), shape) for t in types[1:]]
        chosen = [np.where(m, x, -1)[..., None] for m, x in zip((predicate, ~predicate), cases, strict=True)]
        return [None, *(Elements(lambda numbers=numbers: numbers) for numbers in chosen)]

    def reference(self, *arrays: np.ndarray, **params: Any) -> Any:
        return np.where(*arrays)

    def scalar(self, s: Any, predicate: Any, on_true: Any, on_false: Any) -> Any:
        return s.select(predicate, on_true, on_false)

    def partials(self, out: Any, predicate: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return (None, lambda t: select(predicate, t, 0), lambda t: select(predicate, 0, t))

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        """One selection between the tangents."""
        if any(isinstance(t, Zero) for t in tangents[1:]):
            return super().jvp(primals, tangents, **params)
        out = self.bind(*primals)
        tangent = select(primals[0], *tangents[1:])
        return out, broadcast_to(tangent, type_of(out).shape)

    def linear_transpose(self, ct: Any, predicate: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return (
            None,
            select(predicate, ct, 0) if isinstance(x, Linear) else None,
            select(predicate, 0, ct) if isinstance(y, Linear) else None,
        )

    def samples(self) -> Iterator[Sample]:
        """A bool predicate before the cases of the family's samples."""
        generator = np.random.default_rng(0)
        bool_dtype = np.dtype(bool)
        for index, (args, params) in enumerate(super().samples()):
            shape = () if index == 0 else args[0].shape
            predicate = sample_array(generator, shape, bool_dtype, 0, 1)
            yield Sample((predicate, *args[1:]), params)


# ------------------------------------------------------------- complex parts
class ComplexPart(Elementwise):
    """From complex to real, linear over the reals."""

    linear_groups = ((0,),)
    kinds = "c"

    def result_dtype(self, *dtypes: np.dtype, **params: Any) -> np.dtype:
        """dtype of the parts."""
        return float_dtype_of(dtypes[0])

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: self.bind(t),)


@primitive
class real(ComplexPart):
    """The real part."""

    def compute(self, x: np.ndarray) -> Any:
        return np.real(x)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.real(x)

    def linear_transpose(self, ct: Any, x: Any) -> tuple[Any, ...]:
        return (complex(ct, 0),)


@primitive
class imag(ComplexPart):
    """The imaginary part."""

    def compute(self, x: np.ndarray) -> Any:
        return np.imag(x)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.imag(x)

    def linear_transpose(self, ct: Any, x: Any) -> tuple[Any, ...]:
        return (complex(0, registry["negative"](ct)),)


@primitive
class conj(Elementwise):
    """The complex conjugate."""

    linear_groups = ((0,),)
    kinds = "c"
    compute = staticmethod(np.conjugate)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.conj(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: conj(t),)

    def linear_transpose(self, ct: Any, x: Any) -> tuple[Any, ...]:
        return (conj(ct),)


@primitive
class complex(Elementwise):
    """x + iy of float32 or float64 parts."""

    linear_groups = ((0, 1),)
    kinds = "f"

    def result_dtype(self, *dtypes: np.dtype, **params: Any) -> np.dtype:
        """complex64 or complex128."""
        if dtypes[0].itemsize < 4:
            raise DtypeError(
                f"complex does not take {dtypes[0].name}.",
                "Convert the parts to float32 or float64 with .astype(...) first.",
            )
        return np.dtype(f"c{2 * dtypes[0].itemsize}")

    def compute(self, x: np.ndarray, y: np.ndarray) -> Any:
        # x + 1j * y would spoil infinities and signed zeros
        out = np.empty(np.broadcast_shapes(x.shape, y.shape), self.result_dtype(x.dtype))
        out.real, out.imag = x, y
        return out

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.complex(x, y)

    def partials(self, out: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return (lambda t: complex(t, 0), lambda t: complex(0, t))

    def linear_transpose(self, ct: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return (
            real(ct) if isinstance(x, Linear) else None,
            registry["negative"](imag(ct)) if isinstance(y, Linear) else None,
        )

    def samples(self) -> Iterator[Sample]:
        """Only dtypes with a complex counterpart."""
        return (s for s in super().samples() if s.args[0].dtype.itemsize >= 4)


# ------------------------------------------------------------- changes of dtype
def _saturating(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Truncate floats to integers; values out of range saturate, NaN becomes 0."""
    wide = x.astype(np.float64)
    info = ml_dtypes.iinfo(dtype)
    # float(2**63 - 1) rounds up to 2**63: only values strictly inside may be cast
    low, high = wide <= float(info.min), wide >= float(info.max)
    inside = np.where(low | high | np.isnan(wide), 0.0, wide).astype(dtype)
    clipped = np.where(low, dtype.type(info.min), inside)
    return np.where(high, dtype.type(info.max), clipped)


def convert_array(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A NumPy array in another dtype, as compiled code converts it."""
    if x.dtype == dtype:
        return x
    with np.errstate(all="ignore"):
        return _converted(x, dtype)


def _converted(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "b":
        return np.asarray(x != np.zeros((), x.dtype))
    if is_complex(x.dtype) and not is_complex(dtype):
        x = x.real
    x = in_compute_dtype(x)
    if is_float(dtype) and is_narrow(dtype) and not is_float(x.dtype):
        x = x.astype(np.float32)
    if is_integer(dtype) and is_float(x.dtype):
        return _saturating(x, dtype)
    return x.astype(dtype)


@primitive
class convert(Elementwise):
    """Another dtype: floats truncate and saturate to integers, complex loses its imaginary part."""

    sample_params = tuple(
        {"dtype": np.dtype(d)} for d in ("f4", "f8", "c8", "i4", "u1", "?", "f2", "bfloat16", "int4", "uint2")
    )

    def type(self, *types: TensorType, dtype: np.dtype, weak: bool = False) -> TensorType:
        refuse_keys(self.name, *types, types[0].update(dtype=dtype))
        return TensorType(types[0].shape, dtype, weak)

    def result_dtype(self, *dtypes: np.dtype, dtype: np.dtype, weak: bool = False) -> np.dtype:
        """The requested dtype."""
        return dtype

    def reference(self, x: np.ndarray, *, dtype: np.dtype, weak: bool = False) -> np.ndarray:
        return convert_array(x, dtype)

    def evaluate(self, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Run eagerly; the result is weak if requested."""
        if is_key(params["dtype"]) or is_key(getattr(args[0], "dtype", None)):
            self.type(type_of(args[0]), **params)
        out = wrap(self.reference(host_operand(args[0]), **params), params.get("weak", False))
        return followed(self, args, [args[0].type], params, [out])[0] if is_divided(args[0]) else out

    def scalar(self, s: Any, x: Any, *, dtype: np.dtype, weak: bool = False) -> Any:
        return s.cast(x, dtype)

    def linear_in(self, *types: TensorType, **params: Any) -> tuple[tuple[int, ...], ...]:
        """Linear if nothing is cut off: not to integers from other kinds, nor to bools."""
        dtype: np.dtype = params["dtype"]
        return ((0,),) if is_inexact(dtype) or (is_integer(dtype) and is_integer(types[0].dtype)) else ()

    def partials(self, out: Any, x: Any, *, dtype: np.dtype, weak: bool = False) -> tuple[Any, ...]:
        differentiable = is_inexact(dtype) and is_inexact(type_of(x).dtype)
        return (lambda t: convert(t, dtype=dtype, weak=weak),) if differentiable else (None,)

    def linear_transpose(self, ct: Any, x: Any, *, dtype: np.dtype, weak: bool = False) -> tuple[Any, ...]:
        return (convert(ct, dtype=x.type.dtype, weak=x.type.weak),)


@primitive
class bitcast(NonDifferentiable):
    """The same bits read as another dtype of the same width."""

    kinds = "iuf"
    sample_params = tuple({"dtype": np.dtype(d)} for d in ("u4", "f4", "i1", "u2", "uint4", "float4_e2m1fn"))

    def result_dtype(self, *dtypes: np.dtype, dtype: np.dtype) -> np.dtype:
        """The requested dtype, which must have the same width."""
        if bits_of(dtype) != bits_of(dtypes[0]) or not (is_integer(dtype) or is_float(dtype)):
            raise DtypeError(
                f"bitcast cannot read the bits of {dtypes[0].name} as {dtype.name}.",
                "Use an integer or floating dtype of the same width.",
            )
        return dtype

    def reference(self, x: np.ndarray, *, dtype: np.dtype) -> np.ndarray:
        return x.view(dtype)

    def scalar(self, s: Any, x: Any, *, dtype: np.dtype) -> Any:
        return s.bitcast(x, dtype)

    def samples(self) -> Iterator[Sample]:
        """Only pairs of dtypes of equal width."""
        for sample in super().samples():
            if bits_of(sample.args[0].dtype) == bits_of(sample.params["dtype"]):
                yield sample
