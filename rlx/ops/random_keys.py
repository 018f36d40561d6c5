"""Conversions between keys and their uint32 words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.array import array_of_type
from rlx.errors import DtypeError
from rlx.ir.extended import UINT32, KeyDtype, key_dtype_of
from rlx.ir.types import TensorType, is_key, words_type
from rlx.ops.families import to_front
from rlx.trace.primitive import Linear, Primitive, Zero, host_operand, primitive, type_of

__all__ = ["random_unwrap", "random_wrap"]


class _KeyConversion(Primitive):
    """Bits have no derivative; lowered programs do not contain the operation, since keys are their words there."""

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        out = self.bind(*primals, **params)
        return out, Zero(type_of(out))

    def transpose(self, cotangent: Any, x: Any, **params: Any) -> tuple[Any, ...]:
        return (Zero(x.type) if isinstance(x, Linear) else None,)

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, int]:
        return self.bind(to_front(inputs[0], dims[0], size), **params), 0

    def lower(self, k: Any, x: Any, **params: Any) -> Any:
        return x


@primitive
class random_wrap(_KeyConversion):
    """Keys of `dtype` from words along the last axis."""

    def type(self, words: TensorType, *, dtype: KeyDtype) -> TensorType:
        if words.dtype != UINT32 or words.shape[-1:] != (dtype.words,):
            raise DtypeError(
                f"random_wrap got words {words!r} for {dtype}.",
                f"A key of {dtype} is {dtype.words} words of uint32 along the last axis.",
            )
        return TensorType(words.shape[:-1], dtype)

    def reference(self, words: np.ndarray, *, dtype: KeyDtype) -> np.ndarray:
        return dtype.records_of(words)

    def evaluate(self, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Run eagerly; the result has keys although the operand has numbers."""
        return array_of_type(self.reference(host_operand(args[0]), **params), self.type(type_of(args[0]), **params))


@primitive
class random_unwrap(_KeyConversion):
    """The words of keys, along a new last axis."""

    def type(self, keys: TensorType) -> TensorType:
        if not is_key(keys.dtype):
            raise DtypeError(f"random_unwrap got {keys!r}, which is not of keys.", "Make keys with rlx.random.key.")
        return words_type(keys)

    def reference(self, keys: np.ndarray) -> np.ndarray:
        dtype: Any = key_dtype_of(keys.dtype)
        return dtype.words_of(keys)
