"""Radon in 919 houses of 85 counties, with an intercept and a slope for each, noncentered: gathers and scatters."""

import json
from pathlib import Path

import numpy as np

NAMES = ("mu", "sigma", "error", "alpha", "beta")
COUNTIES = 85
FILE = "tests/posteriordb/radon_mn-radon_hierarchical_intercept_noncentered/data.json"


def data(seed):
    content = json.loads((Path(__file__).parents[2] / FILE).read_text())
    noise = 0 if seed == 0 else np.random.default_rng(seed).normal(0, 0.1, content["N"])
    return {
        "county": np.array(content["county_idx"], np.int32) - 1,
        "floor": np.array(content["floor_measure"], np.float32),
        "y": (np.array(content["log_radon"]) + noise).astype(np.float32),
    }


def ppl():
    from ppl import HalfNormal, Normal, noncentered

    def radon(county, floor):
        mu = yield Normal(0.0, 3.0, shape=2, name="mu")
        sigma = yield HalfNormal(1.0, shape=2, name="sigma")
        error = yield HalfNormal(1.0, name="error")
        alpha = yield Normal(mu[0], sigma[0], shape=COUNTIES, name="alpha")
        beta = yield Normal(mu[1], sigma[1], shape=COUNTIES, name="beta")
        yield Normal(alpha[county] + beta[county] * floor, error, name="y")

    return noncentered(radon, "alpha", "beta")


def numpyro(county, floor, y):
    import numpyro as n
    import numpyro.distributions as d

    mu = n.sample("mu", d.Normal(0, 3).expand([2]).to_event(1))
    sigma = n.sample("sigma", d.HalfNormal(1).expand([2]).to_event(1))
    error = n.sample("error", d.HalfNormal(1))
    with n.plate("counties", COUNTIES):
        alpha = n.deterministic("alpha", mu[0] + sigma[0] * n.sample("a", d.Normal(0, 1)))
        beta = n.deterministic("beta", mu[1] + sigma[1] * n.sample("b", d.Normal(0, 1)))
    n.sample("y", d.Normal(alpha[county] + beta[county] * floor, error), obs=y)


def pymc(county, floor, y):
    import pymc as pm

    mu, sigma, error = pm.Normal("mu", 0, 3, shape=2), pm.HalfNormal("sigma", 1, shape=2), pm.HalfNormal("error", 1)
    alpha = pm.Deterministic("alpha", mu[0] + sigma[0] * pm.Normal("a", shape=COUNTIES))
    beta = pm.Deterministic("beta", mu[1] + sigma[1] * pm.Normal("b", shape=COUNTIES))
    pm.Normal("y", alpha[county] + beta[county] * floor, error, observed=y)


def tfp(tfd, data):
    root = tfd.JointDistributionCoroutineAutoBatched.Root

    def model():
        mu = yield root(tfd.Sample(tfd.Normal(0.0, 3.0), 2, name="mu"))
        sigma = yield root(tfd.Sample(tfd.HalfNormal(1.0), 2, name="sigma"))
        error = yield root(tfd.HalfNormal(1.0, name="error"))
        a = yield root(tfd.Sample(tfd.Normal(0.0, 1.0), COUNTIES, name="a"))
        b = yield root(tfd.Sample(tfd.Normal(0.0, 1.0), COUNTIES, name="b"))
        alpha, beta = mu[0] + sigma[0] * a, mu[1] + sigma[1] * b
        yield tfd.Normal(alpha[data["county"]] + beta[data["county"]] * data["floor"], error, name="y")

    def natural(v):
        return {
            "mu": v.mu, "sigma": v.sigma, "error": v.error,
            "alpha": v.mu[..., :1] + v.sigma[..., :1] * v.a, "beta": v.mu[..., 1:] + v.sigma[..., 1:] * v.b,
        }  # fmt: skip

    return model, natural


STAN = """
data { int N; int J; array[N] int county; vector[N] floor; vector[N] y; }
parameters { vector[2] mu; vector<lower=0>[2] sigma; real<lower=0> error; vector[J] a; vector[J] b; }
transformed parameters { vector[J] alpha = mu[1] + sigma[1] * a; vector[J] beta = mu[2] + sigma[2] * b; }
model {
  mu ~ normal(0, 3); sigma ~ std_normal(); error ~ std_normal(); a ~ std_normal(); b ~ std_normal();
  y ~ normal(alpha[county] + beta[county] .* floor, error);
}
"""


def stan_data(data):
    return {"N": len(data["y"]), "J": COUNTIES, **data, "county": data["county"] + 1}


START = {"mu": (2,), "log_sigma": (2,), "log_error": (), "a": (COUNTIES,), "b": (COUNTIES,)}


def natural(z, data):
    import jax.numpy as jnp

    mu, sigma = z["mu"], jnp.exp(z["log_sigma"])
    alpha, beta = mu[0] + sigma[0] * z["a"], mu[1] + sigma[1] * z["b"]
    return {"mu": mu, "sigma": sigma, "error": jnp.exp(z["log_error"]), "alpha": alpha, "beta": beta}


def log_density(z, data):
    v = natural(z, data)
    mean = v["alpha"][data["county"]] + v["beta"][data["county"]] * data["floor"]
    likelihood = -(((data["y"] - mean) / v["error"]) ** 2).sum() / 2 - len(data["y"]) * z["log_error"]
    prior = -((v["mu"] / 3) ** 2).sum() / 2 - ((z["a"] ** 2).sum() + (z["b"] ** 2).sum()) / 2
    scales = -(v["sigma"] ** 2).sum() / 2 + z["log_sigma"].sum() - v["error"] ** 2 / 2 + z["log_error"]
    return likelihood + prior + scales
