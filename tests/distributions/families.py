"""The table of the continuous families of numbers: each beside its law as scipy and mpmath know it.

To add a family, add a row. A row's density is an independent formula in mpmath, from which the tests also take exact
gradients; its twin is the same law in scipy, used for draws, moments and distribution functions.
"""

import dataclasses
from collections.abc import Callable

import mpmath as mp
import numpy as np
import scipy.stats as st

from ppl import distributions as d
from ppl.supports import interval, positive, real, simplex, unit_interval

INF = mp.inf


@dataclasses.dataclass(frozen=True)
class Row:
    """One family.

    Attributes:
      name: name in test reports; begins with the family's.
      make: takes the parameters in order and `shape=`.
      parameters: their names.
      density: log density in mpmath at a point of the open support, and at closed ends: `density(x, *parameters)`.
      ends: the ends of the support, from the parameters.
      twin: scipy's frozen law.
      cases: usual parameters; draws, moments and distribution functions are compared at these.
      extreme: more parameters, for densities only.
      points: points beside the quantiles and ends, as a function of the parameters.
    """

    name: str
    make: Callable
    parameters: tuple
    density: Callable
    ends: Callable
    twin: Callable
    cases: tuple
    extreme: tuple = ()
    points: Callable = lambda *parameters: ()

    @property
    def family(self):
        return self.name.split(" ")[0]


def line(*_):
    return -INF, INF


def half_line(*_):
    return 0, INF


def unit(*_):
    return 0, 1


def log_power(power, x):
    """power log(x), with 0 log(0) = 0."""
    if x == 0:
        return mp.mpf(0) if power == 0 else -INF * power
    return power * mp.log(x)


def gamma_density(x, c, rate):
    return c * mp.log(rate) + log_power(c - 1, x) - rate * x - mp.loggamma(c)


def t_density(x, df, loc, scale):
    z = (x - loc) / scale
    constant = mp.loggamma((df + 1) / 2) - mp.loggamma(df / 2) - mp.log(df * mp.pi) / 2 - mp.log(scale)
    return constant - (df + 1) / 2 * mp.log1p(z**2 / df)


def upper_mass(z):
    return mp.erfc(z / mp.sqrt(2)) / 2


def truncated_density(x, loc, scale, low, high):
    z, a, b = (x - loc) / scale, (low - loc) / scale, (high - loc) / scale
    mass = upper_mass(-b) - upper_mass(-a) if a + b < 0 else upper_mass(a) - upper_mass(b)
    return -(z**2) / 2 - mp.log(scale) - mp.log(2 * mp.pi) / 2 - mp.log(mass)


def truncated_twin(loc, scale, low, high):
    return st.truncnorm((low - loc) / scale, (high - loc) / scale, loc, scale)


def normal_density(x, loc, scale):
    return -(((x - loc) / scale) ** 2) / 2 - mp.log(scale) - mp.log(2 * mp.pi) / 2


def logistic_density(x, loc, scale):
    z = abs((x - loc) / scale)
    return -z - 2 * mp.log1p(mp.exp(-z)) - mp.log(scale)


def gumbel_density(x, loc, scale):
    z = (x - loc) / scale
    return -z - mp.exp(-z) - mp.log(scale)


def skew_density(x, loc, scale, skewness):
    z = (x - loc) / scale
    return normal_density(x, loc, scale) + mp.log(2 * upper_mass(-skewness * z))


def beta_density(x, a, b):
    constant = mp.loggamma(a + b) - mp.loggamma(a) - mp.loggamma(b)
    return log_power(a - 1, x) + log_power(b - 1, 1 - x) + constant


def kumaraswamy_density(x, a, b):
    return mp.log(a) + mp.log(b) + log_power(a - 1, x) + log_power(b - 1, 1 - x**a)


def weibull_density(x, scale, k):
    return mp.log(k / scale) + log_power(k - 1, x / scale) - (x / scale) ** k


def von_mises_density(x, loc, kappa):
    return kappa * mp.cos(x - loc) - mp.log(2 * mp.pi * mp.besseli(0, kappa))


class HalfT:
    """scipy has no half-t."""

    def __init__(self, df, scale):
        self.whole = st.t(df, scale=scale)
        self.df, self.scale = df, scale

    def cdf(self, x):
        return 1 - 2 * self.whole.sf(x)

    def sf(self, x):
        return 2 * self.whole.sf(x)

    def ppf(self, q):
        return self.whole.isf((1 - np.asarray(q)) / 2)

    def mean(self):
        if self.df <= 1:
            return np.inf
        return 2 * self.whole.expect(lambda x: x, lb=0)

    def var(self):
        return self.whole.var() - self.mean() ** 2 if self.df > 2 else np.inf


