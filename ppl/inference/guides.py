"""Automatic guides: programs on free space, made from a model's latent variables.

Each is a generator function of its parameters like a guide of one's own. A variable of the guide stands for one of the model
of the same name, on free space, where all of them are R^n; a joint law yields one vector called "joint" and derives the
variables from it.

| guide | law on free space | parameters |
|---|---|---|
| `mean_field` | independent normals | 2 n |
| `structured` | a normal for each variable, or for each group of them, with all correlations inside | sum of squares |
| `low_rank(rank=)` | a normal with covariance diagonal plus low rank | (2 + rank) n |
| `full_rank` | a normal with any covariance | n (n + 3) / 2 |
| `map` | a point: the mode of the density of natural values | n |
| `laplace` | the normal at the mode on free space whose precision is minus the Hessian there | n |

References: Kucukelbir, Tran, Ranganath, Gelman, Blei (2017), JMLR 18 (mean field and full rank); Ong, Nott, Smith (2018),
J. Comput. Graph. Stat. 27 (low rank); Tierney and Kadane (1986), JASA 81 (Laplace).
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ppl.distributions import Deterministic, MultivariateNormal, Normal
from ppl.errors import ModelError, listed, suggest
from ppl.inference.fit import Fit
from ppl.inference.low_rank import LowRankNormal
from ppl.inference.start import Layout, starts
from ppl.inference.variational import Automatic, Guide, Problem, Target
from ppl.tracing.handle import model_name

FIRST_SCALE = 0.1  # standard deviation of a guide's variables before the first step
# "sticking" is without variance at the posterior and has a large one far from it, where a fit begins: full-rank fits of eight
# schools were 0.4 sd off after 2000 steps of it, and 0.1 with "pathwise".
RATE = 0.1  # learning rate at first: distances on free space are of the order of one
START_DRAWS = 1000  # of another fit, from whose moments a guide starts


def _layout(target):
    return Layout.of(target.bound.structure)


def _start(target):
    """Return `(mean, sd, covariance or None)` on free space, as flat vectors, that a guide starts from."""
    layout = _layout(target)
    sd = np.full(layout.size, FIRST_SCALE, layout.dtype)
    if isinstance(target.init, Fit):
        draws = free_draws(target.init, target.bound, START_DRAWS)
        few = len(draws) < 2 * layout.size + 2
        spread = np.maximum(draws.std(0), 1e-6)
        return draws.mean(0), spread, None if few else np.cov(draws, rowvar=False).reshape(layout.size, layout.size)
    if target.init is None:
        return np.zeros(layout.size, layout.dtype), sd, None
    if not hasattr(target.init, "items"):
        raise ModelError(
            f"init of an automatic guide is a mapping from latent variables to values, or a Fit, not {target.init!r}"
        )
    vectors, _ = starts(target.bound, layout, target.init, 1)
    return vectors[0], sd, None


def free_draws(fit, bound, count):
    """Return draws of a fit on the free space of a bound model, [draw, n]."""
    layout = Layout.of(bound.structure)
    natural = fit.posterior(count, seed=3)
    for name, latent in bound.structure.latents.items():
        if name not in natural.draws or natural[name].shape[2:] != latent.shape:
            raise ModelError(
                f"init is a fit of `{fit.settings['model']}`, which has no {name!r} of shape {latent.shape} "
                f"({listed(natural.draws)}): give a fit of the same model"
            )

    def one(values):
        zeros = {n: jnp.zeros(s, layout.dtype) for n, s in layout.shapes.items()}
        free = bound.structure.free(values, zeros, bound.arrays)[0]
        return jnp.concatenate([free[n].ravel() for n in layout.shapes])

    return np.asarray(jax.jit(jax.vmap(one))({n: natural[n][0] for n in layout.shapes}))


def _pieces(layout, vector):
    """Return the flat vector's parts as the variables of a guide."""
    for name, value in layout.apart(vector).items():
        yield Deterministic(value, name=name)


def _joint_name(layout):
    name = "joint"
    while name in layout.shapes:
        name += "_"
    return name


