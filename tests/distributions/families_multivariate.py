"""The tables of families of vectors and matrices and of wrappers, each with the same law from elsewhere."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import scipy.special
import scipy.stats

from ppl.distributions import (
    Affine,
    Censored,
    Deterministic,
    Dirichlet,
    Factor,
    Gamma,
    LKJCholesky,
    Logistic,
    Mixture,
    MultivariateNormal,
    MultivariateStudentT,
    Normal,
    Poisson,
    Tanh,
    Transformed,
    Truncated,
    Wishart,
)
from ppl.supports import positive, unit_interval

COVARIANCE = np.array([[2.0, 0.5, 0.1], [0.5, 1.0, -0.4], [0.1, -0.4, 0.7]])
FACTOR = np.linalg.cholesky(COVARIANCE)
LOC = np.array([1.0, -2.0, 0.5])


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """One family under test.

    Args:
      name: the name of the test item.
      family: called with the parameters and `fixed`.
      parameters: by name, numpy arrays.
      log_density: the log density of one draw by scipy, or by a formula from elsewhere.
      laws: functions of draws `[draw, ...]`, with the scipy law that each follows.
      fixed: parameters without a gradient.
      mean: the mean of a draw, where known.
      variance: the variance of each entry.
      finite: whether the density of each draw is finite; False where draws of float32 may be singular to rounding.
    """

    name: str
    family: Callable
    parameters: dict
    log_density: Callable
    laws: tuple
    fixed: dict = dataclasses.field(default_factory=dict)
    mean: Any = None
    variance: Any = None
    finite: bool = True


def whitened(x):
    return np.linalg.solve(FACTOR, (x - LOC).T).T


NORMAL_LAWS = (
    *((lambda x, i=i: whitened(x)[:, i], scipy.stats.norm()) for i in range(3)),
    (lambda x: np.sum(whitened(x) ** 2, -1), scipy.stats.chi2(3)),
    (lambda x: (x[:, 0] - x[:, 1] - 3) / math.sqrt(2 + 1 - 1), scipy.stats.norm()),
)


def normal(name, **matrix):
    return Row(
        name,
        MultivariateNormal,
        dict(loc=LOC, **matrix),
        scipy.stats.multivariate_normal(LOC, COVARIANCE).logpdf,
        NORMAL_LAWS,
        mean=LOC,
        variance=np.diag(COVARIANCE),
    )


def dirichlet(*a):
    total = sum(a)
    return Row(
        f"Dirichlet{a}",
        Dirichlet,
        dict(concentration=np.array(a)),
        lambda x: scipy.stats.dirichlet(a).logpdf(x / np.sum(x)),
        tuple((lambda x, i=i: x[:, i], scipy.stats.beta(a[i], total - a[i])) for i in range(len(a))),
        mean=np.array(a) / total,
        variance=scipy.stats.dirichlet(a).var(),
    )


def lkj(n, eta):
    """Against Lewandowski, Kurowicka and Joe (2009), equation 16 and theorem 5, and the Jacobian of R = L L'."""

    def log_density(x):
        k = np.arange(1, n)
        b = eta + (n - k - 1) / 2
        log_constant = np.sum((2 * (eta - 1) + n - k) * (n - k)) * math.log(2)
        log_constant += np.sum(scipy.special.betaln(b, b) * (n - k))
        diagonal = np.log(np.diag(x))
        return 2 * (eta - 1) * np.sum(diagonal) - log_constant + np.sum(diagonal * np.arange(n - 1, -1, -1))

    entry = scipy.stats.beta(eta - 1 + n / 2, eta - 1 + n / 2, loc=-1, scale=2)
    laws = tuple(
        (lambda x, i=i, j=j: np.sum(x[:, i] * x[:, j], -1), entry) for i in range(n) for j in range(i)
    )  # every correlation has the same law
    last = (lambda x: x[:, -1, -1] ** 2, scipy.stats.beta(eta, (n - 1) / 2))
    return Row(
        f"LKJCholesky{n, eta}",
        LKJCholesky,
        dict(concentration=np.array(eta)),
        log_density,
        (*laws, last),
        fixed=dict(dimension=n),
    )


def wishart(df, **matrix):
    precision = np.linalg.inv(COVARIANCE)
    diagonal = np.diag(COVARIANCE)
    return Row(
        f"Wishart{df, *matrix}",
        Wishart,
        dict(df=np.array(df), **matrix),
        scipy.stats.wishart(df, COVARIANCE).logpdf,
        (
            *((lambda x, i=i: x[:, i, i] / COVARIANCE[i, i], scipy.stats.chi2(df)) for i in range(3)),
            (lambda x: np.sum(x, (1, 2)) / np.sum(COVARIANCE), scipy.stats.chi2(df)),
            (lambda x: precision[2, 2] / np.linalg.inv(x)[:, 2, 2], scipy.stats.chi2(df - 2)),
        ),
        mean=df * COVARIANCE,
        variance=df * (COVARIANCE**2 + np.outer(diagonal, diagonal)),
        finite=df > 6,
    )


