"""What rlx uses of CuPy 14.2, with the signatures of its wheels, and the rule by which Cython checks arguments.

Fakes of CuPy offer these names only, and take what these signatures take.
"""

from __future__ import annotations

import functools
import inspect
import operator
import re
from collections.abc import Callable
from typing import Any

# as the built modules tell them: the first line of a docstring, or inspect.signature
TOLD = """
cuda.runtime.getDeviceCount() -> int
cuda.runtime.getDeviceProperties(int device)
cuda.runtime.deviceGetPCIBusId(int device) -> str
cuda.runtime.hostAlloc(size_t size, unsigned int flags) -> intptr_t
cuda.runtime.freeHost(intptr_t ptr)
cuda.runtime.deviceCanAccessPeer(int device, int peerDevice) -> int
cuda.runtime.deviceEnablePeerAccess(int peerDevice)
cuda.runtime.malloc(size_t size) -> intptr_t
cuda.runtime.free(intptr_t ptr)
cuda.runtime.memcpyAsync(intptr_t dst, intptr_t src, size_t size, int kind, intptr_t stream)
cuda.runtime.memcpyPeerAsync(intptr_t dst, int dstDevice, intptr_t src, int srcDevice, size_t size, intptr_t stream)
cuda.runtime.memsetAsync(intptr_t ptr, int value, size_t size, intptr_t stream)
cuda.runtime.eventCreateWithFlags(unsigned int flags) -> intptr_t
cuda.runtime.eventDestroy(intptr_t event)
cuda.runtime.eventRecord(intptr_t event, intptr_t stream)
cuda.runtime.eventQuery(intptr_t event)
cuda.runtime.eventSynchronize(intptr_t event)
cuda.runtime.eventElapsedTime(intptr_t start, intptr_t end) -> float
cuda.runtime.streamWaitEvent(intptr_t stream, intptr_t event, unsigned int flags=0)
cuda.runtime.pointerGetAttributes(intptr_t ptr) -> PointerAttributes
cuda.driver.launchKernel(intptr_t f, unsigned int grid_dim_x, unsigned int grid_dim_y, unsigned int grid_dim_z, unsigned int block_dim_x, unsigned int block_dim_y, unsigned int block_dim_z, unsigned int shared_mem_bytes, intptr_t stream, intptr_t kernel_params, intptr_t extra)
cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(intptr_t func, int blockSize, size_t dynamicSMemSize) -> int
cuda.function.Module()
cuda.function.Module.load(self, bytes cubin)
cuda.function.Module.get_function(self, name)
cuda.Device(device=None)
cuda.Device.__enter__(self)
cuda.Device.__exit__(self, *args)
cuda.Stream.__init__(self, null=False, non_blocking=False, ptds=False, priority=None)
cuda.Stream.begin_capture(self, mode=None)
cuda.Stream.end_capture(self)
cuda.Stream.synchronize(self)
cuda.Graph.launch(self, stream=None)
cuda.UnownedMemory(intptr_t ptr, size_t size, owner, int device_id=-1)
cuda.MemoryPointer(BaseMemory mem, ptrdiff_t offset)
cuda.device.get_cublas_handle() -> intptr_t
cuda.nccl.get_unique_id()
cuda.nccl.groupStart()
cuda.nccl.groupEnd()
cuda.nccl.NcclCommunicator(int ndev, bytes commId, int rank, NcclConfig config=None)
cuda.nccl.NcclCommunicator.allReduce(self, intptr_t sendbuf, intptr_t recvbuf, size_t count, int datatype, int op, intptr_t stream)
cuda.nccl.NcclCommunicator.reduce(self, intptr_t sendbuf, intptr_t recvbuf, size_t count, int datatype, int op, int root, intptr_t stream)
cuda.nccl.NcclCommunicator.reduceScatter(self, intptr_t sendbuf, intptr_t recvbuf, size_t recvcount, int datatype, int op, intptr_t stream)
cuda.nccl.NcclCommunicator.allGather(self, intptr_t sendbuf, intptr_t recvbuf, size_t count, int datatype, intptr_t stream)
cuda.nccl.NcclCommunicator.broadcast(self, intptr_t sendbuff, intptr_t recvbuff, size_t count, int datatype, int root, intptr_t stream)
cuda.nccl.NcclCommunicator.send(self, intptr_t sendbuf, size_t count, int datatype, int peer, intptr_t stream)
cuda.nccl.NcclCommunicator.recv(self, intptr_t recvbuf, size_t count, int datatype, int peer, intptr_t stream)
get_default_memory_pool()
where(condition, x=None, y=None)
zeros_like(a, dtype=None, order='K', subok=None, shape=None)
empty_like(prototype, dtype=None, order='K', subok=None, shape=None)
full_like(a, fill_value, dtype=None, order='K', subok=None, shape=None)
full(shape, fill_value, dtype=None, order='C')
tril(m, k=0)
triu(m, k=0)
diagonal(a, offset=0, axis1=0, axis2=1)
broadcast_to(array, shape)
argsort(a, axis=-1, kind=None)
take_along_axis(a, indices, axis)
asarray(a, dtype=None, order=None, *, copy=None, blocking=False)
asnumpy(a, stream=None, order='C', out=None, *, blocking=True)
linalg.cholesky(a)
linalg.qr(a, mode='reduced')
linalg.eigh(a, UPLO='L')
linalg.svd(a, full_matrices=True, compute_uv=True)
fft.irfft(a, n=None, axis=-1, norm=None)
fft.fftn(a, s=None, axes=None, norm=None)
fft.ifftn(a, s=None, axes=None, norm=None)
fft.rfftn(a, s=None, axes=None, norm=None)
"""  # noqa: E501
# from the sources: the modules do not tell them, or load only where CUDA's libraries are
READ = """
cuda.function.Function.__call__(self, tuple grid, tuple block, args, size_t shared_mem=0, stream=None, enable_cooperative_groups=False)
cuda.cublas.gemmStridedBatched(intptr_t handle, int transa, int transb, int m, int n, int k, size_t alpha, size_t A, int lda, long long strideA, size_t B, int ldb, long long strideB, size_t beta, size_t C, int ldc, long long strideC, int batchCount)
isfinite(x, out=None, *, casting='same_kind', dtype=None)
isnan(x, out=None, *, casting='same_kind', dtype=None)
errstate(*, divide=None, over=None, under=None, invalid=None, linalg=None)
lu_factor(a, overwrite_a=False, check_finite=True)
solve_triangular(a, b, trans=0, lower=False, unit_diagonal=False, overwrite_b=False, check_finite=False)
"""  # noqa: E501
# numbers of CUDA's, which CuPy has under these names
NUMBERS = {
    "memcpyHostToDevice": 1, "memcpyDeviceToHost": 2, "memcpyDeviceToDevice": 3, "eventDefault": 0,
    "eventDisableTiming": 2,
}  # fmt: skip
_BITS = {"int": 32, "unsigned int": 32, "size_t": 64, "intptr_t": 64, "long long": 64, "ptrdiff_t": 64}
_EXACT = {"bytes": bytes, "str": str, "tuple": tuple}
_PARAMETER = re.compile(r"^(?:(?P<kind>[\w ]+?) )?(?P<name>\*{0,2}\w+|\*)(?:=(?P<default>.+))?$")


