"""Meshes and models that the tests of sharding share."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import ppl
from ppl import Bernoulli, HalfNormal, Normal
from ppl.inference import chains, chunk, spread
from ppl.inference import mesh as meshes
from ppl.inference.start import Layout, seed_words

MESHES = ("1", "2", "4", "8", "2x4", "8 explicit", "2x4 explicit")


def mesh_of(name):
    """Return a mesh by its name: "2x4" is two groups for chains, of four devices for rows."""
    shape, _, kind = name.partition(" ")
    shape = tuple(int(n) for n in shape.split("x"))
    axes = ("chains", "rows")[-len(shape) :]
    types = (AxisType.Explicit if kind else AxisType.Auto,) * len(axes)
    return jax.make_mesh(shape, axes, axis_types=types, devices=jax.devices()[: int(np.prod(shape))])


def logistic(X):
    """Shared latents, rows of data."""
    w = yield Normal(0.0, 1.0, shape=(X.shape[1],), name="w")
    b = yield Normal(0.0, 1.0, name="b")
    yield Bernoulli(logits=X @ w + b, name="y")


_rng = np.random.default_rng(0)
_X = _rng.normal(size=(64, 3)).astype(np.float32)
LOGISTIC = {"X": _X, "y": (_X[:, 0] + _rng.normal(size=64) > 0).astype(np.int32)}
LOGISTIC_ROWS = {"X": P("rows"), "y": P("rows")}


def factors(num_users):
    """Users' rows of latents lie with their rows of data; movies are shared."""
    spread_of_users = yield HalfNormal(1.0, name="spread")
    users = yield Normal(0.0, spread_of_users, shape=(num_users, 2), name="users")
    movies = yield Normal(0.0, 1.0, shape=(6, 2), name="movies")
    yield Normal(users @ movies.T, 0.5, name="rating")
    yield ppl.Deterministic(jnp.sum(users**2, 1), name="length")


FACTORS = {"num_users": 48, "rating": _rng.normal(size=(48, 6)).astype(np.float32)}
FACTORS_ROWS = {"users": P("rows"), "rating": P("rows"), "length": P("rows")}


def program_on(model, data, mesh, sharding, kernel, number=2, **options):
    """Return `(program, state, arrays, options)` of a run on a mesh, ready to be called or compiled."""
    board, data = spread.board(mesh, sharding, data)
    with board.active:
        bound = ppl.bind(model, data)
        layout = Layout.of(bound.structure)
        placed = spread.Spread.of(board, bound)
        told = chunk.options(num_warmup=10, **options)
        metric = "dense" if placed.flat and kernel != "metropolis" else "diagonal"  # as the samplers choose
        job = chains.Job(kernel, chains=number, draws=10, warmup=10, metric=metric, options=told)
        arrays = placed.lay(bound.arrays)
        program = meshes.prepare(bound, layout, job, placed)
        block = meshes.first_states(bound, layout, job, program, seed_words(0), None)[0]
        return program, block.state, arrays, job.options


def text_on(*arguments, **options):
    """Return the compiled text of a run's program on a mesh."""
    program, state, arrays, told = program_on(*arguments, **options)
    return program.compiled_text(state, arrays, np.int32(5), told)
