"""Pathfinder: normal approximations along the way of an optimizer, the best one of each of several ways.

L-BFGS climbs the log density from random starts. At each point of its way the inverse Hessian that it has learnt gives a
normal law,

    N(x + H g, H),    H = A + B G B'    (A diagonal, B of a few columns)

whose ELBO a few draws estimate; the best one of each path is kept. Draws come from the mixture of all paths, and are
resampled by Pareto-smoothed importance weights, with the density of the mixture below the fraction.

Reference: Zhang, Carpenter, Gelman, Vehtari (2022), JMLR 23 (306); algorithms 1 to 4 and equations cited as [Z ...]. There the
weights divide by the density of the path that a draw came from; dividing by the mixture's has a smaller variance.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppl.inference import cache
from ppl.inference.fit import Fit
from ppl.inference.guides import _joint_name, _pieces
from ppl.inference.path_mixture import PathMixture
from ppl.inference.start import Layout, no_start, seed_words, starts
from ppl.inference.variational import Guide, Problem
from ppl.inference.vi import whole_number
from ppl.tracing.bind import bind
from ppl.tracing.handle import model_name

RADIUS = 2.0  # starts are uniform in (-2, 2) on free space
CURVED = 1e-12  # a pair of steps is used where its curvature is more than this share


def pathfinder(
    model: Callable[..., Any],
    data: Mapping[str, Any] | None = None,
    *,
    paths: int = 4,
    seed: Any = 0,
    init: Mapping[str, Any] | None = None,
    history: int = 6,
    steps: int = 300,
    samples: int = 10,
) -> Fit:
    """Approximate the posterior by multi-path Pathfinder: seconds or less, draws resampled by importance.

    The result is a `Fit`: `fit.posterior(1000)`, `fit.pareto_k`, and as `init=` of `infer.nuts`, `infer.hmc` or `infer.vi`.

    Args:
      model: a generator function that yields random variables.
      data: one mapping: arguments of the model, and values of the random variables to observe.
      paths: how many starts.
      seed: an int or a jax key.
      init: start values on the natural scale, by name; the rest starts at random.
      history: how many steps of the optimizer the inverse Hessian remembers.
      steps: most steps of the optimizer.
      samples: draws that estimate the ELBO at each point of a path.

    Raises:
      ModelError: a latent variable is discrete, or a name does not fit.
      StartError: the log density is not finite at any start.
    """
    began = time.perf_counter()
    for name, value in (("paths", paths), ("history", history), ("steps", steps), ("samples", samples)):
        whole_number(name, value, 1)
    cache.enable()
    bound = bind(model, data)
    layout = Layout.of(bound.structure)
    density = _Density(bound, layout)
    generator = np.random.default_rng([int(w) for w in seed_words(seed)])
    vectors, free = starts(bound, layout, init, paths)
    laws, failed, evaluations = [], None, 0
    for vector, may_draw in zip(vectors, free, strict=True):
        start = np.where(may_draw, generator.uniform(-RADIUS, RADIUS, layout.size), vector)
        law = _best_on_path(density, start, history, steps, samples, generator)
        if law is None:
            failed = start
        else:
            laws.append(law)
    if not laws:
        raise no_start(bound, layout, failed.astype(layout.dtype), paths)
    evaluations = density.gradients
    params = {
        n: jnp.asarray(np.stack([law[n] for law in laws]), layout.dtype) for n in ("loc", "scale", "basis", "core")
    }
    joint = _joint_name(layout)

    def mixture(q):
        vector = yield PathMixture(q["loc"], q["scale"], q["basis"], q["core"], name=joint)
        yield from _pieces(layout, vector)

    spec = Guide(mixture, params, free=True, auxiliary=(joint,), gradient="score")
    problem = Problem.of(model, spec, data, params)
    return Fit(
        params=params,
        trail=np.zeros(0),
        problem=problem,
        trained=params,
        state=None,
        settings={
            "algorithm": "pathfinder",
            "model": model_name(model),
            "guide": f"mixture of {len(laws)} path{'s' * (len(laws) != 1)}",
            "gradients": int(evaluations),
        },
        timings={"total": time.perf_counter() - began},
        seed=[int(w) for w in seed_words(seed)],
        smoothed=True,
    )


class _Density:
    """The log density of a flat vector in double precision for scipy, its gradient, and how often it was asked for."""

    def __init__(self, bound, layout):
        compiled, self.dtype, self.gradients = bound.structure.compiled, layout.dtype, 0
        if ("pathfinder",) not in compiled:

            def density(vector, arrays):
                return bound.structure.log_density(layout.apart(vector), arrays)

            compiled[("pathfinder",)] = (jax.jit(jax.value_and_grad(density)), jax.jit(jax.vmap(density, (0, None))))
        self.one, self.many = compiled[("pathfinder",)]
        self.arrays = jax.device_put(bound.arrays)

    def __call__(self, x):
        """Return `(value, gradient)`."""
        self.gradients += 1
        value, gradient = jax.device_get(self.one(np.asarray(x, self.dtype), self.arrays))
        return float(value), np.asarray(gradient, float)

    def values(self, rows):
        """Return the log density of each row."""
        return np.asarray(self.many(np.asarray(rows, self.dtype), self.arrays), float)


def _climb(density, start, history, steps):
    """Return the points of an L-BFGS ascent and the gradients there; fewer than two where it cannot begin."""
    from scipy.optimize import minimize

    seen, points = {}, []

    def negative(x):
        value, gradient = density(x)
        good = np.isfinite(value) and np.isfinite(gradient).all()
        seen[x.tobytes()] = gradient if good else None
        return (-value, -gradient) if good else (1e30, np.zeros_like(x))

    first = negative(start)[0]
    if first >= 1e30:
        return [], []
    points.append(start.copy())
    minimize(
        negative, start, jac=True, method="L-BFGS-B", callback=lambda x: points.append(np.array(x)),
        options=dict(maxcor=history, maxiter=steps, ftol=1e-9, gtol=1e-5),
    )  # fmt: skip
    known = [(x, seen.get(x.tobytes())) for x in points]
    known = [(x, g) for x, g in known if g is not None]
    return [x for x, _ in known], [g for _, g in known]


def _best_on_path(density, start, history, steps, samples, generator):
    """Return the law with the best ELBO along one path, or None where the density is not finite at its start."""
    points, gradients = _climb(density, start, history, steps)
    if not points:
        return None
    size = start.size
    alpha, pairs, best, best_elbo = np.full(size, 1e-3), [], None, -np.inf
    for i in range(1, len(points)):
        step, change = points[i] - points[i - 1], gradients[i - 1] - gradients[i]
        curvature = step @ change
        if curvature > CURVED * (change @ change):
            alpha = _next_diagonal(alpha, step, change, curvature)
            pairs = [*pairs, (step, change)][-history:]
        if not pairs:
            continue
        law = _law(points[i], gradients[i], alpha, pairs, history)
        if law is None:
            continue
        noise = generator.standard_normal((samples, size))
        draws, log_law = _draws(law, noise)
        elbo = np.mean(density.values(draws) - log_law)
        if np.isfinite(elbo) and elbo > best_elbo:
            best, best_elbo = law, elbo
    if best is None:  # no curvature was seen: a narrow law where the path began
        zeros = np.zeros((size, 2 * history))
        best = dict(loc=points[-1], scale=np.sqrt(alpha), basis=zeros, core=np.eye(2 * history))
    return best


def _next_diagonal(alpha, step, change, curvature):
    """Return the diagonal of the inverse Hessian after one more pair  [Z, algorithm 3; Gilbert and Lemarechal 1989]."""
    a = change @ (alpha * change)
    c = step @ (step / alpha)
    inverse = a / (curvature * alpha) + change**2 / curvature - a * step**2 / (curvature * c * alpha**2)
    return np.where(np.isfinite(inverse) & (inverse > 0), 1 / np.maximum(inverse, 1e-30), alpha)


def _law(x, gradient, alpha, pairs, history):
    """Return the normal law of an inverse Hessian in factored form, or None if it is not positive  [Z, algorithm 4].

    With S and Z the steps and changes, R the upper triangle of S'Z, E its diagonal:  B = [A Z, S],
    G = [[0, -R^-1], [-R^-T, R^-T (E + Z'A Z) R^-1]].
    """
    steps, changes = (np.stack(part, 1) for part in zip(*pairs, strict=True))
    count = steps.shape[1]
    upper = np.triu(steps.T @ changes)
    try:
        inverse = np.linalg.inv(upper)
        inner = np.diag(np.diag(upper)) + changes.T @ (alpha[:, None] * changes)
        middle = np.block([[np.zeros((count, count)), -inverse], [-inverse.T, inverse.T @ inner @ inverse]])
        columns = np.concatenate([alpha[:, None] * changes, steps], 1)
        basis, triangle = np.linalg.qr(columns / np.sqrt(alpha)[:, None])
        core = np.linalg.cholesky(np.eye(basis.shape[1]) + triangle @ middle @ triangle.T)
        loc = x + alpha * gradient + columns @ (middle @ (columns.T @ gradient))
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(loc).all() or not np.isfinite(core).all():
        return None
    wide = 2 * history
    whole_basis, whole_core = np.zeros((x.size, wide)), np.eye(wide)
    whole_basis[:, : basis.shape[1]] = basis
    whole_core[: core.shape[0], : core.shape[0]] = core
    return dict(loc=loc, scale=np.sqrt(alpha), basis=whole_basis, core=whole_core)


def _draws(law, noise):
    """Return draws of a law from standard normal rows, and its log density at them."""
    basis, core = law["basis"], law["core"]
    moved = noise + (noise @ basis) @ (core - np.eye(core.shape[0])).T @ basis.T
    log_det = np.sum(np.log(law["scale"])) + np.sum(np.log(np.diag(core)))
    log_law = -0.5 * np.sum(noise**2, 1) - log_det - noise.shape[1] * np.log(2 * np.pi) / 2
    return law["loc"] + law["scale"] * moved, log_law
