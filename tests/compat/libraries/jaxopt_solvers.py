"""jaxopt: solvers of minima, roots and least squares, with derivatives through what they find."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jaxopt


def run() -> Any:
    x = jax.random.normal(jax.random.PRNGKey(0), (20, 4))
    w = jnp.array([1.0, -2.0, 0.5, 0.0])
    y = x @ w

    def ridge(params: Any, strength: Any) -> Any:
        return jnp.mean((x @ params - y) ** 2) + strength * jnp.sum(params**2)

    def best(strength: Any) -> Any:
        return jaxopt.GradientDescent(ridge, maxiter=300, tol=1e-6).run(jnp.zeros(4), strength).params

    lasso = jaxopt.ProximalGradient(lambda p: jnp.mean((x @ p - y) ** 2), jaxopt.prox.prox_lasso, maxiter=200)
    newton = jaxopt.Bisection(lambda z, a: z**3 - a, 0.0, 4.0, maxiter=40)
    gauss = jaxopt.GaussNewton(lambda p: x @ p - y)
    box = jaxopt.ProjectedGradient(lambda p: jnp.mean((x @ p - y) ** 2), jaxopt.projection.projection_box, maxiter=200)
    anderson = jaxopt.AndersonAcceleration(lambda z: jnp.cos(z), maxiter=30)
    return {
        "best": best(0.1), "jacobian": jax.jacobian(best)(0.1),
        "lbfgs": jaxopt.LBFGS(ridge, maxiter=50).run(jnp.zeros(4), 0.1).params,
        "bfgs": jaxopt.BFGS(ridge, maxiter=50).run(jnp.zeros(4), 0.1).params,
        "lasso": lasso.run(jnp.zeros(4), hyperparams_prox=0.2).params,
        "root": jax.value_and_grad(lambda a: newton.run(None, a).params)(8.0),
        "gauss": gauss.run(jnp.zeros(4)).params,
        "box": box.run(jnp.zeros(4), hyperparams_proj=(-1.0, 1.0)).params,
        "fixed point": anderson.run(jnp.array([0.5])).params,
        "scipy": jaxopt.ScipyMinimize(fun=ridge, method="L-BFGS-B").run(jnp.zeros(4), 0.1).params,
        "logistic": jaxopt.loss.multiclass_logistic_loss(1, jnp.array([0.1, 2.0, 0.3])),
    }  # fmt: skip
