"""Broken `data`, a thousand times over: a result of the right shape, or one of our errors that names what is wrong.

Every entry of a good mapping is replaced by something odd, dropped, or joined by an unknown one. Shapes come from a short
list, so that most cases find their structure bound already.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl
from ppl import DataError, ModelError, Normal, Poisson, Scan, StartError

SEEDS, BLOCKS = 1000, 10
SAMPLED = 12


def plain(x):
    b = yield Normal(0.0, 1.0, shape=(2,), name="b")
    yield Normal(x, 1.0, shape=(3,), name="y")
    yield Poisson(jnp.exp(b), name="k")


def model(x, n=2):
    yield from plain(x)

    def step(c, _):
        c = yield Normal(c, 1.0, name="z")
        return c, None

    yield Scan(step, 0.0, length=n, name="s")


GOOD = {
    "x": np.zeros(3, np.float32),
    "n": 2,
    "y": np.array([0.1, 0.2, 0.3], np.float32),
    "k": np.array([1, 2]),
    "s/z": np.zeros(2, np.float32),
}
DOWNSTREAM = {"x": ("'y'",), "n": ("'s'", "'s/z'"), "b": ("'k'",)}  # who meets a bad value first
NAMES = ("x", "n", "y", "k", "s/z", "b")


def odd(rng, value):
    """Return something in place of `value`."""
    value = np.asarray(value)
    floats = np.array(value, float)
    first = (0,) * value.ndim
    kinds = {
        "nan": lambda: _with(floats, first, np.nan),
        "all nan": lambda: np.full(value.shape, np.nan),
        "infinite": lambda: _with(floats, first, rng.choice([np.inf, -np.inf])),
        "huge": lambda: floats + 1e30,
        "beyond single precision": lambda: floats + 1e300,
        "subnormal": lambda: floats + 1e-42,
        "negative": lambda: -floats - 1,
        "halves": lambda: floats + 0.5,
        "huge integers": lambda: np.asarray(value, int) + 2**40,
        "unsigned": lambda: np.asarray(abs(value), np.uint8),
        "half precision": lambda: floats.astype(np.float16),
        "big endian": lambda: floats.astype(">f8"),
        "bools": lambda: value.astype(bool),
        "complex": lambda: floats + 1j,
        "text": lambda: value.astype(str),
        "bytes": lambda: value.astype("S"),
        "dates": lambda: np.zeros(value.shape, "M8[s]"),
        "objects": lambda: np.full(value.shape, object(), dtype=object),
        "numbers as objects": lambda: floats.astype(object),
        "records": lambda: np.zeros(value.shape, [("a", float)]),
        "none": lambda: None,
        "none inside": lambda: [None] * 3,
        "empty": lambda: np.zeros(0),
        "empty list": lambda: [],
        "0-d": lambda: np.asarray(float(rng.integers(3))),
        "a number": lambda: float(rng.normal()),
        "an integer": lambda: int(rng.integers(-2, 4)),
        "a bool": lambda: bool(rng.integers(2)),
        "a word": lambda: "word",
        "a tuple": lambda: (1, 2, 3),
        "a set": lambda: {1, 2},
        "a dict": lambda: {"a": floats},
        "a function": lambda: np.exp,
        "a class": lambda: float,
        "a generator": lambda: (i for i in range(3)),
        "ragged": lambda: [[1.0], [1.0, 2.0]],
        "too short": lambda: floats.ravel()[:1],
        "too long": lambda: np.concatenate([floats.ravel(), floats.ravel()]),
        "a column": lambda: floats.reshape(-1, 1),
        "rank 4": lambda: floats.reshape(1, 1, 1, -1),
        "not contiguous": lambda: np.stack([floats, floats], -1)[..., 0],
        "reversed": lambda: floats.ravel()[::-1],
        "read only": lambda: np.broadcast_to(1.0, value.shape),
        "masked": lambda: np.ma.masked_array(floats, np.arange(value.size).reshape(value.shape) == 0),
        "all masked": lambda: np.ma.masked_all(value.shape),
        "jax": lambda: jnp.asarray(floats),
        "jax key": lambda: jax.random.key(0),
        "random variable": lambda: Normal(0.0, 1.0, name="stray"),
        "a list": lambda: value.tolist(),
    }
    kind = rng.choice(list(kinds))
    return kind, kinds[kind]()


def _with(array, index, entry):
    array = array.copy()
    array[index] = entry
    return array


def spoil(rng):
    """Return `(what was done, the name it was done to, data)`."""
    data = dict(GOOD)
    name = str(rng.choice(NAMES))
    action = rng.choice(["replace"] * 8 + ["drop", "add"])
    if action == "drop":
        data.pop(name, None)
        return "drop", name, data
    kind, value = odd(rng, GOOD.get(name, np.zeros(2)))
    if action == "add":
        name = str(rng.choice(["Y", "s/zz", "s", "", "x y"]))
    data[name] = value
    return kind, name, data


def attempt(rng, data):
    """Use `data` in one of the ways there are; check the shapes of a result."""
    way = rng.integers(4)
    if way == 0:
        ppl.bind(model, data)
    elif way == 1:
        density = ppl.log_density(model, data)
        position = {n: jnp.zeros(latent.free_shape, latent.dtype) for n, latent in density.latents.items()}
        assert jax.eval_shape(density, position).shape == ()
        natural = jax.eval_shape(density.constrain, position)
        assert all(natural[n].shape == latent.shape for n, latent in density.latents.items())
    elif way == 2:
        few = {n: v for n, v in data.items() if n != "n" and n != "s/z"}  # a loop compiles at each uncompiled run
        trace = ppl.trace(plain, few)
        assert trace["y"].value.shape == trace["y"].log_prob.shape == (3,)
        assert jnp.shape(trace.log_joint) == ()
    else:
        shapes = jax.eval_shape(lambda: ppl.sample(model, 0, data))
        assert shapes["k"].shape == shapes["b"].shape == (2,)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_broken_data_give_a_result_or_an_error_that_names_the_entry(block):
    for i in range(SEEDS // BLOCKS):
        rng = np.random.default_rng([block, i])
        kind, name, data = spoil(rng)
        try:
            attempt(rng, data)
        except (ModelError, DataError, StartError) as e:
            text = str(e)
            named = (repr(name), *DOWNSTREAM.get(name, ()))
            assert any(n in text for n in named), f"{kind} in {name!r}: {text}"
            assert len(text) < 600
        except Exception as e:
            raise AssertionError(f"{kind} in {name!r} gave {type(e).__name__}: {e}") from e


@pytest.mark.filterwarnings("ignore::ppl.InferenceWarning")
def test_broken_data_give_draws_or_an_error_that_names_the_entry():
    """A few of them through a sampler: what it returns is finite and of the right shape."""
    drawn = 0
    for i in range(SAMPLED):
        kind, name, data = spoil(np.random.default_rng([BLOCKS, i]))
        few = {n: v for n, v in data.items() if n not in ("n", "s/z")}
        try:
            posterior = ppl.infer.hmc(plain, few, chains=2, draws=5, warmup=5, num_steps=2, progress=False)
        except (ModelError, DataError, StartError) as e:
            nothing_left = name == "b" and "no latent variable left" in str(e)
            named = any(n in str(e) for n in (repr(name), *DOWNSTREAM.get(name, ())))
            assert named or nothing_left, f"{kind} in {name!r}: {e}"
        else:
            drawn += 1
            for variable, draws in posterior.items():
                assert draws.shape[:2] == (2, 5) and np.isfinite(draws).all(), f"{kind} in {name!r}: {variable}"
    assert 0 < drawn < SAMPLED


def test_a_generator_in_place_of_data_is_refused_by_name():
    with pytest.raises(DataError, match="'y'"):
        ppl.infer.hmc(plain, {"x": GOOD["x"], "y": (y for y in GOOD["y"])}, progress=False)
