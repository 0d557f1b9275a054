"""An arbitrary term of a model's log density."""

import jax.numpy as jnp

from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import any_real


@random_variable
class Factor(RandomVariable):
    """Adds `log_density` to the log density of a model; entries of an array are summed.

    It has no value of its own: its value is the term, and its role is "observed", so that the term is recorded where
    log likelihoods are.

    Args:
      log_density: the term, a number or an array.
    """

    log_density: ArrayLike

    support = any_real
    domain = dict(log_density=any_real)

    def check(self):
        """Take the term as the value."""
        self.__dict__["value"] = jnp.asarray(self.log_density)

    def sample(self, key):
        """Return the term."""
        return jnp.broadcast_to(self.log_density, self.shape)

    def log_prob(self, x):
        """Return the term, whatever `x` is."""
        return jnp.broadcast_to(self.log_density, self.shape)
