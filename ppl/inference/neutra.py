"""A fitted guide as a change of variables: sample the standard variables behind the guide, not the model's own.

    infer.nuts(infer.neutra(model, fit), data)

The new model has flat variables u, the standard normal ones that the guide maps to free space, x = T(u). Its density there is
p(T(u)) |dT/du|: nearly standard normal where the guide is near the posterior, whatever its scales, correlations and bends. A fit
of `mean_field` or `full_rank` so hands its scale to the sampler, one of `flow` also its shape. The model's own variables are
recorded as derived ones, under their names.

Reference: Hoffman et al. (2019), NeuTra-lizing bad geometry in Hamiltonian Monte Carlo using neural transport, arXiv 1903.03704.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from ppl.distributions import Factor, Flat, MultivariateNormal, Normal, Transformed
from ppl.errors import ModelError
from ppl.inference.fit import Fit
from ppl.inference.low_rank import LowRankNormal
from ppl.random_variable import weighted_log_prob
from ppl.supports import real
from ppl.tracing.handle import Around, handle


def neutra(model: Callable[..., Any], fit: Fit) -> Callable[..., Any]:
    """Return `model` in the coordinates of a fitted automatic guide.

    Args:
      model: the model of the fit.
      fit: what `vi` returned for `mean_field`, `full_rank`, `low_rank`, `structured`, `flow` or `laplace`.

    Raises:
      ModelError: the fit is of another kind of guide.
    """
    spec = fit.problem.spec
    if not spec.free or not spec.volume or spec.implicit or fit.smoothed:
        raise ModelError(
            f"neutra needs a fit of an automatic guide with a density, such as infer.full_rank or infer.flow, and "
            f"{fit.settings['guide']!r} is none"
        )
    missing = [n for n, latent in fit.problem.model.latents.items() if latent.missing]
    if missing:
        raise ModelError(
            f"neutra: {missing[0]!r} has missing entries, which are latent one by one: leave them out with ppl.mask"
        )
    return Warped(model, fit)


@dataclasses.dataclass(frozen=True, eq=False)
class Warped(Around):
    """A model in the coordinates of a fit: called as the model is."""

    model: Any
    fit: Fit

    def __call__(self, *args, **kwargs):
        """Return the running model."""
        return self._run(self.model(*args, **kwargs))

    def _run(self, program):
        position, log_volume = yield from _free_values(self.fit)
        yield Factor(log_volume, name="neutra/volume")

        def respond(rv):
            if rv.name not in position or rv.role != "latent" or rv.value is not None:
                return (yield rv)
            free = position[rv.name][tuple(index for index, _ in rv.loops)]
            value, volume = rv.support.constrain(free)
            term = jnp.sum(weighted_log_prob(rv, value, True)) + jnp.sum(volume)
            yield Factor(term, name=f"{rv.name}/density")
            yield rv.replace(value=value, role="derived")
            return value

        return (yield from handle(program, respond))


def _free_values(fit):
    """Yield the standard variables of a guide; returns `(free values by name, log volume)`."""
    program, value, log_volume, position = fit.problem.spec.program(fit.params), None, jnp.zeros(()), {}
    names = {ours: theirs for ours, theirs in fit.problem.names}
    while True:
        try:
            rv = program.send(value)
        except StopIteration:
            return position, log_volume
        if rv.role == "latent":
            base = yield Flat(real, shape=rv.shape, name=f"{rv.name}_base")
            value, volume = _from_standard(rv, base)
            log_volume = log_volume + volume
        else:
            value = rv.value
        if rv.name in names:
            position[names[rv.name]] = value


def _from_standard(rv, u):
    """Return `(x, log volume)`: the value of a guide's variable from standard normal numbers."""
    if isinstance(rv, Normal):
        scale = jnp.broadcast_to(rv.scale, rv.shape)
        return jnp.broadcast_to(rv.loc, rv.shape) + scale * u, jnp.sum(jnp.log(scale))
    if isinstance(rv, MultivariateNormal) or isinstance(rv, LowRankNormal):
        factor = rv.scale_tril if isinstance(rv, MultivariateNormal) else _dense_factor(rv)
        return rv.loc + factor @ u, jnp.sum(jnp.log(jnp.diagonal(factor)))
    if isinstance(rv, Transformed):
        x, volume = rv.bijection.constrain(u)
        return x, jnp.sum(volume)
    raise ModelError(f"{rv._label()}: neutra knows normal variables and flows of them")


def _dense_factor(rv):
    return jnp.linalg.cholesky(jnp.diag(jnp.square(rv.scale)) + rv.factor @ rv.factor.T)
