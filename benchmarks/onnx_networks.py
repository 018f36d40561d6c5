"""Networks of the onnx package in rlx and in onnxruntime, in turn, in one process: the time of a call.

    python -m benchmarks.onnx_networks [--only NAME,NAME] [--rounds N]

A row: the first call in rlx (loading, compilation and a run), the median time of each, onnxruntime's time by rlx's, and
how far the results are apart, relative to the largest number. Both use as many threads as rlx.get_num_threads says.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import rlx

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
NAMES = "densenet121 inception_v1 inception_v2 resnet50 shufflenet squeezenet"


def seconds(call: Callable[[], Any]) -> float:
    """The time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compare(name: str, rounds: int) -> float:
    """Print a network's row; onnxruntime's time by rlx's."""
    path = FOLDER / f"light_{name}.onnx"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = rlx.get_num_threads()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (image,) = session.get_inputs()
    x = np.random.default_rng(0).standard_normal(image.shape).astype(np.float32)
    start = time.perf_counter()
    function, parameters = rlx.onnx.load(path)
    compiled = rlx.jit(function)
    found = np.asarray(compiled(parameters, x))
    first = time.perf_counter() - start
    (expected,) = session.run(None, {image.name: x})
    apart = float(np.abs(found - expected).max() / np.abs(expected).max())
    calls = [lambda: compiled(parameters, x).block_until_ready(), lambda: session.run(None, {image.name: x})]
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for call, kept in zip(calls, times, strict=True):
            kept.append(seconds(call))
    own, other = map(statistics.median, times)
    row = f"{name:14} rlx {first:6.2f} s {own * 1e3:8.1f} ms   onnxruntime {other * 1e3:8.1f} ms"
    print(f"{row}   ratio {other / own:5.2f}   apart {apart:.0e}", flush=True)
    return other / own


def main() -> None:
    """Compare all networks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=NAMES.replace(" ", ","))
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    ratios = [compare(name, arguments.rounds) for name in arguments.only.split(",")]
    print(f"{len(ratios)} networks: geometric mean {math.exp(statistics.fmean(map(math.log, ratios))):.2f}")


if __name__ == "__main__":
    main()
