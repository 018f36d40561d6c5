"""Write docs/seed_names.md: for each public name of the seed documents, its equivalent in rlx.

Run it after names change: python docs/make_seed_names.py
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
TARGET = ROOT / "docs" / "seed_names.md"


class Row(NamedTuple):
    """A seed name, its rlx equivalent ("" for none), and a note."""

    seed: str
    here: str
    note: str = ""


def same(module: str, names: str) -> list[Row]:
    """Rows of names that are the same in rlx, in one module."""
    return [Row(name, f"{module}.{name}") for name in names.split()]


def instead(names: str, here: str, note: str) -> list[Row]:
    """Rows of names with a common rlx equivalent."""
    return [Row(name, here, note) for name in names.split()]


def absent(names: str, note: str) -> list[Row]:
    """Rows of names without an equivalent."""
    return [Row(name, "", note) for name in names.split()]


SECTIONS: dict[str, list[Row]] = {
    "Graphs and sessions": [
        *same(
            "rlx",
            "Graph GraphModule GraphStage Session CompiledGraph Node NodeId NodeOrigin Shape DType Op OpKind",
        ),
        *same("rlx.graph", "node_label"),
        Row("Device", "rlx.Device", "Session accepts a device or its name"),
        Row("HirModule", "rlx.graph.GraphModule.hir", "the graph of a module at HIR"),
        Row("MirModule", "rlx.graph.GraphModule.mir", "the program of a module at MIR"),
        Row("LirModule", "rlx.graph.GraphModule.lir", "the plan of a module at LIR"),
        Row("CompiledGraph::set_param", "rlx.CompiledGraph.set_param"),
        Row("CompiledGraph::run", "rlx.CompiledGraph.run"),
        Row("Activation", "rlx.ops.Activation", "members equal strings: graph.activation('silu', x)"),
        Row("BinaryOp", "rlx.ops.BinaryOp", "graph.binary('add', x, y), or the method or operator"),
        Row("CmpOp", "rlx.ops.CmpOp", "graph.compare('lt', x, y)"),
        Row("MaskKind", "rlx.ops.MaskKind", "for graph.attention(..., mask_kind='causal')"),
        Row("symbolic dims", "rlx.graph.Shape.symbols", 'Shape(["batch", 4])'),
        Row("CompileOptions", "rlx.compile.CompileOptions"),
        Row("dim_binding", "rlx.graph.Graph.specialize", "also an option of compiling"),
        Row("CompileResult::specialize", "rlx.compile.CompileResult.specialize"),
        Row("Error", "rlx.errors.RlxError"),
        *absent(
            "HirOp FusionPolicy",
            "HIR is a program with calls: it has no block operations that a policy could expand or keep",
        ),
        *absent("ChainStep ChainOperand", "an elementwise region is a Program of equations, not a list of steps"),
        Row("CompiledGraph::run_raw", "rlx.CompiledGraph.run_raw"),
        Row("CompiledGraph::run_typed", "rlx.CompiledGraph.run_typed"),
        Row("CompiledGraph::run_pipelined", "rlx.CompiledGraph.run_pipelined"),
        Row("CompiledGraph::bind_handle", "rlx.CompiledGraph.bind_handle"),
        Row("CompiledGraph::read_handle", "rlx.CompiledGraph.read_handle"),
    ],
    "Passes": [
        *same(
            "rlx.opt",
            "Pass run_passes AlgebraicSimplify ConstantFolding DeadCodeElimination SpecializeParams LegalizeBroadcast"
            " LowerDotGeneral LowerControlFlow MarkElementwiseRegions"
            " UnfuseElementwiseRegions cse inline_into inline_if"
            " unroll_while fuse_elementwise promote_params_to_inputs specialize_params",
        ),
        Row("const_fold", "rlx.opt.constant_folding"),
        Row("dce", "rlx.opt.dce"),
        Row("inline", "rlx.opt.inline"),
        Row("inline_subgraph_into", "rlx.opt.inline_into"),
        Row("PrepareForAutodiff", "rlx.autodiff.PrepareForAutodiff"),
        *instead(
            "backward_cleanup_passes",
            "rlx.fusion.fusion_passes",
            "gradients use the same passes as other programs",
        ),
    ],
    "Fusion": [
        *same(
            "rlx.fusion",
            "FusionLimits FusionOptions FusionReport FusionTarget MissReason MissedFusion assert_fusion_clean"
            " fusion_passes fusion_limits_for_target inspect_fusion",
        ),
        *instead(
            "FuseResidualLN FuseResidualRmsNorm FuseRmsNormReshape FuseSwiGLU FuseSwiGLUDualMatmul FuseMatMulBiasAct"
            " FuseAttentionBlock FuseTransformerLayer",
            "rlx.fusion.fusion_report",
            "no patterns: nests fuse by index space; products and adjacent nests run in row tiles (`report.chains`)",
        ),
        Row(
            "FuseSharedInputMatMul",
            "rlx.fusion.FuseSharedInputMatMul",
            "optional, not part of the pipeline",
        ),
        *instead(
            "fusion_passes_for_supported",
            "rlx.fusion.fusion_passes",
            "passes introduce no unsupported operations",
        ),
        *instead(
            "unfuse_fused_for_autodiff",
            "rlx.opt.UnfuseElementwiseRegions",
            "nothing else is fused before differentiation",
        ),
    ],
    "Legalisation and dispatch": [
        *same(
            "rlx.opt",
            "legalize_for_backend legalize_or_rewrite_for_backend rewrite_for_backend format_legalize_error"
            " analyze_dispatch prepare_graph_for_backend_with_report format_dispatch_report maybe_log_dispatch_report"
            " KernelDispatchConfig KernelDispatchPolicy KernelDispatchReport KindDispatchSummary DispatchPath"
            " supported_for_target supports_op is_pure_view",
        ),
        *instead(
            "rewrite_for_backend_with_config rewrite_for_backend_with_dispatch",
            "rlx.opt.rewrite_for_backend",
            "the config is an argument",
        ),
        *instead(
            "legalize_or_rewrite_for_backend_with_config legalize_or_rewrite_for_backend_with_dispatch",
            "rlx.opt.legalize_or_rewrite_for_backend",
            "the config is an argument",
        ),
        Row("LegalizeResult", "rlx.opt.UnsupportedKind", "a list of these; LegalizeError when raised"),
    ],
    "Derivatives": [
        *same(
            "rlx.autodiff",
            "grad grad_with_loss grad_with_loss_opts GradWithLossOptions jvp hvp vmap nth_order_grad"
            " nth_order_grad_with_options HigherOrderOptions directional_nth_grad grad_subgraph build_force_energy_loss"
            " ForceEnergyLossWeights prepare_graph_for_ad AutodiffError",
        ),
        Row("CustomFn", "rlx.autodiff.custom_fn", "with a vjp body, a jvp body, or both"),
        *[
            Row(
                f"{name}_module",
                f"rlx.autodiff.{name}",
                "also accepts modules; WrongStageError at LIR",
            )
            for name in ("grad_with_loss", "jvp", "hvp", "nth_order_grad")
        ],
        *instead("grad_subgraph_for_jvp", "rlx.autodiff.grad_subgraph", "gradients need no separate form"),
        *instead(
            "prepare_mir_for_ad prepare_module_for_ad",
            "rlx.autodiff.prepare_graph_for_ad",
            "also accepts modules",
        ),
        *instead(
            "prepare_grad_graph_for_jvp", "rlx.autodiff.prepare_graph_for_ad", "gradients are graphs as others are"
        ),
        *instead("MirAutodiffExt", "rlx.autodiff.grad_with_loss", "functions instead of methods"),
        *absent(
            "convert_scans_for_ad inline_custom_fn_for_autodiff decompose_backward_for_ad",
            "would rewrite nothing: scans, custom functions and gradients have derivatives of their own",
        ),
        Row("quantized_weight_bits", "rlx.quant.quantized_weight_bits", "also for products with packed weights"),
    ],
    "Compiling and inspecting": [
        *same(
            "rlx.compile",
            "CompilePipeline CompileResult PipelineInspect inspect_graph inspect_graph_diff"
            " inspect_hir inspect_hir_stats"
            " inspect_lir inspect_mir inspect_mir_diff inspect_mir_stats inspect_pipeline inspect_compiled"
            " maybe_dump_pipeline fusion_target_for pipeline_for compile_graph_stages compile_hir_stages"
            " compile_module_stages graph_from_lir",
        ),
        *instead(
            "compile_graph_stages_for_backend options_with_supported_ops",
            "rlx.compile.compile_graph_stages",
            "supported_ops is an argument",
        ),
        *instead("maybe_log_fusion", "rlx.fusion.inspect_fusion", "print it, or CompileOptions(verbose=True)"),
        Row("CompilePipeline::compile_training", "rlx.compile.CompilePipeline.compile_training"),
        Row("TrainingCompileResult", "rlx.compile.TrainingCompileResult", "plans share no arena: weights are arguments"),
        Row("TrainingCompileError", "rlx.autodiff.AutodiffError"),
    ],
}

SECTIONS |= {
    "Precision and memory": [
        *same("rlx", "PrecisionPolicy"),
        *same("rlx.precision", "Precision AutoMixedPrecision"),
        Row("OpKind (of policies)", "rlx.precision.OperationKind", "rlx.OpKind is the kind of a graph operation"),
        Row("PrecisionPolicy::AlwaysF32", "rlx.PrecisionPolicy.float32"),
        Row("PrecisionPolicy::AlwaysF16", "rlx.PrecisionPolicy.float16"),
        Row("PrecisionPolicy::AutoMixedConservative", "rlx.PrecisionPolicy.mixed_conservative"),
        Row("PrecisionPolicy::AutoMixed", "rlx.PrecisionPolicy.mixed", "with 'float16'"),
        Row("PrecisionPolicy::AutoMixedBf16", "rlx.PrecisionPolicy.mixed"),
        Row("PrecisionPolicy::Custom", "rlx.PrecisionPolicy.custom"),
        Row("CastConfig", "rlx.precision.CastConfig", "out_dtype is dtype, sf_block is block"),
        *same("rlx.opt", "MemoryPlan MemoryPlanOptions plan_memory plan_memory_with_options plan_memory_f32_uniform"),
        Row("MemoryPlan::report", "rlx.opt.MemoryPlan.report"),
        Row("svg::render", "rlx.opt.MemoryPlan.svg"),
        Row("plan_memory_backward", "rlx.opt.plan_memory_backward"),
        *absent("SharedWeightLayout WeightSlot", "weights are arguments, outside the arena: they have no offsets in it"),
    ],
}

SECTIONS |= {
    "Quantisation": [
        *same("rlx.quant", "QuantScheme QuantMap CalibrationEntry CalibrationRecord"),
        Row("QuantScheme::Int8Block", "rlx.quant.QuantScheme.int8_block"),
        Row("QuantScheme::Int8BlockAsym", "rlx.quant.QuantScheme.int8_block_asym"),
        Row("QuantScheme::Int4Block", "rlx.quant.QuantScheme.int4_block"),
        Row("QuantScheme::Fp8E4m3", "rlx.quant.QuantScheme.fp8_e4m3"),
        Row("QuantScheme::Fp8E5m2", "rlx.quant.QuantScheme.fp8_e5m2"),
        Row("QuantScheme::Nvfp4Block", "rlx.quant.QuantScheme.nvfp4_block"),
        Row("DequantMatMul", "rlx.quant.dequant_matmul", "x and a QuantizedArray; differentiable in x"),
        Row("Element", "rlx.quant.QuantScheme", "eight-bit floats are schemes: fp8e4m3, fp8e5m2"),
        Row("FakeQuantize", "rlx.quant.fake_quantize"),
        Row("FakeQuantizeLSQ", "rlx.quant.lsq", "with the scale factor for the gradient of the scale"),
        Row("insert_q_dq", "rlx.quant.insert_q_dq", "for graphs by node, for functions by name; its module is quant_insert"),
        Row("quant_propagate", "rlx.quant.quant_propagate", "operations between roundings stay"),
    ],
}

SECTIONS |= {
    "Benchmarks, macros and bundles": [
        *same("rlx.bench", "Tick CacheBuster BenchmarkPattern run_benchmark time_ns"),
        Row("Tick::now", "rlx.bench.Tick.now"),
        Row("Tick::elapsed_ms", "rlx.bench.Tick.elapsed_ms", "also elapsed_us and elapsed_ns"),
        Row("CacheBuster::thrash", "rlx.bench.CacheBuster.thrash", "32 MB by default"),
        Row("BenchResult", "rlx.bench.Result", "with percentiles, rates, and results of other libraries"),
        Row("rlx_model", "rlx.model", "for functions and classes, per shape and device"),
        Row("pipeline_schedule", "rlx.pipeline_schedule", "ORDER and DEPS are called order and deps"),
        Row("AotCache", "rlx.aot.save", "a file with the program and its code; rlx.aot.load reads it"),
        Row("CompileCache", "rlx.runtime.CompileCache", "jit caches by itself, also on disk"),
        Row("BucketedCompileCache", "rlx.runtime.BucketedCompileCache"),
        Row("ModelCompilePipeline", "rlx.runtime.ModelCompilePipeline"),
    ],
}

SECTIONS |= {
    "Modules, devices and settings": [
        Row("rlx::prelude", "rlx.prelude.Graph", "from rlx.prelude import *"),
        Row("rlx::runtime", "rlx.runtime.Session"),
        Row("rlx::driver", "rlx.driver.devices", "also device_names, usable_devices, register_backend"),
        Row("rlx::macros", "rlx.macros.rlx_model"),
        Row("rlx::linalg", "rlx.linalg.solve", "rlx.numpy.linalg"),
        Row("cost-model choice of a device", "rlx.placement.choose", 'jit(f, device="auto")'),
        Row("BackendCostModel", "rlx.placement.DeviceRates", "calibrated by rlx.placement.calibrate, or rlx calibrate"),
        Row("estimate_graph_cost", "rlx.placement.estimate"),
        Row("pick_best_device", "rlx.placement.choose"),
        Row("DevicePolicy", "rlx.placement.Policy"),
        Row("DevicePolicy::from_env", "rlx.placement.Policy.from_env", "RLX_DEVICES, RLX_DENY_DEVICES, RLX_PREFER_DEVICES"),
        Row("heterogeneous execution", "rlx.placement.place", "also rlx.placement.divide"),
        Row("Device::Metal", "rlx.backends.meant_device", '"metal" is the device "mlx"'),
        *absent("Device::Ane Device::OpenGl", "no backend; the error names the device to use"),
        Row("rlx::cortexm", "rlx.cortexm.export", "firmware in C for six processors, run in QEMU; training, too"),
        Row("conv2d_i8", "rlx.quant.integer_program", "convolutions of integer programs, also with groups and dilation"),
        Row("dense_i8", "rlx.quant.integer_program", "products of integer programs"),
        Row("maxpool2d_i8", "rlx.quant.integer_program", "also sums over windows"),
        Row("relu_i8", "rlx.quant.integer_program", "part of the sum before it"),
        Row("argmax_i8", "rlx.quant.integer_program"),
        Row("rlx::fpga", "rlx.fpga.export", "of an integer program: rlx.quant.integer_program"),
        *same("rlx.fpga", "Tune OptTarget HwTarget IoConfig RequantPrecision estimate"),
        Row("RLX_VERBOSE and others", "rlx.settings.unread_settings", "a warning names the variable or option that is meant"),
        *absent("RLX_DEVICE_CHAIN", "a program has one device, or regions that are cut by cost; a warning names RLX_PREFER_DEVICES"),
    ],
}

SECTIONS |= {
    "Sparse linear algebra": [
        Row("SparseTensor", "rlx.sparse.CSR", "in four dtypes, with a static pattern; also other formats"),
        Row("SparseTensor::from_csr", "rlx.sparse.CSR"),
        Row("mat_vec", "rlx.sparse.matvec"),
        Row("solve", "rlx.sparse.spsolve", "with assume='symmetric', which is checked"),
        Row("solve_general", "rlx.sparse.spsolve", "the transposed matrix is not an argument"),
        Row("cg_solve", "rlx.sparse.cg"),
        Row("pcg_solve", "rlx.sparse.jacobi", "as M of cg"),
        Row("ilu_pcg_solve", "rlx.sparse.ic0", "as M of cg; ilu0 is not symmetric"),
        Row("cholesky_solve", "rlx.sparse.spsolve", "with assume='positive definite'"),
        Row("bicgstab_solve", "rlx.sparse.bicgstab"),
        Row("gmres_solve", "rlx.sparse.gmres"),
        Row("lsqr_solve", "rlx.sparse.lsqr", "with derivatives"),
        Row("spgemm_csr", "rlx.sparse.spgemm"),
        Row("transpose_values", "rlx.sparse.transpose_values"),
        Row("values_grad", "rlx.sparse.sddmm", "rlx.grad calls it"),
        Row("csr_transpose_pattern", "rlx.sparse.CSC", "A.T; A.T.tocsr() sorts by rows"),
    ],
    "Gaussian splatting": [
        *same("rlx.splat", "Camera GaussianSplatInputs RenderParams make_parity_scene"),
        Row("rlx::splat::register", "rlx.splat.register", "does nothing"),
        Row(
            "gaussian_splat_render",
            "rlx.splat.gaussian_splat_render",
            "harmonics of all bands; no splats are dropped from full lists; empty pixels have alpha 0",
        ),
        Row(
            "gaussian_splat_render_backward",
            "rlx.splat.gaussian_splat_render_backward",
            "exact in all inputs, of the image that is shown; gradients are clipped on request only",
        ),
        *same("rlx.splat", "unpack_gaussian_splat_packed_grads"),
        Row(
            "gaussian_splat_prepare",
            "rlx.splat.gaussian_splat_prepare",
            "a tree of arrays, not a packed buffer; full lists are counted",
        ),
        Row("gaussian_splat_rasterize", "rlx.splat.gaussian_splat_rasterize", "of the splats of every tile's list"),
        *instead(
            "gaussian_splat_render_common_ir gaussian_splat_render_decomposed gaussian_splat_render_reference",
            "rlx.splat.render",
            "one meaning on every device",
        ),
    ],
}

# the other seed names do not concern graphs, passes and derivatives
ELSEWHERE = (
    "Dense linear algebra, files, and code for other hardware"
    " are not part of this table."
)


def find(path: str) -> Any:
    """The object at a dotted path."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            value = getattr(value, part)
        return value
    raise ModuleNotFoundError(path)


