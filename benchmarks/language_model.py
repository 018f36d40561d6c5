"""Tokens a second of SmolLM2, products with packed weights, and decoding, beside other libraries.

    python -m benchmarks.language_model [--threads 2] [--tokens 64] [--only NAME] [--json]

`make bench` has rows of the model, each library in a process of its own (benchmarks/figures.py), and names what is not
installed. Here all of it runs in one process, one after the other, on as many threads; figures of a machine that does
other things mean nothing. It needs what `make test-lm` installs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx import gguf, lm, quant
from rlx.cli.generate import model_path
from rlx.gguf.types import StorageType

PROMPT = "The capital of France is"
SCHEMES = ("gguf_q4_0", "gguf_q4_1", "gguf_q4_k", "gguf_q6_k", "gguf_q8_0", "int4/32", "int8/32", "nf4/64")
ROWS = (1, 8, 128)  # of x in products
KINDS = ("Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K")  # that are decoded


def quickest(call: Callable[[], Any], times: int = 20, least: float = 0.0) -> float:
    """Seconds of the quickest of some calls, which take `least` seconds together."""
    found: list[float] = []
    while len(found) < times or sum(found) < least:
        begun = time.perf_counter()
        result = call()
        if hasattr(result, "block_until_ready"):
            result.block_until_ready()
        found.append(time.perf_counter() - begun)
    return min(found)


def resident() -> float:
    """MiB of this process in memory."""
    import psutil

    return psutil.Process().memory_info().rss / 2**20


# ---------------------------------------------------------------- products
def products(size: int = 4096) -> dict[str, dict[str, float]]:
    """Seconds of products by kind of weight, "float32" and onnxruntime's "MatMulNBits" among them, by rows of x.

    Each takes long enough for what ran before it to end: threads of BLAS wait busily for a while.
    """
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((size, size)).astype(np.float32)
    plain, product = rlx.jit(lambda x, w: x @ w.T), rlx.jit(quant.dequant_matmul)
    dense, packed = jnp.asarray(weight), {scheme: quant.quantize(weight, scheme) for scheme in SCHEMES}
    found = {}
    for rows in ROWS:
        x = jnp.asarray(rng.standard_normal((rows, size)).astype(np.float32))
        calls: dict[str, Callable[[], Any]] = {"float32": lambda x=x: plain(x, dense)}
        calls |= {scheme: lambda x=x, w=w: product(x, w) for scheme, w in packed.items()}
        other = _onnxruntime(packed["int4/32"], np.asarray(x))
        calls |= {} if other is None else {"MatMulNBits": other}
        for call in calls.values():
            call()
        found[str(rows)] = {name: quickest(call, least=0.25) for name, call in calls.items()}
    return found


def decoding(count: int = 1 << 22) -> dict[str, dict[str, float]]:
    """Seconds in which packed numbers are decoded, by kind, beside libgguf's."""
    import libgguf

    found = {}
    for kind in KINDS:
        block = gguf.layout(kind)
        # scales are small numbers
        packed = np.random.default_rng(0).integers(0, 64, (64, count // 64 // block.elements * block.nbytes), np.uint8)
        decode = rlx.jit(lambda packed, kind=kind: gguf.dequantize(packed, kind))
        number = int(StorageType[kind])
        found[kind] = {
            "rlx": quickest(lambda decode=decode, packed=packed: decode(packed)),
            "libgguf": quickest(lambda packed=packed, number=number: libgguf.dequantize_rows(packed, number)),
        }
    return found


def _onnxruntime(packed: quant.QuantizedArray, x: np.ndarray) -> Callable[[], Any] | None:
    try:
        import onnx
        import onnxruntime
    except ImportError:
        return None
    n, k = packed.shape
    make = onnx.helper
    node = make.make_node(
        "MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft", K=k, N=n, bits=4, block_size=32, accuracy_level=0
    )
    kinds = onnx.TensorProto
    given = [
        make.make_tensor("b", kinds.UINT8, [n, k // 32, 16], np.asarray(packed.elements).tobytes(), raw=True),
        make.make_tensor("s", kinds.FLOAT, [n * k // 32], np.asarray(packed.scales).tobytes(), raw=True),
    ]
    ends = [[make.make_tensor_value_info(name, kinds.FLOAT, [len(x), size])] for name, size in (("x", k), ("y", n))]
    graph = make.make_graph([node], "g", *ends, given)
    opsets = [make.make_opsetid("", 17), make.make_opsetid("com.microsoft", 1)]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = rlx.get_num_threads()
    text = make.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    session = onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x})


# ---------------------------------------------------------------- the model
def ours(tokens: int) -> dict[str, float]:
    """Opening, the first token, decoding, a prompt of 512 tokens, memory."""
    before, begun = resident(), time.perf_counter()
    model = lm.load(model_path("smollm2"))
    opened = time.perf_counter() - begun
    assert model.tokenizer is not None
    ids = model.tokenizer.encode(PROMPT)
    begun = time.perf_counter()
    next(model.generate(ids, tokens, stop=()))
    first = time.perf_counter() - begun
    steps, last = [], time.perf_counter()
    for _ in model.generate(ids, tokens, stop=()):
        steps.append(time.perf_counter() - last)
        last = time.perf_counter()
    prompt = np.random.default_rng(0).integers(0, model.config.vocabulary, 512).tolist()
    model.start([prompt], 1)
    prefill = quickest(lambda: np.asarray(model.start([prompt], 1)[0]), 3)
    found = {"decode": 1 / float(np.median(steps[3:])), "prefill": 512 / prefill}
    return found | {"opened": opened, "first": first, "resident": resident() - before}


def llama_cpp(tokens: int) -> dict[str, float]:
    """As the server itself measures it."""
    import xllamacpp

    given = xllamacpp.CommonParams()
    given.model.path = str(model_path("smollm2"))
    given.n_ctx, given.n_parallel, given.warmup = 1024, 1, True
    given.cpuparams.n_threads = rlx.get_num_threads()
    server = xllamacpp.Server(given)
    asked = {"prompt": PROMPT, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
    server.handle_completions(asked)
    told = server.handle_completions({**asked, "timings_per_token": True}).get("timings", {})
    prompt = np.random.default_rng(0).integers(0, 49152, 512).tolist()
    long = server.handle_completions({**asked, "prompt": prompt, "max_tokens": 1}).get("timings", {})
    return {"decode": told["predicted_per_second"], "prefill": long["prompt_per_second"]}


def transformers_float32(tokens: int) -> dict[str, float]:
    """The same weights, decoded."""
    import torch
    import transformers

    torch.set_num_threads(rlx.get_num_threads())
    path = model_path("smollm2")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.float32
    )
    ids = torch.tensor([lm.load(path).tokenizer.encode(PROMPT)])  # ty: ignore[unresolved-attribute]
    prompt = torch.randint(0, 49152, (1, 512))
    with torch.no_grad():
        model.generate(ids, max_new_tokens=4, do_sample=False)
        begun = time.perf_counter()
        model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False)
        taken = time.perf_counter() - begun
        prefill = quickest(lambda: model(prompt, logits_to_keep=1), 3)
    return {"decode": tokens / taken, "prefill": 512 / prefill}


MODELS: dict[str, Callable[[int], dict[str, float]]] = {
    "rlx": ours,
    "llama.cpp": llama_cpp,
    "transformers": transformers_float32,
}


def product_lines(found: dict[str, dict[str, float]]) -> Iterator[str]:
    """Products in lines."""
    for rows, seconds in found.items():
        yield f"{rows} rows by 4096 x 4096"
        for name, taken in seconds.items():
            yield f"  {name:12} {taken * 1e3:7.2f} ms, {seconds['float32'] / taken:5.2f} times float32"


def decoding_lines(found: dict[str, dict[str, float]]) -> Iterator[str]:
    """Decoding in lines."""
    for kind, seconds in found.items():
        yield f"{kind} decoded in {seconds['rlx'] * 1e3:.2f} ms, by libgguf in {seconds['libgguf'] * 1e3:.2f} ms"


def told(name: str, found: dict[str, float]) -> str:
    """What a library did, in a line."""
    said = f"{name}: {found['decode']:.1f} tokens a second, prompt of 512: {found['prefill']:.0f} tokens a second"
    if "opened" in found:
        said += (
            f", opened in {found['opened']:.2f} s, first token {found['first']:.2f} s,"
            f" {found['resident']:.0f} MiB more than before"
        )
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--only", choices=["products", "decoding", *MODELS])
    parser.add_argument("--json", action="store_true", help="figures as JSON")
    options = parser.parse_args()
    rlx.set_num_threads(options.threads)
    if options.only in (None, "products"):
        seconds = products()
        print(json.dumps(seconds) if options.json else "\n".join(product_lines(seconds)), flush=True)
    if options.only in (None, "decoding"):
        taken = decoding()
        print(json.dumps(taken) if options.json else "\n".join(decoding_lines(taken)), flush=True)
    for name, measure in MODELS.items():
        if options.only in (None, name):
            found = measure(options.tokens)
            print(json.dumps(found) if options.json else told(name, found), flush=True)


if __name__ == "__main__":
    main()