class Kumaraswamy:
    """scipy has no Kumaraswamy law."""

    def __init__(self, a, b):
        self.a, self.b = a, b

    def sf(self, x):
        return (-np.expm1(self.a * np.log(x))) ** self.b

    def cdf(self, x):
        return -np.expm1(self.b * np.log(-np.expm1(self.a * np.log(x))))

    def ppf(self, q):
        return (-np.expm1(np.log1p(-np.asarray(q)) / self.b)) ** (1 / self.a)

    def _moment(self, n):
        return float(mp.quad(lambda x: x**n * mp.exp(kumaraswamy_density(x, self.a, self.b)), [0, 0.5, 1]))

    def mean(self):
        return self._moment(1)

    def var(self):
        return self._moment(2) - self._moment(1) ** 2


class VonMises:
    """scipy's law lives on the whole line, ours on the circle; mean and variance are circular."""

    def __init__(self, loc, kappa):
        self.law, self.kappa, self.loc = st.vonmises(max(kappa, 1e-12), loc), kappa, loc

    def cdf(self, x):
        return self.law.cdf(x) - self.law.cdf(-np.pi)

    def ppf(self, q):
        return np.clip(np.remainder(self.law.ppf(q) + np.pi, 2 * np.pi) - np.pi, -3.14159, 3.14159)

    def mean(self):
        return np.arctan2(np.sin(self.loc), np.cos(self.loc))

    def var(self):
        return float(1 - mp.besseli(1, self.kappa) / mp.besseli(0, self.kappa))


LOCATED = ((0.0, 1.0), (-3.0, 0.2), (100.0, 7.5))
FAR = ((0.0, 1e-6), (1e6, 1e3), (2.0, 1e6))
LOCATION, SCALE = ("loc", "scale"), ("scale",)

