"""Five small programs: what one can do when model, guide and inference are functions."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ppl
from ppl import Bernoulli, Beta, Deterministic, Normal, Uniform, infer
from ppl.inference import hmc

FLIPS = {"flips": np.array([1, 1, 0, 1, 1, 1, 0, 1, 1, 1])}


def coin():
    """Beta-Bernoulli: with eight heads of ten the posterior is Beta(9, 3)."""
    chance = yield Beta(1.0, 1.0, name="chance")
    yield Bernoulli(probs=chance, shape=(10,), name="flips")


def coin_guide(q):
    """The family that holds the posterior."""
    yield Beta(jnp.exp(q["heads"]), jnp.exp(q["tails"]), name="chance")


def beta_bernoulli(steps=1500):
    """Fit the guide; returns its two parameters, which should be 9 and 3."""
    fit = infer.vi(
        coin,
        coin_guide,
        FLIPS,
        init={"heads": 0.0, "tails": 0.0},
        gradient="sticking",
        optimizer=0.05,
        steps=steps,
        progress=False,
    )
    return jax.tree.map(lambda x: float(jnp.exp(x)), fit.params)


def log_joint_by_hand(values):
    """Return the log joint density as a sum that a handler takes, in ten lines: what `ppl.log_joint` does."""
    total = []

    def respond(rv):
        total.append(jnp.sum(rv.log_prob(values[rv.name])))
        return values[rv.name]
        yield  # a handler is a generator

    for _ in ppl.handle(coin(), respond):
        raise AssertionError("everything was answered")
    return sum(total)


def intervene_by_hand(model, **values):
    """An intervention: what is answered here leaves the density."""

    def respond(rv):
        return values[rv.name] if rv.name in values else (yield rv)

    return ppl.handler(model, respond)


def network(weights, x):
    """Two layers."""
    return jnp.matmul(jnp.tanh(jnp.matmul(x, weights["first"])), weights["last"])


def two_networks(x):
    """A line or a wave: a coin chooses which of two functions made the data."""
    which = yield Bernoulli(probs=0.5, name="which")
    slope = yield Normal(0.0, 1.0, name="slope")
    yield Normal(jnp.where(which > 0, slope * x, jnp.sin(3 * x) * slope), 0.1, name="y")


def coin_of_networks(q, y):
    """A guide that reads the data: a coin, and for each side a network that guesses the slope."""
    which = yield Bernoulli(logits=network(q["coin"], y), name="which")
    guesses = jnp.stack([network(q["wave"], y), network(q["line"], y)])
    yield Normal(guesses[which], jnp.exp(q["log_sd"]), name="slope")


def select_between_networks(steps=1500):
    """Return the probability that the guide gives to the side that made the data: the wave."""
    x = jnp.linspace(-1.0, 1.0, 20)
    y = 0.8 * jnp.sin(3 * x)
    key = jax.random.key(0)
    init = {
        name: {"first": 0.3 * jax.random.normal(jax.random.fold_in(key, i), (20, 8)), "last": jnp.zeros(8)}
        for i, name in enumerate(("coin", "wave", "line"))
    }
    fit = infer.vi(
        two_networks,
        coin_of_networks,
        {"x": x, "y": y},
        init={**init, "log_sd": -2.0},
        optimizer=0.02,
        steps=steps,
        progress=False,
    )
    return float(1 - np.mean(fit.posterior(1000)["which"]))


def aligned(steps=500):
    """A guide written with its own names: a map says which is which. Returns its mean, which should be 0.75."""

    def model():
        x = yield Normal(0.0, 1.0, name="x")
        yield Normal(x, 1.0, name="y")

    def guide(q):
        yield Normal(q["mean"], 0.7, name="code")

    init = {"mean": jnp.zeros(())}
    fit = infer.vi(
        model, guide, {"y": 1.5}, init=init, align={"code": "x"}, gradient="sticking", steps=steps, progress=False
    )
    return float(fit.params["mean"])


def learning_to_learn(rounds=20):
    """Learn a preconditioner through five inner steps. Returns the bound after them, before and after learning."""
    scales = jnp.array([0.1, 1.0, 3.0])

    def model():
        x = yield Normal(0.0, scales, name="x")
        yield Normal(x, 0.5 * scales, name="y")

    def guide(q):
        yield Normal(q * scales, 0.45 * scales, name="x")

    def after(log_rates, key):
        optimizer = optax.GradientTransformation(
            lambda params: optax.EmptyState(), lambda g, s, params=None: (-jnp.exp(log_rates) * g, s)
        )
        state, step = infer.vi_step(model, guide, {"y": scales}, init=jnp.zeros(3), optimizer=optimizer, samples=4)
        for _ in range(5):
            state, _ = step(state, key)
        return step(state, jax.random.key(99))[1].objective

    climb = jax.jit(jax.value_and_grad(after))
    log_rates = jnp.full(3, -4.0)
    first = float(climb(log_rates, jax.random.key(0))[0])
    for i in range(rounds):
        _, gradient = climb(log_rates, jax.random.key(i))
        log_rates = log_rates + 0.2 * jnp.sign(gradient)
    return first, float(climb(log_rates, jax.random.key(0))[0])


def transitions_in_a_guide(transitions=10):
    """A guide whose draws make Hamiltonian transitions towards the posterior before they are handed over.

    Returns the standard deviation of the guide's draws without and with them; that of the posterior is 0.7071.
    """

    def model():
        x = yield Normal(0.0, 1.0, name="x")
        yield Normal(x, 1.0, name="y")

    density = ppl.log_density(model, {"y": 1.5})
    settings = hmc.Settings(jnp.float32(0.4), jnp.int32(4))

    def guide(q):
        start = yield Normal(q["mean"], 0.1, name="start")
        noise = yield Uniform(0.0, 1.0, shape=(max(transitions, 1),), name="noise")
        state = hmc.init(density, {"x": start})
        for bits in jax.lax.bitcast_convert_type(noise, jnp.uint32)[:transitions]:
            state, _ = hmc.step(jax.random.fold_in(jax.random.key(0), bits), density, settings, state)
        yield Deterministic(state.position["x"], name="x")

    implicit = infer.density_ratio(lambda q, values: q["ratio"] * values["x"])
    fit = infer.vi(
        model, guide, {"y": 1.5}, init={"mean": 0.0, "ratio": 0.0}, objective=implicit, steps=0, progress=False
    )
    return float(np.std(fit.posterior(2000)["x"]))


def main():
    """Run all of them."""
    print("Beta-Bernoulli, posterior Beta(9, 3):", beta_bernoulli())
    values = {"chance": jnp.float32(0.7), "flips": jnp.asarray(FLIPS["flips"])}
    print("log joint by hand and by ppl:", log_joint_by_hand(values), ppl.log_joint(coin, {"chance": 0.7}, FLIPS))
    print("flips of a coin made fair:", ppl.sample(intervene_by_hand(coin, chance=0.5))["flips"])
    print("probability of the network that made the data:", select_between_networks())
    print("aligned guide, mean 0.75:", aligned())
    print("bound after five steps, before and after learning to learn:", learning_to_learn())
    print("sd of a guide without and with transitions (0.71):", transitions_in_a_guide(0), transitions_in_a_guide(10))


if __name__ == "__main__":
    main()
