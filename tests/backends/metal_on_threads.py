"""Metal's kernels as C++ on threads of the processor: a thread for each item of a group, one group after the other."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlx.backends.c.types import memory_type

COMPILER = shutil.which("g++")

_HEAD = """
#include <barrier>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>
namespace metal {
using std::acos; using std::acosh; using std::asin; using std::asinh; using std::atan; using std::atan2;
using std::atanh; using std::ceil; using std::copysign; using std::cos; using std::cosh; using std::exp;
using std::exp2; using std::fabs; using std::floor; using std::fma; using std::fmod; using std::log;
using std::log2; using std::pow; using std::rint; using std::sin; using std::sinh; using std::sqrt;
using std::tan; using std::tanh; using std::trunc;
}
using std::isfinite;
struct uint3 { unsigned x, y, z; };
static thread_local uint3 thread_position_in_grid, threadgroup_position_in_grid, thread_position_in_threadgroup;
static std::barrier<> *group_barrier;
#define threadgroup_barrier(flags) group_barrier->arrive_and_wait()
#define threadgroup static
#define device
"""

_RUN = """
extern "C" void run(void **arrays, int threads, int group) {
    for (int first = 0; first < threads; first += group) {
        const int items = threads - first < group ? threads - first : group;
        std::barrier<> all(items);
        group_barrier = &all;
        std::vector<std::thread> running;
        for (int item = 0; item < items; ++item)
            running.emplace_back([=] {
                thread_position_in_grid = {(unsigned)(first + item), 0, 0};
                threadgroup_position_in_grid = {(unsigned)(first / group), 0, 0};
                thread_position_in_threadgroup = {(unsigned)item, 0, 0};
                kernel_function(ARRAYS);
            });
        for (auto &thread : running) thread.join();
    }
}
"""
_numbers = itertools.count()


class Simulated:
    """What stands for mx.fast.metal_kernel: it compiles the text as C++, and runs it at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.launched: list[str] = []

    def __call__(self, *, name: str, input_names: Any, output_names: Any, source: str, header: str) -> Any:
        def launch(*, inputs: Any, grid: Any, threadgroup: Any, output_shapes: Any, output_dtypes: Any) -> list[Any]:
            import mlx.core as mx

            assert grid[1:] == threadgroup[1:] == (1, 1)
            mx.eval(inputs)
            given = [np.array(a) for a in inputs]
            made = [
                np.zeros(s, str(d).rpartition(".")[2].rstrip("_"))
                for s, d in zip(output_shapes, output_dtypes, strict=True)
            ]
            self.run(header, source, input_names, given, output_names, made, grid[0], threadgroup[0])
            self.launched.append(name)
            return [mx.array(a, d) for a, d in zip(made, output_dtypes, strict=True)]

        return launch

    def run(
        self, header: str, source: str, input_names: Sequence[str], inputs: Sequence[np.ndarray],
        output_names: Sequence[str], outputs: Sequence[np.ndarray], threads: int, group: int,
    ) -> None:  # fmt: skip
        """Compile and run; the outputs are written."""
        constant = [f"const {memory_type(a.dtype)} *{n}" for n, a in zip(input_names, inputs, strict=True)]
        written = [f"{memory_type(a.dtype)} *{n}" for n, a in zip(output_names, outputs, strict=True)]
        arrays = ", ".join(f"({p.rpartition('*')[0]}*)arrays[{n}]" for n, p in enumerate([*constant, *written]))
        function = f"static void kernel_function({', '.join([*constant, *written])}) {{\n{source}\n}}\n"
        path = self.folder / f"kernel{next(_numbers)}.cpp"
        path.write_text(_HEAD + header + function + _RUN.replace("ARRAYS", arrays))
        library = path.with_suffix(".so")
        assert COMPILER is not None
        command = [
            COMPILER,
            "-std=c++20",
            "-O1",
            "-ffp-contract=off",
            "-shared",
            "-fPIC",
            "-pthread",
            "-Wall",
            "-Werror",
        ]
        done = subprocess.run([*command, "-Wno-unused", str(path), "-o", str(library)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        all_arrays = [*inputs, *outputs]
        pointers = (ctypes.c_void_p * len(all_arrays))(*(a.ctypes.data for a in all_arrays))
        ctypes.CDLL(str(library)).run(pointers, threads, group)
