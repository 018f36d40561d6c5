"""rlx.scipy.cluster.vq: vector quantisation."""

from __future__ import annotations

from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError
from rlx.numpy.promotion import promote_inexact
from rlx.offered_names import offer_names

__all__ = ["vq"]

offer_names(globals())


def vq(obs: Any, code_book: Any, check_finite: bool = True) -> tuple[Array, Array]:
    """The nearest code of each observation.

    Args:
      obs: observations, (m, n) or (m,).
      code_book: codes, (k, n) or (k,).
      check_finite: is there for SciPy's sake; nothing is checked.

    Returns: (indices of codes, distances from them), both (m,). Raises: ShapeError.

    >>> import rlx, rlx.numpy as jnp
    >>> indices, distances = rlx.scipy.cluster.vq.vq(jnp.array([0.5, 4.0]), jnp.array([0.0, 3.0]))
    >>> indices.tolist(), distances.tolist()
    ([0, 1], [0.5, 1.0])
    """
    del check_finite
    points, codes = promote_inexact("vq", obs, code_book)
    if points.ndim == codes.ndim == 1:
        points, codes = points[:, None], codes[:, None]
    if points.ndim != 2 or codes.ndim != 2 or points.shape[1] != codes.shape[1] or 0 in codes.shape:
        raise ShapeError(
            f"vq got observations of shape {jnp.shape(obs)} and codes of shape {jnp.shape(code_book)}.",
            "Both are vectors, or matrices of equally many columns; there is a code or more.",
        )
    distances = jnp.linalg.norm(points[:, None] - codes[None], axis=-1)
    nearest = jnp.argmin(distances, axis=-1)
    return nearest, jnp.take_along_axis(distances, nearest[:, None], axis=-1)[:, 0]
