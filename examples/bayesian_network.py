"""A Bayesian neural network on real data (diabetes: 442 patients), and whether its predictive intervals hold what they say."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np

from ppl import HalfNormal, Normal, infer


def patients():
    """Return standardized inputs [442, 10] and standardized outputs."""
    with np.load(Path(__file__).parent / "diabetes.npz") as file:
        X, y = file["X"], file["y"]
    return (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()


def network(X, hidden):
    """One hidden layer whose weights are latent; the scale of the weights and of the noise are too."""
    spread = yield HalfNormal(1.0, name="spread")
    first = yield Normal(0.0, spread / X.shape[1] ** 0.5, shape=(X.shape[1], hidden), name="first")
    bias = yield Normal(0.0, 1.0, shape=(hidden,), name="bias")
    last = yield Normal(0.0, spread / hidden**0.5, shape=(hidden,), name="last")
    linear = yield Normal(0.0, 0.5, shape=(X.shape[1],), name="linear")
    noise = yield HalfNormal(1.0, name="noise")
    inner = jnp.matmul(X, first)
    mean = jnp.matmul(jnp.tanh(inner + jnp.broadcast_to(bias, inner.shape)), last) + jnp.matmul(X, linear)
    yield Normal(mean, noise, name="y")


def coverage(steps=3000, hidden=16, draws=400, guide=infer.mean_field):
    """Fit on three quarters of the data. Returns `(share inside the 50% interval, inside the 90% one, test RMSE, fit)`."""
    X, y = patients()
    order = np.random.default_rng(0).permutation(len(X))
    test, train = order[:110], order[110:]
    fit = infer.vi(network, guide, {"X": X[train], "hidden": hidden, "y": y[train]}, steps=steps, progress=False)
    drawn = infer.predict(network, fit.posterior(draws), {"X": X[test], "hidden": hidden})["y"][0]
    inside = [
        float(np.mean((np.quantile(drawn, 0.5 - p / 2, 0) < y[test]) & (y[test] < np.quantile(drawn, 0.5 + p / 2, 0))))
        for p in (0.5, 0.9)
    ]
    return *inside, float(np.sqrt(np.mean((drawn.mean(0) - y[test]) ** 2))), fit


def main():
    """Print how many held-out patients lie inside the intervals."""
    half, most, error, fit = coverage()
    print(fit)
    print(f"inside the 50% interval: {half:.0%}; inside the 90% interval: {most:.0%}; test error {error:.3f} sd")


if __name__ == "__main__":
    main()
