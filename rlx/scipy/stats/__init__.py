"""rlx.scipy.stats: distributions and statistics of SciPy on rlx arrays.

A distribution is a module of functions (`norm.logpdf(x, loc, scale)`) whose arguments broadcast and
promote as in rlx.numpy. Parameters outside of their domain give NaN, values outside of the support a
density of 0. Derivatives follow JAX's conventions.
"""

from __future__ import annotations

from rlx.offered_names import offer_names
from rlx.scipy.stats import (
    bernoulli,
    beta,
    betabinom,
    binom,
    cauchy,
    chi2,
    dirichlet,
    expon,
    gamma,
    gennorm,
    geom,
    gumbel_l,
    gumbel_r,
    laplace,
    logistic,
    multinomial,
    multivariate_normal,
    nbinom,
    norm,
    pareto,
    poisson,
    t,
    truncnorm,
    uniform,
    vonmises,
    wrapcauchy,
)
from rlx.scipy.stats.density import gaussian_kde
from rlx.scipy.stats.summaries import mode, rankdata, sem

__all__ = [
    "bernoulli",
    "beta",
    "betabinom",
    "binom",
    "cauchy",
    "chi2",
    "dirichlet",
    "expon",
    "gamma",
    "gaussian_kde",
    "gennorm",
    "geom",
    "gumbel_l",
    "gumbel_r",
    "laplace",
    "logistic",
    "mode",
    "multinomial",
    "multivariate_normal",
    "nbinom",
    "norm",
    "pareto",
    "poisson",
    "rankdata",
    "sem",
    "t",
    "truncnorm",
    "uniform",
    "vonmises",
    "wrapcauchy",
]

offer_names(globals())
