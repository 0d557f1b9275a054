"""Pareto-smoothed importance sampling: weights of draws, and k-hat, which says whether they can be trusted.

The largest weights are replaced by quantiles of the generalized Pareto distribution fitted to them,

    F(x) = 1 - (1 + k x / sigma)^(-1 / k),

and k, its shape, tells how heavy their tail is: below 0.7 estimates are good, above 1 the weights have no mean.

References: Vehtari, Simpson, Gelman, Yao, Gabry (2024), JMLR 25 (72); Zhang and Stephens (2009), Technometrics 51,
for the fit of the distribution.
"""

import numpy as np


def smooth(log_weights):
    """Return `(normalized log weights, k-hat)`; k-hat is infinite where fewer than 25 draws or equal tails allow no fit.

    Args:
      log_weights: [draw], up to a constant.
    """
    x = np.asarray(log_weights, float).copy()
    count = x.size
    if not np.isfinite(x).all():
        x = np.where(np.isnan(x), -np.inf, x)
        if not np.isfinite(x).any() or np.isposinf(x).any():
            return np.full(count, -np.log(max(count, 1))), np.inf
    x -= x.max()
    tail = int(min(0.2 * count, 3 * np.sqrt(count)))
    k = np.inf
    if tail >= 5:
        order = np.argsort(x, kind="stable")
        cut = max(x[order[-tail - 1]], np.log(np.finfo(float).tiny))
        largest = np.flatnonzero(x > cut)
        if np.ptp(x) < 1e-6:
            k = -np.inf if np.ptp(x) == 0 else 0.0  # equal weights: the guide is the posterior
        elif largest.size > 4:
            ranked = largest[np.argsort(x[largest], kind="stable")]
            excess = np.exp(x[ranked]) - np.exp(cut)
            k, sigma = fit_pareto(excess)
            if np.isfinite(k):
                chance = (np.arange(ranked.size) + 0.5) / ranked.size
                quantile = sigma * np.expm1(-k * np.log1p(-chance)) / k if k else -sigma * np.log1p(-chance)
                x[ranked] = np.minimum(np.log(quantile + np.exp(cut)), 0.0)
    return x - _log_sum_exp(x), float(k)


def fit_pareto(excess):
    """Return `(k, sigma)` of the generalized Pareto distribution of sorted positive numbers."""
    n = excess.size
    prior, grid = 3.0, 30 + int(np.sqrt(n))
    b = 1 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))
    b /= prior * excess[int(n / 4 + 0.5) - 1]
    b += 1 / excess[-1]
    k = np.mean(np.log1p(-b[:, None] * excess[None]), 1)
    length = n * (np.log(-(b / k)) - k - 1)
    weights = 1 / np.sum(np.exp(np.clip(length[None] - length[:, None], -700, 700)), 1)
    keep = weights >= 10 * np.finfo(float).eps
    weights, b = weights[keep] / weights[keep].sum(), b[keep]
    mean = np.sum(b * weights)
    k = np.mean(np.log1p(-mean * excess))
    sigma = -k / mean
    k = (n * k + 10 * 0.5) / (n + 10)  # a weak prior at 0.5
    return k, sigma


def _log_sum_exp(x):
    top = x.max()
    return top + np.log(np.exp(x - top).sum())
