"""Convolution in any number of dimensions, dilated, strided and grouped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from rlx.errors import DtypeError, ShapeError
from rlx.ir.index_sets import Along, Elements, Reading, numbered
from rlx.ir.options import LoweringOptions, ProductLimits
from rlx.ir.types import TensorType, compute_dtype, dtype_kind, is_narrow
from rlx.ops.families import add_values, full_like, move_axis
from rlx.ops.sample_dtypes import NUMBERS, typed_samples
from rlx.ops.shape import AxisMap, check_axes, reshape, reverse
from rlx.ops.window_spec import WindowSpec, dilated, lowered_windows, numpy_windows
from rlx.trace.primitive import Linear, Primitive, Sample, Zero, primitive, type_of

__all__ = ["ConvDimensionNumbers", "conv_general_dilated"]

Axes = tuple[int, ...]
Padding = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ConvDimensionNumbers:
    """lhs_spec: axes of (batch, feature, *spatial); rhs_spec: of (out feature, in feature,
    *spatial); out_spec: of (batch, feature, *spatial).

    >>> from rlx import lax
    >>> lax.conv_dimension_numbers((1, 3, 8, 8), (4, 3, 2, 2), ("NCHW", "OIHW", "NHWC")).out_spec
    (0, 3, 1, 2)
    """

    lhs_spec: Axes
    rhs_spec: Axes
    out_spec: Axes

    def encode_key(self) -> tuple[Axes, ...]:
        """The fields, for structural hashes."""
        return astuple(self)


@dataclass(frozen=True)
class ConvolutionSpec:
    """The parameters of a convolution, and values derived from them."""

    window_strides: Axes
    padding: Padding
    lhs_dilation: Axes
    rhs_dilation: Axes
    dimension_numbers: ConvDimensionNumbers
    feature_group_count: int
    batch_group_count: int
    tf32: bool = False

    def params(self) -> dict[str, Any]:
        """The fields as parameters of the primitive: tf32 is included only if requested."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "tf32" or self.tf32}

    @property
    def groups(self) -> int:
        """The number of independent convolutions."""
        return self.feature_group_count * self.batch_group_count

    def windows(self, kernel: Axes, lead: int) -> WindowSpec:
        """The windows over an array with `lead` other axes before the spatial ones."""
        ones = (1,) * lead
        return WindowSpec(
            ones + kernel,
            ones + self.window_strides,
            ((0, 0),) * lead + self.padding,
            ones + self.lhs_dilation,
            ones + self.rhs_dilation,
        )

    def lhs(self, shape: Axes) -> Axes:
        """A left shape in the order batch, feature, *spatial."""
        return tuple(shape[i] for i in self.dimension_numbers.lhs_spec)

    def rhs(self, shape: Axes) -> Axes:
        """A kernel's shape in the order out feature, in feature, *spatial."""
        return tuple(shape[i] for i in self.dimension_numbers.rhs_spec)

    def out_shape(self, lhs: Axes, rhs: Axes) -> Axes:
        """The shape of the result in the order batch, feature, *spatial."""
        left, kernel = self.lhs(lhs), self.rhs(rhs)
        positions = self.windows(kernel[2:], 0).positions(left[2:])
        return (left[0] // self.batch_group_count, kernel[0], *positions)

    def check(self, lhs: TensorType, rhs: TensorType) -> None:
        """Raise ShapeError unless the parameters fit the operands."""
        name, ndim = "conv_general_dilated", lhs.ndim
        for spec in self.dimension_numbers.encode_key():
            check_axes(name, spec, ndim)
        if ndim < 2 or rhs.ndim != ndim or any(len(spec) != ndim for spec in self.dimension_numbers.encode_key()):
            raise ShapeError(
                f"{name} got {lhs!r}, {rhs!r} and {self.dimension_numbers}.",
                "Both operands and every spec need two axes more than there are spatial ones.",
            )
        left, kernel = self.lhs(lhs.shape), self.rhs(rhs.shape)
        self.windows(kernel[2:], 0).check(name, left[2:])
        feature_groups, batch_groups = self.feature_group_count, self.batch_group_count
        if min(feature_groups, batch_groups) != 1:
            raise ShapeError(
                f"{name} got feature_group_count={feature_groups} and batch_group_count={batch_groups}.",
                "Both must be at least 1, and only one of them greater.",
            )
        if left[1] != kernel[1] * feature_groups:
            raise ShapeError(
                f"{name} got {left[1]} input features, {feature_groups} feature groups and a"
                f" kernel for {kernel[1]} features.",
                "Input features must equal the kernel's times feature_group_count. The default layouts are NCHW and"
                " OIHW; dimension_numbers=('NHWC', 'HWIO', 'NHWC') has channels last.",
            )
        if left[0] % batch_groups or kernel[0] % self.groups:
            raise ShapeError(
                f"{name} got batch size {left[0]} and {kernel[0]} output features with"
                f" {feature_groups} feature and {batch_groups} batch groups.",
                "Groups must divide the output features, and batch groups the batch.",
            )


def _patches(lhs: np.ndarray, spec: ConvolutionSpec, kernel: Axes, fill: Any) -> np.ndarray:
    """The elements that a kernel of this shape multiplies: (groups, batch and positions, features and offsets)."""
    left, sizes = lhs.transpose(spec.dimension_numbers.lhs_spec), spec.rhs(kernel)[2:]
    rank, groups = len(sizes), spec.groups
    view = numpy_windows(left, spec.windows(sizes, 2), fill)
    # axes (batch, feature, *positions, 1, 1, *offsets); the group is split from the first two
    view = view.reshape(view.shape[: 2 + rank] + sizes)
    if spec.batch_group_count > 1:
        view = view.reshape((groups, view.shape[0] // groups, *view.shape[1:]))
    else:
        view = view.reshape((view.shape[0], groups, view.shape[1] // groups, *view.shape[2:])).swapaxes(0, 1)
    patches = np.moveaxis(view, 2, 2 + rank)
    return patches.reshape(groups, prod(patches.shape[1 : 2 + rank]), -1)


def _placed(product: np.ndarray, spec: ConvolutionSpec, shape: Axes) -> np.ndarray:
    """(groups, batch and positions, features of a group) as the result, whose shape is given as by out_shape."""
    product = product.reshape((spec.groups, shape[0], *shape[2:], shape[1] // spec.groups))
    product = np.moveaxis(np.moveaxis(product, -1, 0), 1, 0)
    out = np.moveaxis(product.reshape((shape[1], shape[0], *shape[2:])), 0, 1)
    return out.transpose(np.argsort(spec.dimension_numbers.out_spec))


@primitive
class conv_general_dilated(Primitive):
    """Sliding products of lhs with the kernel rhs (a correlation: the kernel is not flipped).

    tf32: as in dot_general.
    """

    claimed_as = "convolution"

    def claim(self, **params: Any) -> dict[str, Any]:
        """The parameters, with the layouts one by one; a backend may always be more exact than tf32."""
        params.pop("tf32", None)
        specs = zip(("lhs_spec", "rhs_spec", "out_spec"), params.pop("dimension_numbers").encode_key(), strict=True)
        return {"operands": ("lhs", "rhs"), **params, **dict(specs)}

    def type(self, lhs: TensorType, rhs: TensorType, **params: Any) -> TensorType:
        if lhs.dtype != rhs.dtype or dtype_kind(lhs.dtype) not in "iufc":
            raise DtypeError(
                f"conv_general_dilated got {lhs!r} and {rhs!r}.",
                "Both operands need one dtype, which is not bool: convert with .astype(...).",
            )
        spec = ConvolutionSpec(**params)
        spec.check(lhs, rhs)
        shape = spec.out_shape(lhs.shape, rhs.shape)
        placed = [0] * len(shape)
        for axis, size in zip(spec.dimension_numbers.out_spec, shape, strict=True):
            placed[axis] = size
        return TensorType(tuple(placed), lhs.dtype, lhs.weak and rhs.weak)

    def axis_map(self, lhs: TensorType, rhs: TensorType, **params: Any) -> AxisMap:
        """Batch and features keep their axes, and input features are combined, except groups of them."""
        spec = ConvolutionSpec(**params)
        numbers = spec.dimension_numbers
        batch, features = numbers.out_spec[:2]
        left = {} if spec.batch_group_count > 1 else {numbers.lhs_spec[0]: batch}
        right = {}
        if spec.groups == 1:
            left[numbers.lhs_spec[1]] = right[numbers.rhs_spec[1]] = -1
            right[numbers.rhs_spec[0]] = features
        return tuple(map(left.get, range(lhs.ndim))), tuple(map(right.get, range(rhs.ndim)))

    def reference(self, lhs: np.ndarray, rhs: np.ndarray, **params: Any) -> np.ndarray:
        spec = ConvolutionSpec(**params)
        numbers = spec.dimension_numbers
        shape = spec.out_shape(lhs.shape, rhs.shape)
        if 0 in (*shape, *lhs.shape, *rhs.shape):
            return np.zeros(shape, lhs.dtype).transpose(np.argsort(numbers.out_spec))
        working = compute_dtype(lhs.dtype) if is_narrow(lhs.dtype) else lhs.dtype
        kernel = rhs.astype(working, copy=False).transpose(numbers.rhs_spec)
        patches = _patches(lhs.astype(working, copy=False), spec, rhs.shape, 0)
        matrix = kernel.reshape(spec.groups, shape[1] // spec.groups, -1)
        product = patches @ matrix.swapaxes(1, 2)
        return _placed(product, spec, shape).astype(lhs.dtype, copy=False)

    def reads(self, known: Any, lhs: TensorType, rhs: TensorType, **params: Any) -> list[Reading | None]:
        """A window of a group of input features, and the kernel of the output feature; no padding."""
        spec = ConvolutionSpec(**params)
        shape, kernel = spec.out_shape(lhs.shape, rhs.shape), spec.dimension_numbers.rhs_spec
        if 0 in (*shape, *lhs.shape, *rhs.shape):
            return [None, None]

        def numbers(of_kernel: bool) -> np.ndarray:
            patches = _patches(numbered(lhs.shape), spec, rhs.shape, -1)[:, :, None]
            factors = numbered(rhs.shape).transpose(kernel).reshape(spec.groups, 1, -1, patches.shape[-1])
            patches, factors = np.broadcast_arrays(patches, factors)
            read = np.where(patches >= 0, factors if of_kernel else patches, -1)
            places = _placed(numbered(read.shape[:-1]), spec, shape)
            return read.reshape(-1, read.shape[-1])[places]

        return [
            Elements(partial(numbers, of_kernel), Along(axes))
            for of_kernel, axes in zip((False, True), self.axis_map(lhs, rhs, **params), strict=True)
        ]

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        (lhs, rhs), (lhs_dot, rhs_dot) = primals, tangents
        out = self.bind(lhs, rhs, **params)
        tangent: Any = Zero(type_of(out))
        if not isinstance(lhs_dot, Zero):
            tangent = self.bind(lhs_dot, rhs, **params)
        if not isinstance(rhs_dot, Zero):
            tangent = add_values(tangent, self.bind(lhs, rhs_dot, **params))
        return out, tangent

    def transpose(self, cotangent: Any, lhs: Any, rhs: Any, **params: Any) -> tuple[Any, ...]:
        if isinstance(cotangent, Zero):
            return tuple(Zero(x.type) if isinstance(x, Linear) else None for x in (lhs, rhs))
        spec = ConvolutionSpec(**params)
        if 0 in (*type_of(cotangent).shape, *type_of(lhs).shape, *type_of(rhs).shape):
            dtype = type_of(cotangent).dtype
            return tuple(
                full_like(TensorType(x.type.shape, dtype), 0) if isinstance(x, Linear) else None for x in (lhs, rhs)
            )
        if isinstance(lhs, Linear):
            return _cotangent_of_lhs(cotangent, lhs.type, rhs, spec), None
        return None, _cotangent_of_rhs(cotangent, lhs, rhs.type, spec)

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, int]:
        (lhs, rhs), (ldim, rdim) = inputs, dims
        spec = ConvolutionSpec(**params)
        numbers, feature_groups, batch_groups = (
            spec.dimension_numbers,
            spec.feature_group_count,
            spec.batch_group_count,
        )
        if size == 0:
            types = (_unbatched(lhs, ldim), _unbatched(rhs, rdim))
            out = self.type(*types, **params)
            return full_like(out.update(shape=(0, *out.shape)), 0), 0
        batch, feature = numbers.lhs_spec[:2]
        out_batch, out_feature = numbers.out_spec[:2]
        if rdim is None:
            assert ldim is not None, "one operand is batched"
            lhs = fold(lhs, ldim, batch, batch_groups)
            return unfold(self.bind(lhs, rhs, **params), size, out_batch, 1), 0
        if ldim is None:
            rhs = fold(rhs, rdim, numbers.rhs_spec[0], spec.groups)
            return unfold(self.bind(lhs, rhs, **params), size, out_feature, spec.groups), 0
        rhs = fold(rhs, rdim, numbers.rhs_spec[0], 1)
        if batch_groups > 1:
            lhs = fold(lhs, ldim, batch, 1)
            spec = replace(spec, batch_group_count=batch_groups * size)
        else:
            lhs = fold(lhs, ldim, feature, 1)
            spec = replace(spec, feature_group_count=feature_groups * size)
        return unfold(self.bind(lhs, rhs, **spec.params()), size, out_feature, 1), 0

    def lower(self, k: Any, lhs: Any, rhs: Any, **params: Any) -> Any:
        spec = ConvolutionSpec(**params)
        dtype = lhs.type.dtype
        shape = spec.out_shape(lhs.type.shape, rhs.type.shape)
        placed = tuple(np.argsort(spec.dimension_numbers.out_spec).tolist())
        if 0 in (*shape, *lhs.type.shape, *rhs.type.shape):
            return k.transpose(k.full(TensorType(shape, dtype), 0), placed)
        for axis, factor in enumerate(spec.lhs_dilation):
            if factor > 1 and spec.window_strides[axis] == spec.rhs_dilation[axis] == 1:
                return self._lower_phases(k, lhs, rhs, spec, axis)
        lhs, spec = _padded(k, lhs, rhs, spec)
        blocks = _blocks(spec, lhs.type, rhs.type, k.options.products)
        if blocks is None:
            return _lowered(k, lhs, rhs, spec)
        if blocks.summed:
            return k.sum_of_blocks(lambda k, x, y: _lowered(k, x, y, spec), (lhs, rhs), blocks.count)
        numbers = spec.dimension_numbers
        order = sorted(numbers.rhs_spec[1:]) + [numbers.rhs_spec[0]]
        moved = replace(numbers, rhs_spec=tuple(order.index(axis) for axis in numbers.rhs_spec))
        spec, kernel = replace(spec, dimension_numbers=moved), k.transpose(rhs, order)
        return k.in_blocks(lambda k, y, x: _lowered(k, x, y, spec), (kernel,), (lhs,), blocks.count)

    def _lower_phases(self, k: Any, lhs: Any, rhs: Any, spec: ConvolutionSpec, axis: int) -> Any:
        """A convolution of a dilated lhs without the zeros.

        Every `factor`-th position meets the same part of the kernel, each `factor`-th element of
        it: one convolution for each of those, their results interleaved.
        """
        factor, (low, _) = spec.lhs_dilation[axis], spec.padding[axis]
        numbers, place = spec.dimension_numbers, 2 + axis
        shape = spec.out_shape(lhs.type.shape, rhs.type.shape)
        left, size = lhs.type.shape[numbers.lhs_spec[place]], rhs.type.shape[numbers.rhs_spec[place]]
        count = -(-shape[place] // factor)
        pieces = []
        for phase in range(factor):
            first = (low - phase) % factor
            taps = -(-max(size - first, 0) // factor)
            before = (low - phase - first) // factor
            padding, dilation = list(spec.padding), list(spec.lhs_dilation)
            padding[axis], dilation[axis] = (before, count - 1 + taps - left - before), 1
            part = replace(spec, padding=tuple(padding), lhs_dilation=tuple(dilation))
            piece = _every(k, rhs, numbers.rhs_spec[place], first, factor)
            pieces.append(self.lower(k, lhs, piece, **part.params()))
        out = numbers.out_spec[place]
        return _interleaved(k, pieces, out, shape[place])

    def samples(self) -> Iterator[Sample]:
        def case(lhs: Axes, rhs: Axes, spec: ConvolutionSpec) -> Any:
            return [_numbers(*lhs), _numbers(*rhs)], spec.params()

        nchw = ConvDimensionNumbers((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3))
        nhwc = ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
        line = ConvDimensionNumbers((0, 1, 2), (0, 1, 2), (0, 1, 2))
        none = ConvDimensionNumbers((0, 1), (0, 1), (0, 1))
        same = ((1, 1), (1, 1))
        return typed_samples(
            NUMBERS,
            case(
                (2, 3, 5, 4),
                (4, 3, 3, 2),
                ConvolutionSpec((1, 1), same, (1, 1), (1, 1), nchw, 1, 1),
            ),
            case(
                (2, 5, 4, 3),
                (3, 2, 3, 4),
                ConvolutionSpec((2, 1), same, (1, 2), (1, 2), nhwc, 1, 1),
            ),
            case((2, 4, 7), (6, 2, 3), ConvolutionSpec((2,), ((-1, 2),), (1,), (2,), line, 2, 1)),
            case((4, 3, 6), (6, 3, 2), ConvolutionSpec((1,), ((0, 1),), (2,), (1,), line, 1, 2)),
            case((3, 2), (4, 2), ConvolutionSpec((), (), (), (), none, 1, 1)),
            case((1, 1, 2), (1, 1, 4), ConvolutionSpec((1,), ((0, 0),), (1,), (1,), line, 1, 1)),
        )


# ------------------------------------------------------------- lowering


def _every(k: Any, x: Any, axis: int, first: int, step: int) -> Any:
    """Each `step`-th element along an axis, from `first` on."""
    shape = x.type.shape
    starts, strides = [0] * len(shape), [1] * len(shape)
    starts[axis], strides[axis] = min(first, shape[axis]), step
    return k.slice(x, starts, shape, strides)


def _interleaved(k: Any, pieces: Sequence[Any], axis: int, size: int) -> Any:
    """The pieces' elements along an axis, interleaved, up to `size` of them."""
    before, (count, *after) = pieces[0].type.shape[:axis], pieces[0].type.shape[axis:]
    apart = [k.reshape(piece, (*before, count, 1, *after)) for piece in pieces]
    joined = k.reshape(k.concatenate(apart, axis + 1), (*before, count * len(pieces), *after))
    return k.slice(joined, (0,) * len(joined.type.shape), (*before, size, *after))


@dataclass(frozen=True)
class _AxisBlocks:
    """The number of blocks of the leading axes; `summed`: that axis is contracted."""

    count: int
    summed: bool


def _padded(k: Any, lhs: Any, rhs: Any, spec: ConvolutionSpec) -> tuple[Any, ConvolutionSpec]:
    """lhs with its padding and dilation, and the convolution of the result.

    Padding keeps the layout of lhs, so that the windows are read along memory.
    """
    numbers, sizes = spec.dimension_numbers, spec.rhs(rhs.type.shape)[2:]
    around = spec.windows(sizes, 2)
    if around.pads:
        config = around.config()
        zero = k.full(lhs.type.update(shape=()), 0)
        pad = k.pad_where_read if k.options.products.fused else k.pad
        lhs = pad(lhs, zero, tuple(config[i] for i in np.argsort(numbers.lhs_spec)))
    rank = len(sizes)
    return lhs, replace(spec, padding=((0, 0),) * rank, lhs_dilation=(1,) * rank)


def _blocks(spec: ConvolutionSpec, lhs: TensorType, rhs: TensorType, limits: ProductLimits) -> _AxisBlocks | None:
    """Blocks of about `limits.patches` bytes of patches, which stay in the cache, if the operands' leading axes allow
    it; none if products read the input of patches directly."""
    numbers, most = spec.dimension_numbers, limits.patches
    shape, kernel = spec.out_shape(lhs.shape, rhs.shape), spec.rhs(rhs.shape)
    bare = prod(kernel[2:]) == 1 or prod(shape[2:]) == 1
    if limits.fused and dtype_kind(lhs.dtype) == "f":
        return None
    if bare or dtype_kind(lhs.dtype) not in "fc" or lhs.dtype.itemsize < 4 or shape[1] == spec.groups:
        return None
    patches = spec.lhs(lhs.shape)[0] * prod(shape[2:]) * kernel[1] * spec.feature_group_count * prod(kernel[2:])
    nbytes = patches * lhs.dtype.itemsize
    by_rows = numbers.lhs_spec[0] == 0 and numbers.out_spec[0] == 0 and spec.batch_group_count == 1
    summed = numbers.lhs_spec[1] == 0 and numbers.rhs_spec[1] == 0 and spec.groups == 1
    size = lhs.shape[0]
    if nbytes < 2 * most or not (by_rows or summed):
        return None
    least = min(size, -(-nbytes // most))
    count = next(n for n in range(least, size + 1) if size % n == 0)
    if count < 2 or (summed and not by_rows and 2 * count * prod(shape) > patches):
        return None
    return _AxisBlocks(count, not by_rows)


def _lowered(k: Any, lhs: Any, rhs: Any, spec: ConvolutionSpec) -> Any:
    """The convolution of a padded lhs as products of its patches, which write the result in its memory layout."""
    numbers, shape = spec.dimension_numbers, spec.out_shape(lhs.type.shape, rhs.type.shape)
    rank, groups = len(shape) - 2, spec.groups
    free = _free_order(numbers)
    patches = _lowered_patches(k, lhs, rhs, spec, free)
    kernel = k.transpose(rhs, numbers.rhs_spec)
    kernel = k.reshape(kernel, (groups, shape[1] // groups, *kernel.type.shape[1:]))
    # patches: (group, *free, feature, *offsets); kernel: (group, out, feature, *offsets)
    order = _contraction_order(numbers)
    windows, weights = ([first + i for i in order] for first in (2 + rank, 2))
    batch, *positions = (1 + free.index(i) for i in range(1 + rank))
    if numbers.out_spec[1] > min(numbers.out_spec[2:], default=0):
        out = k.contract(patches, kernel, (windows, weights), ((0,), (0,)), tf32=spec.tf32)  # (group, *free, out)
        out = k.transpose(out, (batch, 0, 2 + rank, *positions))
    elif bands := _bands(spec, shape, patches.type, k.options):
        # (group, batch, band, *positions in it, feature, *offsets): one product for each band of each member
        patches = k.transpose(patches, (0, batch, *positions, *range(2 + rank, len(patches.type.shape))))
        split = (groups, shape[0], bands, shape[2] // bands, *patches.type.shape[3:])
        patches = k.reshape(patches, split)
        wide = (*split[:3], *kernel.type.shape[1:])
        kernel = k.broadcast(kernel, wide, (0, *range(3, len(wide))))
        both = (range(3), range(3))
        out = k.contract(kernel, patches, ([2 + i for i in weights], [1 + i for i in windows]), both, tf32=spec.tf32)
        out = k.transpose(out, (1, 0, 3, 2, *range(4, 4 + rank)))  # of (group, batch, band, out, *positions)
    else:
        out = k.contract(kernel, patches, (weights, windows), ((0,), (0,)), tf32=spec.tf32)  # (group, out, *free)
        out = k.transpose(out, (1 + batch, 0, 1, *(1 + i for i in positions)))
    return k.transpose(k.reshape(out, shape), tuple(np.argsort(numbers.out_spec).tolist()))


def _bands(spec: ConvolutionSpec, shape: Axes, patches: TensorType, options: LoweringOptions) -> int:
    """The number of bands of positions into which each batch member's products are cut, so that the data that one reads
    stays in cache; 0 if members have too few positions for separate products, or products read the input of patches
    directly."""
    whole = options.products.fused or len(shape) == 2
    if whole or spec.dimension_numbers.out_spec[0] or prod(shape[2:]) < options.products.loop_rows:
        return 0
    nbytes = patches.size // (spec.groups * shape[0]) * patches.dtype.itemsize
    most = options.row_tiles.widest
    return next(n for n in range(1, shape[2] + 1) if shape[2] % n == 0 and (nbytes <= n * most or n == shape[2]))


def _lowered_patches(k: Any, lhs: Any, rhs: Any, spec: ConvolutionSpec, free: Axes) -> Any:
    """Axes (group, *free, feature, *offsets): every window that the kernel meets."""
    numbers, sizes = spec.dimension_numbers, spec.rhs(rhs.type.shape)[2:]
    rank, groups = len(sizes), spec.groups
    left = k.transpose(lhs, numbers.lhs_spec)
    if spec.batch_group_count > 1:
        left = k.reshape(left, (groups, left.type.shape[0] // groups, *left.type.shape[1:]))
    else:
        split = (left.type.shape[0], groups, left.type.shape[1] // groups, *left.type.shape[2:])
        left = k.transpose(k.reshape(left, split), (1, 0, 2, *range(3, 3 + rank)))
    view = lowered_windows(k, left, spec.windows(sizes, 3), 0)
    view = k.reshape(view, view.type.shape[: 3 + rank] + sizes)
    moving = (1, *range(3, 3 + rank))
    rest = (2, *range(3 + rank, 3 + 2 * rank))
    return k.transpose(view, (0, *(moving[i] for i in free), *rest))


def _free_order(numbers: ConvDimensionNumbers) -> Axes:
    """The axes that windows move along (0: batch, then the positions) in the memory order of lhs."""
    place = (numbers.lhs_spec[0], *numbers.lhs_spec[2:])
    return tuple(sorted(range(len(place)), key=lambda i: place[i]))


def _contraction_order(numbers: ConvDimensionNumbers) -> Axes:
    """The contracted axes (0: feature, then the offsets) in the memory order of the kernel."""
    place = numbers.rhs_spec[1:]
    return tuple(sorted(range(len(place)), key=lambda i: place[i]))


# ------------------------------------------------------------- derivatives
def _reaches(lhs: Axes, rhs: Axes, spec: ConvolutionSpec) -> list[tuple[int, int, int, int]]:
    """For each spatial axis: the reach of dilated lhs, kernel and strided result; low padding."""
    left, kernel = spec.lhs(lhs)[2:], spec.rhs(rhs)[2:]
    positions = spec.out_shape(lhs, rhs)[2:]
    return [
        (
            dilated(left[i], spec.lhs_dilation[i]),
            dilated(kernel[i], spec.rhs_dilation[i]),
            dilated(positions[i], spec.window_strides[i]),
            spec.padding[i][0],
        )
        for i in range(len(left))
    ]


def _cotangent_of_lhs(ct: Any, lhs: TensorType, rhs: Any, spec: ConvolutionSpec) -> Any:
    """The cotangent convolved with the flipped kernel; strides and dilation are exchanged."""
    lhs_spec, rhs_spec, out_spec = spec.dimension_numbers.encode_key()
    padding = []
    for left, kernel, out, low in _reaches(lhs.shape, type_of(rhs).shape, spec):
        before = kernel - 1 - low
        padding.append((before, left + kernel - 1 - out - before))
    groups = spec.groups
    if groups > 1:
        # out features lose their groups, in features gain them
        rhs = _move_groups(rhs, rhs_spec[0], rhs_spec[1], groups)
    kernel_spec = (rhs_spec[1], rhs_spec[0], *rhs_spec[2:])
    of_cotangent = ConvolutionSpec(
        window_strides=spec.lhs_dilation,
        padding=tuple(padding),
        lhs_dilation=spec.window_strides,
        rhs_dilation=spec.rhs_dilation,
        dimension_numbers=ConvDimensionNumbers(out_spec, kernel_spec, lhs_spec),
        feature_group_count=groups,
        batch_group_count=1,
        tf32=spec.tf32,
    )
    result = conv_general_dilated(ct, reverse(rhs, axes=rhs_spec[2:]), **of_cotangent.params())
    if spec.batch_group_count > 1:
        result = _move_groups(result, lhs_spec[1], lhs_spec[0], groups)
    return result


def _cotangent_of_rhs(ct: Any, lhs: Any, rhs: TensorType, spec: ConvolutionSpec) -> Any:
    """lhs convolved with the cotangent as kernel; batch and features are exchanged."""
    padding = [
        (low, kernel - 1 + out - left - low) for left, kernel, out, low in _reaches(type_of(lhs).shape, rhs.shape, spec)
    ]
    lhs_spec, rhs_spec, out_spec = spec.dimension_numbers.encode_key()
    swapped = [(s[1], s[0], *s[2:]) for s in (lhs_spec, out_spec, rhs_spec)]
    of_cotangent = ConvolutionSpec(
        window_strides=spec.rhs_dilation,
        padding=tuple(padding),
        lhs_dilation=spec.lhs_dilation,
        rhs_dilation=spec.window_strides,
        dimension_numbers=ConvDimensionNumbers(*swapped),
        feature_group_count=spec.batch_group_count,
        batch_group_count=spec.feature_group_count,
        tf32=spec.tf32,
    )
    return conv_general_dilated(lhs, ct, **of_cotangent.params())


# ------------------------------------------------------------- folding axes
def _unbatched(x: Any, dim: int | None) -> TensorType:
    t = type_of(x)
    return t if dim is None else t.update(shape=t.shape[:dim] + t.shape[dim + 1 :])


def fold(x: Any, dim: int, axis: int, groups: int) -> Any:
    """Merge axis `dim` into axis `axis` (counted without it): (groups, dim, rest of axis)."""
    x = move_axis(x, dim, 0)
    size, *shape = type_of(x).shape
    rest = shape[axis] // groups
    x = reshape(x, shape=(size, *shape[:axis], groups, rest, *shape[axis + 1 :]))
    x = move_axis(x, 0, axis + 1)
    return reshape(x, shape=(*shape[:axis], groups * size * rest, *shape[axis + 1 :]))


def unfold(x: Any, size: int, axis: int, groups: int) -> Any:
    """The inverse of `fold`; the split axis becomes the first."""
    shape = type_of(x).shape
    rest = shape[axis] // (groups * size)
    x = reshape(x, shape=(*shape[:axis], groups, size, rest, *shape[axis + 1 :]))
    x = move_axis(x, axis + 1, 0)
    return reshape(x, shape=(size, *shape[:axis], groups * rest, *shape[axis + 1 :]))


def _move_groups(x: Any, source: int, destination: int, groups: int) -> Any:
    """Split `groups` off the beginning of one axis and merge them into the beginning of another."""
    x = unfold(x, groups, source, 1)
    return fold(x, 0, destination, 1)


def _numbers(*shape: int) -> np.ndarray:
    return np.sin(np.arange(1, prod(shape) + 1, dtype=np.float64) * 1.3).reshape(shape)