FAMILIES = [
    dirichlet(0.7, 2.0, 3.0),
    dirichlet(0.05, 1.0, 30.0),
    normal("MultivariateNormal(covariance)", covariance=COVARIANCE),
    normal("MultivariateNormal(scale_tril)", scale_tril=FACTOR),
    normal("MultivariateNormal(precision)", precision=np.linalg.inv(COVARIANCE)),
    Row(
        "MultivariateStudentT",
        MultivariateStudentT,
        dict(df=np.array(4.5), loc=LOC, scale_tril=FACTOR),
        scipy.stats.multivariate_t(LOC, COVARIANCE, 4.5).logpdf,
        (
            *((lambda x, i=i: (x[:, i] - LOC[i]) / COVARIANCE[i, i] ** 0.5, scipy.stats.t(4.5)) for i in range(3)),
            (lambda x: np.sum(whitened(x) ** 2, -1) / 3, scipy.stats.f(3, 4.5)),
        ),
        mean=LOC,
        variance=np.diag(COVARIANCE) * 4.5 / 2.5,
    ),
    lkj(3, 1.0),
    lkj(4, 0.6),
    wishart(6.5, scale=COVARIANCE),
    wishart(3.2, scale_tril=FACTOR),
]


def spread_matrix(condition, n=4):
    """A covariance matrix whose eigenvalues go from 1 to 1 / condition, evenly in their logarithm."""
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(n, n)))[0]
    return turn * np.geomspace(1, 1 / condition, n) @ turn.T


def exact_normal(x, covariance, degrees=None):
    """Log density of a normal vector (or t) around 0, its gradients by x and by the covariance, and P x; in mpmath."""
    n, precision = len(x), covariance**-1
    pulled = precision * x
    square, half_log_det = (x.T * pulled)[0], mp.log(mp.det(covariance)) / 2
    if degrees is None:
        value, weight = -square / 2 - n * mp.log(2 * mp.pi) / 2, 1
    else:
        value = mp.loggamma((degrees + n) / 2) - mp.loggamma(degrees / 2) - n * mp.log(degrees * mp.pi) / 2
        value -= (degrees + n) / 2 * mp.log1p(square / degrees)
        weight = (degrees + n) / (degrees + square)
    return value - half_log_det, -weight * pulled, (weight * pulled * pulled.T - precision) / 2


def exact_wishart(x, scale, degrees):
    """Log density of a Wishart matrix, and its gradients by x and by the scale; in mpmath."""
    n, precision = x.rows, scale**-1
    product = precision * x
    value = (degrees - n - 1) / 2 * mp.log(mp.det(x)) - sum(product[i, i] for i in range(n)) / 2
    value -= degrees / 2 * mp.log(mp.det(scale)) + degrees * n / 2 * mp.log(2) + n * (n - 1) / mp.mpf(4) * mp.log(mp.pi)
    value -= sum(mp.loggamma((degrees - i) / 2) for i in range(n))
    by_x = (degrees - n - 1) / 2 * x**-1 - precision / 2
    return value, by_x, (product * precision - degrees * precision) / 2


# name of the test item: family of a matrix, name of the matrix, its exact law
ILL_CONDITIONED = {
    "normal, covariance": (lambda m: MultivariateNormal(covariance=m), "covariance", exact_normal),
    "normal, scale_tril": (lambda m: MultivariateNormal(scale_tril=m), "scale_tril", exact_normal),
    "normal, precision": (lambda m: MultivariateNormal(precision=m), "precision", exact_normal),
    "t, scale_tril": (
        lambda m: MultivariateStudentT(4.5, scale_tril=m),
        "scale_tril",
        lambda x, s: exact_normal(x, s, mp.mpf(4.5)),
    ),
    "Wishart, scale": (lambda m: Wishart(8.5, scale=m), "covariance", lambda x, s: exact_wishart(x, s, mp.mpf(8.5))),
    "Wishart, scale_tril": (
        lambda m: Wishart(8.5, scale_tril=m),
        "scale_tril",
        lambda x, s: exact_wishart(x, s, mp.mpf(8.5)),
    ),
}


def truncated(law, low, high, discrete=False):
    """Return the log density, or log probability, and the distribution function of a scipy law between two ends."""
    before = law.cdf(low - 1 if discrete else low)
    mass = law.cdf(high) - before
    log_density = law.logpmf if discrete else law.logpdf
    return (
        lambda x: np.where((x >= low) & (x <= high), log_density(x) - np.log(mass), -np.inf),
        lambda x: np.clip((law.cdf(np.minimum(x, high)) - before) / mass, 0, 1),
    )


