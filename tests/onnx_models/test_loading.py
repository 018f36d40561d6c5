"""ONNX models: ONNX's own cases of every operator, whole networks against onnxruntime, bad models."""

from __future__ import annotations

import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx.reference
import onnxruntime
import pytest

import rlx
import rlx.numpy as jnp
from rlx.errors import ConcretizationTypeError, FileFormatError, InputTypeError, ShapeError, UnsupportedError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "onnx.md"
# cases that are not computed, by the start of their names, and why
SKIPPED = {
    "test_image_decoder": "decoding of image files",
    "test_tfidfvectorizer": "counts of words in strings",
    "test_training_dropout": "random numbers, without an expected result",
    "test_bernoulli": "random numbers, without an expected result",
    "test_ai_onnx_ml_tree_ensemble": "decision trees",
}
NARROW = 2.0**-7  # what a float of sixteen bits and fewer may be off by, as part of the largest


@cache
def node_cases() -> tuple[Any, ...]:
    """ONNX's cases of single operators."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return tuple(collect_testcases(None))


def kind_of(case: Any) -> str:
    """ "strings", a reason to leave it out, or nothing."""
    values = [*case.model.graph.input, *case.model.graph.output]
    if any("elem_type: 8\n" in str(v.type) for v in values):
        return "strings"
    return next((why for start, why in SKIPPED.items() if case.name.startswith(start)), "")


def arrays(values: Any) -> list[np.ndarray]:
    """Inputs or outputs of a case as arrays."""
    return [onnx.numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else _array(v) for v in values]


def _array(value: Any) -> Any:
    return value if value is None or isinstance(value, list) else np.asarray(value)


def compare(found: Any, expected: np.ndarray, case: Any) -> None:
    """Shape and dtype, and the values as close as the case wants it, or as their dtype can be."""
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            compare(a, np.asarray(b), case)
        return
    found = np.asarray(found)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if not jnp.issubdtype(expected.dtype, jnp.floating):
        np.testing.assert_array_equal(found, expected)
        return
    a, b = found.astype(np.float64), expected.astype(np.float64)
    largest = float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b)))
    error = 2e-6 if expected.dtype.itemsize > 2 or expected.dtype == np.float16 else NARROW
    np.testing.assert_allclose(a, b, rtol=max(case.rtol, error), atol=max(case.atol, error * largest))


def outputs_of(case: Any) -> None:
    """Run a case, and compare."""
    function, parameters = rlx.onnx.load(case.model)
    for inputs, outputs in case.data_sets:
        found = function(parameters, *arrays(inputs))
        found = found if isinstance(found, tuple) else (found,)
        assert len(found) == len(outputs)
        for a, b in zip(found, arrays(outputs), strict=True):
            compare(a, b, case)


def groups() -> dict[str, list[Any]]:
    """The cases that are run, by the word behind test_."""
    found: dict[str, list[Any]] = {}
    for case in node_cases():
        if not kind_of(case):
            found.setdefault(case.name.split("_")[1], []).append(case)
    return found


@pytest.mark.parametrize("name", sorted(groups()))
@pytest.mark.filterwarnings("ignore")
def test_cases_of_onnx(name: str) -> None:
    """Every case of an operator, eagerly."""
    wrong = []
    for case in groups()[name]:
        try:
            outputs_of(case)
        except Exception as error:
            wrong.append(f"{case.name}: {type(error).__name__} {str(error)[:300]}")
    assert not wrong, "\n".join(wrong)


# ---------------------------------------------------------------- models that the onnx package has on disk
STORED = Path(onnx.__file__).parent / "backend" / "test" / "data"
UNKNOWN = ("test_gradient", "test_strnorm")  # training and strings


def tensors(folder: Path, kind: str) -> list[np.ndarray]:
    """The inputs or outputs of a data set."""
    graph = onnx.load(folder.parent / "model.onnx").graph
    paths = sorted(folder.glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.split("_")[1]))
    return [_stored(path, value.type) for path, value in zip(paths, getattr(graph, kind), strict=False)]


def _stored(path: Path, type: Any) -> Any:
    if not type.HasField("sequence_type"):
        return onnx.numpy_helper.to_array(onnx.load_tensor(str(path)))
    return onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))


@pytest.mark.parametrize("kind, count", [("simple", 15), ("pytorch-converted", 82), ("pytorch-operator", 35)])
@pytest.mark.filterwarnings("ignore")
def test_stored_cases(kind: str, count: int) -> None:
    """Models of a few operators, most of them written by PyTorch for older operator sets."""
    folders = [f for f in sorted((STORED / kind).iterdir()) if not f.name.startswith(UNKNOWN)]
    assert len(folders) >= count
    wrong = []
    for folder in folders:
        try:
            function, parameters = rlx.onnx.load(folder / "model.onnx")
            for data in sorted(folder.glob("test_data_set_*")):
                found = function(parameters, *tensors(data, "input"))
                found = found if isinstance(found, tuple) else (found,)
                for a, b in zip(found, tensors(data, "output"), strict=True):
                    if isinstance(b, list):
                        assert [x.tolist() for x in a] == [x.tolist() for x in b]
                        continue
                    assert (np.asarray(a).dtype, a.shape) == (b.dtype, b.shape)
                    np.testing.assert_allclose(np.asarray(a), b, rtol=1e-3, atol=1e-5)
        except Exception as error:
            wrong.append(f"{folder.name}: {type(error).__name__} {str(error)[:300]}")
    assert not wrong, "\n".join(wrong)


# those of fewer than 30 million weights: the others are as deep and take gigabytes
NETWORKS = "densenet121 inception_v1 inception_v2 resnet50 shufflenet squeezenet".split()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.filterwarnings("ignore")
def test_light_networks(name: str) -> None:
    """Whole networks, with drawn weights in place of constant ones, which would hide a wrong order: as onnxruntime."""
    model = onnx.load(STORED / "light" / f"light_{name}.onnx")
    draw_weights(model.graph)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (image,) = session.get_inputs()
    x = np.random.default_rng(0).standard_normal(image.shape).astype(np.float32)
    (expected,) = session.run(None, {image.name: x})
    function, parameters = rlx.onnx.load(model)
    found = np.asarray(rlx.jit(function)(parameters, x))
    assert expected.std() > 1e-6 and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def draw_weights(graph: Any) -> None:
    """Weights instead of what the files make by ConstantOfShape: of He's scale; scales and variances near one."""
    rng = np.random.default_rng(0)
    shapes = {t.name: tuple(onnx.numpy_helper.to_array(t)) for t in graph.initializer if t.data_type == 7}
    filled = {n.output[0]: shapes[n.input[0]] for n in graph.node if n.op_type == "ConstantOfShape"}
    kept = [n for n in graph.node if n.op_type != "ConstantOfShape"]
    del graph.node[:]
    graph.node.extend(kept)
    for name, shape in filled.items():
        fan = int(np.prod(shape[1:]))
        drawn = rng.uniform(0.5, 1.5, shape) if len(shape) == 1 else rng.standard_normal(shape) * np.sqrt(2 / fan)
        graph.initializer.append(onnx.numpy_helper.from_array(drawn.astype(np.float32), name))


