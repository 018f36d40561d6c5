"""distrax: distributions, bijectors and their inverses, mixtures and hidden Markov models."""

from __future__ import annotations

from typing import Any

import distrax
import jax
import jax.numpy as jnp


def run() -> Any:
    key = jax.random.PRNGKey(0)
    normal = distrax.Normal(jnp.array([0.0, 1.0]), jnp.array([1.0, 2.0]))
    multi = distrax.MultivariateNormalDiag(jnp.zeros(2), jnp.array([1.0, 3.0]))
    squashed = distrax.Transformed(normal, distrax.Block(distrax.Tanh(), 0))
    chain = distrax.Chain([distrax.ScalarAffine(1.0, 2.0), distrax.Lambda(lambda x: jnp.sinh(x + 3.0) - 1.0)])
    flow = distrax.Transformed(distrax.Normal(0.0, 1.0), distrax.Lambda(jnp.sinh))
    mixture = distrax.MixtureSameFamily(distrax.Categorical(probs=jnp.array([0.3, 0.7])), normal)
    spline = distrax.RationalQuadraticSpline(jnp.linspace(-1, 1, 13), -2.0, 2.0)
    model = distrax.HMM(
        distrax.Categorical(probs=jnp.array([0.6, 0.4])),
        distrax.Categorical(probs=jnp.array([[0.9, 0.1], [0.2, 0.8]])),
        distrax.Normal(jnp.array([0.0, 3.0]), jnp.ones(2)),
    )
    states, seen = model.sample(seed=key, seq_len=6)
    samples, logs = squashed.sample_and_log_prob(seed=key, sample_shape=(5,))
    return {
        "samples": normal.sample(seed=key, sample_shape=(4,)), "log": normal.log_prob(jnp.array([0.3, 0.4])),
        "entropy": multi.entropy(), "kl": distrax.Normal(0.0, 1.0).kl_divergence(distrax.Normal(1.0, 2.0)),
        "squashed": (samples, logs), "chain": chain.forward_and_log_det(jnp.array([0.1, 0.2])),
        "inverse": chain.inverse_and_log_det(jnp.array([15.0, 28.0])), "flow": flow.log_prob(jnp.array([0.5, 2.0])),
        "mixture": (mixture.log_prob(0.5), mixture.sample(seed=key, sample_shape=(3,))),
        "spline": spline.forward_and_log_det(jnp.array([-1.0, 0.2])),
        "states": states, "seen": seen, "viterbi": model.viterbi(seen), "smoothed": model.forward_backward(seen)[2],
        "slope": jax.grad(lambda m: distrax.Gamma(m, 2.0).log_prob(1.5))(0.7),
        "greedy": distrax.EpsilonGreedy(jnp.array([0.1, 0.7, 0.2]), 0.1).probs,
        "batch": jax.vmap(lambda m: distrax.Laplace(m, 1.0).cdf(0.5))(jnp.arange(3.0)),
        "categorical": distrax.Categorical(logits=jnp.array([0.1, 2.0])).sample(seed=key, sample_shape=(5,)),
    }  # fmt: skip
