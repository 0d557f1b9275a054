"""Ten mistakes that a type checker finds: each marked line is an error, and no other line is."""

import jax.numpy as jnp

import ppl
from ppl import Normal, infer


def model(x):
    """A line."""
    slope = yield Normal(0.0, 1.0, name="slope")
    yield Normal(slope * x, 1.0, name="y")


data = {"x": jnp.ones(3), "y": jnp.ones(3)}
posterior = infer.nuts(model, data)

ppl.Norml(0.0, 1.0)  # wrong: no such family
infer.hmc()  # wrong: no model
infer.hmc(model, data, draws="many")  # wrong: a number of draws is an int
infer.nuts(model, data, num_samples=100)  # wrong: the argument is called draws
infer.metropolis(model, data, max_depth=10)  # wrong: an argument of nuts
infer.predict(model)  # wrong: no posterior
print(posterior.darws)  # wrong: no such attribute
Normal("zero", 1.0)  # wrong: a parameter is a number or an array
Normal(0.0, 1.0, nme="slope")  # wrong: the field is called name
ppl.load(3)  # wrong: a path
