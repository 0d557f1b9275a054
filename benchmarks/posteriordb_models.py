"""The posteriors of `tests/posteriordb` as models: a function each, or one for several data sets.

`POSTERIORS` says for each folder which model it is, how its data.json becomes `data`, and what the reference's names are
called here. The models themselves are stated in words in the folders' model.md.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ppl
from ppl import (
    Bernoulli,
    Beta,
    Binomial,
    Deterministic,
    Dirichlet,
    Exponential,
    Factor,
    Flat,
    Gamma,
    HalfCauchy,
    HalfNormal,
    LogNormal,
    Mixture,
    Normal,
    Poisson,
    Scan,
    TruncatedNormal,
    Uniform,
)
from ppl.supports import ordered, positive, positive_ordered, simplex


@dataclasses.dataclass(frozen=True)
class Posterior:
    """A posterior to reproduce.

    Args:
      model: the model.
      data: makes the model's `data` of the content of data.json.
      names: where the reference's parameter is not simply the variable of the same name: that variable's name, and
        perhaps an index into it.
      difficulty: in words, where its geometry is known to be difficult.
      settings: of the sampler, where the defaults do not do.
    """

    model: Callable[..., Any]
    data: Callable[[dict], dict]
    names: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    difficulty: str = ""
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)


# Regressions


def linear(X):
    """Linear regression under flat priors."""
    beta = yield Flat(shape=X.shape[1], name="beta")
    sigma = yield Flat(positive, name="sigma")
    yield Normal(X @ beta, sigma, name="y")


def linear_half_cauchy(X):
    """Linear regression with a half-Cauchy error scale."""
    beta = yield Flat(shape=X.shape[1], name="beta")
    sigma = yield HalfCauchy(2.5, name="sigma")
    yield Normal(X @ beta, sigma, name="y")


def linear_normal(X):
    """Linear regression under normal priors, without intercept."""
    beta = yield Normal(0.0, 10.0, shape=X.shape[1], name="beta")
    sigma = yield HalfNormal(10.0, name="sigma")
    yield Normal(X @ beta, sigma, name="y")


def vote(income):
    """Logistic regression under flat priors."""
    alpha = yield Flat(name="alpha")
    beta = yield Flat(name="beta")
    yield Bernoulli(logits=alpha + beta * income, name="vote")


def dogs(X):
    """Logistic regression on how often a dog avoided and was shocked before."""
    beta = yield Normal(0.0, 100.0, shape=3, name="beta")
    yield Bernoulli(logits=X @ beta, name="shock")


def counts(year):
    """Poisson regression with a cubic trend."""
    alpha = yield Uniform(-20.0, 20.0, name="alpha")
    beta = yield Uniform(-10.0, 10.0, shape=3, name="beta")
    yield Poisson(jnp.exp(alpha + beta[0] * year + beta[1] * year**2 + beta[2] * year**3), name="C")


def successes(year, trials):
    """Binomial regression with a quadratic trend."""
    alpha = yield Normal(0.0, 100.0, name="alpha")
    beta = yield Normal(0.0, 100.0, shape=2, name="beta")
    yield Binomial(trials, logits=alpha + beta[0] * year + beta[1] * year**2, name="C")


# Hierarchies


def schools(sigma):
    """Effects of coaching in parallel experiments."""
    mu = yield Normal(0.0, 5.0, name="mu")
    tau = yield HalfCauchy(5.0, name="tau")
    theta = yield Normal(mu, tau, shape=sigma.shape, name="theta")
    yield Normal(theta, sigma, name="y")


def radon(county, counties, uranium, floor):
    """Radon in houses, an intercept for each county."""
    sigma_alpha = yield HalfNormal(1.0, name="sigma_alpha")
    sigma_y = yield HalfNormal(1.0, name="sigma_y")
    mu_alpha = yield Normal(0.0, 10.0, name="mu_alpha")
    beta = yield Normal(0.0, 10.0, shape=2, name="beta")
    alpha = yield Normal(mu_alpha, sigma_alpha, shape=counties, name="alpha")
    yield Normal(alpha[county] + beta[0] * uranium + beta[1] * floor, sigma_y, name="log_radon")


def rats(rat, count, age):
    """Growth curves of rats, a line for each."""
    mu_alpha = yield Normal(0.0, 100.0, name="mu_alpha")
    mu_beta = yield Normal(0.0, 100.0, name="mu_beta")
    sigma_y = yield Flat(positive, name="sigma_y")
    sigma_alpha = yield Flat(positive, name="sigma_alpha")
    sigma_beta = yield Flat(positive, name="sigma_beta")
    alpha = yield Normal(mu_alpha, sigma_alpha, shape=count, name="alpha")
    beta = yield Normal(mu_beta, sigma_beta, shape=count, name="beta")
    yield Normal(alpha[rat] + beta[rat] * age, sigma_y, name="weight")


def item_response(items, persons):
    """Answers to test items: abilities of persons, difficulty and discrimination of items."""
    sigma_theta = yield HalfCauchy(2.0, name="sigma_theta")
    sigma_a = yield HalfCauchy(2.0, name="sigma_a")
    sigma_b = yield HalfCauchy(2.0, name="sigma_b")
    mu_b = yield Normal(0.0, 5.0, name="mu_b")
    theta = yield Normal(0.0, sigma_theta, shape=persons, name="theta")
    a = yield LogNormal(0.0, sigma_a, shape=items, name="a")
    b = yield Normal(mu_b, sigma_b, shape=items, name="b")
    yield Bernoulli(logits=a[:, None] * (theta[None] - b[:, None]), name="y")


# Time series


def autoregression(lags):
    """Autoregression given the values before each."""
    alpha = yield Normal(0.0, 10.0, name="alpha")
    beta = yield Normal(0.0, 10.0, shape=lags.shape[1], name="beta")
    sigma = yield HalfCauchy(2.5, name="sigma")
    yield Normal(alpha + lags @ beta, sigma, name="y")


def garch(length, sigma1):
    """A series whose variance follows its own past; (alpha1, beta1, rest) is uniform on the simplex."""
    mu = yield Flat(name="mu")
    alpha0 = yield Flat(positive, name="alpha0")
    weights = yield Flat(simplex, shape=3, name="weights")

    def step(variance, _):
        y = yield Normal(mu, jnp.sqrt(variance), name="y")
        return alpha0 + weights[0] * (y - mu) ** 2 + weights[1] * variance, None

    yield Scan(step, sigma1**2, length=length, name="series")


def log_forward(transition, log_emission):
    """Return the log likelihood of a hidden Markov chain, its states summed out (the forward algorithm).

    Args:
      transition: probabilities, row by row.
      log_emission: log density of each observation in each state, [time, state].
    """

    def step(log_state, log_emission):
        log_next = jax.nn.logsumexp(log_state[:, None] + jnp.log(transition), 0)
        return log_next + log_emission, None

    return jax.nn.logsumexp(jax.lax.scan(step, log_emission[0], log_emission[1:])[0])


def drives(speed, distance, concentration):
    """Basketball drives: two hidden states with exponential emissions, told apart by their order."""
    theta1 = yield Dirichlet(concentration[0], name="theta1")
    theta2 = yield Dirichlet(concentration[1], name="theta2")
    phi = yield Flat(positive_ordered, shape=2, name="phi")
    rate = yield Flat(positive_ordered, shape=2, name="rate")
    yield Normal(jnp.array([0.0, 3.0]), 1.0, value=phi, name="phi_prior")
    yield Normal(jnp.array([0.0, 3.0]), 1.0, value=rate, name="rate_prior")
    log_emission = Exponential(phi[None]).log_prob(speed[:, None]) + Exponential(rate[None]).log_prob(distance[:, None])
    yield Factor(log_forward(jnp.stack([theta1, theta2]), log_emission), name="observed")


def two_states(y):
    """Two hidden states with normal emissions."""
    theta1 = yield Dirichlet(jnp.ones(2), name="theta1")
    theta2 = yield Dirichlet(jnp.ones(2), name="theta2")
    mu = yield Flat(positive_ordered, shape=2, name="mu")
    yield Normal(jnp.array([3.0, 10.0]), 1.0, value=mu, name="mu_prior")
    yield Factor(log_forward(jnp.stack([theta1, theta2]), Normal(mu[None], 1.0).log_prob(y[:, None])), name="observed")


# Others


def two_normals(count):
    """A mixture of two normals, told apart by their order."""
    mu = yield Flat(ordered, shape=2, name="mu")
    yield Normal(0.0, 2.0, shape=2, value=mu, name="mu_prior")
    sigma = yield HalfNormal(2.0, shape=2, name="sigma")
    theta = yield Beta(5.0, 5.0, name="theta")
    yield Mixture(jnp.stack([theta, 1 - theta]), Normal(mu, sigma), shape=count, name="y")


def gaussian_process(x):
    """Counts whose log rate is a Gaussian process, whitened."""
    rho = yield Gamma(25.0, 4.0, name="rho")
    alpha = yield HalfNormal(2.0, name="alpha")
    eps = yield Normal(0.0, 1.0, shape=x.shape, name="eps")
    distance = (x[:, None] - x[None]) / rho
    covariance = alpha**2 * jnp.exp(-0.5 * distance**2) + 1e-10 * jnp.eye(len(x))
    f = yield Deterministic(jnp.linalg.cholesky(covariance) @ eps, name="f")
    yield Poisson(jnp.exp(f), name="k")


def lotka_volterra(times, solve):
    """Populations of prey and predator, observed with error on the log scale."""
    mean, sd = jnp.array([1.0, 0.05, 1.0, 0.05]), jnp.array([0.5, 0.05, 0.5, 0.05])
    theta = yield TruncatedNormal(mean, sd, low=0.0, name="theta")
    z_init = yield LogNormal(math.log(10), 1.0, shape=2, name="z_init")
    sigma = yield LogNormal(-1.0, 1.0, shape=2, name="sigma")
    z = solve(growth, z_init, times, theta)
    yield LogNormal(jnp.log(z_init), sigma, name="y_init")
    yield LogNormal(jnp.log(z), sigma, name="y")


def growth(z, theta):
    """Return dz/dt of prey and predator."""
    return jnp.stack([(theta[0] - theta[1] * z[1]) * z[0], (theta[3] * z[0] - theta[2]) * z[1]])


def runge_kutta(slope, start, times, parameters, steps=25):
    """Solve dz/dt = slope(z, parameters) from time 0 by the classical method of order 4; return z at `times`.

    Args:
      slope: the right-hand side.
      start: z at time 0.
      times: increasing, above 0.
      parameters: passed to `slope`.
      steps: steps of equal length from each time to the next.
    """

    def between(z, width):
        def step(_, z):
            first = slope(z, parameters)
            second = slope(z + width / 2 * first, parameters)
            third = slope(z + width / 2 * second, parameters)
            fourth = slope(z + width * third, parameters)
            return z + width / 6 * (first + 2 * second + 2 * third + fourth)

        z = jax.lax.fori_loop(0, steps, step, z)
        return z, z

    return jax.lax.scan(between, start, jnp.diff(times, prepend=0.0) / steps)[1]


def diffrax_solve(slope, start, times, parameters):
    """Do as `runge_kutta` does, with the adaptive method Tsit5 of diffrax."""
    import diffrax

    return diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, z, parameters: slope(z, parameters)),
        diffrax.Tsit5(),
        t0=0.0,
        t1=times[-1],
        dt0=0.1,
        y0=start,
        args=parameters,
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-6),
        max_steps=4096,
        throw=False,
    ).ys


# From data.json to `data`


def columns(*arrays):
    """Return the matrix with these columns, the first of them 1."""
    arrays = [np.asarray(a, float) for a in arrays]
    return np.stack([np.ones_like(arrays[0]), *arrays], 1)


def two_sd(x):
    """Center and divide by two standard deviations."""
    x = np.asarray(x, float)
    return (x - x.mean()) / (2 * x.std(ddof=1))


def product(*arrays):
    """Multiply elementwise."""
    return np.prod(np.asarray(arrays, float), 0)


def is_in(codes, *groups):
    """Return a column of zeros and ones for each group."""
    return [np.equal(codes, group) for group in groups]


def floats(*arrays):
    """Return arrays of floats."""
    return (np.asarray(a, float) for a in arrays)


def _kids(*predictors):
    return lambda d: {"X": columns(*(product(*(d[n] for n in p.split("*"))) for p in predictors)), "y": d["kid_score"]}


def _log_earnings(*predictors):
    return lambda d: {
        "X": columns(*(product(*(d[n] for n in p.split("*"))) for p in predictors)),
        "y": np.log(d["earn"]),
    }


def _kids_two_sd(d):
    school, iq = two_sd(d["mom_hs"]), two_sd(d["mom_iq"])
    return {"X": columns(school, iq, school * iq), "y": d["kid_score"]}


def _party(d):
    codes = (d[name] for name in ("educ1", "gender", "income"))
    return {"X": columns(d["real_ideo"], d["race_adj"], *is_in(d["age_discrete"], 2, 3, 4), *codes), "y": d["partyid7"]}


def _mesquite(d):
    first, second, height = floats(d["diam1"], d["diam2"], d["canopy_height"])
    return np.log(first * second * height), np.log(first * second), np.log(first / second)


def _mesquite_all(d):
    X = columns(*_mesquite(d), np.log(d["total_height"]), np.log(d["density"]), d["group"])
    return {"X": X, "y": np.log(d["weight"])}


def _dogs(d):
    shock = np.asarray(d["y"])
    before = np.cumsum(shock, 1) - shock
    trial = np.broadcast_to(np.arange(shock.shape[1]), shock.shape)
    return {"X": np.stack([np.ones(shock.shape), trial - before, before], -1), "shock": shock}


def _lags(d):
    y, count = np.asarray(d["y"]), d["K"]
    lags = np.stack([y[count - k : len(y) - k] for k in range(1, count + 1)], 1)
    return {"lags": lags, "y": y[count:]}


def _radon(d):
    return {
        "county": np.asarray(d["county_idx"]) - 1,
        "counties": d["J"],
        "uranium": np.asarray(d["log_uppm"]),
        "floor": np.asarray(d["floor_measure"], float),
        "log_radon": d["log_radon"],
    }


def _rats(d):
    age = np.asarray(d["x"], float) - d["xbar"]
    return {"rat": np.asarray(d["rat"]) - 1, "count": d["N"], "age": age, "weight": d["y"]}


def _trials(d):
    return {"year": d["year"], "trials": d["N"], "C": d["C"]}


def _schools(d):
    return {"sigma": np.asarray(d["sigma"], float), "y": d["y"]}


def _pelts(d):
    return {"times": np.asarray(d["ts"], float), "solve": runge_kutta, "y_init": d["y_init"], "y": d["y"]}


BETAS = {f"beta{i + 1}": ("beta", i) for i in range(3)}

POSTERIORS = {
    "arK-arK": Posterior(autoregression, _lags),
    "bball_drive_event_0-hmm_drive_0": Posterior(
        drives,
        lambda d: {
            "speed": np.asarray(d["u"]),
            "distance": np.asarray(d["v"]),
            "concentration": np.asarray(d["alpha"], float),
        },
        {"lambda": "rate"},
        difficulty="a second mode, with exp(-60) of the mass, holds chains that start anywhere",
        settings={"init": {"phi": [1.0, 10.0], "rate": [0.02, 0.1]}},
    ),
    "dogs-dogs": Posterior(dogs, _dogs),
    "earnings-earn_height": Posterior(
        linear,
        lambda d: {"X": columns(d["height"]), "y": d["earn"]},
        difficulty="scales from 1e2 to 1e4, correlation 0.999",
    ),
    "earnings-logearn_height": Posterior(linear, _log_earnings("height"), difficulty="correlation 0.999"),
    "earnings-logearn_interaction": Posterior(
        linear, _log_earnings("height", "male", "height*male"), difficulty="correlation 0.999"
    ),
    "eight_schools-eight_schools_centered": Posterior(
        ppl.noncentered(schools, "theta"),
        _schools,
        difficulty="funnel; sampled noncentered, which is the same posterior",
    ),
    "eight_schools-eight_schools_noncentered": Posterior(ppl.noncentered(schools, "theta"), _schools),
    "garch-garch11": Posterior(
        garch,
        lambda d: {"length": d["T"], "sigma1": d["sigma1"], "series/y": d["y"]},
        {"alpha1": ("weights", 0), "beta1": ("weights", 1)},
    ),
    "GLM_Binomial_data-GLM_Binomial_model": Posterior(successes, _trials, BETAS),
    "GLM_Poisson_Data-GLM_Poisson_model": Posterior(
        counts,
        lambda d: {"year": d["year"], "C": d["C"]},
        BETAS,
        difficulty="log densities to -1e27 at the first starts",
    ),
    "gp_pois_regr-gp_pois_regr": Posterior(
        gaussian_process,
        lambda d: {"x": np.asarray(d["x"], float), "k": d["k"]},
        difficulty="tight curved ridge along alpha, long tail",
        settings={"target_accept": 0.95},
    ),
    "hmm_example-hmm_example": Posterior(two_states, lambda d: {"y": np.asarray(d["y"])}),
    "hudson_lynx_hare-lotka_volterra": Posterior(
        lotka_volterra,
        _pelts,
        difficulty="a second mode, with exp(-40) of the density, where sigma is large; start: period and means of the data",
        settings={"init": {"theta": [0.63, 0.03, 0.63, 0.02], "z_init": [30.0, 5.0], "sigma": [0.3, 0.3]}},
    ),
    "irt_2pl-irt_2pl": Posterior(item_response, lambda d: {"items": d["I"], "persons": d["J"], "y": d["y"]}),
    "kidiq-kidscore_interaction": Posterior(
        linear_half_cauchy, _kids("mom_hs", "mom_iq", "mom_hs*mom_iq"), difficulty="scales from 0.1 to 15, correlated"
    ),
    "kidiq-kidscore_momhs": Posterior(linear_half_cauchy, _kids("mom_hs")),
    "kidiq-kidscore_momiq": Posterior(linear_half_cauchy, _kids("mom_iq"), difficulty="correlation 0.99"),
    "kidiq_with_mom_work-kidscore_interaction_z": Posterior(linear, _kids_two_sd),
    "kidiq_with_mom_work-kidscore_mom_work": Posterior(
        linear, lambda d: {"X": columns(*is_in(d["mom_work"], 2, 3, 4)), "y": d["kid_score"]}
    ),
    "low_dim_gauss_mix-low_dim_gauss_mix": Posterior(two_normals, lambda d: {"count": d["N"], "y": d["y"]}),
    "mesquite-logmesquite_logvas": Posterior(linear, _mesquite_all),
    "mesquite-logmesquite_logvolume": Posterior(
        linear, lambda d: {"X": columns(_mesquite(d)[0]), "y": np.log(d["weight"])}, difficulty="correlation 0.99"
    ),
    "nes1980-nes": Posterior(linear, _party),
    "nes2000-nes": Posterior(linear, _party),
    "nes_logit_data-nes_logit_model": Posterior(
        vote, lambda d: {"income": np.asarray(d["income"], float), "vote": d["vote"]}
    ),
    "radon_mn-radon_hierarchical_intercept_noncentered": Posterior(ppl.noncentered(radon, "alpha"), _radon),
    "rats_data-rats_model": Posterior(rats, _rats),
    "sblri-blr": Posterior(linear_normal, lambda d: {"X": np.asarray(d["X"]), "y": d["y"]}),
}
