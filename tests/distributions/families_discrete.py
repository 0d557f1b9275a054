"""The table of discrete families: parameters on a grid, the same law in scipy, and values in and around the support."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special
import scipy.stats

from ppl.distributions import (
    Bernoulli,
    BetaBinomial,
    Binomial,
    Categorical,
    DirichletMultinomial,
    DiscreteUniform,
    Geometric,
    Multinomial,
    NegativeBinomial,
    OrderedLogistic,
    Poisson,
    ZeroInflated,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """One family under test.

    Args:
      name: the name of the test item.
      family: called with parameters and `shape=`.
      parameters: by name, arrays whose first axis runs over the cases of the grid.
      twin: takes the parameters of one case, returns a frozen law with scipy's methods (`logpmf`, `mean`, `var`, and
        perhaps `cdf` and `sf`).
      values: where densities are compared; vectors along the last axis for families of vectors.
      outside: values outside the support of every case.
      everything: for one case, the values that carry all mass (up to 1e-13).
      fixed: parameters without a gradient.
    """

    name: str
    family: Callable
    parameters: dict
    twin: Callable
    values: Any
    everything: Callable
    outside: Any = (-1, 2.5, -0.5, np.inf, -np.inf, np.nan)
    fixed: tuple = ()

    @property
    def cases(self):
        return len(next(iter(self.parameters.values())))

    def case(self, i):
        return {name: p[i] for name, p in self.parameters.items()}


class Listed:
    """A law on 0, ..., K given by its probabilities."""

    def __init__(self, p):
        self.p = np.asarray(p) / np.sum(p)
        self.k = np.arange(len(self.p))

    def logpmf(self, x):
        x = np.asarray(x, float)
        inside = (x >= 0) & (x < len(self.p)) & (x == np.floor(x))
        with np.errstate(divide="ignore"):
            return np.where(inside, np.log(self.p[np.where(inside, x, 0).astype(int)]), -np.inf)

    def cdf(self, x):
        return np.array([self.p[self.k <= v].sum() for v in np.ravel(x)]).reshape(np.shape(x))

    def sf(self, x):
        return np.array([self.p[self.k > v].sum() for v in np.ravel(x)]).reshape(np.shape(x))

    def mean(self):
        return self.p @ self.k

    def var(self):
        return self.p @ self.k**2 - self.mean() ** 2


class ZeroInflatedTwin:
    """The mixture of 0 and a scipy law."""

    def __init__(self, base, p):
        self.base, self.p = base, p

    def logpmf(self, x):
        with np.errstate(divide="ignore"):
            return np.logaddexp(np.log(self.p * (np.asarray(x) == 0)), np.log1p(-self.p) + self.base.logpmf(x))

    def cdf(self, x):
        return self.p * (np.asarray(x) >= 0) + (1 - self.p) * self.base.cdf(x)

    def sf(self, x):
        return self.p * (np.asarray(x) < 0) + (1 - self.p) * self.base.sf(x)

    def mean(self):
        return (1 - self.p) * self.base.mean()

    def var(self):
        return (1 - self.p) * (self.base.var() + self.p * self.base.mean() ** 2)


class MultinomialTwin:
    """Multinomial by logarithms, for probabilities that scipy refuses to normalize."""

    def __init__(self, n, p):
        self.n, self.p = n, np.asarray(p) / np.sum(p)

    def logpmf(self, x):
        x = np.asarray(x)
        terms = scipy.special.xlogy(x, self.p) - scipy.special.gammaln(x + 1)
        inside = np.sum(x, -1) == self.n
        return np.where(inside, scipy.special.gammaln(self.n + 1) + terms.sum(-1), -np.inf)

    def mean(self):
        return self.n * self.p

    def var(self):
        return self.n * self.p * (1 - self.p)


class DirichletMultinomialTwin:
    """Dirichlet-multinomial by log gammas."""

    def __init__(self, n, a):
        self.n, self.a = n, np.asarray(a)

    def logpmf(self, x):
        x, g = np.asarray(x), scipy.special.gammaln
        s = self.a.sum()
        terms = g(x + self.a) - g(self.a) - g(x + 1)
        return np.where(x.sum(-1) == self.n, g(self.n + 1) + g(s) - g(self.n + s) + terms.sum(-1), -np.inf)

    def mean(self):
        return self.n * self.a / self.a.sum()

    def var(self):
        return scipy.stats.dirichlet_multinomial(self.a, self.n).var()


def ordered_logistic(predictor, cutpoints):
    above = scipy.special.expit(predictor - cutpoints)
    return Listed(np.concatenate([[1], above]) - np.concatenate([above, [0]]))


def softmax(logits):
    return Listed(scipy.special.softmax(logits))


def compositions(n, k):
    """All vectors of k counts that sum to n."""
    return np.array([c for c in itertools.product(range(n + 1), repeat=k) if sum(c) == n])


def zero_inflated_poisson(rate, probs, shape):
    return ZeroInflated(Poisson(rate), probs, shape=shape)


def up_to(limit):
    return lambda *_, **__: np.arange(limit + 1)


CHANCES = np.array([0.0, 1e-6, 0.2, 0.5, 0.93, 1 - 2.0**-20, 1.0])
LOGITS = np.array([-np.inf, -90.0, -3.0, 0.0, 0.7, 12.0, 90.5, np.inf])
COUNTS = np.array([0, 1, 2, 3, 5, 9, 10, 11, 17, 40, 150])
BAD_VECTORS = np.array([[-1, 4, 1], [1, 1, 1], [2, 2, 1], [1.5, 1.5, 1.0], [np.nan, 2, 2], [np.inf, 0, 0]])


ROWS = (
    Row("Bernoulli", Bernoulli, {"probs": CHANCES}, lambda probs: scipy.stats.bernoulli(probs), [0, 1, 2, 7], up_to(1)),
    Row(
        "Bernoulli-logits",
        Bernoulli,
        {"logits": LOGITS},
        lambda logits: Listed(scipy.special.expit([-logits, logits])),
        [0, 1, 2, 7],
        up_to(1),
    ),
    Row(
        "Binomial",
        Binomial,
        {
            "total_count": np.array([0, 1, 3, 10, 40, 150, 0, 3, 11, 40, 0]),
            "probs": np.array([0.3, 0.2, 0.5, 0.93, 0.02, 0.6, 0.0, 0.0, 1.0, 1e-6, 1.0]),
        },
        lambda total_count, probs: scipy.stats.binom(total_count, probs),
        COUNTS,
        lambda total_count, **_: np.arange(total_count + 1),
        fixed=("total_count",),
    ),
    Row(
        "Binomial-logits",
        Binomial,
        {
            "total_count": np.array([0, 1, 3, 10, 40, 3, 10]),
            "logits": np.array([0.3, -3.0, 2.0, -9.0, 0.02, np.inf, -np.inf]),
        },
        lambda total_count, logits: scipy.stats.binom(total_count, scipy.special.expit(logits)),
        COUNTS,
        lambda total_count, **_: np.arange(total_count + 1),
        fixed=("total_count",),
    ),
    Row(
        "BetaBinomial",
        BetaBinomial,
        {
            "total_count": np.array([0, 1, 10, 10, 40, 150, 17]),
            "concentration1": np.array([2.0, 0.3, 2.0, 1e-3, 30.0, 1.0, 800.0]),
            "concentration0": np.array([3.0, 0.1, 3.0, 0.5, 7.0, 1.0, 300.0]),
        },
        lambda total_count, concentration1, concentration0: scipy.stats.betabinom(
            total_count, concentration1, concentration0
        ),
        COUNTS,
        lambda total_count, **_: np.arange(total_count + 1),
        fixed=("total_count",),
    ),
    Row(
        "Geometric",
        Geometric,
        {"probs": np.array([0.02, 0.2, 0.5, 0.93, 1 - 2.0**-20, 1.0])},
        lambda probs: scipy.stats.geom(probs, loc=-1),
        COUNTS,
        lambda probs: np.arange(int(30 / probs) + 2),
    ),
    Row(
        "Geometric-logits",
        Geometric,
        {"logits": np.array([-5.0, -0.3, 0.0, 3.0, 12.0])},
        lambda logits: scipy.stats.geom(scipy.special.expit(logits), loc=-1),
        COUNTS,
        lambda logits: np.arange(int(40 / scipy.special.expit(logits)) + 2),
    ),
    Row(
        "Poisson",
        Poisson,
        {"rate": np.array([0.0, 1e-6, 0.3, 1.0, 9.9, 10.0, 55.5, 200.0])},
        lambda rate: scipy.stats.poisson(rate),
        COUNTS,
        up_to(500),
    ),
    Row(
        "NegativeBinomial",
        NegativeBinomial,
        {
            "mean": np.array([0.0, 1e-6, 0.3, 3.0, 9.9, 55.5, 10.0, 3.0]),
            "concentration": np.array([1.0, 2.0, 0.01, 0.4, 2.5, 30.0, 1e5, 1.0]),
        },
        lambda mean, concentration: scipy.stats.nbinom(concentration, concentration / (concentration + mean)),
        COUNTS,
        up_to(1500),
    ),
    Row(
        "DiscreteUniform",
        DiscreteUniform,
        {"low": np.array([0, -3, 2, 1]), "high": np.array([0, 4, 2, 100])},
        lambda low, high: scipy.stats.randint(low, high + 1),
        [-4, -3, 0, 1, 2, 4, 5, 100, 101],
        lambda low, high: np.arange(low, high + 1),
        outside=(-4, 2.5, -0.5, np.inf, -np.inf, np.nan, 101),
        fixed=("low", "high"),
    ),
    Row(
        "Categorical",
        Categorical,
        {"probs": np.array([[0.2, 0.3, 0.5], [0.0, 1.0, 0.0], [1.0, 0.0, 3.0], [1e-6, 1e-3, 1.0]])},
        lambda probs: Listed(probs),
        [0, 1, 2, 3, 9],
        up_to(2),
        outside=(-1, 3, 0.5, np.inf, -np.inf, np.nan),
    ),
    Row(
        "Categorical-logits",
        Categorical,
        {"logits": np.array([[0.2, 0.3, -0.5], [-np.inf, 0.0, 2.0], [50.0, 0.0, -40.0], [-np.inf, -np.inf, 7.0]])},
        softmax,
        [0, 1, 2, 3, 9],
        up_to(2),
        outside=(-1, 3, 0.5, np.inf, -np.inf, np.nan),
    ),
    Row(
        "OrderedLogistic",
        OrderedLogistic,
        {
            "predictor": np.array([0.0, 1.3, -8.0, 5.0]),
            "cutpoints": np.array([[-1.0, 0.2, 2.0], [-5.0, 0.0, 0.1], [-1.0, 0.0, 3.0], [4.0, 4.5, 9.0]]),
        },
        ordered_logistic,
        [0, 1, 2, 3, 4, 9],
        up_to(3),
        outside=(-1, 4, 0.5, np.inf, -np.inf, np.nan),
    ),
    Row(
        "ZeroInflated",
        zero_inflated_poisson,
        {"rate": np.array([0.3, 3.0, 20.0, 3.0, 3.0, 0.0]), "probs": np.array([0.2, 0.5, 1e-3, 0.0, 1.0, 0.3])},
        lambda rate, probs: ZeroInflatedTwin(scipy.stats.poisson(rate), probs),
        COUNTS,
        up_to(150),
    ),
    Row(
        "Multinomial",
        Multinomial,
        {
            "total_count": np.array([0, 4, 4, 4, 9]),
            "probs": np.array([[0.2, 0.3, 0.5], [0.1, 0.1, 0.2], [0.0, 0.4, 0.6], [0.0, 1.0, 0.0], [0.2, 1e-4, 0.7]]),
        },
        lambda total_count, probs: MultinomialTwin(total_count, probs),
        np.concatenate([compositions(4, 3), compositions(9, 3)[::7], compositions(0, 3)]),
        lambda total_count, **_: compositions(total_count, 3),
        outside=BAD_VECTORS,
        fixed=("total_count",),
    ),
    Row(
        "Multinomial-logits",
        Multinomial,
        {
            "total_count": np.array([4, 4, 9]),
            "logits": np.array([[0.2, 3.0, 0.5], [-np.inf, 0.1, 0.2], [0.0, 9.0, -9.0]]),
        },
        lambda total_count, logits: MultinomialTwin(total_count, scipy.special.softmax(logits)),
        np.concatenate([compositions(4, 3), compositions(9, 3)[::7]]),
        lambda total_count, **_: compositions(total_count, 3),
        outside=BAD_VECTORS,
        fixed=("total_count",),
    ),
    Row(
        "DirichletMultinomial",
        DirichletMultinomial,
        {
            "total_count": np.array([0, 4, 4, 9, 9]),
            "concentration": np.array(
                [[0.2, 0.3, 0.5], [1.0, 1.0, 1.0], [1e-3, 0.4, 2.0], [300.0, 1.0, 40.0], [2.0, 3.0, 5.0]]
            ),
        },
        lambda total_count, concentration: DirichletMultinomialTwin(total_count, concentration),
        np.concatenate([compositions(4, 3), compositions(9, 3)[::7], compositions(0, 3)]),
        lambda total_count, **_: compositions(total_count, 3),
        outside=BAD_VECTORS,
        fixed=("total_count",),
    ),
)
