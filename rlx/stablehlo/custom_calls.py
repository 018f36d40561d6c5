"""Calls by name in StableHLO modules: the LAPACK routines and other targets that JAX lowers operations to."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.errors import ShapeError, UnsupportedError
from rlx.ops.factorisations import packed_qr
from rlx.standalone.spelling import entering

__all__ = ["DYNAMIC_WINDOWS", "call_by_name", "is_known_call"]

DYNAMIC_WINDOWS = "stablehlo.dynamic_reduce_window"  # calls a function of the module

Options = Mapping[str, str]
_targets: dict[str, Callable[[Options, Sequence[Any]], Sequence[Any]]] = {}
_LAPACK = re.compile(r"lapack_[sdcz](\w+)_ffi")
target = entering(_targets)  # registers the implementation of targets by name


def _name(op: Any) -> str:
    name = str(op.attributes["call_target_name"]).strip('"')
    found = _LAPACK.fullmatch(name)
    return name if found is None else found[1]


def is_known_call(op: Any) -> bool:
    """Whether rlx has the target of a call."""
    return _name(op) in _targets or _name(op) == DYNAMIC_WINDOWS


def call_by_name(op: Any, xs: Sequence[Any]) -> Sequence[Any]:
    """The results of a stablehlo.custom_call for its operands."""
    options = {"error_message": str(op.attributes["error_message"])} if "error_message" in op.attributes else {}
    if "mhlo.backend_config" in op.attributes:
        config = op.attributes["mhlo.backend_config"]
        options |= {named.name: str(named.attr).split(" : ")[0] for named in config}
    if "called_computations" in op.attributes:
        options["called"] = str(op.attributes["called_computations"])
    return _targets[_name(op)](options, xs)


def _letter(options: Options, name: str) -> str:
    return chr(int(options[name]))


def _success(x: Any) -> Any:
    """LAPACK's `info` for matrices: rlx marks failures by NaNs."""
    return jnp.zeros(x.shape[:-2], np.int32)


@target("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape")
def _unchanged(options: Options, xs: Sequence[Any]) -> Sequence[Any]:
    return xs


@target("shape_assertion")
def _shape_assertion(options: Options, xs: Sequence[Any]) -> Sequence[Any]:
    if not isinstance(xs[0], (np.ndarray, np.generic)):
        raise UnsupportedError("The module asserts a condition on values that are not sizes.")
    if not xs[0]:
        text = options["error_message"].strip('"')
        for number, x in enumerate(xs[1:]):
            text = text.replace(f"{{{number}}}", str(int(x)))
        raise ShapeError(text.split(" Using the following")[0])
    return ()


# ------------------------------------------------------------------ factorisations
@target("potrf")
def _cholesky(options: Options, xs: Sequence[Any]) -> Sequence[Any]:
    if _letter(options, "uplo") == "L":
        return lax.linalg.cholesky(xs[0], symmetrize_input=False), _success(xs[0])
    found = lax.linalg.cholesky(jnp.swapaxes(xs[0], -1, -2).conj(), symmetrize_input=False)
    return jnp.swapaxes(found, -1, -2).conj(), _success(xs[0])


@target("getrf")
def _lu(options: Options, xs: Sequence[Any]) -> Sequence[Any]:
    lu, pivots, _ = lax.linalg.lu(xs[0])
    return lu, pivots + 1, _success(xs[0])


@target("syevd", "heevd")
def _eigh(options: Options, xs: Sequence[Any]) -> Sequence[Any]:
    vectors, values = lax.linalg.eigh(xs[0], lower=_letter(options, "uplo") == "L", symmetrize_input=False)
    return vectors, values, _success(xs[0])


@target("gesdd")
def _svd(options: Options, xs: Sequence[Any]) -> Sequence[Any]:
    left, values, right = lax.linalg.svd(xs[0], full_matrices=_letter(options, "mode") == "A")
    return xs[0], values, left, right, _success(xs[0])


@target("trsm")
def _triangular_solve(options: Options, xs: Sequence[Any]) -> Sequence[Any]:
    found = lax.linalg.triangular_solve(
        xs[0],
        xs[1],
        left_side=_letter(options, "side") == "L",
        lower=_letter(options, "uplo") == "L",
        transpose_a=_letter(options, "trans_x") != "N",
        conjugate_a=_letter(options, "trans_x") == "C",
        unit_diagonal=_letter(options, "diag") == "U",
    )
    return (found,)


@target("geqrf")
def _qr(options: Options, xs: Sequence[Any]) -> Sequence[Any]:
    return packed_qr(xs[0])


@target("orgqr", "ungqr")
def _householder(options: Options, xs: Sequence[Any]) -> Sequence[Any]:
    return (lax.linalg.householder_product(*xs),)


@target("gtsv")
def _tridiagonal_solve(options: Options, xs: Sequence[Any]) -> Sequence[Any]:
    lower, diagonal, upper, right = xs
    found = lax.linalg.tridiagonal_solve(lower, diagonal, upper, right)
    return lower, diagonal, upper, found, _success(right)


# ------------------------------------------------------------------ the largest numbers
@target("ApproxTopK")
def _approximate_top(options: Options, xs: Sequence[Any]) -> Sequence[Any]:
    """All that are asked for are found, so the recall is 1."""
    values, indices = xs[:2]
    axis, count = int(options["reduction_dim"]), int(options["top_k"])
    if "top_k_gt" not in options["called"] and "top_k_lt" not in options["called"]:
        raise UnsupportedError("rlx reads ApproxTopK of the largest and of the smallest numbers only.")
    moved = jnp.moveaxis(values, axis, -1)
    found = lax.top_k(moved if "top_k_gt" in options["called"] else -moved, count)[1]
    at = jnp.moveaxis(found, -1, axis)
    return jnp.take_along_axis(values, at, axis), jnp.take_along_axis(indices, at, axis)
