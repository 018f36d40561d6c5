"""A device's costs fitted to measured runs: least squares of logarithms, with outliers weighed less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rlx.placement.rates import DeviceRates, Observation

__all__ = ["fitted"]

_ROUNDS = 30
_OUTLIER = 0.4  # of a logarithm: residuals beyond it count linearly (Huber)
_LONGEST_STEP = 1.5  # of a logarithm


def fitted(
    start: DeviceRates, observations: Sequence[Observation], prior: float, forgetting: float = 1.0
) -> DeviceRates:
    """The costs that explain the observations, near those of `start`.

    prior: the weight of the logarithm of each start cost, relative to one observation. forgetting: the weight of an
    observation relative to the next one. Costs that no observation needs do not change.

    >>> from rlx.code.cost import Counts
    >>> from rlx.placement.rates import Observation, Term, typical_rates
    >>> start = typical_rates("cpu")
    >>> seen = Observation((Term(Counts(products={"product": 1e12})),), 2.0)
    >>> round(fitted(start, [seen] * 20, prior=0.01).costs["product"] * 1e12, 2)
    2.0
    """
    names = sorted({name for o in observations for name, s in start.shares(o.terms).items() if s > 0})
    if not names:
        return start
    begin = np.log([start.costs[name] for name in names])
    ages = forgetting ** np.arange(len(observations) - 1, -1, -1.0)
    measured = np.log([o.seconds for o in observations])
    theta = begin.copy()
    for _ in range(_ROUNDS):
        rates = _with(start, names, theta)
        slopes, predicted = _slopes(rates, observations, names)
        residuals = measured - predicted
        weights = ages * np.minimum(1.0, _OUTLIER / np.maximum(np.abs(residuals), 1e-12))
        matrix = slopes.T @ (weights[:, None] * slopes) + prior * np.eye(len(names))
        step = np.linalg.solve(matrix, slopes.T @ (weights * residuals) - prior * (theta - begin))
        longest = float(np.abs(step).max())
        theta = theta + step * min(1.0, _LONGEST_STEP / max(longest, 1e-12))
        if longest < 1e-4:
            break
    return _with(start, names, theta)


def _with(start: DeviceRates, names: Sequence[str], theta: np.ndarray) -> DeviceRates:
    return replace(start, costs={**start.costs, **dict(zip(names, np.exp(theta).tolist(), strict=True))})


def _slopes(
    rates: DeviceRates, observations: Sequence[Observation], names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """The share of each class in each observation, and the logarithms of the predicted times."""
    slopes = np.zeros((len(observations), len(names)))
    totals = np.zeros(len(observations))
    for number, o in enumerate(observations):
        shares = rates.shares(o.terms)
        totals[number] = sum(shares.values())
        slopes[number] = [shares.get(name, 0.0) / totals[number] for name in names]
    return slopes, np.log(totals)
