"""The truncated normal family."""

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri

from ppl.distributions.special import (
    LOG_SQRT_2_PI,
    as_float,
    draw_dtype,
    log1mexp,
    log_center_mass,
    log_mills,
    log_ndtr,
    log_tail_integral,
    mills_excess,
    on_support,
)
from ppl.distributions.tails import guarded
from ppl.distributions.uniform import check_ends
from ppl.random_variable import ArrayLike, RandomVariable, concrete, random_variable
from ppl.supports import greater_than, interval, less_than, positive, real


@random_variable
class TruncatedNormal(RandomVariable):
    """Normal random variable kept between two ends, either of which may be left out.

        log f(x) = -z^2 / 2 - log(scale) - log(2 pi) / 2 - log(Phi(b) - Phi(a)),        low <= x <= high

    with z, a, b the distances of x, low, high from loc in units of scale. Computed from the end nearer to `loc`, where
    -z^2 / 2 and the mass cancel, so that it keeps its digits (and draws stay inside) however far out the interval lies.

    Args:
      loc: mean of the whole normal, real.
      scale: standard deviation of the whole normal, positive.
      low: lower end, real; None for no lower end.
      high: upper end, real, above `low`; None for no upper end.

    Same law as `scipy.stats.truncnorm((low - loc) / scale, (high - loc) / scale, loc, scale)`.
    """

    loc: ArrayLike = 0.0
    scale: ArrayLike = 1.0
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    domain = dict(loc=real, scale=positive, low=real, high=real)

    def __post_init__(self):
        for name, infinity in (("low", -jnp.inf), ("high", jnp.inf)):
            end = getattr(self, name)
            known = concrete(end) if isinstance(end, int | float | jax.Array) else None
            if known is not None and known.ndim == 0 and known == infinity:
                self.__dict__[name] = None
        super().__post_init__()

    def check(self):
        if self.low is not None and self.high is not None:
            check_ends(self)

    @property
    def support(self):
        if self.low is None:
            return real if self.high is None else less_than(self.high)
        return greater_than(self.low) if self.high is None else interval(self.low, self.high)

    def _ends(self):
        """Return (mirrored, a, width): the law as a standard normal on (a, a + width) with a the end nearer to 0.

        `mirrored` tells that it was reflected for that; `width` is None for an infinite one.
        """
        if self.high is None:
            return jnp.zeros((), bool), (self.low - self.loc) / self.scale, None
        if self.low is None:
            return jnp.ones((), bool), (self.loc - self.high) / self.scale, None
        below, above = self.low - self.loc, self.high - self.loc
        mirrored = below + above < 0
        return mirrored, jnp.where(mirrored, -above, below) / self.scale, (self.high - self.low) / self.scale

    def _log_mass(self, a, width):
        """Log mass of (a, a + width) times sqrt(2 pi), and times exp(a^2 / 2) in the tail, that is for a > -1."""
        tail = a > -1
        start = jnp.where(tail, a, 0.0)
        center = jnp.where(tail, -1.0, a)
        if width is None:
            return jnp.where(tail, log_tail_integral(start), log_center_mass(center))
        wide = jnp.where(tail, 4.0, width)
        return jnp.where(tail, log_tail_integral(start, jnp.where(tail, width, 4.0)), log_center_mass(center, wide))

    def log_prob(self, x):
        if self.low is None and self.high is None:
            return -0.5 * jnp.square((as_float(x) - self.loc) / self.scale) - jnp.log(self.scale) - LOG_SQRT_2_PI
        mirrored, a, width = self._ends()

        def log_prob(x):
            z = jnp.where(mirrored, self.loc - x, x - self.loc) / self.scale
            distance = self._distance(x, mirrored) / self.scale
            tail = a > -1
            square = jnp.where(tail, distance, z) * (z + jnp.where(tail, a, 0.0))  # z^2 - a^2, or z^2
            return -0.5 * square - jnp.log(self.scale) - self._log_mass(a, width)

        return on_support(self, x, self.high if self.low is None else self.low, log_prob)

    def _distance(self, x, mirrored):
        """Distance of x from the end nearer to `loc`."""
        if self.high is None:
            return x - self.low
        return self.high - x if self.low is None else jnp.where(mirrored, self.high - x, x - self.low)

    def sample(self, key):
        if self.low is None and self.high is None:  # where a uniform number of 0 would give an infinite draw
            return self.loc + self.scale * jax.random.normal(key, self.shape, draw_dtype(self))
        return self.icdf(jax.random.uniform(key, self.shape, draw_dtype(self)))

    def icdf(self, q):
        q = as_float(q)
        if self.low is None and self.high is None:
            return self.loc + self.scale * ndtri(q)
        mirrored, a, width = self._ends()
        q = jnp.where(mirrored, 1 - q, q)
        tail = a > -1
        t = _tail_icdf(q, jnp.where(tail, a, 0.0), None if width is None else jnp.where(tail, width, 4.0))
        z = _center_icdf(q, jnp.where(tail, -1.0, a), None if width is None else jnp.where(tail, 4.0, width))
        near = jnp.where(mirrored, -1.0, 1.0).astype(q.dtype) * self.scale
        anchor = self.low if self.high is None else self.high
        anchor = anchor if self.low is None or self.high is None else jnp.where(mirrored, self.high, self.low)
        return jnp.clip(jnp.where(tail, anchor + near * t, self.loc + near * z), self.low, self.high)

    def cdf(self, x):
        x = as_float(x)
        if self.low is None and self.high is None:
            return ndtr((x - self.loc) / self.scale)
        x = jnp.clip(x, self.low, self.high)
        mirrored, a, width = self._ends()
        tail = a > -1
        start = jnp.where(tail, a, 0.0)
        t = jnp.where(tail, self._distance(x, mirrored) / self.scale, 0.0)
        total = self._log_mass(a, width)
        in_tail = jnp.where(t > 0, jnp.exp(log_tail_integral(start, jnp.where(t > 0, t, 1.0)) - total), 0.0)
        z = jnp.where(mirrored, self.loc - x, x - self.loc) / self.scale
        in_center = (ndtr(z) - ndtr(a)) * jnp.exp(LOG_SQRT_2_PI - jnp.where(tail, 0.0, total))
        mass = jnp.clip(jnp.where(tail, in_tail, in_center), 0.0, 1.0)
        return jnp.where(mirrored, 1 - mass, mass)

    def log_cdf(self, x):
        return guarded(self, x, lambda rv, x: rv._log_parts(x)[0], -jnp.inf, 0.0)

    def log_survival(self, x):
        return guarded(self, x, lambda rv, x: rv._log_parts(x)[1], 0.0, -jnp.inf)

    def _log_parts(self, x):
        """Return the logs of the mass below and above x, strictly between the ends, each exact far out in its tail."""
        if self.low is None and self.high is None:
            z = (x - self.loc) / self.scale
            return log_ndtr(z), log_ndtr(-z)
        mirrored, a, width = self._ends()
        tail, total = a > -1, self._log_mass(a, width)
        start = jnp.where(tail, a, 0.0)
        t = jnp.where(tail, self._distance(x, mirrored) / self.scale, 1.0)
        rest = None if width is None else jnp.where(tail, width - t, 1.0)
        near = log_tail_integral(start, t)
        far = log_tail_integral(start + t, rest) - t * (start + 0.5 * t)
        z = jnp.where(tail, 0.0, jnp.where(mirrored, self.loc - x, x - self.loc) / self.scale)
        center = jnp.where(tail, -1.0, a)
        beyond = -jnp.inf if width is None else log_ndtr(-center - jnp.where(tail, 4.0, width))
        near = jnp.where(tail, near, _log_difference(log_ndtr(z), log_ndtr(center)) + LOG_SQRT_2_PI) - total
        far = jnp.where(tail, far, _log_difference(log_ndtr(-z), beyond) + LOG_SQRT_2_PI) - total
        return jnp.where(mirrored, far, near), jnp.where(mirrored, near, far)

    def _standard_moments(self):
        """Mean and variance of the law on (a, a + width): derivatives of its log mass by the place of the interval."""
        mirrored, a, width = self._ends()
        ones = jnp.ones_like(a)

        def slope(a):
            return jax.jvp(lambda a: self._log_mass(a, width), (a,), (ones,))[1]

        first, second = jax.jvp(slope, (a,), (ones,))
        tail = a > -1
        return mirrored, jnp.where(tail, a, 0.0) - first, jnp.where(tail, 0.0, 1.0) + second

    @property
    def mean(self):
        if self.low is None and self.high is None:
            return jnp.broadcast_to(self.loc, self.shape)
        mirrored, mean, _ = self._standard_moments()
        return jnp.broadcast_to(self.loc + self.scale * jnp.where(mirrored, -mean, mean), self.shape)

    @property
    def variance(self):
        if self.low is None and self.high is None:
            return jnp.broadcast_to(jnp.square(self.scale), self.shape)
        return jnp.broadcast_to(jnp.square(self.scale) * self._standard_moments()[2], self.shape)


