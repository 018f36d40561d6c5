"""rlx.random: random numbers from explicit keys, equal to jax.random's."""

from __future__ import annotations

from rlx.offered_names import offer_names as _offer_names
from rlx.random.continuous import (
    cauchy,
    exponential,
    gumbel,
    laplace,
    logistic,
    pareto,
    rayleigh,
    triangular,
    weibull_min,
)
from rlx.random.discrete import (
    binomial,
    categorical,
    geometric,
    multinomial,
    poisson,
)
from rlx.random.gamma import (
    ball,
    beta,
    chisquare,
    dirichlet,
    f,
    gamma,
    generalized_normal,
    loggamma,
    t,
)
from rlx.random.keys import (
    PRNGKey,
    clone,
    fold_in,
    key,
    key_data,
    key_dtype,
    key_impl,
    split,
    wrap_key_data,
)
from rlx.random.matrices import (
    multivariate_normal,
    orthogonal,
)
from rlx.random.normal import (
    double_sided_maxwell,
    lognormal,
    maxwell,
    normal,
    truncated_normal,
    wald,
)
from rlx.random.permutation import (
    choice,
    permutation,
)
from rlx.random.uniform import (
    bernoulli,
    bits,
    rademacher,
    randint,
    uniform,
)

__all__ = [
    "PRNGKey",
    "ball",
    "bernoulli",
    "beta",
    "binomial",
    "bits",
    "categorical",
    "cauchy",
    "chisquare",
    "choice",
    "clone",
    "dirichlet",
    "double_sided_maxwell",
    "exponential",
    "f",
    "fold_in",
    "gamma",
    "generalized_normal",
    "geometric",
    "gumbel",
    "key",
    "key_data",
    "key_dtype",
    "key_impl",
    "laplace",
    "loggamma",
    "logistic",
    "lognormal",
    "maxwell",
    "multinomial",
    "multivariate_normal",
    "normal",
    "orthogonal",
    "pareto",
    "permutation",
    "poisson",
    "rademacher",
    "randint",
    "rayleigh",
    "split",
    "t",
    "triangular",
    "truncated_normal",
    "uniform",
    "wald",
    "weibull_min",
    "wrap_key_data",
]

_offer_names(globals())
