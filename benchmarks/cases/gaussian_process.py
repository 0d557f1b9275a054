"""A Gaussian process at 200 points, its values integrated out: a Cholesky decomposition for each gradient."""

import numpy as np

NAMES = ("length", "amplitude", "noise")
POINTS = 200


def data(seed):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 10, POINTS))
    y = np.sin(x) + 0.3 * np.cos(3 * x) + rng.normal(0, 0.3, POINTS)
    return {"x": x.astype(np.float32), "y": y.astype(np.float32)}


def covariance(np, x, length, amplitude, noise):
    return amplitude**2 * np.exp(-0.5 * ((x[:, None] - x[None]) / length) ** 2) + (noise**2 + 1e-5) * np.eye(POINTS)


def ppl():
    import jax.numpy as jnp

    from ppl import LogNormal, MultivariateNormal

    def process(x):
        length = yield LogNormal(0.0, 1.0, name="length")
        amplitude = yield LogNormal(0.0, 1.0, name="amplitude")
        noise = yield LogNormal(-1.0, 1.0, name="noise")
        yield MultivariateNormal(0.0, covariance(jnp, x, length, amplitude, noise), name="y")

    return process


def numpyro(x, y):
    import jax.numpy as jnp
    import numpyro as n
    import numpyro.distributions as d

    parts = [n.sample(name, d.LogNormal(m, 1)) for name, m in zip(NAMES, (0, 0, -1), strict=True)]
    n.sample("y", d.MultivariateNormal(jnp.zeros(POINTS), covariance(jnp, x, *parts)), obs=y)


def pymc(x, y):
    import pymc as pm
    import pytensor.tensor as pt

    parts = [pm.LogNormal(name, m, 1) for name, m in zip(NAMES, (0, 0, -1), strict=True)]
    pm.MvNormal("y", np.zeros(POINTS), cov=covariance(pt, x, *parts), observed=y)


def tfp(tfd, data):
    import jax.numpy as jnp

    root = tfd.JointDistributionCoroutineAutoBatched.Root

    def model():
        length = yield root(tfd.LogNormal(0.0, 1.0, name="length"))
        amplitude = yield root(tfd.LogNormal(0.0, 1.0, name="amplitude"))
        noise = yield root(tfd.LogNormal(-1.0, 1.0, name="noise"))
        lower = jnp.linalg.cholesky(covariance(jnp, data["x"], length, amplitude, noise))
        yield tfd.MultivariateNormalTriL(jnp.zeros(POINTS), lower, name="y")

    return model, lambda v: {name: getattr(v, name) for name in NAMES}


STAN = """
data { int N; array[N] real x; vector[N] y; }
parameters { real<lower=0> length; real<lower=0> amplitude; real<lower=0> noise; }
model {
  length ~ lognormal(0, 1); amplitude ~ lognormal(0, 1); noise ~ lognormal(-1, 1);
  y ~ multi_normal_cholesky(rep_vector(0, N),
    cholesky_decompose(add_diag(gp_exp_quad_cov(x, amplitude, length), square(noise) + 1e-5)));
}
"""


def stan_data(data):
    return {"N": POINTS, **data}


START = {"log_length": (), "log_amplitude": (), "log_noise": ()}


def natural(z, data):
    import jax.numpy as jnp

    return {name: jnp.exp(z[f"log_{name}"]) for name in NAMES}


def log_density(z, data):
    import jax.numpy as jnp
    import jax.scipy.linalg as linalg

    v = natural(z, data)
    lower = jnp.linalg.cholesky(covariance(jnp, data["x"], **v))
    white = linalg.solve_triangular(lower, data["y"], lower=True)
    prior = -(z["log_length"] ** 2 + z["log_amplitude"] ** 2 + (z["log_noise"] + 1) ** 2) / 2
    return prior - (white**2).sum() / 2 - jnp.log(jnp.diagonal(lower)).sum()
