"""Density estimates from samples: a normal distribution of equal covariance around each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import rlx.numpy as jnp
from rlx import random
from rlx.array import Array
from rlx.errors import ShapeError, UnsupportedError
from rlx.ir.types import is_complex
from rlx.numpy.promotion import operand, promote_inexact
from rlx.scipy.linalg import cho_factor, cho_solve
from rlx.scipy.special import logsumexp, ndtr
from rlx.trace.flat import as_array
from rlx.trees import tree

__all__ = ["gaussian_kde"]

BandwidthMethod = str | float | Array | Callable[[Any], Any] | None


class gaussian_kde:
    """The mean of normal distributions around samples (Scott, 1992; Silverman, 1986).

    Args:
      dataset: samples, (n,) or (d, n): a sample is a column.
      bw_method: the widths of the normal distributions, as a part of the samples' own: "scott" (also
        None), "silverman", a number, or a function of the estimate that returns one.
      weights: of the samples, (n,); None: equal ones.

    Raises: UnsupportedError for complex samples, ShapeError for a wrong shape, ValueError for a wrong bw_method.
    It is a pytree: it can be an argument and a result of transformed functions.

    >>> import numpy as np, rlx
    >>> estimate = rlx.scipy.stats.gaussian_kde(np.array([0.0, 1.0, 3.0]))
    >>> round(estimate(np.array([1.0]))[0].item(), 4)
    0.2149
    """

    __slots__ = ("covariance", "dataset", "inv_cov", "neff", "weights")

    neff: Array
    dataset: Array
    weights: Array
    covariance: Array
    inv_cov: Array

    def __init__(self, dataset: Any, bw_method: BandwidthMethod = None, weights: Any = None) -> None:
        (samples,) = promote_inexact("gaussian_kde", dataset)
        samples = jnp.atleast_2d(samples)
        if is_complex(samples.dtype):
            raise UnsupportedError("gaussian_kde does not take complex samples.", "Pass their parts as two rows.")
        dimensions, size = samples.shape
        if dimensions * size < 2:
            raise ShapeError(f"gaussian_kde got a dataset of shape {samples.shape}.", "Pass several samples.")
        if weights is None:
            shares = jnp.full(size, 1 / size, samples.dtype)
        else:
            samples, shares = promote_inexact("gaussian_kde", samples, weights)
            if jnp.atleast_1d(shares).shape != (size,):
                raise ShapeError(
                    f"gaussian_kde got weights of shape {shares.shape} for {size} samples.", "Pass one for each sample."
                )
            shares = jnp.atleast_1d(shares) / jnp.sum(shares)
        self.dataset, self.weights = samples, shares
        self.neff = 1 / jnp.sum(jnp.square(shares))
        factor = self._factor("scott" if bw_method is None else bw_method)
        own = jnp.atleast_2d(jnp.cov(samples, rowvar=True, bias=False, aweights=shares))
        self.covariance = own * (factor * factor)
        self.inv_cov = jnp.linalg.inv(own) / (factor * factor)

    def _factor(self, method: Any) -> Any:
        """The width of a normal distribution as a part of the samples' own."""
        if isinstance(method, str):
            if method not in ("scott", "silverman"):
                raise ValueError(f"gaussian_kde has no bw_method {method!r}: use 'scott' or 'silverman'.")
            count = self.neff if method == "scott" else self.neff * ((self.d + 2) / 4)
            return jnp.power(count, -1 / (self.d + 4))
        if jnp.ndim(method) == 0 and not callable(method):
            return method
        if callable(method):
            return method(self)
        raise ValueError("gaussian_kde takes a name, a number or a function as bw_method.")

    # --------------------------------------------------------- pytree
    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """The arrays; there is nothing else."""
        return (self.neff, self.dataset, self.weights, self.covariance, self.inv_cov), None

    @classmethod
    def tree_unflatten(cls, aux: None, children: tuple[Any, ...]) -> gaussian_kde:
        """An estimate of its arrays."""
        del aux
        estimate = cls.__new__(cls)
        estimate.neff, estimate.dataset, estimate.weights, estimate.covariance, estimate.inv_cov = children
        return estimate

    @property
    def d(self) -> int:
        """The number of components of a sample."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """The number of samples."""
        return self.dataset.shape[1]

    # --------------------------------------------------------- densities
    def evaluate(self, points: Any) -> Array:
        """The density at points, (m,) or (d, m): an array of m numbers."""
        return jnp.exp(self.logpdf(points))

    __call__ = evaluate
    pdf = evaluate

    def logpdf(self, x: Any) -> Array:
        """The logarithm of the density at points, (m,) or (d, m): an array of m numbers."""
        points = self._columns(x)
        points, samples, shares, precision = promote_inexact(
            "gaussian_kde.logpdf", points, self.dataset, self.weights, self.inv_cov
        )
        whitening = jnp.linalg.cholesky(precision)
        points, samples = jnp.matmul(points.T, whitening), jnp.matmul(samples.T, whitening)
        distances = jnp.sum(jnp.square(points[:, None, :] - samples[None, :, :]), axis=-1)
        normaliser = jnp.sum(jnp.log(jnp.diagonal(whitening))) - 0.5 * self.d * math.log(2 * math.pi)
        return normaliser + logsumexp(-0.5 * distances, axis=1, b=shares)

    def _columns(self, x: Any) -> Array:
        points = as_array(operand(x, "gaussian_kde"))
        if is_complex(points.dtype):
            raise UnsupportedError("gaussian_kde does not take complex points.", "Pass their parts as two rows.")
        points = jnp.atleast_2d(points)
        if points.shape[0] == self.d:
            return points
        if points.shape == (1, self.d):
            return jnp.reshape(points, (self.d, 1))
        raise ShapeError(
            f"gaussian_kde got points of shape {points.shape} for samples of {self.d} components.",
            "A point is a column: the first axis contains the components.",
        )

    # --------------------------------------------------------- integrals
    def integrate_gaussian(self, mean: Any, cov: Any) -> Array:
        """The integral of the density times a normal density with mean (d,) and covariance (d, d)."""
        centre = jnp.atleast_1d(jnp.squeeze(as_array(operand(mean, "integrate_gaussian"))))
        spread = jnp.atleast_2d(as_array(operand(cov, "integrate_gaussian")))
        if centre.shape != (self.d,) or spread.shape != (self.d, self.d):
            raise ShapeError(
                f"integrate_gaussian got a mean of shape {centre.shape} and a covariance of {spread.shape}.",
                f"The samples have {self.d} components.",
            )
        return self._convolved(self.covariance + spread, centre[:, None], jnp.ones(1, self.dataset.dtype))

    def integrate_box_1d(self, low: Any, high: Any) -> Array:
        """The probability of low..high, for samples of one component."""
        if self.d != 1:
            raise ShapeError(f"integrate_box_1d got samples of {self.d} components.", "It is for one.")
        if jnp.ndim(low) or jnp.ndim(high):
            raise ShapeError("integrate_box_1d got limits that are arrays.", "Pass numbers.")
        sigma = jnp.sqrt(self.covariance[0, 0])
        below, above = ((limit - self.dataset[0]) / sigma for limit in (low, high))
        return jnp.sum(self.weights * (ndtr(above) - ndtr(below)))

    def integrate_kde(self, other: gaussian_kde) -> Array:
        """The integral of the product of two estimated densities."""
        if other.d != self.d:
            raise ShapeError(f"integrate_kde got estimates of {self.d} and {other.d} components.", "Pass equal ones.")
        return self._convolved(self.covariance + other.covariance, other.dataset, other.weights)

    def _convolved(self, covariance: Array, centres: Array, shares: Array) -> Array:
        """The weighted sum over pairs of samples and centres of the normal density of their distance."""
        factor = cho_factor(covariance)
        normaliser = (2 * math.pi) ** (self.d / 2) * jnp.prod(jnp.diagonal(factor[0]))
        differences = self.dataset[:, :, None] - centres[:, None, :]
        flat = jnp.reshape(differences, (self.d, -1))
        distances = jnp.sum(flat * cho_solve(factor, flat), axis=0)
        densities = jnp.reshape(jnp.exp(-0.5 * distances), differences.shape[1:]) / normaliser
        return jnp.sum(densities * self.weights[:, None] * shares)

    def integrate_box(self, low_bounds: Any, high_bounds: Any, maxpts: Any = None) -> Array:
        """Not there: raises UnsupportedError."""
        del low_bounds, high_bounds, maxpts
        raise UnsupportedError("gaussian_kde.integrate_box is not there.", "For one component use integrate_box_1d.")

    # --------------------------------------------------------- sampling
    def resample(self, key: Any, shape: tuple[int, ...] = ()) -> Array:
        """Samples of the estimated distribution: an array of shape (d, *shape)."""
        which_key, noise_key = random.split(key)
        which = random.choice(which_key, self.n, shape=shape, p=self.weights)
        noise = random.normal(noise_key, (*shape, self.d), self.dataset.dtype)
        spread = jnp.matmul(noise, jnp.linalg.cholesky(self.covariance).T)
        return self.dataset[:, which] + jnp.moveaxis(spread, -1, 0)

    def set_bandwidth(self, bw_method: Any = None) -> None:
        """Not there: raises UnsupportedError."""
        del bw_method
        raise UnsupportedError("gaussian_kde.set_bandwidth is not there.", "Make another estimate.")


tree.register_node(gaussian_kde, gaussian_kde.tree_flatten, gaussian_kde.tree_unflatten)