def _triangle(q):
    """Return a lower triangular matrix with positive diagonal from parameters `below` and `log_diagonal`."""
    n = q["log_diagonal"].shape[0]
    diagonal = jnp.exp(q["log_diagonal"])
    return jnp.tril(q["below"], -1) + diagonal[:, None] * jnp.eye(n, dtype=diagonal.dtype)


def _untriangle(factor):
    return {"below": jnp.asarray(np.tril(factor, -1)), "log_diagonal": jnp.asarray(np.log(np.diag(factor)))}


def _factor(sd, covariance):
    if covariance is None:
        return np.diag(sd)
    jitter = 1e-6 * np.diag(np.diag(covariance))
    try:
        return np.linalg.cholesky(covariance + jitter).astype(sd.dtype)
    except np.linalg.LinAlgError:
        return np.diag(sd)


def _mean_field(target: Target) -> Guide:
    """Independent normals on free space, one for each number; the cheapest guide, and blind to correlations."""
    layout = _layout(target)
    mean, sd, _ = _start(target)
    loc, log_scale = layout.apart(jnp.asarray(mean)), layout.apart(jnp.asarray(np.log(sd)))
    init = {name: {"loc": loc[name], "log_scale": log_scale[name]} for name in layout.shapes}

    def mean_field(q):
        for name in layout.shapes:
            yield Normal(q[name]["loc"], jnp.exp(q[name]["log_scale"]), name=name)

    return Guide(mean_field, init, free=True, gradient="pathwise", rate=RATE)


def _full_rank(target: Target) -> Guide:
    """One normal with any covariance on free space."""
    layout = _layout(target)
    mean, sd, covariance = _start(target)
    init = {"loc": jnp.asarray(mean), **_untriangle(_factor(sd, covariance))}
    joint = _joint_name(layout)

    def full_rank(q):
        vector = yield MultivariateNormal(q["loc"], scale_tril=_triangle(q), name=joint)
        yield from _pieces(layout, vector)

    return Guide(full_rank, init, free=True, auxiliary=(joint,), gradient="pathwise", rate=RATE)


def _low_rank(target: Target, rank: int | None = None) -> Guide:
    """One normal on free space whose covariance is diagonal plus low rank; by default of rank sqrt(n)."""
    layout = _layout(target)
    n = layout.size
    rank = max(1, round(n**0.5)) if rank is None else rank
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise ModelError(f"low_rank: rank={rank!r}: give a whole number, at least 1")
    mean, sd, covariance = _start(target)
    factor = 0.01 * sd[:, None] * np.random.default_rng(0).standard_normal((n, rank))
    if covariance is not None:
        values, vectors = np.linalg.eigh(covariance / np.outer(sd, sd))
        largest = np.argsort(values)[::-1][:rank]
        factor[:, : len(largest)] = sd[:, None] * vectors[:, largest] * np.sqrt(np.maximum(values[largest] - 1, 1e-4))
        sd = np.sqrt(np.maximum(np.diag(covariance) - (factor**2).sum(1), 1e-4 * sd**2))
    init = {
        "loc": jnp.asarray(mean),
        "log_scale": jnp.asarray(np.log(sd), mean.dtype),
        "factor": jnp.asarray(factor, mean.dtype),
    }
    joint = _joint_name(layout)

    def low_rank(q):
        vector = yield LowRankNormal(q["loc"], jnp.exp(q["log_scale"]), q["factor"], name=joint)
        yield from _pieces(layout, vector)

    return Guide(low_rank, init, free=True, auxiliary=(joint,), gradient="pathwise", rate=RATE)


