"""Networks of the onnx package in rlx and in onnxruntime, in turn, in one process: the time of a call.

    python -m benchmarks.onnx_networks [--only NAME,NAME] [--rounds N]

For each: the times of rlx, those of onnxruntime and their ratio, and whether the results differ. The last line is the
geometric mean of the ratios. Both use as many threads as rlx.get_num_threads says.
"""

from __future__ import annotations

import argparse
import math
import statistics
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import rlx

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
NAMES = "densenet121,inception_v1,inception_v2,resnet50,shufflenet,squeezenet"


def compare(name: str, rounds: int) -> float:
    """Print a network's times; onnxruntime's by rlx's."""
    path = FOLDER / f"light_{name}.onnx"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = rlx.get_num_threads()
    options.log_severity_level = 3
    # threads that wait for work by spinning would take the processors from rlx, whose turn is next
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (image,) = session.get_inputs()
    x = np.random.default_rng(0).standard_normal(image.shape).astype(np.float32)
    function, parameters = rlx.onnx.load(path)
    peers = {"onnxruntime": lambda _, x: session.run(None, {image.name: x})[0]}
    found = rlx.bench.run(function, [parameters, x], peers, rounds, name)
    print(found, flush=True)
    return found.peers["onnxruntime"].p50 / found.p50


def main() -> None:
    """Compare all networks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=NAMES)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    ratios = [compare(name, arguments.rounds) for name in arguments.only.split(",")]
    print(f"{len(ratios)} networks: geometric mean {math.exp(statistics.fmean(map(math.log, ratios))):.2f}")


if __name__ == "__main__":
    main()
