"""Logistic regression on Covertype, 581,012 rows and 55 columns: microseconds per leapfrog, which reads all data.

The protocol of Tran et al. (2018), with its labels: class 1 against the others, standardised columns and an intercept,
standard normal coefficients, a start in the posterior's bulk, the step size 0.00167132, no adaptation. Trajectories are
31 steps long (trees of depth 5): the time of a leapfrog does not depend on it.

`COVERTYPE` (or `--covertype`) is the file covertype.npz; without it, data of the same shape are made up. PyMC and nutpie
compute in double precision, and only their gradient is timed.
"""

import os

import numpy as np

SHAPE = 581_012, 55
STEP, DEPTH, STEPS = 0.00167132, 5, 31
OPTIONS = {"chains": 1, "draws": 20, "warmup": 0, "repeats": 3, "most_seconds": 20, "save": False}
BYTES = SHAPE[0] * SHAPE[1] * 4


def data(seed):
    path = os.environ.get("COVERTYPE")
    if path:
        file = np.load(path)
        columns = [file["numeric_t"].T, np.eye(4)[file["wilderness"]], np.eye(40)[file["soil"]]]
        X, y = np.concatenate(columns, 1, dtype=np.float32), file["cover_type"] == 1 + seed
        X = (X - X.mean(0)) / X.std(0)
    else:
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((SHAPE[0], SHAPE[1] - 1), np.float32)
        y = rng.random(SHAPE[0], np.float32) < 1 / (1 + np.exp(-X[:, 0]))
    return {"X": np.concatenate([X, np.ones_like(X[:, :1])], 1), "y": y.astype(np.int32)}


def start(data):
    """Return the mode, by Newton's method."""
    X, y, w = data["X"], data["y"], np.zeros(SHAPE[1], np.float32)
    for _ in range(6):
        p = 1 / (1 + np.exp(-(X @ w)))
        w += np.linalg.solve((X.T * (p * (1 - p))) @ X + np.eye(SHAPE[1]), X.T @ (y - p) - w).astype(np.float32)
    return w


def plain(X):
    from ppl import Bernoulli, Normal

    w = yield Normal(0.0, 1.0, shape=X.shape[1], name="w")
    yield Bernoulli(logits=X @ w, name="y")


def known_predictor(X):
    import ppl

    w = yield ppl.Normal(0.0, 1.0, shape=X.shape[1], name="w")
    yield ppl.Bernoulli(logits=ppl.linear(X, w), name="y")


def log_density(w, X, y):
    import jax

    logits = X @ w
    return (y.astype(logits.dtype) * logits - jax.nn.softplus(logits)).sum() - (w**2).sum() / 2


def repeating(run_once):
    """Return a runner whose starts, slow to find, are kept."""
    starts = {}

    def run(data, seed):
        key = int(data["y"].sum())
        if key not in starts:
            starts[key] = start(data)
        steps = run_once(data, starts[key], seed)
        return {"draws": {}, "print": lambda: print(steps), "steps": int(steps), "warmup_steps": 0, "seconds": None}

    return run


def ppl_runner(model):
    def runner(options):
        import ppl

        def once(data, w, seed):
            drawn = ppl.infer.nuts(
                model, data, chains=1, draws=options.draws, warmup=0, step_size=STEP, max_depth=DEPTH,
                metric="identity", init={"w": w}, seed=seed, progress=False,
            )  # fmt: skip
            return drawn.stats["n_steps"].sum()

        return repeating(once)

    return runner


def by_hand(density, arrange=lambda X: X):
    """Hamiltonian Monte Carlo by hand."""

    def runner(options):
        import jax
        import jax.numpy as jnp

        def draws(key, w, X, y):
            gradient = jax.value_and_grad(lambda w: density(w, X, y))

            def leapfrog(_, state):
                w, r, _, g = state
                r = r + STEP / 2 * g
                w = w + STEP * r
                value, g = gradient(w)
                return w, r + STEP / 2 * g, value, g

            def draw(state, key):
                w, value, g = state
                r = jax.random.normal(key, w.shape)
                new_w, new_r, new_value, new_g = jax.lax.fori_loop(0, STEPS, leapfrog, (w, r, value, g))
                change = new_value - value - ((new_r**2).sum() - (r**2).sum()) / 2
                accept = jnp.log(jax.random.uniform(jax.random.fold_in(key, 1))) < change
                state = jax.tree.map(lambda a, b: jnp.where(accept, a, b), (new_w, new_value, new_g), state)
                return state, state[0]

            return jax.lax.scan(draw, (w, *gradient(w)), jax.random.split(key, options.draws))[1]

        compiled, arranged = jax.jit(draws), {}

        def once(data, w, seed):
            if id(data) not in arranged:
                arranged[id(data)] = jnp.asarray(arrange(data["X"])), jnp.asarray(data["y"])
            compiled(jax.random.key(seed), w, *arranged[id(data)]).block_until_ready()
            return options.draws * STEPS

        return repeating(once)

    return runner