def _structured(target: Target, groups: Sequence[Sequence[str]] | None = None) -> Guide:
    """A normal on free space for each variable, with all correlations inside of it and none between variables.

    `groups=[["mu", "tau"], ["theta"]]` puts variables together; those not named have a block of their own.
    """
    layout = _layout(target)
    groups = [list(g) for g in groups or ()]
    named = [name for group in groups for name in group]
    for name in named:
        if name not in layout.shapes or named.count(name) > 1:
            raise ModelError(
                f"structured: groups has {name!r}, which is "
                + (
                    "there twice"
                    if named.count(name) > 1
                    else f"no latent variable ({listed(layout.shapes)}).{suggest(name, layout.shapes)}"
                )
            )
    groups += [[name] for name in layout.shapes if name not in named]
    mean, sd, covariance = _start(target)
    places = layout.apart(np.arange(layout.size))
    blocks, init = [], {}
    for group in groups:
        part = Layout({name: layout.shapes[name] for name in group}, layout.dtype)
        index = np.concatenate([places[name].ravel() for name in group])
        inside = None if covariance is None else covariance[np.ix_(index, index)]
        title = "block/" + "+".join(group)
        init[title] = {"loc": jnp.asarray(mean[index]), **_untriangle(_factor(sd[index], inside))}
        blocks.append((title, part))

    def structured(q):
        for title, part in blocks:
            vector = yield MultivariateNormal(q[title]["loc"], scale_tril=_triangle(q[title]), name=title)
            yield from _pieces(part, vector)

    return Guide(structured, init, free=True, auxiliary=tuple(t for t, _ in blocks), gradient="pathwise", rate=RATE)


def _point(target, volume):
    layout = _layout(target)
    mean, _, _ = _start(target)
    init = layout.apart(jnp.asarray(mean))

    def point(q):
        for name in layout.shapes:
            yield Deterministic(q[name], name=name)

    return Guide(point, init, free=True, volume=volume, gradient="pathwise", rate=RATE)


def _map(target: Target) -> Guide:
    """A point: the mode of the density of natural values, the maximum a posteriori."""
    return _point(target, volume=False)


def _laplace(target: Target) -> Guide:
    """The normal at the mode on free space whose precision is minus the Hessian of the log density there."""
    return dataclasses.replace(_point(target, volume=True), finish=_second_order)


def _second_order(fit: Fit) -> Fit:
    """Put the normal in place of the point that a fit has found, after Newton steps to the mode itself."""
    problem = fit.problem
    bound = problem.model
    layout = Layout.of(bound.structure)

    def density(vector):
        return bound.structure.log_density(layout.apart(vector), bound.arrays)

    gradient, hessian = jax.jit(jax.grad(density)), jax.jit(jax.hessian(density))
    mode = jnp.concatenate([fit.params[n].ravel() for n in layout.shapes])
    for _ in range(5):
        curvature = -np.asarray(hessian(mode), float)
        try:
            step = np.linalg.solve(curvature, np.asarray(gradient(mode), float))
        except np.linalg.LinAlgError:
            break
        closer = mode + step.astype(layout.dtype)
        if not np.isfinite(closer).all() or not float(density(closer)) >= float(density(mode)) - 1e-3:
            break
        mode = closer
    curvature = -np.asarray(hessian(mode), float)
    values = np.linalg.eigvalsh(curvature)
    if not values[0] > 0:
        raise ModelError(
            f"laplace: minus the Hessian of the log density of `{model_name(bound.structure.model)}` has the "
            f"eigenvalue {values[0]:.3g} at the point that was reached, so it is no mode: give more steps=, or use infer.full_rank"
        )
    factor = np.linalg.cholesky(np.linalg.inv(curvature))
    target = Target(bound)
    spec = _full_rank(target)
    params = {"loc": mode, **jax.tree.map(lambda x: x.astype(layout.dtype), _untriangle(factor))}
    full = Problem.of(bound.structure.model, spec, _data_of(bound), params)
    return dataclasses.replace(fit, problem=full, params=params, trained=params, identity=None, state=None)


def _data_of(bound):
    return {**bound.parts.arguments, **_with_missing(bound.parts)}


def _with_missing(parts):
    return {
        n: np.ma.masked_array(np.asarray(v), parts.missing[n]) if n in parts.missing else v
        for n, v in parts.observed.items()
    }


mean_field = Automatic("mean_field", _mean_field)
full_rank = Automatic("full_rank", _full_rank)
low_rank = Automatic("low_rank", _low_rank)
structured = Automatic("structured", _structured)
laplace = Automatic("laplace", _laplace)
map = Automatic("map", _map)