def summary(value: Any) -> str:
    """The first line of a docstring."""
    own = inspect.isroutine(value) or inspect.isclass(value) or isinstance(value, property)
    return (inspect.getdoc(value) or "").partition("\n")[0] if own else ""


def tested_in(path: str, sources: dict[str, str]) -> str:
    """The first test file that uses a name."""
    word = re.compile(rf"\b{re.escape(path.rpartition('.')[2])}\b")
    return next((name for name, text in sources.items() if word.search(text)), "")


def page() -> str:
    """The text of docs/seed_names.md. Raises if a name does not exist or no test uses it."""
    folder = ROOT / "tests"
    files = [*sorted((folder / "graph").glob("test_*.py")), *sorted(folder.rglob("test_*.py"))]
    sources = {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in files}
    served = sum(bool(row.here) for rows in SECTIONS.values() for row in rows)
    total = sum(map(len, SECTIONS.values()))
    lines = [
        "# Names of the seed documents in rlx",
        "",
        f"Generated by `python docs/make_seed_names.py`, checked by a test. {served} of {total} names have an equivalent.",
        ELSEWHERE,
    ]
    for title, rows in SECTIONS.items():
        lines += ["", f"## {title}", "", "| seed name | rlx | description | tested in |", "|---|---|---|---|"]
        for seed, here, note in rows:
            if not here:
                lines.append(f"| `{seed}` | – | {note} | |")
                continue
            about = "; ".join(part.rstrip(".") for part in (summary(find(here)), note) if part)
            test = tested_in(here, sources)
            if not test:
                raise LookupError(f"no test uses {here}")
            lines.append(f"| `{seed}` | `{here}` | {about} | {test} |".replace("  ", " "))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)} written")
