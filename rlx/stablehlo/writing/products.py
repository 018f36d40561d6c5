"""Products, convolutions, factorisations and Fourier transforms as StableHLO."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.ir.program import Equation
from rlx.ir.types import is_float
from rlx.stablehlo.text import array_attribute
from rlx.stablehlo.writing.writer import FORMAT, Rule, Values, Writer
from rlx.standalone.spelling import entering, refused

__all__ = ["RULES"]

RULES: dict[str, Rule] = {}
rule = entering(RULES)  # registers the writer of primitives by name


@rule("dot_general")
def _dot(w: Writer, e: Equation, xs: Values) -> Values:
    (left, right), (left_batch, right_batch) = e.params["dimension_numbers"]
    out = e.outputs[0].type
    numbers = (
        f"#stablehlo.dot<lhs_batching_dimensions = {[*left_batch]}, rhs_batching_dimensions = {[*right_batch]},"
        f" lhs_contracting_dimensions = {[*left]}, rhs_contracting_dimensions = {[*right]}>"
    )
    operands = [w.convert(x, out.dtype) if not is_float(x.dtype) else x for x in xs]
    said = {"dot_dimension_numbers": numbers, **_precision(e)}
    return [w.op("stablehlo.dot_general", operands, out.shape, out.dtype, **said)]


def _precision(e: Equation) -> dict[str, str]:
    """The precision attribute for both operands, if float32 may be rounded."""
    return {"precision_config": f"[{', '.join(['#stablehlo<precision HIGH>'] * 2)}]"} if e.params.get("tf32") else {}


@rule("conv_general_dilated")
def _convolution(w: Writer, e: Equation, xs: Values) -> Values:
    p, spec, out = e.params, e.params["dimension_numbers"], e.outputs[0].type

    def layout(places: Sequence[int], names: str) -> str:
        letters = [""] * len(places)
        for letter, at in zip([*names, *map(str, range(len(places) - 2))], places, strict=True):
            letters[at] = letter
        return f"[{', '.join(letters)}]"

    numbers = f"{layout(spec.lhs_spec, 'bf')}x{layout(spec.rhs_spec, 'oi')}->{layout(spec.out_spec, 'bf')}"
    rank = len(p["window_strides"])
    padding = ", ".join(f"[{a}, {b}]" for a, b in p["padding"])
    return [
        w.op(
            "stablehlo.convolution",
            xs,
            out.shape,
            out.dtype,
            window_strides=array_attribute(p["window_strides"]),
            padding=f"dense<{f'[{padding}]' if rank else ''}> : tensor<{rank}x2xi64>",
            lhs_dilation=array_attribute(p["lhs_dilation"]),
            rhs_dilation=array_attribute(p["rhs_dilation"]),
            dimension_numbers=f"#stablehlo.conv<{numbers}>",
            batch_group_count=f"{p['batch_group_count']} : i64",
            feature_group_count=f"{p['feature_group_count']} : i64",
            **_precision(e),
        )
    ]


@rule("cholesky")
def _cholesky(w: Writer, e: Equation, xs: Values) -> Values:
    return [w.op("stablehlo.cholesky", xs, xs[0].shape, xs[0].dtype, lower="true")]


@rule("triangular_solve")
def _triangular(w: Writer, e: Equation, xs: Values) -> Values:
    p = e.params
    if p["conjugate_a"] and not p["transpose_a"]:
        raise refused(e, FORMAT, "its matrix is conjugated without being transposed")
    way = "ADJOINT" if p["conjugate_a"] else "TRANSPOSE" if p["transpose_a"] else "NO_TRANSPOSE"
    said = {name: str(bool(p[name])).lower() for name in ("left_side", "lower", "unit_diagonal")}
    transposed = f"#stablehlo<transpose {way}>"
    return [w.op("stablehlo.triangular_solve", xs, xs[1].shape, xs[1].dtype, transpose_a=transposed, **said)]


@rule("fft")
def _fft(w: Writer, e: Equation, xs: Values) -> Values:
    out, lengths = e.outputs[0].type, e.params["lengths"]
    kind = e.params["kind"].upper()
    return [
        w.op(
            "stablehlo.fft",
            xs,
            out.shape,
            out.dtype,
            fft_type=f"#stablehlo<fft_type {kind}>",
            fft_length=array_attribute(lengths),
        )
    ]
