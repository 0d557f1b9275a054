"""A use of every public name, as type checkers must accept it. Not run: only checked."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import ppl
from ppl import (
    Affine,
    Autoregressive,
    Bernoulli,
    Beta,
    BetaBinomial,
    Binomial,
    Categorical,
    Cauchy,
    Censored,
    Chain,
    Chi2,
    Coupling,
    DataError,
    Deterministic,
    Dirichlet,
    DirichletMultinomial,
    DiscreteUniform,
    Exponential,
    Factor,
    Flat,
    Foreign,
    FormatError,
    Gamma,
    Geometric,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    HalfStudentT,
    InferenceWarning,
    Inverse,
    InverseGamma,
    Kumaraswamy,
    Laplace,
    LKJCholesky,
    Logistic,
    LogNormal,
    Map,
    Mixture,
    ModelError,
    Multinomial,
    MultivariateNormal,
    MultivariateStudentT,
    NegativeBinomial,
    Normal,
    OrderedLogistic,
    Pareto,
    Poisson,
    Posterior,
    RandomVariable,
    Reverse,
    Scan,
    Shift,
    SkewNormal,
    StartError,
    StudentT,
    Tanh,
    Trace,
    Transformed,
    Truncated,
    TruncatedNormal,
    Uniform,
    VonMises,
    Weibull,
    Wishart,
    ZeroInflated,
    infer,
    random_variable,
    supports,
)
from ppl.data import SCHOOLS, covertype, eight_schools, fetch, mnist, movielens, synthetic_ratings

Model = Generator[Any, Any, Any]


def schools(sigma: jax.Array) -> Model:
    """Hierarchy."""
    mu = yield Normal(0.0, 5.0, name="mu")
    tau = yield HalfNormal(5.0, name="tau")
    theta = yield Normal(mu, tau, shape=sigma.shape, name="theta")
    yield Normal(theta, sigma, name="y")
    yield Deterministic(theta - mu, name="effect")
    yield Factor(-0.5 * mu**2, name="nudge")
    return {"effect": theta - mu}


def families() -> list[RandomVariable]:
    """One of each."""
    half = jnp.array([0.5, 0.5])
    return [
        Normal(0.0, 1.0),
        LogNormal(0.0, 1.0),
        HalfNormal(1.0),
        TruncatedNormal(0.0, 1.0, low=0.0),
        StudentT(3.0, 0.0, 1.0),
        HalfStudentT(3.0, 1.0),
        Cauchy(0.0, 1.0),
        HalfCauchy(1.0),
        Laplace(0.0, 1.0),
        Logistic(0.0, 1.0),
        Gumbel(0.0, 1.0),
        Exponential(1.0),
        Gamma(2.0, 1.0),
        InverseGamma(2.0, 1.0),
        Weibull(1.0, 1.0),
        Pareto(1.0, 1.0),
        Chi2(3.0),
        Beta(1.0, 1.0),
        Uniform(0.0, 1.0),
        VonMises(0.0, 1.0),
        Kumaraswamy(1.0, 1.0),
        SkewNormal(0.0, 1.0, 1.0),
        Flat(supports.positive),
        Bernoulli(probs=0.5),
        Bernoulli(logits=np.zeros(3)),
        Binomial(10, probs=0.5),
        BetaBinomial(10, 1.0, 1.0),
        Geometric(0.5),
        Poisson(3.0),
        NegativeBinomial(3.0, 1.0),
        DiscreteUniform(0, 3),
        Categorical(probs=half),
        OrderedLogistic(0.0, jnp.array([-1.0, 1.0])),
        Multinomial(5, half),
        DirichletMultinomial(5, half),
        Dirichlet(half),
        MultivariateNormal(jnp.zeros(2), covariance=jnp.eye(2)),
        MultivariateStudentT(3.0, jnp.zeros(2), scale_tril=jnp.eye(2)),
        LKJCholesky(2, 1.0),
        Wishart(3.0, jnp.eye(2)),
        Mixture(half, [Normal(0.0, 1.0), StudentT(3.0)]),
        Truncated(Normal(0.0, 1.0), low=0.0),
        Censored(Normal(0.0, 1.0), high=1.0),
        ZeroInflated(Poisson(3.0), 0.1),
        Transformed(Normal(0.0, 1.0), Affine(1.0, 2.0)),
        Transformed(Normal(0.0, 1.0), Tanh()),
        Transformed(Normal(0.0, 1.0, shape=(2,)), Chain([Coupling.init(jax.random.key(0), 2), Reverse()])),
        Transformed(Normal(0.0, 1.0, shape=(2,)), Inverse(Autoregressive.init(jax.random.key(0), 2))),
        Transformed(Normal(0.0, 1.0, shape=(2,)), Shift(jnp.zeros(2), jnp.zeros(2))),
    ]


def outside_a_model(key: jax.Array) -> jax.Array:
    """A random variable is of use by itself."""
    rv = Normal(0.0, 1.0, shape=(3,), name="x", weight=0.5, sharding=P("rows"))
    moved = rv.replace(loc=1.0)
    total: jax.Array = moved.log_prob(rv.sample(key)).sum() + rv.mean + rv.variance + rv.cdf(0.5) + rv.icdf(0.5)
    return total


@random_variable
class Half(RandomVariable):
    """A family of a user's own."""

    scale: Any = 1.0
    support = supports.positive
    domain = dict(scale=supports.positive)

    def sample(self, key: Any) -> jax.Array:
        """Draw."""
        return jnp.ones(self.shape)

    def log_prob(self, x: Any) -> jax.Array:
        """Log density."""
        return -x / self.scale


