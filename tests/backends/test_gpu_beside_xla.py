"""rlx's programs for a GPU beside XLA's, both compiled without one: the table of docs/gpu.md, and how it is counted."""

from __future__ import annotations

import importlib.util
import os
import re
from importlib.metadata import version

import pytest

import rlx
import rlx.numpy as jnp
from benchmarks.gpu_beside_xla import PAGE, measured, rows_of, table
from benchmarks.programs import programs
from benchmarks.xla_programs import Counted, counted
from rlx import errors, lax

COMPILES = os.environ.get("RLX_TEST_TPU_COMPILE") == "1" and importlib.util.find_spec("jax_plugins") is not None
compiles = pytest.mark.skipif(not COMPILES, reason="XLA's plugin for CUDA compiles them: make test-tpu-compile runs it")

TEXT = """HloModule f, is_scheduled=true

%fused_part (param_0.1: f32[10,8], param_1.1: s32[]) -> f32[1,8] {
  %param_0.1 = f32[10,8]{1,0} parameter(0), metadata={scheduling_name="param_0.1"}
  %param_1.1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %part = f32[1,8]{1,0} dynamic-slice(%param_0.1, %param_1.1, %zero), dynamic_slice_sizes={1,8}
}

%fused_update (param_0.2: f32[10,8], param_1.2: f32[1,8], param_2.2: s32[]) -> f32[10,8] {
  %param_0.2 = f32[10,8]{1,0} parameter(0)
  %param_1.2 = f32[1,8]{1,0} parameter(1)
  %param_2.2 = s32[] parameter(2)
  %zero.2 = s32[] constant(0)
  ROOT %update = f32[10,8]{1,0} dynamic-update-slice(%param_0.2, %param_1.2, %param_2.2, %zero.2)
}

%body (state: (s32[], f32[10,8])) -> (s32[], f32[10,8]) {
  %state = (s32[], f32[10,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %rows = f32[10,8]{1,0} get-tuple-element(%state), index=1
  %row = f32[1,8]{1,0} fusion(%rows, %i), kind=kLoop, calls=%fused_part
  %all = f32[10,8]{1,0} fusion(%rows, %row, %i), kind=kLoop, calls=%fused_update
  ROOT %next = (s32[], f32[10,8]{1,0}) tuple(%i, %all)
}

%condition (state.1: (s32[], f32[10,8])) -> pred[] {
  %state.1 = (s32[], f32[10,8]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%state.1), index=0
  %limit = s32[] constant(10)
  ROOT %less = pred[] compare(%i.1, %limit), direction=LT
}

ENTRY %main (a: f32[10,8], n: s32[]) -> (f32[10,8], bf16[10]) {
  %a = f32[10,8]{1,0} parameter(0)
  %n = s32[] parameter(1)
  %start = (s32[], f32[10,8]{1,0}) tuple(%n, %a)
  %loop = (s32[], /*index=1*/f32[10,8]{1,0}) while(%start), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"10"}}
  %out = f32[10,8]{1,0} get-tuple-element(%loop), index=1
  %short = bf16[10]{0} custom-call(%out), custom_call_target="__library"
  ROOT %both = (f32[10,8]{1,0}, bf16[10]{0}) tuple(%out, %short)
}
"""  # noqa: E501


def test_kernels_and_bytes_of_a_text() -> None:
    """Slices are read in part, updates written in part; each step of a loop counts; a call reads all."""
    part, update, compare, call = 32 + 4 + 32, 32 + 4 + 32, 4 + 4 + 1, 320 + 20
    assert counted(TEXT) == Counted(3 * 10 + 1, 10 * (part + update + compare) + call, False)
    unknown = counted(TEXT.replace("known_trip_count", "other"))
    assert unknown == Counted(4, part + update + compare + call, True)


def test_the_page_has_a_row_for_each_program() -> None:
    names = re.findall(r"^\| (\w+) \|", rows_of(PAGE.read_text()), re.M)
    assert names == ["program", *(program.name for program in programs)] and len(names) > 30


@compiles
def test_the_table_is_the_pages() -> None:
    """Every program is compiled by both; XLA's columns are compared for the page's version of XLA."""
    rows, page = list(map(measured, programs)), rows_of(PAGE.read_text())
    if f"jaxlib {version('jaxlib')}" in page:
        assert page == table(rows)
    launches, kernels = (sum(f(row) for row in rows) for f in (lambda r: r.launches, lambda r: r.xla.kernels))
    assert launches < kernels


@compiles
def test_what_xla_makes_for_a_missing_gpu() -> None:
    """One kernel for a chain of maps; the program can be seen, but not run."""
    x = rlx.ShapeDtypeStruct((64, 32), "float32")
    texts = rlx.inspect(lambda x: jnp.sin(x) * 2 + 1, device="xla:h100")(x).kernels.texts
    assert counted(texts["xla"]) == Counted(1, 2 * 64 * 32 * 4, False)
    assert "argument: 8192 bytes" in texts["memory"]
    looped = rlx.inspect(lambda x: lax.fori_loop(0, 5, lambda i, c: jnp.sin(c @ c.T @ c), x), device="xla:h100")(x)
    assert counted(looped.kernels.texts["xla"]).kernels >= 10
    with pytest.raises(errors.DeviceError, match="no h100 for XLA on this machine"):
        rlx.jit(jnp.sin, device="xla:h100")(1.0)
