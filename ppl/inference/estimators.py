"""Gradient estimators: how an objective of draws becomes something whose gradient is an unbiased estimate.

With draws z_k of the guide q and an objective F(log p(x, z_k), log q(z_k)) of all K of them:

| `gradient=` | what it does |
|---|---|
| "pathwise" | the gradient goes through the draws; where it cannot (discrete variables), "score" |
| "sticking" | "pathwise" without the term E[grad log q(z)] = 0: no variance where q is the posterior, more far from it |
| "doubly" | what "sticking" becomes for objectives that are not linear in log w: that term is reparameterized |
| "entropy" | "pathwise" with closed-form entropies of the guide's variables where their families know them |
| "score" | for all variables:  (F - b_k) grad log q(z_k), with b_k = F where the mean of the others stands for draw k |
| "fixed" | draws are constants: only log q(z_k) at fixed z_k is differentiated (for objectives such as `forward_kl`) |

The control variate b_k does not depend on z_k, so it costs no bias. With one draw a step, b is a running mean of F.

References: Kingma and Welling (2014), arXiv 1312.6114; Roeder, Wu, Duvenaud (2017), arXiv 1703.09194 (sticking the
landing); Tucker, Lawson, Gu, Maddison (2019), arXiv 1810.04152 (doubly reparameterized); Mnih and Rezende (2016),
arXiv 1602.06725 (leave-one-out control variates); Ranganath, Gerrish, Blei (2014), arXiv 1401.0118 (score function).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ppl.errors import ModelError, listed, suggest
from ppl.inference.objectives import elbo

GRADIENTS = ("pathwise", "sticking", "doubly", "entropy", "score", "fixed")


class Estimate(NamedTuple):
    """One evaluation of an objective.

    Args:
      surrogate: what to differentiate by the parameters.
      value: the objective.
      log_weights: log p(x, z) - log q(z) of each draw.
    """

    surrogate: Any
    value: Any
    log_weights: Any


def choose(gradient, objective, problem):
    """Return the estimator's name: as given, or what suits the objective and the guide."""
    wanted = getattr(objective, "gradient", None)
    if gradient is None:
        gradient = wanted or problem.spec.gradient or "pathwise"
    if gradient not in GRADIENTS:
        raise ModelError(f"gradient={gradient!r} is none of {listed(GRADIENTS)}.{suggest(gradient, GRADIENTS)}")
    if wanted == "fixed" and gradient != "fixed":
        raise ModelError(f"{objective.__name__} is for fixed draws: leave gradient= out, or give gradient='fixed'")
    linear = objective is elbo
    if gradient == "sticking" and not linear:
        gradient = "doubly"  # the term that "sticking" leaves out has mean 0 where log w enters linearly alone
    if gradient == "entropy" and not linear:
        raise ModelError("gradient='entropy' is for objective=infer.elbo: leave gradient= out")
    if gradient == "doubly":
        stopped = [name for name, pathwise, _ in problem.cut if not pathwise]
        if stopped:
            raise ModelError(
                f"gradient='doubly' needs draws that are differentiable functions of the parameters, and {stopped[0]!r} is none: "
                "leave gradient= out"
            )
    return gradient


def estimate(problem, objective, gradient, key, params, arrays, samples, baseline):
    """Evaluate an objective at `samples` draws. Returns an `Estimate`.

    Args:
      problem: a `Problem`.
      objective: a function of `(log_joint, log_guide)`.
      gradient: one of `GRADIENTS`.
      key: of this evaluation.
      params: the trained parameters.
      arrays: of the problem's data.
      samples: how many draws.
      baseline: a running mean of the objective, the control variate of a single draw.
    """
    cut, held = gradient in ("score", "fixed"), jax.tree.map(jax.lax.stop_gradient, params)

    def one(key):
        draw = problem.draw(key, params, arrays, cut=cut, entropies=gradient == "entropy")
        log_guide = draw.log_guide
        if gradient in ("sticking", "doubly"):
            log_guide = problem.log_guide(draw.noise, held, arrays)
        if gradient == "doubly" and problem.taken:  # the model's own parameters are differentiated at fixed draws
            own = problem.log_joint(jax.lax.stop_gradient(draw.values), params, arrays)
            return problem.log_joint(draw.values, held, arrays), log_guide, own
        return problem.log_joint(draw.values, params, arrays), log_guide, draw.score

    log_joint, log_guide, score = jax.vmap(one)(jax.random.split(key, samples))
    value = objective(log_joint, log_guide)
    surrogate = value
    if gradient == "doubly":
        surrogate = _doubly(objective, log_joint, log_guide)
        if problem.taken:
            surrogate += jnp.sum(jax.grad(objective)(*jax.lax.stop_gradient((log_joint, log_guide))) * score)
    elif gradient != "fixed" and (gradient == "score" or any(not pathwise for _, pathwise, _ in problem.cut)):
        surrogate = value + _score(objective, value, log_joint, log_guide, score, baseline)
    return Estimate(surrogate, value, log_joint - log_guide)


def _score(objective, value, log_joint, log_guide, score, baseline):
    """Return the score-function term; its value is of no use, its gradient is."""
    count = score.shape[0]
    if count == 1:
        others = jnp.reshape(baseline, (1,))
    else:

        def without(k):
            first, second = (
                jnp.where(jnp.arange(count) == k, (jnp.sum(x) - x[k]) / (count - 1), x) for x in (log_joint, log_guide)
            )
            return objective(first, second)

        others = jax.vmap(without)(jnp.arange(count))
    advantage = jax.lax.stop_gradient(jnp.broadcast_to(value, others.shape) - others)
    return jnp.sum(advantage * score)


def _doubly(objective, log_joint, log_guide):
    """Return sum_k c_k x_k with constants c_k = F_k - (score term), as derived for each of the two arguments x.

    With F_b = dF/d log q:  E[F_b,k grad log q(z_k)] = E[d F_b,k / d z_k . dz_k/d parameters], which is subtracted.
    """
    a, b = jax.lax.stop_gradient((log_joint, log_guide))
    of_joint, of_guide = jax.grad(objective, (0, 1))(a, b)

    def second(k):
        unit = (jnp.arange(a.shape[0]) == k).astype(a.dtype)
        by_joint = jax.jvp(lambda a: jax.grad(objective, 1)(a, b), (a,), (unit,))[1][k]
        by_guide = jax.jvp(lambda b: jax.grad(objective, 1)(a, b), (b,), (unit,))[1][k]
        return by_joint, by_guide

    mixed, own = jax.vmap(second)(jnp.arange(a.shape[0]))
    return jnp.sum((of_joint + mixed) * log_joint + (of_guide + own) * log_guide)