def loops(xs: jax.Array) -> Model:
    """Programs that a model yields."""

    def step(carry: jax.Array, x: jax.Array) -> Model:
        new = yield Normal(carry, 1.0, name="level")
        return new, new

    def group(x: jax.Array) -> Model:
        return (yield Normal(x, 1.0, name="b"))

    carry, out = yield Scan(step, jnp.zeros(()), xs, name="path")
    groups = yield Map(group, xs, name="g")
    slope = yield from ppl.scope("slopes", schools(xs))
    return carry, out, groups, slope


def handled(key: jax.Array) -> None:
    """Handlers are functions from model to model."""
    model = ppl.noncentered(schools, "theta")
    model = ppl.condition(model, y=jnp.zeros(8))
    model = ppl.do(model, tau=1.0)
    model = ppl.substitute(model, {"mu": 0.0})
    model = ppl.reweight(model, y=0.5)
    model = ppl.mask(model, y=jnp.ones(8, bool))
    model = ppl.shard(model, theta=P("rows"))
    model = ppl.block(model, "mu", key=key)
    data = eight_schools()
    table: Trace = ppl.trace(model, data, key=key)
    model = ppl.replay(model, table)

    def respond(rv: Any) -> Model:
        return (yield rv)

    ppl.handler(model, respond)
    for rv in ppl.handle(schools(jnp.ones(8)), respond):
        print(rv)
    ppl.sample(model, key, data)
    ppl.log_joint(model, {"mu": 0.0}, data)
    print(ppl.linear(jnp.ones((4, 2)), jnp.ones(2), 0.5).shape)
    density = ppl.log_density(model, data)
    value: jax.Array = density(density.initial(key=0))
    bound = ppl.bind(model, data)
    print(value, bound, Foreign)


def inference(file: Path) -> Posterior:
    """From data to a result, and what follows from it."""
    data = {**eight_schools()}
    posterior = infer.hmc(schools, data, chains=4, draws=1000, warmup=400, seed=0, target_accept=0.9)
    posterior = infer.nuts(
        schools, data, seed=jax.random.key(0), dims={"theta": ["school"]}, coords={"school": SCHOOLS}
    )
    mesh, rows = jax.make_mesh((1, 1), ("chains", "rows")), {"sigma": P("rows"), "theta": P("rows")}
    print(ppl.plan(schools, data, mesh=mesh, sharding=rows, chains=2, draws=10).notes)
    padded, longer = ppl.pad(schools, data, mesh=mesh, sharding=rows)
    posterior = infer.hmc(padded, longer, mesh=mesh, sharding=rows)
    theta: np.ndarray = ppl.gather(posterior["theta"])
    local = ppl.from_process_local(data, mesh=mesh, sharding={"sigma": P("rows")})
    posterior = infer.nuts(schools, local, sharding={"theta": P("rows")})
    sizes = [len(load()) for load in (mnist, covertype, movielens, synthetic_ratings)]
    print(theta.shape, sizes, infer.predict(schools, posterior, data, mesh=mesh, sharding=rows))
    posterior = infer.metropolis(
        schools, data, draws=100_000, target_accept=0.3, scale=0.1, keep=["mu"], progress=False
    )
    calibration: infer.Calibration = infer.calibrate(schools, data, observed=["y"], sampler=infer.hmc, simulations=100)
    prior: infer.Posterior = infer.prior(schools, data, draws=10)
    new = infer.predict(schools, posterior, {"sigma": data["sigma"]})
    effect = infer.returned(schools, posterior, data)["effect"]
    pointwise = infer.log_likelihood(schools, posterior, data)["y"]
    print(prior, new, effect, pointwise, posterior["theta"].mean(), posterior.summary())
    print(posterior.to_arviz(schools, data, prior=prior, predictions=new, new_data={"sigma": data["sigma"]}))
    print(calibration, ppl.versions(), ppl.__version__)
    posterior.save(file)
    return ppl.load(file)


def guide(q: Any) -> Model:
    """A guide of one's own."""
    yield Normal(q["mu"], 1.0, name="mu")
    yield HalfNormal(jnp.exp(q["tau"]), name="tau")
    yield Normal(q["theta"], 1.0, name="theta")


def variational() -> infer.Fit:
    """Guides, objectives and what a fit is of use for."""
    data = {**eight_schools()}
    init = {"mu": 0.0, "tau": 0.0, "theta": jnp.zeros(8)}
    fit: infer.Fit = infer.vi(schools, guide, data, init=init, objective=infer.elbo, steps=100, progress=False)
    for automatic in (infer.mean_field, infer.full_rank, infer.structured, infer.laplace, infer.map, infer.flow):
        fit = infer.vi(schools, automatic, data, seed=1)
    fit = infer.vi(schools, infer.low_rank(rank=2), data, objective=infer.renyi(0.5), optimizer=0.01)
    for objective in (infer.importance_weighted, infer.forward_kl, infer.density_ratio(lambda q, values: values["mu"])):
        state, step = infer.vi_step(schools, guide, data, init=init, objective=objective)
        state, info = step(state, jax.random.key(0))
        print(info.objective, state.params)
    fit = infer.pathfinder(schools, data, paths=4)
    posterior = infer.nuts(infer.neutra(schools, fit), data, init=fit)
    print(posterior, fit.params, fit.trail, fit.pareto_k, fit.converged, fit.verdict(), fit.log_weights(10))
    print(fit.posterior(draws=10)["mu"])
    return fit


def careful(file: Path) -> None:
    """Errors and warnings have types of their own."""
    try:
        ppl.load(file)
    except (ModelError, DataError, StartError, FormatError) as e:
        print(e, InferenceWarning, ppl.ModelWarning)
    fetch("table.csv", "https://example.org/table.csv", "0" * 64, local=file)
    print(ppl.data, ppl.distributions, ppl.supports)
