"""The CPU backend: kernels as LLVM IR compiled by llvmlite, run by a native executor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlx.backends.base import Backend, Executable, SizedExecutable
from rlx.backends.claims import SPARSE_PRODUCTS, Claims
from rlx.backends.cpu.routines.packed_products import PACKED_PRODUCT, takes_packed_product
from rlx.backends.cpu.runtime.entry import start_loading
from rlx.backends.cpu.runtime.executable import native_executable
from rlx.backends.cpu.runtime.sized import SizedPlan
from rlx.backends.cpu.runtime.texts import step_reason
from rlx.backends.cpu.runtime.threads import dividing_threads
from rlx.ir.kernels import Await, Kernel, Plan
from rlx.ir.options import LEAST_ROW_TILES, LoweringOptions
from rlx.ir.sizes import SizeScope
from rlx.ir.splats import SPLAT_BLOCKS, takes_splats
from rlx.offered_names import LateModule
from rlx.routines.sparse_solves import offer_cholesky

if TYPE_CHECKING:
    from rlx.backends.cpu.routines import cholesky_factors
else:
    cholesky_factors = LateModule("rlx.backends.cpu.routines.cholesky_factors")

__all__ = ["CpuBackend"]


def _cholesky_pattern(*args: Any) -> Any:
    """The analysed pattern of a sparse matrix: see cholesky_factors."""
    return cholesky_factors.cholesky_pattern(*args)


class CpuBackend(Backend):
    """Native code for this machine's processors."""

    name = "cpu"
    claims = Claims(
        kinds=Claims().kinds | {Await},
        routines=Claims().routines | SPARSE_PRODUCTS,
        blocks=SPLAT_BLOCKS | {PACKED_PRODUCT},
        fits=lambda name, types, attributes: (
            takes_packed_product(types, attributes)
            if name == PACKED_PRODUCT
            else takes_splats(name, types, attributes)
        ),
    )

    def __init__(self) -> None:
        start_loading()
        offer_cholesky(_cholesky_pattern)

    @property
    def lowering(self) -> LoweringOptions:
        """At least two row tiles for each thread, so that none waits long for another."""
        return LoweringOptions(least_row_tiles=max(LEAST_ROW_TILES, 2 * dividing_threads()))

    def host_reason(self, kernel: Kernel) -> str | None:
        """The Python code that runs a kernel, and why; None if native code runs it."""
        return step_reason(kernel)

    def compile_sized(self, plan: Plan, scope: SizeScope) -> SizedExecutable:
        """Compile a plan with symbolic sizes."""
        return SizedPlan(plan, scope)

    def compile(self, plan: Plan) -> Executable:
        """Compile a plan; kernels that are known already, here or on disk, are not compiled."""
        return native_executable(plan)
