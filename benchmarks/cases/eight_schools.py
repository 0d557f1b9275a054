"""Eight schools, noncentered: ten parameters, where a library's own overhead is all there is."""

import numpy as np

NAMES = ("mu", "tau", "theta")


def data(seed):
    y = np.array([28, 8, -3, 7, -1, 1, 18, 12], np.float32)
    noise = 0 if seed == 0 else np.random.default_rng(seed).normal(0, 3, 8)
    return {"sigma": np.array([15, 10, 16, 11, 9, 11, 10, 18], np.float32), "y": (y + noise).astype(np.float32)}


def ppl():
    from ppl import HalfCauchy, Normal, noncentered

    def schools(sigma):
        mu = yield Normal(0.0, 5.0, name="mu")
        tau = yield HalfCauchy(5.0, name="tau")
        theta = yield Normal(mu, tau, shape=sigma.shape, name="theta")
        yield Normal(theta, sigma, name="y")

    return noncentered(schools, "theta")


def numpyro(sigma, y):
    import numpyro as n
    import numpyro.distributions as d

    mu = n.sample("mu", d.Normal(0, 5))
    tau = n.sample("tau", d.HalfCauchy(5))
    with n.plate("schools", 8):
        base = n.sample("base", d.Normal(0, 1))
        theta = n.deterministic("theta", mu + tau * base)
        n.sample("y", d.Normal(theta, sigma), obs=y)


def pymc(sigma, y):
    import pymc as pm

    mu, tau, base = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5), pm.Normal("base", shape=8)
    theta = pm.Deterministic("theta", mu + tau * base)
    pm.Normal("y", theta, sigma, observed=y)


def tfp(tfd, data):
    root = tfd.JointDistributionCoroutineAutoBatched.Root

    def model():
        mu = yield root(tfd.Normal(0.0, 5.0, name="mu"))
        tau = yield root(tfd.HalfCauchy(0.0, 5.0, name="tau"))
        base = yield root(tfd.Sample(tfd.Normal(0.0, 1.0), 8, name="base"))
        yield tfd.Normal(mu + tau * base, data["sigma"], name="y")

    return model, lambda v: {"mu": v.mu, "tau": v.tau, "theta": v.mu[..., None] + v.tau[..., None] * v.base}


STAN = """
data { vector[8] sigma; vector[8] y; }
parameters { real mu; real<lower=0> tau; vector[8] base; }
transformed parameters { vector[8] theta = mu + tau * base; }
model { mu ~ normal(0, 5); tau ~ cauchy(0, 5); base ~ std_normal(); y ~ normal(theta, sigma); }
"""

START = {"mu": (), "log_tau": (), "base": (8,)}


def natural(z, data):
    import jax.numpy as jnp

    tau = jnp.exp(z["log_tau"])
    return {"mu": z["mu"], "tau": tau, "theta": z["mu"] + tau * z["base"]}


def log_density(z, data):
    import jax.numpy as jnp

    v = natural(z, data)
    prior = -((z["mu"] / 5) ** 2) / 2 - jnp.log1p((v["tau"] / 5) ** 2) + z["log_tau"] - (z["base"] ** 2).sum() / 2
    return prior - (((data["y"] - v["theta"]) / data["sigma"]) ** 2).sum() / 2