def test_counts_are_those_of_the_page() -> None:
    """docs/onnx.md has a table of what is run and what is left out, with reasons."""
    kinds = Counter(map(kind_of, node_cases()))
    assert kinds[""] >= 0.85 * (len(node_cases()) - kinds["strings"])
    page = PAGE.read_text(encoding="utf-8")
    for why, count in kinds.items():
        row = f"| {why or 'computed'} | {count} |"
        assert row in page, row


TRACED = "relu gemm conv softmax layer lstm gru averagepool resize gather attention rnn scan matmul maxpool".split()


@pytest.mark.parametrize("name", TRACED)
@pytest.mark.filterwarnings("ignore")
def test_cases_under_jit(name: str) -> None:
    """Inputs of real dtype are traced, the others known: compiled results are the expected ones."""
    count = 0
    for case in groups()[name]:
        function, parameters = rlx.onnx.load(case.model)
        inputs, outputs = map(arrays, case.data_sets[0])
        real = [np.issubdtype(x.dtype, np.floating) for x in inputs]

        def run(*traced: Any, f: Any = function, p: Any = parameters, xs: Any = inputs, real: Any = real) -> Any:
            left = iter(traced)
            return f(p, *(next(left) if r else x for x, r in zip(xs, real, strict=True)))

        try:
            found = rlx.jit(run)(*(x for x, r in zip(inputs, real, strict=True) if r))
        except ConcretizationTypeError:
            continue
        count += 1
        for a, b in zip(found if isinstance(found, tuple) else (found,), outputs, strict=True):
            compare(a, b, case)
    assert count >= 1