FAMILIES = (
    Row("Normal", d.Normal, LOCATION, normal_density, line, st.norm, LOCATED, FAR),
    Row(
        "LogNormal",
        d.LogNormal,
        LOCATION,
        lambda x, loc, scale: normal_density(mp.log(x), loc, scale) - mp.log(x) if x else -INF,
        half_line,
        lambda loc, scale: st.lognorm(scale, scale=np.exp(loc)),
        ((0.0, 1.0), (-3.0, 0.2), (2.0, 0.75)),
        ((0.0, 1e-3), (30.0, 5.0)),
    ),
    Row(
        "HalfNormal",
        d.HalfNormal,
        SCALE,
        lambda x, scale: normal_density(x, 0, scale) + mp.log(2),
        half_line,
        lambda scale: st.halfnorm(scale=scale),
        ((1.0,), (0.2,), (75.0,)),
        ((1e-6,), (1e6,)),
    ),
    Row(
        "TruncatedNormal",
        d.TruncatedNormal,
        ("loc", "scale", "low", "high"),
        truncated_density,
        lambda loc, scale, low, high: (low, high),
        truncated_twin,
        ((0.0, 1.0, -1.0, 2.0), (1.0, 0.5, 2.0, 3.0), (5.0, 2.0, -1.0, 4.5), (0.0, 1.0, -4.0, 9.0)),
        # far in a tail; an interval much shorter than the scale, around loc and away from it; one much wider
        (
            *((1.35, scale, -20.0, -1.0) for scale in np.geomspace(0.01, 1, 10).tolist()),
            (0.0, 1.0, 30.0, 31.0),
            (0.0, 1.0, -300.0, -299.5),
            (0.25, 1e3, 0.0, 1.0),
            (5.0, 1e3, 0.0, 1.0),
            (-20.0, 1.0, -0.001, 0.0),
            (0.0, 0.01, -5.0, 7.0),
            (1.0, 1.0, 0.0, 2.0),
            (0.0, 1.0, -0.999, 1.5),
            (0.0, 1.0, -1.001, 1.5),
        ),
        points=lambda loc, scale, low, high: (-15.0,),
    ),
    Row(
        "TruncatedNormal below",
        lambda loc, scale, low, shape=None: d.TruncatedNormal(loc, scale, low, shape=shape),
        ("loc", "scale", "low"),
        lambda x, loc, scale, low: truncated_density(x, loc, scale, low, INF),
        lambda loc, scale, low: (low, INF),
        lambda loc, scale, low: truncated_twin(loc, scale, low, np.inf),
        ((1.0, 0.1, 0.0), (0.0, 1.0, 1.5), (-1.0, 2.0, 12.0)),
        ((0.0, 1.0, 40.0), (0.0, 0.01, 100.0), (0.0, 1.0, -40.0)),
    ),
    Row(
        "TruncatedNormal above",
        lambda loc, scale, high, shape=None: d.TruncatedNormal(loc, scale, high=high, shape=shape),
        ("loc", "scale", "high"),
        lambda x, loc, scale, high: truncated_density(x, loc, scale, -INF, high),
        lambda loc, scale, high: (-INF, high),
        lambda loc, scale, high: truncated_twin(loc, scale, -np.inf, high),
        ((1.0, 0.1, 1.2), (0.0, 1.0, -1.5), (-1.0, 2.0, 3.0)),
        ((0.0, 1.0, -40.0),),
    ),
    Row(
        "TruncatedNormal without ends",
        lambda loc, scale, shape=None: d.TruncatedNormal(loc, scale, low=-np.inf, high=np.inf, shape=shape),
        LOCATION,
        normal_density,
        line,
        st.norm,
        LOCATED[:2],
    ),
    Row(
        "StudentT",
        d.StudentT,
        ("df", "loc", "scale"),
        t_density,
        line,
        st.t,
        ((3.0, 0.0, 1.0), (0.7, -3.0, 0.2), (1.5, 1.0, 2.0), (30.0, 100.0, 7.5)),
        ((1e6, 0.0, 1.0), (1e-2, 0.0, 1.0), (19.0, 0.0, 1e-6), (21.0, 0.0, 1e6)),
        points=lambda df, loc, scale: (loc + 1e25 * scale, loc - 50 * scale),
    ),
    Row(
        "HalfStudentT",
        d.HalfStudentT,
        ("df", "scale"),
        lambda x, df, scale: t_density(x, df, 0, scale) + mp.log(2),
        half_line,
        HalfT,
        ((3.0, 1.0), (0.7, 0.2), (30.0, 75.0)),
        ((1e6, 1.0), (1e-2, 1.0)),
        points=lambda df, scale: (1e25 * scale,),
    ),
    Row(
        "Cauchy",
        d.Cauchy,
        LOCATION,
        lambda x, loc, scale: -mp.log1p(((x - loc) / scale) ** 2) - mp.log(mp.pi * scale),
        line,
        st.cauchy,
        LOCATED,
        FAR,
        points=lambda loc, scale: (loc + 1e25 * scale,),
    ),
    Row(
        "HalfCauchy",
        d.HalfCauchy,
        SCALE,
        lambda x, scale: -mp.log1p((x / scale) ** 2) - mp.log(mp.pi * scale / 2),
        half_line,
        lambda scale: st.halfcauchy(scale=scale),
        ((1.0,), (0.2,), (75.0,)),
        ((1e-6,), (1e6,)),
        points=lambda scale: (1e25 * scale,),
    ),
    Row(
        "Laplace",
        d.Laplace,
        LOCATION,
        lambda x, loc, scale: -abs(x - loc) / scale - mp.log(2 * scale),
        line,
        st.laplace,
        LOCATED,
        FAR,
    ),
    Row("Logistic", d.Logistic, LOCATION, logistic_density, line, st.logistic, LOCATED, FAR),
    Row("Gumbel", d.Gumbel, LOCATION, gumbel_density, line, st.gumbel_r, LOCATED, FAR),
    Row(
        "Exponential",
        d.Exponential,
        ("rate",),
        lambda x, rate: mp.log(rate) - rate * x,
        half_line,
        lambda rate: st.expon(scale=1 / rate),
        ((1.0,), (0.2,), (75.0,)),
        ((1e-6,), (1e6,)),
    ),
    Row(
        "Gamma",
        d.Gamma,
        ("concentration", "rate"),
        gamma_density,
        half_line,
        lambda c, rate: st.gamma(c, scale=1 / rate),
        ((2.0, 1.0), (0.9, 2.0), (1.0, 5.0), (75.0, 0.2)),
        ((0.5, 1.0), (0.05, 3.0), (1e-3, 1.0), (1e3, 1e-3), (1e6, 1e6), (1e6, 1.0), (9.999, 1.0), (10.001, 1.0)),
    ),
    Row(
        "InverseGamma",
        d.InverseGamma,
        ("concentration", "rate"),
        lambda x, c, rate: c * mp.log(rate) - (c + 1) * mp.log(x) - rate / x - mp.loggamma(c) if x else -INF,
        half_line,
        lambda c, rate: st.invgamma(c, scale=rate),
        ((3.0, 1.0), (0.9, 2.0), (75.0, 0.2)),
        ((0.5, 1.0), (0.05, 3.0), (1e-3, 1.0), (1e3, 1e-3), (1e6, 1e6)),
    ),
    Row(
        "Weibull",
        d.Weibull,
        ("scale", "concentration"),
        weibull_density,
        half_line,
        lambda scale, k: st.weibull_min(k, scale=scale),
        ((1.0, 2.0), (3.0, 0.9), (0.2, 1.0), (75.0, 12.0)),
        ((1.0, 0.05), (1e6, 30.0), (1e-6, 2.0)),
    ),
    Row(
        "Pareto",
        d.Pareto,
        ("scale", "alpha"),
        lambda x, scale, alpha: mp.log(alpha) - alpha * mp.log(x / scale) - mp.log(x),
        lambda scale, alpha: (scale, INF),
        lambda scale, alpha: st.pareto(alpha, scale=scale),
        ((1.0, 3.5), (0.2, 0.9), (75.0, 20.0)),
        ((1.0, 1e6), (1e6, 0.05), (1e-6, 1.0)),
    ),
    Row(
        "Chi2",
        d.Chi2,
        ("df",),
        lambda x, df: gamma_density(x, df / 2, mp.mpf(0.5)),
        half_line,
        st.chi2,
        ((3.0,), (2.0,), (0.9,), (75.0,)),
        ((1e-3,), (0.05,), (1e6,)),
    ),
    Row(
        "Beta",
        d.Beta,
        ("concentration1", "concentration0"),
        beta_density,
        unit,
        st.beta,
        ((2.0, 3.0), (0.7, 1.0), (1.0, 8.0), (1.0, 1.0), (30.0, 75.0)),
        (
            (1e-3, 1e-3),
            (0.05, 0.05),
            (0.01, 50.0),
            (1e6, 0.5),
            (3.0, 1e4),
            (1e6, 1e6),
            (5.0, 5.0),
            (11.0, 9.9),
            (10.1, 10.1),
        ),
    ),
    Row(
        "Uniform",
        d.Uniform,
        ("low", "high"),
        lambda x, low, high: -mp.log(high - low),
        lambda low, high: (low, high),
        lambda low, high: st.uniform(low, high - low),
        ((0.0, 1.0), (0.5, 1.0), (-3.0, 75.0)),
        ((-1.0, 1e-7), (-1e6, 1e6), (1.0, 1.0001)),
    ),
    Row(
        "VonMises",
        d.VonMises,
        ("loc", "concentration"),
        von_mises_density,
        lambda *_: (-mp.pi, mp.pi),
        VonMises,
        ((0.0, 1.0), (2.5, 4.0), (-1.0, 0.05), (4.0, 300.0)),
        ((1.0, 1e-6), (1.0, 49.9), (1.0, 50.1), (1.0, 1e4)),
    ),
    Row(
        "Kumaraswamy",
        d.Kumaraswamy,
        ("concentration1", "concentration0"),
        kumaraswamy_density,
        unit,
        Kumaraswamy,
        ((2.0, 3.0), (0.7, 1.0), (1.0, 8.0), (5.0, 0.7)),
        ((1.0, 1.0), (0.05, 2.0), (50.0, 0.05), (5.0, 5.0), (1e3, 1e3)),
    ),
    Row(
        "SkewNormal",
        d.SkewNormal,
        ("loc", "scale", "skewness"),
        skew_density,
        line,
        lambda loc, scale, skewness: st.skewnorm(skewness, loc, scale),
        ((0.0, 1.0, 3.0), (-3.0, 0.2, -1.0), (100.0, 7.5, 0.0)),
        ((0.0, 1.0, 1e3), (1e6, 1e3, -4.0)),
        points=lambda loc, scale, skewness: (loc - 6 * scale, loc + 20 * scale),
    ),
)

# Improper families have no law to compare with: (family over a support, members, others)
IMPROPER = (
    (d.Flat(), [-1e30, 0.0, 7.0], [np.inf, -np.inf, np.nan]),
    (d.Flat(positive), [0.0, 7.0], [-1e-30, np.inf]),
    (d.Flat(over=unit_interval), [0.0, 0.5, 1.0], [-0.1, 1.5]),
    (d.Flat(real, shape=(3,)), [[0.0, 1.0, 2.0]], []),
    (d.Flat(interval(np.zeros(2), np.array([1.0, 2.0]))), [[0.5, 1.5]], []),
    (d.Flat(simplex, shape=(3,)), [[0.2, 0.3, 0.5]], [[0.2, 0.3, 0.6], [-0.5, 1.0, 0.5]]),
)
