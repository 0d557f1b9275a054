"""Monotone rational-quadratic splines, the elementwise maps of spline flows.

On (-bound, bound) a spline of K pieces, each the ratio of two quadratics, through knots with given slopes; outside it is the
identity. Both directions are closed forms.

Reference: Durkan, Bekasov, Murray, Papamakarios (2019), Neural spline flows, arXiv 1906.04032, equations 4 to 8.
"""

import math

import jax
import jax.numpy as jnp

LEAST = 1e-3  # width, height and slope of a piece


def sizes(bins):
    """Return how many parameters one number's spline has: widths, heights, and slopes at the inner knots."""
    return 3 * bins - 1


def knots(raw, bins, bound):
    """Return `(x, y, slopes)` of the knots, each [..., bins + 1], from unconstrained parameters [..., 3 bins - 1].

    Parameters of zero give the identity.
    """
    x, y = (_edges(part, bins, bound) for part in (raw[..., :bins], raw[..., bins : 2 * bins]))
    offset = math.log(math.expm1(1 - LEAST))
    inner = LEAST + jax.nn.softplus(raw[..., 2 * bins :] + offset)
    ends = jnp.ones((*raw.shape[:-1], 1), raw.dtype)
    return x, y, jnp.concatenate([ends, inner, ends], -1)


def _edges(raw, bins, bound):
    share = LEAST + (1 - LEAST * bins) * jax.nn.softmax(raw)
    inner = 2 * bound * jnp.cumsum(share, -1)[..., :-1] - bound
    end = jnp.full((*raw.shape[:-1], 1), bound, raw.dtype)
    return jnp.concatenate([-end, inner, end], -1)


def _at(table, piece):
    return jnp.take_along_axis(table, piece[..., None], -1)[..., 0]


def _piece(edges, x):
    """Return the number of the piece that each x lies in, and the table entries at its two ends."""
    return jnp.clip(jnp.sum((x[..., None] >= edges[..., 1:-1]).astype(jnp.int32), -1), 0, edges.shape[-1] - 2)


def _at_piece(x_knots, y_knots, slopes, k):
    """Return what piece k is made of: its left and lower ends, width, height, slope, and the slopes at its ends."""
    left, low = _at(x_knots, k), _at(y_knots, k)
    width, height = _at(x_knots, k + 1) - left, _at(y_knots, k + 1) - low
    return left, low, width, height, height / width, _at(slopes, k), _at(slopes, k + 1)


def forward(u, raw, bins, bound):
    """Return `(x, log dx/du)` for each u, with parameters [..., 3 bins - 1]."""
    x_knots, y_knots, slopes = knots(raw, bins, bound)
    inside = abs(u) < bound
    v = jnp.where(inside, u, jnp.zeros_like(u))
    k = _piece(x_knots, v)
    left, low, width, height, slope, first, last = _at_piece(x_knots, y_knots, slopes, k)
    z = (v - left) / width
    mixed = z * (1 - z)
    bottom = slope + (first + last - 2 * slope) * mixed
    x = low + height * (slope * z * z + first * mixed) / bottom
    return jnp.where(inside, x, u), jnp.where(
        inside, _log_slope(slope, first, last, z, mixed, bottom), jnp.zeros_like(u)
    )


def _log_slope(slope, first, last, z, mixed, bottom):
    top = last * z * z + 2 * slope * mixed + first * (1 - z) * (1 - z)
    return 2 * jnp.log(slope) + jnp.log(top) - 2 * jnp.log(bottom)


def inverse(x, raw, bins, bound):
    """Return u with `forward(u) = x`."""
    x_knots, y_knots, slopes = knots(raw, bins, bound)
    inside = abs(x) < bound
    w = jnp.where(inside, x, jnp.zeros_like(x))
    k = _piece(y_knots, w)
    left, low, width, height, slope, first, last = _at_piece(x_knots, y_knots, slopes, k)
    rise = w - low
    twist = first + last - 2 * slope
    a = height * (slope - first) + rise * twist
    b = height * first - rise * twist
    c = -slope * rise
    root = jnp.sqrt(jnp.maximum(b * b - 4 * a * c, 0))
    z = 2 * c / (-b - root)
    return jnp.where(inside, left + z * width, x)
