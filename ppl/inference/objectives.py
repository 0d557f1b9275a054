"""Objectives: what a fit maximizes, as plain functions of log densities of several draws.

    objective(log_joint, log_guide) -> number        [draw], [draw];  log w = log_joint - log_guide

A function of a user's own is one like these, and gets the same gradient estimators (see `estimators`).

| objective | maximized |
|---|---|
| `elbo` | mean of log w, a lower bound of the log evidence |
| `importance_weighted` | log of the mean of w, a tighter bound (Burda, Grosse, Salakhutdinov 2016, arXiv 1509.00519) |
| `renyi(alpha=)` | log of the mean of w^(1 - alpha), over 1 - alpha (Li and Turner 2016, arXiv 1602.02311) |
| `forward_kl` | the log density of draws under the guide, weighted by w (Bornschein and Bengio 2015, arXiv 1406.2751) |
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from ppl.errors import ModelError


def elbo(log_joint: jax.Array, log_guide: jax.Array) -> jax.Array:
    """Return the evidence lower bound,  E_q[log p(x, z) - log q(z)] = log p(x) - KL(q, p(. | x)).

    Args:
      log_joint: log p(x, z) of each draw, [draw].
      log_guide: log q(z) of each draw, [draw].

    Reference: Jordan, Ghahramani, Jaakkola, Saul (1999), Machine Learning 37.
    """
    return jnp.mean(log_joint - log_guide)


def importance_weighted(log_joint: jax.Array, log_guide: jax.Array) -> jax.Array:
    """Return the importance-weighted bound with K draws,  E[log (1/K) sum_k w_k]: at least the ELBO, at most log p(x).

    Args:
      log_joint: log p(x, z) of each draw, [draw].
      log_guide: log q(z) of each draw, [draw].

    Reference: Burda, Grosse, Salakhutdinov (2016), arXiv 1509.00519.
    """
    return _log_mean_exp(log_joint - log_guide)


@dataclasses.dataclass(frozen=True)
class renyi:
    """The Renyi bound,  E[log (1/K) sum_k w_k^(1 - alpha)] / (1 - alpha).

    alpha = 0 is the importance-weighted bound; alpha towards 1 the ELBO; negative alpha bounds log p(x) from above as the
    number of draws grows.

    Args:
      alpha: the order, any number but 1.

    Reference: Li and Turner (2016), arXiv 1602.02311.
    """

    alpha: float = 0.5

    def __post_init__(self):
        if self.alpha == 1:
            raise ModelError("renyi: alpha=1 is the ELBO: write objective=infer.elbo")

    def __call__(self, log_joint: jax.Array, log_guide: jax.Array) -> jax.Array:
        """Return the bound for log densities [draw]."""
        rest = 1 - self.alpha
        return _log_mean_exp(rest * (log_joint - log_guide)) / rest


def forward_kl(log_joint: jax.Array, log_guide: jax.Array) -> jax.Array:
    """Return  sum_k w_k log q(z_k) / sum_k w_k  with fixed draws and weights; its gradient is that of -KL(p(. | x), q).

    Covers the posterior rather than fitting inside of it. The weights are normalized over the draws of a step, so the
    gradient has a bias of the order of one over their number: use many, `samples=64` for example.

    Args:
      log_joint: log p(x, z) of each draw, [draw].
      log_guide: log q(z) of each draw, [draw].

    Reference: Bornschein and Bengio (2015), arXiv 1406.2751 (wake-phase update of the guide).
    """
    weights = jax.nn.softmax(jax.lax.stop_gradient(log_joint - log_guide))
    return jnp.sum(weights * log_guide)


forward_kl.gradient = "fixed"


def _log_mean_exp(x):
    return logsumexp(x) - jnp.log(jnp.asarray(x.shape[0], x.dtype))


@dataclasses.dataclass(frozen=True)
class density_ratio:
    """The ELBO of a guide that can be drawn from and has no density, by a discriminator that learns the density ratio.

        E_q[log p(x | z)] + E_q[log p(z) / q(z)],        the second term read off the discriminator d(z)

    The discriminator is trained, in the same steps, to tell draws of the guide from draws of the prior by logistic
    regression; at its optimum d(z) = log p(z) - log q(z). It has to keep up with the guide: give its parameters a higher
    learning rate, by `optax.multi_transform`. A guide for it yields noise of its own and derives the latent
    variables from it, by `Deterministic`.

    Args:
      discriminator: a function `d(q, values)` of the parameters and of a dict of the latent variables' values (one draw) that
        returns a number.

    References: Tran, Ranganath, Blei (2017), arXiv 1702.08896; Mescheder, Nowozin, Geiger (2017), arXiv 1701.04722.
    """

    discriminator: Callable[..., Any]

    def surrogate(self, problem, key, params, whole, arrays, samples):
        """Return `(what to differentiate, the estimated bound, log weights)`.

        Args:
          problem: a `Problem`.
          key: of the step.
          params: the trained parameters.
          whole: a function from trained parameters to the pytree that the user knows.
          arrays: of the problem's data.
          samples: how many draws.
        """
        guide_key, prior_key = jax.random.split(key)
        fixed = jax.tree.map(jax.lax.stop_gradient, params)

        def one(guide_key, prior_key):
            values = problem.draw(guide_key, params, arrays).values
            sites = problem.sites(values, params, arrays)
            likelihood = [
                jnp.sum(s.log_prob) for s in sites.values() if s.role == "observed" and s.log_prob is not None
            ]
            likelihood = sum(likelihood[1:], likelihood[0]) if likelihood else jnp.zeros(())
            ratio = self.discriminator(whole(fixed), values)
            prior = {n: jax.lax.stop_gradient(v) for n, v in problem.prior(prior_key, params, arrays).items()}
            of_guide = self.discriminator(whole(params), jax.tree.map(jax.lax.stop_gradient, values))
            of_prior = self.discriminator(whole(params), prior)
            told = jax.nn.log_sigmoid(-of_guide) + jax.nn.log_sigmoid(of_prior)
            return likelihood + ratio, told

        bounds, told = jax.vmap(one)(jax.random.split(guide_key, samples), jax.random.split(prior_key, samples))
        bound = jnp.mean(bounds)
        return bound + jnp.mean(told), bound, bounds