def lines(table: str) -> dict[str, str]:
    """The path of each name, and its parameters with what is returned."""
    return {line.partition("(")[0]: line[line.index("(") :] for line in table.strip().splitlines()}


SIGNATURES = lines(TOLD) | lines(READ)


def _signature(text: str) -> inspect.Signature:
    parameters, kind = [], inspect.Parameter.POSITIONAL_OR_KEYWORD
    for part in filter(None, text[1 : text.rindex(")")].split(", ")):
        match = _PARAMETER.match(part)
        assert match, part
        if match["name"] == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
            continue
        how = inspect.Parameter.VAR_POSITIONAL if match["name"].startswith("*") else kind
        default = inspect.Parameter.empty if match["default"] is None else match["default"]
        name = match["name"].lstrip("*")
        parameters.append(inspect.Parameter(name, how, default=default, annotation=match["kind"]))
    return inspect.Signature(parameters)


def _check(path: str, parameter: inspect.Parameter, value: Any) -> None:
    kind = parameter.annotation
    if kind in _EXACT and type(value) is not _EXACT[kind]:
        raise TypeError(f"{path}: {parameter.name} is {type(value).__name__}, expected {kind}")
    if kind in _BITS:
        number, bits = operator.index(value), _BITS[kind]
        signed = kind not in ("unsigned int", "size_t")
        least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        if not least <= number <= most:
            raise OverflowError(f"{path}: {parameter.name} = {number} is not {kind}")


def strict(path: str, function: Callable[..., Any], before: Callable[[str], None] = lambda path: None) -> Any:
    """A function that takes what CuPy's of this path takes. before: called first, once arguments are known to fit."""
    signature = _signature(SIGNATURES[path])

    @functools.wraps(function)
    def called(*arguments: Any, **keywords: Any) -> Any:
        bound = signature.bind(*arguments, **keywords)
        for name, value in bound.arguments.items():
            _check(path, signature.parameters[name], value)
        before(path)
        return function(*arguments, **keywords)

    return called