# ------------------------------------------------------------------ whole models
NETWORK = """
<ir_version: 10, opset_import: ["" : 21]>
network (float[N, 1, 12, 12] x) => (float[N, 10] y) <int64[2] shape = {0, -1}>
{
  a = Conv <pads = [1, 1, 1, 1]> (x, w1, b1)
  n = BatchNormalization (a, s, o, m, v)
  r = Relu (n)
  p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
  c = Conv <auto_pad = "SAME_UPPER", strides = [2, 2]> (p, w2, b2)
  g = Gelu (c)
  f = Reshape (g, shape)
  d = Gemm (f, w3, b3)
  y = LogSoftmax (d)
}
"""
WEIGHTS = {
    "w1": (8, 1, 3, 3), "b1": (8,), "w2": (16, 8, 3, 3), "b2": (16,), "w3": (144, 10), "b3": (10,),
    "s": (8,), "o": (8,), "m": (8,), "v": (8,),
}  # fmt: skip


@pytest.fixture(scope="module")
def model() -> Any:
    """The network, its weights as initializers."""
    parsed = onnx.parser.parse_model(NETWORK)
    generator = np.random.default_rng(0)
    for name, shape in WEIGHTS.items():
        value = generator.uniform(0.5, 1.0, shape) if name in "sv" else generator.standard_normal(shape) * 0.2
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(value.astype(np.float32), name))
    return parsed