def read_once(options):
    """Sum the matrix, as often as others evaluate a gradient: the floor."""
    import jax
    import jax.numpy as jnp

    total, device = jax.jit(jnp.sum), {}

    def once(data, w, seed):
        if id(data) not in device:
            device[id(data)] = jnp.asarray(data["X"])
        for _ in range(options.draws * STEPS):
            total(device[id(data)]).block_until_ready()
        return options.draws * STEPS

    return repeating(once)


def numpyro(options):
    import jax
    import numpyro as n
    import numpyro.distributions as d

    def model(X, y):
        w = n.sample("w", d.Normal(0, 1).expand([SHAPE[1]]).to_event(1))
        n.sample("y", d.Bernoulli(logits=X @ w), obs=y)

    kernel = n.infer.NUTS(
        model, step_size=STEP, adapt_step_size=False, adapt_mass_matrix=False, max_tree_depth=DEPTH,
    )  # fmt: skip
    mcmc = n.infer.MCMC(kernel, num_warmup=0, num_samples=options.draws, num_chains=1, progress_bar=False)

    def once(data, w, seed):
        mcmc.run(jax.random.key(seed), **data, init_params={"w": w}, extra_fields=("num_steps",))
        return mcmc.get_extra_fields()["num_steps"].sum()

    return repeating(once)


def blackjax(options):
    import blackjax as b
    import jax
    import jax.numpy as jnp

    @jax.jit
    def draws(key, w, X, y):
        kernel = b.nuts(lambda w: log_density(w, X, y), STEP, jnp.ones_like(w), max_num_doublings=DEPTH)

        def step(state, key):
            state, info = kernel.step(key, state)
            return state, info.num_integration_steps

        return jax.lax.scan(step, kernel.init(w), jax.random.split(key, options.draws))[1].sum()

    return repeating(lambda data, w, seed: draws(jax.random.key(seed), w, **data).block_until_ready())


def tfp(options):
    import jax
    from tensorflow_probability.substrates import jax as t

    @jax.jit
    def draws(key, w, X, y):
        kernel = t.mcmc.NoUTurnSampler(lambda w: log_density(w, X, y), STEP, max_tree_depth=DEPTH)
        return t.mcmc.sample_chain(
            options.draws, w, kernel=kernel, seed=key, trace_fn=lambda _, results: results.leapfrogs_taken
        )[1].sum()

    return repeating(lambda data, w, seed: draws(jax.random.PRNGKey(seed), w, **data).block_until_ready())


def pymc(options):
    import pymc as pm

    functions = {}

    def once(data, w, seed):
        if id(data) not in functions:
            with pm.Model() as model:
                coefficients = pm.Normal("w", shape=SHAPE[1])
                pm.Bernoulli("y", logit_p=data["X"].astype(float) @ coefficients, observed=data["y"])
            functions[id(data)] = model.logp_dlogp_function(ravel_inputs=True)
            functions[id(data)].set_extra_values({})
        for _ in range(STEPS):
            functions[id(data)](w.astype(float))
        return STEPS

    return repeating(once)


RUNNERS = {
    "ppl": ppl_runner(plain),
    "ppl:linear": ppl_runner(known_predictor),
    "jax": by_hand(log_density),
    "jax:transposed": by_hand(lambda w, X, y: log_density(w, X.T, y), lambda X: np.ascontiguousarray(X.T)),
    "jax:read": read_once,
    "numpyro": numpyro,
    "blackjax": blackjax,
    "tfp": tfp,
    "pymc": pymc,
}
