"""rlx.scipy.spatial.transform: rotations in three dimensions, and interpolation between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import rlx.numpy as jnp
from rlx import random
from rlx.array import Array
from rlx.errors import InputTypeError, ShapeError
from rlx.numpy.promotion import promote_inexact, to_dtype
from rlx.offered_names import offer_names
from rlx.scipy.spatial import quaternions
from rlx.trees import tree

__all__ = ["Rotation", "Slerp"]

offer_names(globals())


def _axes(seq: str, wanted: str) -> tuple[list[int], bool]:
    """The axes of an Euler sequence as numbers, and whether they stay fixed (lower case)."""
    if not re.fullmatch(f"[xyz]{wanted}|[XYZ]{wanted}", seq) or any(a == b for a, b in zip(seq, seq[1:], strict=False)):
        raise ValueError(
            f"{seq!r} is not a sequence of axes: write letters of 'xyz' (fixed axes) or 'XYZ' (axes that rotate"
            " along), never twice the same in a row; as_euler takes three of them, from_euler up to three."
        )
    return ["xyz".index(a) for a in seq.lower()], seq.islower()


def _vectors(name: str, x: Any, *shape: int) -> Array:
    (values,) = promote_inexact(name, x)
    if values.shape[max(values.ndim - len(shape), 0) :] != shape:
        raise ShapeError(f"{name} got an array of shape {values.shape}.", f"Its last axes have the lengths {shape}.")
    return values


class Rotation:
    """A rotation, or an array of rotations, as unit quaternions.

    Make it by `from_quat`, `from_matrix`, `from_rotvec`, `from_euler`, `from_mrp`, `identity` or `random`.
    It is a pytree with one leaf, `quat`: (..., 4), in the order x, y, z, w.

    >>> import rlx, rlx.numpy as jnp
    >>> quarter = rlx.scipy.spatial.transform.Rotation.from_euler("z", 90, degrees=True)
    >>> quarter.apply(jnp.array([1.0, 0.0, 0.0])).round(3)
    Array([0., 1., 0.], dtype=float32)
    """

    __slots__ = ("quat",)

    def __init__(self, quat: Any) -> None:
        self.quat = quat

    def __repr__(self) -> str:
        return f"Rotation(quat={self.quat!r})"

    # --------------------------------------------------------- making them
    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """Arrays of rotations in a row."""
        return cls(jnp.concatenate([rotation.quat for rotation in rotations]))

    @classmethod
    def from_euler(cls, seq: str, angles: Any, degrees: bool = False) -> Rotation:
        """From angles about up to three successive axes.

        Args: seq: letters of "xyz" for fixed axes, of "XYZ" for axes that rotate along; angles: (..., n) for
        n letters, for one letter also a number; degrees: instead of radians.
        """
        axes, extrinsic = _axes(seq, "{1,3}")
        (values,) = promote_inexact("Rotation.from_euler", angles)
        values = _vectors("Rotation.from_euler", jnp.atleast_1d(values), len(axes))
        values = jnp.deg2rad(values) if degrees else values
        result, *others = [quaternions.about_axis(axis, values[..., i]) for i, axis in enumerate(axes)]
        for other in others:
            result = quaternions.compose(other, result) if extrinsic else quaternions.compose(result, other)
        return cls(result)

    @classmethod
    def from_matrix(cls, matrix: Any) -> Rotation:
        """From orthogonal matrices of determinant 1, (..., 3, 3)."""
        return cls(quaternions.from_matrix(_vectors("Rotation.from_matrix", matrix, 3, 3)))

    @classmethod
    def from_mrp(cls, mrp: Any) -> Rotation:
        """From modified Rodrigues parameters, (..., 3): axes of length tan(angle / 4)."""
        return cls(quaternions.from_modified_rodrigues(_vectors("Rotation.from_mrp", mrp, 3)))

    @classmethod
    def from_quat(cls, quat: Any) -> Rotation:
        """From quaternions of any norm but zero, (..., 4)."""
        return cls(quaternions.normalised(_vectors("Rotation.from_quat", quat, 4)))

    @classmethod
    def from_rotvec(cls, rotvec: Any, degrees: bool = False) -> Rotation:
        """From axes that are as long as the angles, (..., 3)."""
        vectors = _vectors("Rotation.from_rotvec", rotvec, 3)
        return cls(quaternions.from_rotation_vector(jnp.deg2rad(vectors) if degrees else vectors))

    @classmethod
    def identity(cls, num: int | None = None, dtype: Any = float) -> Rotation:
        """The identity rotation, or an array of `num` identity rotations."""
        row = np.array([0, 0, 0, 1]).astype(to_dtype(dtype))
        return cls(jnp.asarray(row if num is None else np.tile(row, (num, 1))))

    @classmethod
    def random(cls, random_key: Any, num: int | None = None) -> Rotation:
        """A uniformly distributed rotation, or an array of `num` rotations."""
        return cls.from_quat(random.normal(random_key, (4,) if num is None else (num, 4)))

    # --------------------------------------------------------- as a sequence
    @property
    def single(self) -> bool:
        """Whether this is one rotation, not an array."""
        return self.quat.ndim == 1

    def _check_sequence(self) -> None:
        if self.single:
            raise InputTypeError("A single Rotation has no length and no items.", "Make it from an array (1, 4).")

    def __getitem__(self, indexer: Any) -> Rotation:
        self._check_sequence()
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        self._check_sequence()
        return self.quat.shape[0]

    # --------------------------------------------------------- using them
    def __mul__(self, other: Rotation) -> Rotation:
        """First `other`, then `self`."""
        return Rotation.from_quat(quaternions.compose(self.quat, other.quat))

    def apply(self, vectors: Any, inverse: bool = False) -> Array:
        """Vectors (..., 3), rotated, or rotated back; one rotation or vector goes with many of the other."""
        values = _vectors("Rotation.apply", vectors, 3)
        return jnp.einsum("...ji,...j->...i" if inverse else "...ij,...j->...i", self.as_matrix(), values)

    def inv(self) -> Rotation:
        """The opposite rotation."""
        return Rotation(quaternions.inverse(self.quat))

    def magnitude(self) -> Array:
        """The angles, from 0 to pi."""
        return quaternions.magnitude(self.quat)

    def mean(self, weights: Any = None) -> Rotation:
        """The rotation nearest to all (Markley et al. 2007); weights: (n,), None: equal ones."""
        count = len(self)
        weights = jnp.ones(count, self.quat.dtype) if weights is None else jnp.asarray(weights, self.quat.dtype)
        if weights.shape != (count,):
            raise ShapeError(
                f"Rotation.mean got weights of shape {weights.shape} for {count} rotations.", "Pass one for each."
            )
        _, vectors = jnp.linalg.eigh(jnp.matmul(weights * self.quat.T, self.quat))
        return Rotation(vectors[:, -1])

    # --------------------------------------------------------- reading them
    def as_euler(self, seq: str, degrees: bool = False) -> Array:
        """Angles about three successive axes, (..., 3): see `from_euler`."""
        axes, extrinsic = _axes(seq, "{3}")
        angles = quaternions.to_euler(self.quat, axes, extrinsic)
        return jnp.rad2deg(angles) if degrees else angles

    def as_matrix(self) -> Array:
        """Matrices, (..., 3, 3)."""
        return quaternions.to_matrix(self.quat)

    def as_mrp(self) -> Array:
        """Modified Rodrigues parameters, (..., 3)."""
        return quaternions.to_modified_rodrigues(self.quat)

    def as_rotvec(self, degrees: bool = False) -> Array:
        """Axes that are as long as the angles, (..., 3)."""
        vectors = quaternions.to_rotation_vector(self.quat)
        return jnp.rad2deg(vectors) if degrees else vectors

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Array:
        """Quaternions, (..., 4); canonical: the real part is not negative; scalar_first: the real part is first."""
        values = quaternions.canonical(self.quat) if canonical else self.quat
        return jnp.roll(values, 1, axis=-1) if scalar_first else values


tree.register_node(Rotation, lambda r: ((r.quat,), None), lambda _, children: Rotation(*children))


class Slerp(NamedTuple):
    """Interpolation between rotations at constant speed (Shoemake 1985); make it by `init`.

    >>> import rlx, rlx.numpy as jnp
    >>> from rlx.scipy.spatial.transform import Rotation, Slerp
    >>> turn = Slerp.init(jnp.array([0.0, 2.0]), Rotation.from_euler("z", jnp.array([[0.0], [1.0]])))
    >>> turn(1.0).as_rotvec().round(3)
    Array([0. , 0. , 0.5], dtype=float32)
    """

    times: Array
    timedelta: Array
    rotations: Rotation
    rotvecs: Array

    @classmethod
    def init(cls, times: Any, rotations: Rotation) -> Slerp:
        """Args: times: ascending, (n,); rotations: those at these times, two or more."""
        if not isinstance(rotations, Rotation):
            raise InputTypeError(f"Slerp got {type(rotations).__name__} as rotations.", "Pass a Rotation.")
        if rotations.single or len(rotations) == 1:
            raise ShapeError("Slerp got a single rotation.", "Pass two or more, with a time for each.")
        moments = jnp.asarray(times, rotations.quat.dtype)
        if moments.shape != (len(rotations),):
            raise ShapeError(
                f"Slerp got times of shape {moments.shape} for {len(rotations)} rotations.", "Pass one for each."
            )
        before = rotations[:-1]
        return cls(moments, jnp.diff(moments), before, (before.inv() * rotations[1:]).as_rotvec())

    def __call__(self, times: Any) -> Rotation:
        """The rotations at times, a number or (m,); the first and last movements are extrapolated."""
        moments = jnp.asarray(times, self.times.dtype)
        if moments.ndim > 1:
            raise ShapeError(f"Slerp got times of shape {moments.shape}.", "Pass a number or a 1-d array.")
        index = jnp.clip(jnp.searchsorted(self.times, moments) - 1, 0, self.timedelta.shape[0] - 1)
        share = (moments - self.times[index]) / self.timedelta[index]
        return self.rotations[index] * Rotation.from_rotvec(self.rotvecs[index] * share[..., None])
