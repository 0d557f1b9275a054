"""The von Mises family."""

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import i0e, i1e

from ppl.distributions.special import draw_dtype, log_i0e, on_support
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import circular, nonnegative, real


@random_variable
class VonMises(RandomVariable):
    """Von Mises random variable: an angle.

        log f(x) = concentration cos(x - loc) - log(2 pi I0(concentration)),        -pi <= x <= pi

    `mean` is the mean direction and `variance` the circular variance 1 - I1(concentration) / I0(concentration).

    Args:
      loc: mean direction, real.
      concentration: concentration, at least 0; 0 is uniform on the circle.

    Same law as `scipy.stats.vonmises(concentration, loc)` taken modulo 2 pi.

    Draws by rejection from a wrapped Cauchy: Best and Fisher (1979), Applied Statistics 28, 152.
    """

    loc: ArrayLike
    concentration: ArrayLike
    support = circular
    pathwise = False
    domain = dict(loc=real, concentration=nonnegative)

    def sample(self, key):
        distance, sign = self._distance(key)
        angle = jnp.where(sign, self.loc + distance, self.loc - distance)
        limit = jnp.asarray(math.pi, angle.dtype)
        return jnp.clip(jnp.remainder(angle + limit, 2 * math.pi) - limit, -limit, limit)

    def _distance(self, key):
        """Draw the distance from `loc` and a side, by way of 1 - cos(distance), which keeps its digits near 0."""
        dtype = draw_dtype(self)
        target = jnp.broadcast_to(self.concentration, self.shape)
        kappa = jnp.maximum(target, 1e-3)  # of the envelope: any value is exact, the target's is the fastest
        r = 1 + jnp.sqrt(1 + 4 * jnp.square(kappa))
        rho = (r - jnp.sqrt(2 * r)) / (2 * kappa)
        excess = jnp.where(kappa > 1e4, 0.5 / kappa, jnp.square(1 - rho) / (2 * rho))
        best = jnp.clip(1 / target, excess, excess + 2)

        def attempt(state):
            key, separation, accepted = state
            key, first, second = jax.random.split(key, 3)
            versine = 2 * jnp.square(jnp.sin(0.5 * math.pi * jax.random.uniform(first, self.shape, dtype)))
            proposal = excess * versine / (excess + 2 - versine)
            distance = excess + proposal
            log_rate = jnp.log(distance / best) - target * (distance - best)  # target over envelope, at most 0
            accept = jnp.log(jax.random.uniform(second, self.shape, dtype)) < log_rate
            return key, jnp.where(accepted, separation, proposal), accepted | accept

        start = (key, jnp.zeros(self.shape, dtype), jnp.zeros(self.shape, bool))
        key, separation, _ = jax.lax.while_loop(lambda state: ~jnp.all(state[2]), attempt, start)
        sign = jax.random.bernoulli(key, 0.5, self.shape)
        return 2 * jnp.arcsin(jnp.minimum(jnp.sqrt(0.5 * separation), 1.0)), sign

    def log_prob(self, x):
        def log_prob(x):
            half_chord = jnp.sin(0.5 * (x - self.loc))
            return (
                -2 * self.concentration * jnp.square(half_chord) - math.log(2 * math.pi) - log_i0e(self.concentration)
            )

        return on_support(self, x, 0.0, log_prob)

    @property
    def mean(self):
        return jnp.broadcast_to(jnp.arctan2(jnp.sin(self.loc), jnp.cos(self.loc)), self.shape)

    @property
    def variance(self):
        return jnp.broadcast_to(1 - i1e(self.concentration) / i0e(self.concentration), self.shape)