def test_a_network_is_that_of_onnxruntime(model: Any, tmp_path: Path) -> None:
    """Compiled, for several batches, from a path and from bytes; and its gradient exists."""
    path = tmp_path / "network.onnx"
    onnx.save(model, path)
    function, parameters = rlx.onnx.load(path)
    assert parameters.keys() == WEIGHTS.keys()
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    compiled = rlx.jit(function)
    for batch in (1, 5):
        x = np.random.default_rng(batch).standard_normal((batch, 1, 12, 12)).astype(np.float32)
        (expected,) = session.run(None, {"x": x})
        np.testing.assert_allclose(compiled(parameters, x), expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(compiled(parameters, x=x), expected, rtol=1e-4, atol=1e-5)
    slopes = rlx.jit(rlx.grad(lambda p: compiled(p, x)[:, 0].sum()))(parameters)
    step = 1e-3
    moved = {**parameters, "b3": parameters["b3"] + step * slopes["b3"]}
    expected = step * float((slopes["b3"] ** 2).sum())
    difference = float(compiled(moved, x)[:, 0].sum() - compiled(parameters, x)[:, 0].sum())
    np.testing.assert_allclose(difference, expected, rtol=0.05)
    again, _ = rlx.onnx.load(path.read_bytes())
    np.testing.assert_allclose(again(parameters, x), compiled(parameters, x), rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------ bad models
def small(body: str, head: str = "") -> Any:
    """A model of a few nodes."""
    text = f'<ir_version: 10, opset_import: ["" : 21, "my" : 1]> g (float[3] x) => (float[3] y) {head} {{ {body} }}'
    return onnx.parser.parse_model(text)


def test_unknown_operators_are_named_together() -> None:
    """All of them, with their nodes."""
    with pytest.raises(UnsupportedError) as caught:
        rlx.onnx.load(small("a = my.Wobble(x)\n b = ImageDecoder(a)\n c = my.Wobble(b)\n y = Relu(c)"))
    assert "my.Wobble: number 0, number 2" in str(caught.value) and "ImageDecoder: number 1" in str(caught.value)


def test_files_that_are_no_models(tmp_path: Path) -> None:
    """Other bytes, cut off files, none."""
    for data in (b"", b"not a model", small("y = Relu(x)").SerializeToString()[:20]):
        with pytest.raises(FileFormatError, match="not an ONNX model"):
            rlx.onnx.load(data)
    with pytest.raises(OSError):
        rlx.onnx.load(tmp_path / "nothing.onnx")


def external(folder: Path, location: str, length: int = 12) -> Path:
    """A model whose weights are in a file of their own."""
    model = small("y = Add(x, w)", "<float[3] w = {1, 2, 3}>")
    (tensor,) = model.graph.initializer
    data = onnx.numpy_helper.to_array(tensor).tobytes()
    tensor.ClearField("float_data")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "4"), ("length", str(length))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    (folder / "weights.bin").write_bytes(b"skip" + data)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_weights_in_other_files(tmp_path: Path) -> None:
    """Beside the model they are read; elsewhere never."""
    inner = tmp_path / "inner"
    inner.mkdir()
    function, parameters = rlx.onnx.load(external(inner, "weights.bin"))
    assert function(parameters, np.zeros(3, np.float32)).tolist() == [1.0, 2.0, 3.0]
    (tmp_path / "weights.bin").write_bytes(bytes(16))
    for location in ("../weights.bin", str(tmp_path / "weights.bin")):
        with pytest.raises(FileFormatError, match="outside"):
            rlx.onnx.load(external(inner, location))
    with pytest.raises(FileFormatError, match="ends before"):
        rlx.onnx.load(external(inner, "weights.bin", 400))
    with pytest.raises(FileFormatError, match="path"):
        rlx.onnx.load(external(inner, "weights.bin").read_bytes())


def test_wrong_inputs_and_unknown_values() -> None:
    """Inputs by number and name; shapes that depend on traced values."""
    function, parameters = rlx.onnx.load(small("y = Relu(x)"))
    for args, named in (((), {}), ((1.0, 2.0), {}), ((), {"z": 1.0})):
        with pytest.raises(InputTypeError, match="inputs x"):
            function(parameters, *args, **named)
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[3] x, int64[1] s) => (float[N] y) { y = Expand(x, s) }'
    function, parameters = rlx.onnx.load(onnx.parser.parse_model(text))
    assert function(parameters, np.ones(1, np.float32), np.array([4])).shape == (4,)
    with pytest.raises(ConcretizationTypeError, match="Expand"):
        rlx.jit(function)(parameters, np.ones(1, np.float32), np.array([4]))


