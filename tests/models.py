"""Small models that several tests share, with what is known about them exactly."""

import jax.numpy as jnp
import numpy as np

from ppl import Gamma, HalfNormal, Normal, Poisson, noncentered

SCHOOLS = {
    "sigma": np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0], np.float32),
    "y": np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], np.float32),
}


def schools(sigma):
    """Eight schools, centered."""
    mu = yield Normal(0.0, 5.0, name="mu")
    tau = yield HalfNormal(5.0, name="tau")
    theta = yield Normal(mu, tau, shape=sigma.shape, name="theta")
    yield Normal(theta, sigma, name="y")
    return {"effect": theta - mu}


flat_schools = noncentered(schools, "theta")


def rate():
    """Gamma-Poisson: with counts 3, 5, 4 the posterior is Gamma(14, rate 4), of mean 3.5 and sd 0.9354143."""
    r = yield Gamma(2.0, 1.0, name="r")
    yield Poisson(r, shape=(3,), name="y")


COUNTS = {"y": np.array([3, 5, 4])}


def line(x):
    """Linear regression with known noise: the posterior is Gaussian."""
    a = yield Normal(0.0, 1.0, name="a")
    b = yield Normal(0.0, 1.0, name="b")
    yield Normal(a + b * x, 0.5, name="y")


_ROWS = np.arange(8)
LINE = {
    "x": (_ROWS / 8).astype(np.float32),
    "y": (1 + 2 * _ROWS / 8 + 0.1 * (-1.0) ** _ROWS).astype(np.float32),
}
LINE_MEAN, LINE_SD = np.array([1.1673956, 1.5339960]), np.array([0.2784507, 0.5122748])


def mean_of(n):
    """The mean of n numbers with sd 1."""
    mu = yield Normal(0.0, 10.0, name="mu")
    yield Normal(mu, 1.0, shape=(n,), name="y")


def gaussian(dimension=10):
    """Independent standard normals."""
    yield Normal(0.0, 1.0, shape=(dimension,), name="x")


def unreachable():
    """A count of -1 has no density anywhere."""
    rate = yield Gamma(2.0, 1.0, name="rate")
    yield Poisson(rate, name="count")


def half_space():
    """Finite only where x is positive: sqrt of a negative number is nan."""
    x = yield Normal(0.0, 1.0, name="x")
    yield Normal(0.0, jnp.sqrt(x), name="y")
