"""Logistic regression, 1000 rows and 25 columns, synthetic: a small matrix product each way."""

import numpy as np

NAMES = ("alpha", "beta")
ROWS, COLUMNS = 1000, 25


def data(seed):
    rng = np.random.default_rng(seed + 100)
    X = rng.normal(size=(ROWS, COLUMNS))
    logits = 0.5 + X @ np.random.default_rng(1).normal(0, 0.5, COLUMNS)
    return {"X": X.astype(np.float32), "y": (rng.random(ROWS) < 1 / (1 + np.exp(-logits))).astype(np.int32)}


def ppl():
    from ppl import Bernoulli, Normal

    def logistic(X):
        alpha = yield Normal(0.0, 1.0, name="alpha")
        beta = yield Normal(0.0, 1.0, shape=X.shape[1], name="beta")
        yield Bernoulli(logits=alpha + X @ beta, name="y")

    return logistic


def numpyro(X, y):
    import numpyro as n
    import numpyro.distributions as d

    alpha = n.sample("alpha", d.Normal(0, 1))
    beta = n.sample("beta", d.Normal(0, 1).expand([COLUMNS]).to_event(1))
    n.sample("y", d.Bernoulli(logits=alpha + X @ beta), obs=y)


def pymc(X, y):
    import pymc as pm

    alpha, beta = pm.Normal("alpha"), pm.Normal("beta", shape=COLUMNS)
    pm.Bernoulli("y", logit_p=alpha + X @ beta, observed=y)


def tfp(tfd, data):
    root = tfd.JointDistributionCoroutineAutoBatched.Root

    def model():
        alpha = yield root(tfd.Normal(0.0, 1.0, name="alpha"))
        beta = yield root(tfd.Sample(tfd.Normal(0.0, 1.0), COLUMNS, name="beta"))
        yield tfd.Bernoulli(logits=alpha + data["X"] @ beta, name="y")

    return model, lambda v: {"alpha": v.alpha, "beta": v.beta}


STAN = """
data { int N; int D; matrix[N, D] X; array[N] int y; }
parameters { real alpha; vector[D] beta; }
model { alpha ~ std_normal(); beta ~ std_normal(); y ~ bernoulli_logit_glm(X, alpha, beta); }
"""


def stan_data(data):
    return {"N": ROWS, "D": COLUMNS, **data}


START = {"alpha": (), "beta": (COLUMNS,)}


def natural(z, data):
    return z


def log_density(z, data):
    import jax

    logits = z["alpha"] + data["X"] @ z["beta"]
    likelihood = (data["y"].astype(logits.dtype) * logits - jax.nn.softplus(logits)).sum()
    return likelihood - (z["alpha"] ** 2 + (z["beta"] ** 2).sum()) / 2