def mixed(weights, *laws, discrete=False):
    """Return the log density, or log probability, and the distribution function of a mixture of scipy laws."""
    density = "pmf" if discrete else "pdf"

    def log_density(x):
        with np.errstate(divide="ignore"):
            return np.log(sum(w * getattr(law, density)(x) for w, law in zip(weights, laws, strict=True)))

    return log_density, lambda x: sum(w * law.cdf(x) for w, law in zip(weights, laws, strict=True))


def normal_law(loc, scale):
    return scipy.stats.norm(loc, scale)


# name, a function of a shape, (log density, distribution function or None), values inside and outside
WRAPPERS = [
    (
        "Mixture(Normal, Gamma)",
        lambda shape: Mixture([0.3, 0.7], [Normal(0.0, 2.0), Gamma(0.9, 2.0)], shape=shape),
        mixed([0.3, 0.7], normal_law(0, 2), scipy.stats.gamma(0.9, scale=0.5)),
        [-30.0, -1.0, -1e-3, 0.2, 3.0],
    ),
    (
        "Mixture(logits, one Normal)",
        lambda shape: Mixture(
            logits=[0.0, np.log(3.0)], components=Normal(np.array([-1.0, 2.0]), np.array([0.5, 3.0])), shape=shape
        ),
        mixed([0.25, 0.75], normal_law(-1, 0.5), normal_law(2, 3)),
        [-30.0, -1.0, 0.0, 0.2, 3.0],
    ),
    (
        "Mixture(Poisson, Poisson)",
        lambda shape: Mixture([0.4, 0.6], [Poisson(2.0), Poisson(9.0)], shape=shape),
        mixed([0.4, 0.6], scipy.stats.poisson(2), scipy.stats.poisson(9), discrete=True),
        [-1, 0, 3, 20],
    ),
    (
        "Truncated(Logistic)",
        lambda shape: Truncated(Logistic(1.0, 2.0), low=4.0, high=9.0, shape=shape),
        truncated(scipy.stats.logistic(1, 2), 4, 9),
        [3.9, 4.0, 5.0, 9.0, 9.1],
    ),
    (
        "Truncated(Normal, narrow)",
        lambda shape: Truncated(Normal(0.0, 1.0), low=0.5, high=0.50390625, shape=shape),
        truncated(normal_law(0, 1), 0.5, 0.50390625),
        [0.4, 0.5, 0.502, 0.50390625, 1.0],
    ),
    (
        "Truncated(Poisson)",
        lambda shape: Truncated(Poisson(3.0), low=2, high=7, shape=shape),
        truncated(scipy.stats.poisson(3), 2, 7, discrete=True),
        [1, 2, 5, 7, 8],
    ),
    (
        "Censored(Normal)",
        lambda shape: Censored(Normal(0.5, 2.0), low=-1.0, high=2.0, shape=shape),
        (
            lambda x: np.select(
                [x == -1, x == 2, (x > -1) & (x < 2)],
                [normal_law(0.5, 2).logcdf(-1), normal_law(0.5, 2).logsf(2), normal_law(0.5, 2).logpdf(x)],
                -np.inf,
            ),
            None,
        ),
        [-1.5, -1.0, 0.3, 2.0, 2.5],
    ),
    (
        "Transformed(Normal, exp)",
        lambda shape: Transformed(Normal(0.3, 0.7), positive, shape=shape),
        (scipy.stats.lognorm(0.7, scale=math.exp(0.3)).logpdf, scipy.stats.lognorm(0.7, scale=math.exp(0.3)).cdf),
        [-1.0, 0.0, 1e-3, 1.0, 30.0],
    ),
    (
        "Transformed(Logistic, logistic)",
        lambda shape: Transformed(Logistic(0.0, 1.0), unit_interval, shape=shape),
        (lambda x: np.where((x > 0) & (x < 1), 0.0, -np.inf), scipy.stats.uniform.cdf),
        [-0.1, 1e-6, 0.3, 0.9999, 1.1],
    ),
    (
        "Transformed(Gamma, Affine)",
        lambda shape: Transformed(Gamma(2.0, 1.0), Affine(1.0, -2.0), shape=shape),
        (
            lambda x: scipy.stats.gamma(2).logpdf((1 - x) / 2) - np.log(2),
            lambda x: scipy.stats.gamma(2).sf((1 - x) / 2),
        ),
        [1.5, 0.9, -3.0, -20.0],
    ),
    (
        "Transformed(Normal, Tanh)",
        lambda shape: Transformed(Normal(0.2, 0.5), Tanh(), shape=shape),
        (
            lambda x: np.where(
                abs(x) < 1,
                normal_law(0.2, 0.5).logpdf(np.arctanh(np.clip(x, -0.99, 0.99)))
                - np.log1p(-(np.clip(x, -0.99, 0.99) ** 2)),
                -np.inf,
            ),
            lambda x: normal_law(0.2, 0.5).cdf(np.arctanh(x)),
        ),
        [-1.1, -0.9, 0.0, 0.5, 0.99, 1.2],
    ),
]
TERMS = [Factor(-2.5, name="term"), Deterministic(1.5, name="value")]
