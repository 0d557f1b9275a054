"""What follows from draws: predictions, returned values, pointwise log likelihoods; and draws from the prior.

Each runs the model once for every draw, in batches compiled once.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppl.errors import ModelError, listed
from ppl.inference import spread
from ppl.inference.over_draws import over_draws
from ppl.inference.posterior import Posterior
from ppl.inference.start import seed_words
from ppl.tracing.bind import bind, signature
from ppl.tracing.handle import model_name
from ppl.tracing.programs import as_key
from ppl.version import versions

BATCH_BYTES = 64e6


def prior(
    model: Callable[..., Any],
    data: Mapping[str, Any] | None = None,
    *,
    draws: int = 1000,
    chains: int = 1,
    seed: Any = 0,
    batch: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
    sharding: Mapping[str, Any] | None = None,
) -> Posterior:
    """Draw from the model before it sees observations: a `Posterior` like any other, observed variables included.

      >>> prior = infer.prior(coin, draws=5)
      >>> prior["p"].shape, prior["y"].shape
      ((1, 5), (1, 5, 4))

    Args:
      model: a generator function.
      data: its arguments. Observed variables in it are drawn, not fixed.
      draws: how many draws each chain has.
      chains: how many chains; draws are independent in any case.
      seed: an int or a jax key.
      batch: how many draws are made at once; by default as many as fit into 64 MB.
      mesh: devices to run on, as for the samplers.
      sharding: what lies on which of them, as for the samplers. Results of divided variables stay on their devices.
    """
    return _on(mesh, sharding, data, None, lambda board, data: _prior(board, model, data, draws, chains, seed, batch))


def _prior(board, model, data, draws, chains, seed, batch):
    began = time.perf_counter()
    bound = bind(model, _arguments(model, data))

    def one(key, values, arrays):
        _, sites = bound.structure.run(arrays, key=key, density=False)
        return {n: s.value for n, s in sites.items()}

    out = _over_draws(board, bound, ("prior",), one, {}, (chains, draws), seed, batch)
    out = {n: out[n] for n in bound.structure.families if n in out}
    return _result("prior", model, out, seed, began)


def predict(
    model: Callable[..., Any],
    posterior: Posterior | Mapping[str, Any],
    data: Mapping[str, Any] | None = None,
    *,
    seed: Any = 0,
    batch: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
    sharding: Mapping[str, Any] | None = None,
) -> Posterior:
    """Draw new observations: one for each posterior draw of the latent variables.

      >>> infer.predict(coin, {"p": [[0.5, 0.9, 0.1]]})["y"].shape
      (1, 3, 4)

    Args:
      model: a generator function; the fitted one, or one whose latent variables have the same names.
      posterior: what a sampler returned, or a mapping from names to arrays [chain, draw, ...].
      data: the model's arguments, perhaps other ones than it was fitted to. Observed variables are always drawn anew,
        so whether they stand in `data` makes no difference, with one exception: inside a loop that is longer than the
        value given, the first steps are as given and the rest is drawn (a forecast).
      seed: an int or a jax key.
      batch: how many draws are made at once; by default as many as fit into 64 MB.
      mesh: devices to run on, as for the samplers.
      sharding: what lies on which of them, as for the samplers. Results of divided variables stay on their devices.

    Returns a `Posterior` of what was drawn, of shape [chain, draw, ...] each.
    """
    return _on(
        mesh, sharding, data, posterior, lambda board, data: _predict(board, model, posterior, data, seed, batch)
    )


def _predict(board, model, posterior, data, seed, batch):
    began = time.perf_counter()
    draws = _draws(posterior)
    bound = bind(model, _forecast(model, data))
    partly = posterior.settings.get("observed", []) if isinstance(posterior, Posterior) else []  # entries were missing
    given = [n for n in draws if n in bound.structure.latents and n not in partly]
    _all_kept(posterior, bound)
    fresh = [n for n in bound.structure.families if n not in given and n not in bound.structure.derived]
    if not fresh:
        raise ModelError(
            f"nothing is left to draw: the posterior has every variable of `{model_name(model)}` ({listed(given)})"
        )

    def one(key, values, arrays):
        _, sites = bound.structure.run(arrays, key=key, values=values, density=False)
        return {n: sites[n].value for n in sites if n in fresh or (n in bound.structure.derived and n not in draws)}

    lead = np.shape(draws[given[0]])[:2] if given else _lead(posterior)
    out = _over_draws(board, bound, ("predict", tuple(given)), one, {n: draws[n] for n in given}, lead, seed, batch)
    out = {n: out[n] for n in bound.structure.families if n in out}
    return _result("predict", model, out, seed, began)


def returned(
    model: Callable[..., Any],
    posterior: Posterior | Mapping[str, Any],
    data: Mapping[str, Any] | None = None,
    *,
    seed: Any = 0,
    batch: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
    sharding: Mapping[str, Any] | None = None,
) -> Any:
    """Return what the model returns, for each posterior draw: its pytree with arrays [chain, draw, ...].

    Args:
      model: a generator function.
      posterior: what a sampler returned, or a mapping from names to arrays [chain, draw, ...].
      data: the model's arguments and, if the result depends on them, its observed values; those absent are drawn.
      seed: an int or a jax key, for what is drawn.
      batch: how many draws are made at once; by default as many as fit into 64 MB.
      mesh: devices to run on, as for the samplers.
      sharding: what lies on which of them, as for the samplers. Results of divided variables stay on their devices.
    """
    return _on(
        mesh, sharding, data, posterior, lambda board, data: _returned(board, model, posterior, data, seed, batch)
    )


def _returned(board, model, posterior, data, seed, batch):
    draws = _draws(posterior)
    bound = bind(model, data)
    given = {n: draws[n] for n in draws if n in bound.structure.latents}
    _all_kept(posterior, bound)

    def one(key, values, arrays):
        value, _ = bound.structure.run(arrays, key=key, values=values, density=False)
        return jax.tree.map(jnp.asarray, value)

    return _over_draws(board, bound, ("returned", tuple(given)), one, given, _lead(posterior), seed, batch)


def log_likelihood(
    model: Callable[..., Any],
    posterior: Posterior | Mapping[str, Any],
    data: Mapping[str, Any] | None = None,
    *,
    batch: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
    sharding: Mapping[str, Any] | None = None,
) -> dict[str, np.ndarray]:
    """Return the pointwise log likelihood: `{observed name: [chain, draw, ...]}`, one entry for each observation, unsummed.

    Args:
      model: a generator function.
      posterior: what a sampler returned, or a mapping from names to arrays [chain, draw, ...].
      data: arguments and observed values.
      batch: how many draws are computed at once; by default as many as fit into 64 MB.
      mesh: devices to run on, as for the samplers.
      sharding: what lies on which of them, as for the samplers. Results of divided variables stay on their devices.
    """
    return _on(
        mesh, sharding, data, posterior, lambda board, data: _log_likelihood(board, model, posterior, data, batch)
    )


def _log_likelihood(board, model, posterior, data, batch):
    bound = bind(model, data)
    if not bound.structure.observed:
        raise ModelError(
            f"data observes no random variable of `{model_name(model)}` ({listed(bound.structure.families)}): "
            "the log likelihood needs the values of at least one"
        )
    given = _latents(posterior, bound)

    def one(key, values, arrays):
        _, sites = bound.structure.run(arrays, values=values)
        return {n: sites[n].log_prob for n in bound.structure.observed}

    return _over_draws(board, bound, ("log_likelihood", tuple(given)), one, given, _lead(posterior), 0, batch)


def log_prior(model, posterior, data=None, *, batch=None, mesh=None, sharding=None):
    """Return the log densities of the latent variables given those before them, and their free values.

    Both by name, [chain, draw, ...], a log density for each batch element. Left out are the log densities of missing
    entries of observed variables, and the free values of discrete variables.
    """
    return _on(mesh, sharding, data, posterior, lambda board, data: _log_prior(board, model, posterior, data, batch))


def _log_prior(board, model, posterior, data, batch):
    bound = bind(model, data)
    structure, given = bound.structure, _latents(posterior, bound)

    def one(key, values, arrays):
        _, sites = structure.run(arrays, values=values)
        densities = {n: sites[n].log_prob for n, latent in structure.latents.items() if not latent.missing}
        free = [n for n, latent in structure.latents.items() if latent.free_shape is not None]
        return densities, {n: structure.part(n, sites[n].free) for n in free}

    return _over_draws(board, bound, ("log_prior", tuple(given)), one, given, _lead(posterior), 0, batch)


def _latents(posterior, bound):
    """Return the draws of every latent variable; refuse if some were not kept."""
    draws = _draws(posterior)
    lost = [n for n in bound.structure.latents if n not in draws]
    if lost:
        raise ModelError(
            f"the posterior has no draws of {lost[0]!r}, on which the likelihood depends: keep it when sampling"
        )
    return {n: draws[n] for n in bound.structure.latents}


def _on(mesh, sharding, data, posterior, function):
    """Return `function(board, data)`, run on the mesh that was given or that data or draws lie on, or on one device."""
    board, data = spread.board(mesh, sharding, data, None if posterior is None else _draws(posterior))
    with contextlib.nullcontext() if board is None else board.active:
        return function(board, data)


def _arguments(model, data):
    """Return the entries of `data` that are arguments of the model."""
    names = signature(model)
    return {n: v for n, v in (data or {}).items() if n in names}


def _forecast(model, data):
    """Return `data` without observed values, except those that are shorter than the loop they belong to."""
    arguments = _arguments(model, data)
    others = {n: v for n, v in (data or {}).items() if n not in arguments}
    if not others:
        return arguments
    structure = bind(model, arguments).structure
    latents = structure.latents
    short = {
        n: v
        for n, v in others.items()
        if n in latents and np.ndim(v) and "/" in n and np.shape(v)[0] < (latents[n].shape or (0,))[0]
    }
    unknown = {n: v for n, v in others.items() if n not in structure.families}
    return {**arguments, **short, **unknown}  # unknown names are refused by `bind`


def _draws(posterior):
    return posterior.draws if isinstance(posterior, Posterior) else dict(posterior)


def _lead(posterior):
    first = next(iter(_draws(posterior).values()), None)
    if first is None:
        raise ModelError("the posterior holds no draws: keep at least one variable when sampling")
    return np.shape(first)[:2]


def _all_kept(posterior, bound):
    """Refuse to draw a latent variable of the fit from its prior because its draws were not kept."""
    fitted = posterior.settings.get("latents", []) if isinstance(posterior, Posterior) else []
    lost = [n for n in fitted if n not in posterior.draws and n in bound.structure.latents]
    if lost:
        raise ModelError(f"the posterior has no draws of {lost[0]!r}, which the model needs: keep it when sampling")


def _over_draws(board, bound, name, one, values, lead, seed, batch):
    """Run `one(key, values, arrays)` for every draw, in compiled batches; returns numpy arrays [chain, draw, ...]."""
    if board is not None:
        return over_draws(bound, spread.Spread.of(board, bound, values), name, one, values, lead, seed, batch)
    compiled = bound.structure.compiled
    if name not in compiled:
        compiled[name] = jax.jit(
            lambda root, index, values, arrays: jax.vmap(
                lambda i, v: one(jax.random.fold_in(root, i), v, arrays)
            )(index, values)
        )  # fmt: skip
    root = as_key(seed)
    count = int(np.prod(lead))
    flat = {n: np.asarray(v).reshape(count, *np.shape(v)[2:]) for n, v in values.items()}
    arrays = jax.device_put(bound.arrays)
    if count == 0:
        raise ModelError("the posterior holds no draws")
    if batch is None:
        row = jax.eval_shape(compiled[name], root, jax.ShapeDtypeStruct((1,), jnp.int32), _rows(flat, 0, 1), arrays)
        size = sum(np.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves((row, _rows(flat, 0, 1))))
        batch = int(np.clip(BATCH_BYTES // max(size, 1), 1, count))
    batch = min(int(batch), count)
    out = None
    for first in range(0, count, batch):
        first = min(first, count - batch)  # the last batch overlaps the one before: equal shapes, one program
        part = compiled[name](root, np.arange(first, first + batch, dtype=np.int32), _rows(flat, first, batch), arrays)
        part = jax.device_get(part)
        if out is None:
            out = jax.tree.map(lambda x: np.empty((count, *x.shape[1:]), x.dtype), part)
        for whole, piece in zip(jax.tree.leaves(out), jax.tree.leaves(part), strict=True):
            whole[first : first + batch] = piece
    return jax.tree.map(lambda x: x.reshape(*lead, *x.shape[1:]), out)


def _rows(flat, first, count):
    return {n: v[first : first + count] for n, v in flat.items()}


def _result(algorithm, model, draws, seed, began):
    first = next(iter(draws.values()))
    return Posterior(
        draws=draws,
        stats={},
        settings={
            "algorithm": algorithm,
            "model": model_name(model),
            "chains": first.shape[0],
            "draws": first.shape[1],
        },
        timings={"total": time.perf_counter() - began},
        seed=[int(w) for w in seed_words(seed)],
        versions=versions(),
    )