def _log_difference(more, less):
    """Return log(exp(more) - exp(less))."""
    return more + log1mexp(more - less)


def _tail_icdf(q, a, width):
    """Solve for t the equation (mass of (a, a + t)) = q (mass of (a, a + width)) of the standard normal, for a > -1.

    Newton's method on the cumulative hazard, which is convex, from a start above the root.
    """
    mass = q if width is None else q * jnp.exp(log_tail_integral(a, width) - log_mills(a))
    hazard = -jnp.log1p(-jnp.minimum(mass, 1 - jnp.finfo(q.dtype).epsneg))
    root = jnp.sqrt(jnp.square(a) + 2 * hazard)
    positive_a = jnp.maximum(a, 0.0)
    t = jnp.where(a > 0, 2 * hazard / jnp.maximum(positive_a + root, jnp.finfo(q.dtype).tiny), root - a)
    target = log_mills(a) - hazard

    def improve(_, t):
        excess = t * (a + 0.5 * t) - log_mills(a + t) + target
        return jnp.maximum(t - excess / (a + t + mills_excess(a + t)), 0.0)

    return jax.lax.fori_loop(0, 8, improve, t)


def _center_icdf(q, a, width):
    """The same for a <= -1, as a place z and not a distance, from whichever tail is the smaller."""
    below, above = ndtr(a), jnp.zeros_like(a) if width is None else ndtr(-a - width)
    total = 1 - below - above
    lower, upper = below + q * total, above + (1 - q) * total
    from_below = lower < 0.5
    limits = jnp.finfo(q.dtype)
    z = ndtri(jnp.clip(jnp.where(from_below, lower, upper), limits.tiny, 0.5))
    return jnp.where(from_below, z, -z)