def packed_product(bits: int, zeros: bool, block: int = 32, k: int = 96, n: int = 7) -> Any:
    """A model of onnxruntime's product with a weight of few bits."""
    draw = np.random.default_rng(bits)
    blocks, make = k // block, onnx.helper
    held = {
        "b": draw.integers(0, 256, (n, blocks, block * bits // 8), np.uint8),
        "s": draw.uniform(0.01, 0.1, (n, blocks)).astype(np.float32),
    }
    if zeros:
        held["z"] = draw.integers(0, 256, (n, -(-blocks * bits // 8)), np.uint8)
    node = make.make_node(
        "MatMulNBits", ["x", *held], ["y"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=block
    )
    ends = [
        make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3, size]) for name, size in (("x", k), ("y", n))
    ]
    graph = make.make_graph(
        [node], "g", ends[:1], ends[1:], [onnx.numpy_helper.from_array(v, k) for k, v in held.items()]
    )
    opsets = [make.make_opsetid("", 17), make.make_opsetid("com.microsoft", 1)]
    return make.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("bits, zeros", [(4, False), (4, True), (8, False), (8, True)])
def test_weights_of_few_bits_stay_packed(bits: int, zeros: bool) -> None:
    model = packed_product(bits, zeros)
    x = np.random.default_rng(0).normal(size=(2, 3, 96)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    function, parameters = rlx.onnx.load(model)
    for call in (function, rlx.jit(function)):
        np.testing.assert_allclose(call(parameters, x), session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-4)
    if bits == 4 and not zeros:
        text = str(rlx.make_program(function)(parameters, x))
        assert "dequantized_product" in text, "no weight is decoded as a whole"


def test_other_numbers_of_bits_are_refused() -> None:
    function, parameters = rlx.onnx.load(packed_product(2, False))
    with pytest.raises(UnsupportedError, match="has weights of 2 bits, 96 numbers in blocks of 32"):
        function(parameters, np.ones((2, 3, 96), np.float32))


@pytest.mark.parametrize("kind", ["QLinearMatMul", "QLinearConv"])
def test_quantised_products_are_those_of_onnxruntime(kind: str) -> None:
    """Random codes with zero points, of the weight one for each channel where it convolves."""
    make = onnx.helper
    rng = np.random.default_rng(0)
    shapes = ((5, 48), (48, 7), (5, 7)) if kind == "QLinearMatMul" else ((2, 4, 9, 9), (6, 4, 3, 3), (2, 6, 7, 7))
    channels = () if kind == "QLinearMatMul" else (6,)
    given = {
        "sa": np.float32(0.02), "za": np.uint8(120), "w": rng.integers(-128, 128, shapes[1], np.int8),
        "sw": np.float32(rng.uniform(0.005, 0.02, channels)), "zw": np.zeros(channels, np.int8),
        "sy": np.float32(0.15), "zy": np.uint8(131),
    }  # fmt: skip
    node = make.make_node(kind, ["a", *given], ["y"])
    graph = make.make_graph(
        [node], "g", [make.make_tensor_value_info("a", onnx.TensorProto.UINT8, shapes[0])],
        [make.make_tensor_value_info("y", onnx.TensorProto.UINT8, shapes[2])],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in given.items()],
    )  # fmt: skip
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9)
    a = rng.integers(0, 256, shapes[0], np.uint8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {"a": a})[0].astype(int)
    function, parameters = rlx.onnx.load(model)
    for call in (function, rlx.jit(function)):
        difference = np.asarray(call(parameters, a)).astype(int) - expected
        assert np.abs(difference).max() <= 1 and (difference != 0).mean() < 0.01, "a factor is rounded in float32"
    assert len(np.unique(expected)) > 20


# ------------------------------------------------------------------ sequences
SEQUENCES = """
<ir_version: 10, opset_import: ["" : 21]>
parts (float[N, 2] x, int64 size, int64 at) => (float[M, 2] joined, float[K, 2] one, int64 count)
{
  all = SplitToSequence <axis = 0> (x, size)
  one = SequenceAt (all, at)
  twice = SequenceInsert (all, one)
  rest = SequenceErase (twice, at)
  count = SequenceLength (rest)
  joined = ConcatFromSequence <axis = 0> (rest)
}
"""


def test_sequences_under_jit() -> None:
    """Lengths and positions are known, the arrays in a sequence are traced, and have derivatives."""
    function, _ = rlx.onnx.load(onnx.parser.parse_model(SEQUENCES))
    x = np.arange(14, dtype=np.float32).reshape(7, 2)
    size, at = np.asarray(3), np.asarray(1)
    expected = onnx.reference.ReferenceEvaluator(onnx.parser.parse_model(SEQUENCES)).run(
        None, {"x": x, "size": size, "at": at}
    )
    for found in (function({}, x, size, at), rlx.jit(lambda x: function({}, x, size, at))(x)):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)
    assert rlx.grad(lambda x: function({}, x, size, at)[0].sum())(x).tolist() == [[1.0, 1.0]] * 7
    with pytest.raises(ConcretizationTypeError, match="SequenceAt"):
        rlx.jit(lambda x, at: function({}, x, size, at))(x, at)
    for place in (3, -4):
        with pytest.raises(ShapeError, match=f"position {place} in 3 elements"):
            function({}, x, size, np.asarray(place))
    with pytest.raises(ShapeError, match="parts of size 0"):
        function({}, x, np.asarray(0), at)


def test_sequences_in_loops_and_arguments() -> None:
    """Lists are passed and returned; a loop of known length may build one, a branch on a traced value may not."""
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (seq(float[2]) xs, bool flip) => (seq(float[2]) ys)
    { ys = If (flip) <
        then_branch = t () => (seq(float[2]) a) { n = SequenceLength(xs) zero = Constant<value_int = 0>()
          first = SequenceAt(xs, zero) a = SequenceInsert(xs, first) },
        else_branch = e () => (seq(float[2]) b) { b = Identity(xs) } > }"""
    function, _ = rlx.onnx.load(onnx.parser.parse_model(text))
    xs = [np.ones(2, np.float32), np.zeros(2, np.float32)]
    found = rlx.jit(lambda xs: function({}, xs, np.asarray(True)))(xs)
    assert [x.tolist() for x in found] == [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]
    assert len(function({}, xs, np.asarray(False))) == 2
    with pytest.raises(UnsupportedError, match="carries a sequence"):
        rlx.jit(lambda xs, flip: function({}, xs, flip))(xs, np.asarray(True))
    with pytest.raises(InputTypeError, match="list of arrays"):
        function({}, np.ones((2, 2), np.float32), np.asarray(True))


def test_a_branch_that_does_not_fit_is_explained() -> None:
    """Under jit both branches of a traced condition are traced."""
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[N, 3] x, bool wide, float[3, 1] a, float[4, 1] b) => (float[N, 1] y)
    { y = If (wide) < then_branch = t () => (float[N, 1] p) { p = MatMul(x, a) },
                      else_branch = e () => (float[N, 1] q) { q = MatMul(x, b) } > }"""
    function, _ = rlx.onnx.load(onnx.parser.parse_model(text))
    arrays = [np.ones((2, 3), np.float32), np.ones((3, 1), np.float32), np.ones((4, 1), np.float32)]
    run = rlx.jit(lambda wide, x, a, b: function({}, x, wide, a, b))
    assert function({}, arrays[0], np.asarray(True), *arrays[1:]).tolist() == [[3.0], [3.0]]
    with pytest.raises(ShapeError) as caught:
        run(np.asarray(True), *arrays)
    assert any("both branches are traced" in note for note in caught.value.__notes__)


def test_names_that_nothing_defines_are_told() -> None:
    """Of a node's operand, of a graph's output, and bytes in place of a name: files are not checked before."""
    text = '<ir_version: 10, opset_import: ["" : 21]> line (float[2] x) => (float[2] y) {{ {} = Add({}, x) }}'
    for result, operand, told in (("y", "w", "'w'.*Add"), ("z", "x", "'y'.*an output")):
        function, parameters = rlx.onnx.load(onnx.parser.parse_model(text.format(result, operand)))
        with pytest.raises(FileFormatError, match=told):
            function(parameters, np.ones(2, np.float32))
    damaged = onnx.parser.parse_model(text.format("y", "x")).SerializeToString().replace(b"Add", b"A\xffd")
    with pytest.raises(FileFormatError):
        rlx.onnx.load(damaged)
