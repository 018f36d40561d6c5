"""Names of the seed documents that do what they say: targets, options, named sizes, modules, aliases, settings."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import fusion, opt
from rlx.autodiff import AutodiffError
from rlx.compile import (
    CompileOptions,
    CompilePipeline,
    TrainingCompileResult,
    compile_graph_stages,
    compile_hir_stages,
    fusion_target_for,
    pipeline_for,
)
from rlx.errors import DeviceError, DtypeError, RlxError, ShapeError
from rlx.fusion import FusionTarget
from rlx.graph import DType, Graph, Session, Shape
from rlx.quant import QuantScheme
from rlx.runtime import BucketedCompileCache, CompileCache, ModelCompilePipeline
from rlx.settings import MEANT, SETTINGS, unread_settings

ROWS = np.arange(12.0, dtype=np.float32).reshape(3, 4) - 5.0


def network() -> Graph:
    """Rows of any number, through a layer."""
    g = Graph("network")
    x = g.input("x", Shape(["batch", 4]))
    w = g.param("w", Shape([4, 2]))
    y = g.relu(g.matmul(x, w, Shape(["batch", 2])) + 1.0)
    g.set_outputs([g.reduce("mean", y, [0]), g.reshape(y * 2.0, ["batch", 2, 1])])
    return g


def expected(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y = np.maximum(x @ w + 1.0, 0.0)
    return y.mean(0), (y * 2.0)[:, :, None]


WEIGHTS = np.cos(np.arange(8.0, dtype=np.float32)).reshape(4, 2)


# ------------------------------------------------------------------ named sizes
@pytest.mark.parametrize("batch", [3, pytest.param(7, marks=pytest.mark.thorough)])
@pytest.mark.selected("all")
def test_a_graph_with_named_sizes_is_the_graph_of_each_size(batch: int) -> None:
    x = np.linspace(-1.0, 1.0, batch * 4, dtype=np.float32).reshape(batch, 4)
    found = network().specialize(batch=batch)(x, WEIGHTS)
    for a, b in zip(found, expected(x, WEIGHTS), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_shapes_show_names() -> None:
    g = network()
    assert g.symbols.keys() == {"batch"} and g.inputs["x"].shape == Shape(["batch", 4])
    assert [node.shape.dims for node in g.outputs] == [(2,), ("batch", 2, 1)]
    assert repr(Shape(["batch", 4])) == "Shape(['batch', 4], F32)" and Shape(["n", "n"]).symbols == ("n",)
    with pytest.raises(RlxError, match="without a value: batch"):
        _ = Shape(["batch", 4]).type
    with pytest.raises(RlxError, match="single word"):
        Shape(["2 * n"])


def test_unbound_sizes_are_refused_everywhere() -> None:
    g = network()
    for use in (
        lambda: g.program,
        lambda: g(ROWS, WEIGHTS),
        lambda: Session("cpu").compile(g),
        lambda: CompilePipeline().compile(g),
        lambda: opt.cse(g),
        lambda: str(g),
    ):
        with pytest.raises(RlxError, match="sizes without a value: batch"):
            use()
    with pytest.raises(RlxError, match="no value for the size batch"):
        g.specialize()
    with pytest.raises(RlxError, match="no size named rows"):
        g.specialize(batch=1, rows=2)


def test_sizes_that_do_not_fit_are_refused() -> None:
    g = Graph("square")
    x = g.input("x", Shape(["n", 4]))
    g.set_outputs([g.reshape(x, [2, "n", 2])])
    assert g.specialize(n=3).outputs[0].shape.dims == (2, 3, 2)
    h = Graph("product")
    a, b = h.input("a", Shape(["n", "m"])), h.input("b", Shape(["m", "n"]))
    h.set_outputs([h.matmul(a, b)])
    assert h.specialize({"n": 2}, m=5).outputs[0].shape.dims == (2, 2)
    with pytest.raises(ShapeError):
        k = Graph("wrong")
        k.set_outputs([k.matmul(k.input("a", Shape(["n", "m"])), k.input("b", Shape(["n", "m"])))])


def test_results_of_compiling_are_specialised() -> None:
    options = CompileOptions(dim_binding={"batch": 3})
    one = compile_graph_stages("cpu", network(), options)
    assert one.mir.output_types[1].shape == (3, 2, 1)
    assert one.specialize(batch=9).mir.output_types[1].shape == (9, 2, 1)
    with pytest.raises(RlxError, match="no named sizes"):
        compile_graph_stages("cpu", network().specialize(batch=2)).specialize(batch=3)
    compiled = Session("cpu").compile(network(), options)
    compiled.set_param("w", WEIGHTS)
    for a, b in zip(compiled.run(x=ROWS), expected(ROWS, WEIGHTS), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


# ------------------------------------------------------------------ targets and options
@pytest.mark.thorough
def test_there_is_a_target_for_every_device_and_answers_differ() -> None:
    devices = {target.value for target in FusionTarget}
    assert {"cpu", "c", "numba", "opencl", "cuda", "rocm", "mlx", "gpu", "xla", "tpu", "reference"} == devices
    assert fusion_target_for("metal") is FusionTarget.MLX is FusionTarget.METAL
    cpu, cuda, c = (opt.supported_for_target(t) for t in ("cpu", "cuda", "c"))
    assert "fft" in cpu and "fft" in cuda and "fft" not in c
    assert {"tanh", "dot_general", "sort"} <= cpu & cuda & c and "eig" not in cuda
    limits = fusion.fusion_limits_for_target("cpu"), fusion.fusion_limits_for_target("cuda")
    assert limits[0].mixed_sums and not limits[1].mixed_sums
    assert pipeline_for("cuda").compile(Graph.trace(lambda x: x @ x, jnp.ones((8, 8)))).lir.kernels


def test_options_of_compiling() -> None:
    graph = Graph.trace(lambda x: (jnp.exp(x @ x) * 1.0, 2.0 + 3.0 * x)[0], jnp.ones((8, 8)))
    plain = compile_graph_stages("cpu", graph)
    aligned = compile_graph_stages("cpu", graph, CompileOptions(arena_alignment=1024, precision="bfloat16"))
    assert all(offset % 1024 == 0 for offset in aligned.lir.offsets.values()) and aligned.lir.offsets
    dtypes = {str(v.type.dtype) for e in aligned.mir.equations for v in e.outputs}
    assert "bfloat16" in dtypes and {str(v.type.dtype) for e in plain.mir.equations for v in e.outputs} == {"float32"}
    steps = [s.name for s in compile_graph_stages("cpu", graph, dce=False, constant_folding=False).steps]
    assert "dce" not in steps and "fold" not in steps and "dce" in [s.name for s in plain.steps]
    other = compile_hir_stages("cpu", graph.program, CompileOptions(fusion_target=FusionTarget.C))
    assert other.pipeline is not None and other.pipeline.target is FusionTarget.C
    with pytest.raises(RlxError, match="power of two"):
        CompileOptions(arena_alignment=48)
    with pytest.raises(RlxError, match="precision and policy"):
        CompileOptions(precision="float16", policy=rlx.PrecisionPolicy.mixed())
    with pytest.raises(RlxError, match="takes programs"):
        pipeline_for("xla").compile(graph)
    with pytest.raises(RlxError, match="put all in options|Put all"):
        Session("cpu").compile(graph, CompileOptions(), supported_ops=["add"])


def test_verbose_compiling_prints_reports(capsys: pytest.CaptureFixture[str]) -> None:
    Session("cpu").compile(Graph.trace(jnp.sin, jnp.ones(4)), CompileOptions(verbose=True))
    assert "1 kernels" in capsys.readouterr().err


# ------------------------------------------------------------------ modules, aliases, settings
def test_the_modules_of_the_seeds() -> None:
    scope: dict[str, Any] = {}
    exec("from rlx.prelude import *", scope)
    assert set(rlx.prelude.__all__) <= scope.keys() and scope["Graph"] is Graph
    assert rlx.runtime.Session is Session and rlx.macros.rlx_model is rlx.model
    assert rlx.backends.meant_device("metal") == "mlx"
    assert rlx.linalg.solve is jnp.linalg.solve and "cpu" in rlx.driver.device_names()
    graph = Graph("kinds")
    x = graph.input("x", Shape([3]))
    y = graph.activation(rlx.ops.Activation.RELU, graph.binary(rlx.ops.BinaryOp.ADD, x, 1.0))
    graph.set_outputs([graph.compare(rlx.ops.CmpOp.GT, y, 1.0)])
    assert rlx.ops.MaskKind.CAUSAL == "causal"
    assert np.asarray(graph(np.array([-2.0, 0.0, 1.0], np.float32))).tolist() == [False, False, True]


def test_the_schemes_of_the_seeds() -> None:
    made = [
        QuantScheme.int8_block(16), QuantScheme.int8_block_asym(), QuantScheme.int4_block(64),
        QuantScheme.fp8_e4m3(), QuantScheme.fp8_e5m2(), QuantScheme.nvfp4_block(),
    ]  # fmt: skip
    assert [s.name for s in made] == ["int8/16", "int8a/32", "int4/64", "fp8e4m3", "fp8e5m2", "nvfp4/16"]


@pytest.mark.parametrize("name", ["ane", "opengl", "fpga", "cortexm", "coreml"])
@pytest.mark.selected("all")
def test_hardware_without_a_backend_says_what_to_use(name: str) -> None:
    with pytest.raises(DeviceError, match="no backend for") as caught:
        Session(name)
    assert caught.value.instead


def test_settings_of_other_programs_are_pointed_out() -> None:
    assert unread_settings(dict.fromkeys(MEANT, "1")).keys() == MEANT.keys() and not MEANT.keys() & set(SETTINGS)
    assert unread_settings({"RLX_NUM_THREAD": "1"}) == {"RLX_NUM_THREAD": "did you mean RLX_NUM_THREADS?"}
    assert not unread_settings({**dict.fromkeys(SETTINGS, "1"), "RLX_TEST_SEED": "1", "RLX_ZZZ": "1", "HOME": "/"})


@pytest.mark.thorough
def test_the_import_warns() -> None:
    run = [sys.executable, "-c", "import os; os.environ['RLX_IR_DUMP'] = 'x'; import rlx"]
    assert "RLX_IR_DUMP: set RLX_DUMP" in subprocess.run(run, capture_output=True, text=True, check=True).stderr


# ------------------------------------------------------------------ caches, handles, training
def test_a_cache_of_compiled_graphs_forgets_the_oldest_use() -> None:
    cache: CompileCache[int] = CompileCache("cpu", capacity=2)
    made: list[int] = []

    def build(n: int) -> Graph:
        made.append(n)
        return Graph.trace(lambda x: x * float(n), jnp.ones(2))

    for n in (1, 2, 1, 3, 1, 2):
        assert cache.get(n, lambda n=n: build(n)).run_raw([1.0, 2.0])[0].tolist() == [n, 2 * n]
    assert made == [1, 2, 3, 2] and len(cache) == 2 and 3 not in cache
    cache.clear()
    assert len(cache) == 0
    with pytest.raises(RlxError, match="capacity=0"):
        CompileCache(capacity=0)


def rows_times_weights(result: str = "batch") -> Graph:
    g = Graph("rows")
    y = g.relu(g.matmul(g.input("x", Shape(["batch", 4])), g.param("w", Shape([4, 2])), Shape(["batch", 2])))
    made = {"batch": lambda: y, "mean": lambda: g.reduce("mean", y, [0]), "share": lambda: y / g.reduce("sum", y, [0])}
    g.set_outputs([made[result]()])
    return g


def test_a_model_is_compiled_for_the_sizes_that_are_asked_for() -> None:
    model = ModelCompilePipeline(rows_times_weights("mean"))
    model.set_param("w", WEIGHTS)
    for batch in (1, 3, 3):
        found = model.compile(batch=batch).run(x=ROWS[:batch])[0]
        np.testing.assert_allclose(found, np.maximum(ROWS[:batch] @ WEIGHTS, 0).mean(0), rtol=1e-5)
    assert model.compile(batch=3) is model.compile(batch=3)
    with pytest.raises(RlxError, match="no parameter 'v'"):
        model.set_param("v", 1.0)
    with pytest.raises(RlxError, match="no named sizes"):
        ModelCompilePipeline(Graph.trace(jnp.sin, jnp.ones(2)))


def test_inputs_are_padded_to_buckets() -> None:
    """Results are those of the exact size; a graph that combines rows is refused, as are sizes beyond the buckets."""
    model = BucketedCompileCache(rows_times_weights(), buckets=[2, 8])
    model.set_param("w", WEIGHTS)
    for batch in (1, 2, 3, 3):
        np.testing.assert_allclose(model.run(x=ROWS[:batch])[0], np.maximum(ROWS[:batch] @ WEIGHTS, 0), rtol=1e-5)
    assert model.compiled == (2, 8)
    with pytest.raises(ShapeError, match="largest bucket has 8"):
        model.run(x=np.ones((9, 4)))
    with pytest.raises(RlxError, match="has no axis 'batch'"):
        BucketedCompileCache(rows_times_weights("mean"))
    mixing = BucketedCompileCache(rows_times_weights("share"))
    mixing.set_param("w", WEIGHTS)
    with pytest.raises(RlxError, match="depends on the padding"):
        mixing.run(x=ROWS)


def test_compiled_graphs_take_bytes_batches_and_handles() -> None:
    g = Graph("state")
    total, x = g.input("total", Shape([2])), g.input("x", Shape([2]))
    g.set_outputs([total + x, x * 2.0])
    compiled = Session("cpu").compile(g)
    x = np.array([1.0, 2.0], np.float32)
    typed = compiled.run_typed({"total": (x.tobytes(), DType.F32), "x": (x.tobytes(), DType.F32)})
    assert typed == [((2 * x).tobytes(), DType.F32)] * 2
    with pytest.raises(DtypeError, match="float64"):
        compiled.run_typed({"x": (x.tobytes(), DType.F64)})
    with pytest.raises(ShapeError, match="8 bytes, and got 4"):
        compiled.run_typed({"x": (b"1234", DType.F32)})
    with pytest.raises(RlxError, match="run_raw got 1"):
        compiled.run_raw(x)
    compiled.bind_handle("total", [0.0, 0.0], output=0)
    found = compiled.run_pipelined([{"x": x * n} for n in range(3)])
    assert [a[0].tolist() for a in found] == [[0, 0], [1, 2], [3, 6]]
    assert compiled.read_handle("total").tolist() == [3, 6]
    compiled.bind_handle("total", [1.0, 1.0])
    assert [compiled.run(x=x)[0].tolist() for _ in range(2)] == [[2, 3]] * 2
    for call in (lambda: compiled.read_handle("x"), lambda: compiled.bind_handle("y", 1.0)):
        with pytest.raises(RlxError):
            call()
    with pytest.raises(RlxError, match="cannot replace"):
        compiled.bind_handle("x", [1.0, 1.0], output=5)


def test_training_is_compiled_with_its_memory() -> None:
    g = Graph.trace(lambda w, x: jnp.sum(jnp.tanh(x @ w) ** 2), jnp.ones((4, 2)), jnp.ones((32, 4)), params=["w"])
    found = CompilePipeline().compile_training(g)
    assert isinstance(found, TrainingCompileResult)
    assert [t.shape for t in found.forward.mir.output_types] == [()]
    assert [t.shape for t in found.backward.mir.output_types] == [(), (4, 2)]
    assert opt.plan_memory_backward(g).outputs == opt.plan_memory(g).outputs + 4 * 8
    with pytest.raises(AutodiffError, match="no input or parameter 'v'"):
        CompilePipeline().compile_training(g, "v")
    with pytest.raises(AutodiffError, match="no input or parameter 'v'"):
        opt.plan_memory_backward(g, "v")
