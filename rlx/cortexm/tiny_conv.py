"""RLXM files, version 1: the weights of the network TinyConv in integers, as the crate rlx-cortexm stores them.

TinyConv classifies images of 28 x 28 pixels: a convolution of 3 x 3 without padding to 8 channels, relu, the maximum of
2 x 2, a convolution to 16 channels, relu, the maximum of 2 x 2, and a product with 10 rows. Its requantisation is
"float", and its zero points are 0.

A file begins with 16 bytes: "RLXM", u16 version, u16 architecture 1, f32 accuracy, u16 number of tensors, u16 0. A row
of 16 bytes follows for each tensor: u16 id, u8 dtype (0 int8, 1 int32, 2 float32, 3 four bits, 4 two bits), u8 0, u32
offset in the file, u32 number of elements, u32 0. Numbers are little-endian. Tensors 0, 2 and 4 are the weights, 1, 3
and 5 the biases, 6 to 8 the multipliers, and 9 is an image with its codes. Multipliers come first in the file, then
biases, then the others. Codes of four and two bits are in bytes from the low bits up.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import FileFormatError, UnsupportedError
from rlx.quant.integer_program import (
    IntegerConvolution,
    IntegerDense,
    IntegerMaxPool,
    IntegerProgram,
    IntegerReshape,
    IntegerValue,
    Requantization,
)

__all__ = ["COUNTS", "TinyConv", "program_of", "read_rlxm", "write_rlxm"]

_HEAD, _ROW = struct.Struct("<4sHHfHH"), struct.Struct("<HBBIII")
_MOST_BYTES = 1 << 20
_SHAPES = ((8, 3, 3, 1), (16, 3, 3, 8), (10, 400))
COUNTS = [*(n for shape in _SHAPES for n in (int(np.prod(shape)), shape[0])), *(shape[0] for shape in _SHAPES), 784]
_BITS = {0: 8, 3: 4, 4: 2}
_DTYPES = {1: np.dtype("<i4"), 2: np.dtype("<f4")}


class TinyConv(NamedTuple):
    """The contents of an RLXM file: the network, its accuracy before quantisation, and an image's codes [28, 28, 1].

    The file has no scales: those of the program's values are 1.

    >>> import rlx.cortexm
    >>> rlx.cortexm.TinyConv._fields
    ('program', 'accuracy', 'image')
    """

    program: IntegerProgram
    accuracy: float
    image: np.ndarray


def read_rlxm(path: str | Path) -> TinyConv:
    """The network in an RLXM file. Raises FileFormatError if the file is damaged, or is of another version.

    >>> import rlx.cortexm
    >>> network = rlx.cortexm.read_rlxm("model_weights.bin")  # doctest: +SKIP
    >>> network.program(network.image[None]).argmax().item()  # doctest: +SKIP
    7
    """
    data = _content(Path(path))
    magic, version, architecture, accuracy, count, _ = _HEAD.unpack_from(data)
    if (magic, version, architecture, count) != (b"RLXM", 1, 1, len(COUNTS)):
        raise FileFormatError(
            f"{path} is not an RLXM file of version 1 with the network TinyConv.",
            "rlx.cortexm.write_rlxm makes one.",
        )
    tensors, bits = [], 8
    for number, expected in enumerate(COUNTS):
        tensor, kind, _, offset, elements, _ = _ROW.unpack_from(data, _HEAD.size + number * _ROW.size)
        wide = _DTYPES.get(kind)
        width = 8 * wide.itemsize if wide is not None else _BITS.get(kind, 0)
        wanted = 2 if 6 <= number <= 8 else 1 if number in (1, 3, 5) else 0 if number == 9 else kind
        if (tensor, kind, elements) != (number, wanted, expected) or not width or (number < 6 and wanted == 2):
            raise FileFormatError(f"{path}: tensor {number} is damaged.", "Copy the file again.")
        nbytes = -(-elements * width // 8)
        if offset < _HEAD.size or offset + nbytes > len(data):
            raise FileFormatError(f"{path} ends before tensor {number}.", "Copy the file again.")
        part = data[offset : offset + nbytes]
        tensors.append(np.frombuffer(part, wide) if wide is not None else _codes(part, width, elements))
        bits = width if number in (0, 2, 4) else bits
    return TinyConv(program_of(tensors, bits), accuracy, tensors[9].reshape(28, 28, 1))


def write_rlxm(path: str | Path, network: TinyConv) -> None:
    """Write a network as an RLXM file. Raises UnsupportedError for a program that is not TinyConv.

    >>> import rlx.cortexm
    >>> rlx.cortexm.write_rlxm("copy.bin", rlx.cortexm.read_rlxm("model_weights.bin"))  # doctest: +SKIP
    """
    program, accuracy, image = network
    sums = [o for o in program.operations if isinstance(o, IntegerConvolution | IntegerDense)]
    same = [_described(o) for o in program.operations] == [_described(o) for o in program_of(None, 8).operations]
    if not same or any(v.zero_point for v in program.values) or np.shape(image) != (28, 28, 1):
        raise UnsupportedError(
            f"{program.name} is not the network TinyConv without zero points and with the rounding 'float'.",
            "RLXM files of version 1 contain no other network.",
        )
    bits = sums[0].bits
    tensors = [x for o in sums for x in (o.weights.reshape(-1), o.bias)]
    tensors += [*(o.requantization.multiplier for o in sums), np.asarray(image, np.int8).reshape(-1)]
    kinds = [{width: kind for kind, width in _BITS.items()}[bits], 1] * 3 + [2, 2, 2, 0]
    parts = [
        np.ascontiguousarray(x, _DTYPES[kind]).tobytes() if kind in _DTYPES else _packed(x, _BITS[kind])
        for x, kind in zip(tensors, kinds, strict=True)
    ]
    start, offsets = _HEAD.size + len(parts) * _ROW.size, [0] * len(parts)
    order = sorted(range(len(parts)), key=lambda n: (2, 1).index(kinds[n]) if kinds[n] in (1, 2) else 2)
    body = b""
    for n in order:
        offsets[n] = start + len(body)
        body += parts[n]
    rows = [
        _ROW.pack(n, kind, 0, offsets[n], len(x), 0) for n, (kind, x) in enumerate(zip(kinds, tensors, strict=True))
    ]
    head = _HEAD.pack(b"RLXM", 1, 1, accuracy, len(parts), 0)
    Path(path).write_bytes(head + b"".join(rows) + body)


def _content(path: Path) -> bytes:
    if path.stat().st_size > _MOST_BYTES:
        raise FileFormatError(f"{path} has more than {_MOST_BYTES} bytes.", "An RLXM file is smaller.")
    data = path.read_bytes()
    if len(data) < _HEAD.size + len(COUNTS) * _ROW.size:
        raise FileFormatError(f"{path} is too short for an RLXM file.", "Copy the file again.")
    return data


def _codes(part: bytes, bits: int, count: int) -> np.ndarray:
    """int8 codes of packed bytes."""
    fields = np.frombuffer(part, np.uint8)[:, None] << np.arange(8 - bits, -1, -bits, dtype=np.uint8)
    return (fields.astype(np.uint8).view(np.int8) >> (8 - bits)).reshape(-1)[:count]


def _packed(codes: np.ndarray, bits: int) -> bytes:
    rows = np.pad(codes.astype(np.int64), (0, -len(codes) % (8 // bits))).reshape(-1, 8 // bits)
    return ((rows & (2**bits - 1)) << (bits * np.arange(8 // bits))).sum(1).astype(np.uint8).tobytes()


def _described(operation: object) -> tuple[object, ...]:
    """The parts of an operation that all TinyConvs have in common."""
    fields = vars(operation)
    rounding = getattr(fields.get("requantization"), "rounding", None)
    shapes = tuple(np.shape(fields[name]) for name in ("weights", "bias") if name in fields)
    names = ("inputs", "output", "strides", "padding", "dilation", "groups", "window", "shape")
    return type(operation), rounding, shapes, *(fields.get(name) for name in names)


def program_of(tensors: list[np.ndarray] | None, bits: int) -> IntegerProgram:
    """TinyConv with these tensors, or with zeros."""
    if tensors is None:
        tensors = [np.zeros(n, np.float32 if 6 <= i <= 8 else np.int32) for i, n in enumerate(COUNTS)]
    layers = [_layer(tensors, layer, bits) for layer in range(3)]
    operations = (
        IntegerConvolution(inputs=(0,), output=1, **layers[0]),
        IntegerMaxPool(inputs=(1,), output=2, window=(2, 2), strides=(2, 2)),
        IntegerConvolution(inputs=(2,), output=3, **layers[1]),
        IntegerMaxPool(inputs=(3,), output=4, window=(2, 2), strides=(2, 2)),
        IntegerReshape(inputs=(4,), output=5, shape=(400,)),
        IntegerDense(inputs=(5,), output=6, **layers[2]),
    )
    shapes = [(28, 28, 1), (26, 26, 8), (13, 13, 8), (11, 11, 16), (5, 5, 16), (400,), (10,)]
    names = ["image", "conv_1", "pool_1", "conv_2", "pool_2", "flat", "scores"]
    lows = [-128, 0, 0, 0, 0, 0, -128]
    values = tuple(IntegerValue(n, s, low=low) for n, s, low in zip(names, shapes, lows, strict=True))
    return IntegerProgram("tiny_conv", values, operations, (0,), (6,))


def _layer(tensors: list[np.ndarray], layer: int, bits: int) -> dict[str, Any]:
    """Weights, bias and requantisation."""
    shape, low = _SHAPES[layer], -128 if layer == 2 else 0
    multiplier = tensors[6 + layer].astype(np.float32)
    return {
        "weights": tensors[2 * layer].reshape(shape).astype(np.int8),
        "bias": tensors[2 * layer + 1].astype(np.int32),
        "bits": bits,
        "requantization": Requantization("float", multiplier, np.zeros(shape[0], np.int32), 0, low, 127),
    }
