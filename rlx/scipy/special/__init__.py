"""rlx.scipy.special: special functions of SciPy on rlx arrays, computed in float64 and rounded once.

Arguments broadcast and promote as in rlx.numpy: integers become floats. Derivatives follow JAX's
conventions; those in parameters without a closed form (of gammainc, betainc, zeta, hyp1f1, hyp2f1)
are good to about ten digits in float64.
"""

from __future__ import annotations

from rlx.offered_names import offer_names
from rlx.scipy.special.entropies import (
    boxcox,
    boxcox1p,
    entr,
    expit,
    kl_div,
    log_softmax,
    logit,
    logsumexp,
    rel_entr,
    softmax,
    xlog1py,
    xlogy,
)
from rlx.scipy.special.errors import dawsn, erf, erfc, erfcx, erfinv, log_ndtr, ndtr, ndtri, owens_t, wofz
from rlx.scipy.special.gamma_functions import (
    bernoulli,
    beta,
    betainc,
    betaln,
    comb,
    digamma,
    factorial,
    gamma,
    gammainc,
    gammaincc,
    gammaln,
    gammasgn,
    loggamma,
    multigammaln,
    poch,
    polygamma,
    zeta,
)
from rlx.scipy.special.integrals import exp1, expi, expn, fresnel, hyp1f1, hyp2f1, sici, spence
from rlx.scipy.special.legendre import lpmn, lpmn_values
from rlx.scipy.special.waves import bessel_jn, i0, i0e, i1, i1e, sph_harm_y

__all__ = [
    "bernoulli",
    "bessel_jn",
    "beta",
    "betainc",
    "betaln",
    "boxcox",
    "boxcox1p",
    "comb",
    "dawsn",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp1",
    "expi",
    "expit",
    "expn",
    "factorial",
    "fresnel",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammaln",
    "gammasgn",
    "hyp1f1",
    "hyp2f1",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "kl_div",
    "log_ndtr",
    "log_softmax",
    "loggamma",
    "logit",
    "logsumexp",
    "lpmn",
    "lpmn_values",
    "multigammaln",
    "ndtr",
    "ndtri",
    "owens_t",
    "poch",
    "polygamma",
    "rel_entr",
    "sici",
    "softmax",
    "spence",
    "sph_harm_y",
    "wofz",
    "xlog1py",
    "xlogy",
    "zeta",
]

offer_names(globals())
