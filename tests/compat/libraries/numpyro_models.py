"""numpyro: regression by NUTS, variational inference with guides, predictions, and a sparse spatial model."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO, log_likelihood
from numpyro.infer.autoguide import AutoLowRankMultivariateNormal, AutoNormal
from numpyro.infer.util import log_density

TOLERANCE = (0.15, 0.08)  # moments of chains, which rounding errors lead apart


def regression(x: Any, y: Any = None) -> None:
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ weights, scale), obs=y)


def schools(sigma: Any, y: Any = None) -> None:
    mean = numpyro.sample("mean", dist.Normal(0, 5))
    spread = numpyro.sample("spread", dist.HalfCauchy(5))
    with (
        numpyro.plate("schools", len(sigma)),
        numpyro.handlers.reparam(config={"effect": numpyro.infer.reparam.LocScaleReparam(0)}),
    ):
        effect = numpyro.sample("effect", dist.Normal(mean, spread))
        numpyro.sample("y", dist.Normal(effect, sigma), obs=y)


def run() -> Any:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2)).astype(np.float32)
    y = (x @ np.array([1.0, -0.5]) + 0.3 * rng.normal(size=60)).astype(np.float32)
    found = {}
    mcmc = MCMC(NUTS(regression), num_warmup=300, num_samples=1500, progress_bar=False)
    mcmc.run(jax.random.PRNGKey(0), x, y)
    samples = mcmc.get_samples()
    found["nuts"] = {name: (value.mean(0), value.std(0)) for name, value in samples.items()}
    drawn = Predictive(regression, samples)(jax.random.PRNGKey(1), x[:3])["y"]
    found["predictions"] = drawn.mean(0)
    found["likelihood"] = log_likelihood(regression, samples, x, y)["y"].sum(-1).mean()
    found["density"] = log_density(
        regression, (x, y), {}, {"weights": jnp.array([0.9, -0.4]), "scale": jnp.array(0.4)}
    )[0]

    for guide in (AutoNormal(regression), AutoLowRankMultivariateNormal(regression)):
        svi = SVI(regression, guide, numpyro.optim.Adam(0.02), Trace_ELBO(num_particles=4))
        result = svi.run(jax.random.PRNGKey(2), 1500, x, y, progress_bar=False)
        found[type(guide).__name__] = guide.median(result.params)

    sigma = jnp.array([15.0, 10, 16, 11, 9, 11, 10, 18])
    effects = jnp.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    mcmc = MCMC(NUTS(schools, target_accept_prob=0.9), num_warmup=300, num_samples=1000, progress_bar=False)
    mcmc.run(jax.random.PRNGKey(3), sigma, effects)
    found["schools"] = mcmc.get_samples()["mean"].mean() / 5

    adjacent = np.array([[0.0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]])
    field = jnp.array([0.1, -0.2, 0.3, 0.0])
    found["car"] = dist.CAR(0.0, 0.5, 1.0, adjacent).log_prob(field)
    from scipy.sparse import csr_matrix

    found["sparse car"] = dist.CAR(0.0, 0.5, 1.0, csr_matrix(adjacent), is_sparse=True).log_prob(field)
    with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as trace:
        regression(x[:2])
    found["trace"] = trace["y"]["value"]
    relations = numpyro.infer.inspect.get_dependencies(regression, (x, y))
    found["dependencies"] = [len(relations["prior_dependencies"]), len(relations["posterior_dependencies"])]
    constrained = dist.biject_to(dist.constraints.simplex)(jnp.array([0.2, -1.0]))
    found["simplex"] = constrained
    return found
