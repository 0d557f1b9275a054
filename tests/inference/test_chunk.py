"""The compiled part: chunks, starts, records, randomness, and how often the density appears in it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from ppl.inference import chunk

KERNELS = ["nuts", "hmc", "metropolis"]
DATA = np.array([0.5, 2.0, 1.0], np.float32)


def density(q, spread):
    return -0.5 * jnp.sum((q / spread) ** 2)


def record(q, spread):
    return {"x": q, "sum": jnp.sum(q)}


@functools.cache
def program(kernel, **choices):
    return jax.jit(chunk.build(kernel, density, record, length=choices.pop("length", 100), **choices))


def first(kernel, chain=0, seed=7, size=3, **choices):
    start = np.zeros(size, np.float32)
    return chunk.initial_state(kernel, start, start == 0, [0, seed], chain, redraw_first=True, **choices)


def drive(run, state, counts, options, data=DATA):
    """Make the calls; return the last state and all kept draws."""
    draws = []
    for count in counts:
        state, outputs = run(state, data, np.int32(count), options)
        draws.append(jax.tree.map(lambda x: np.asarray(x)[: int(outputs["kept"])], outputs["draws"]))  # noqa: B023
    return state, jax.tree.map(lambda *x: np.concatenate(x), *draws)


@pytest.mark.parametrize("kernel", KERNELS)
def test_draws_do_not_depend_on_how_they_are_cut(kernel):
    options = chunk.options(30)
    one = drive(program(kernel), first(kernel), [110], options)
    for counts in ([1] * 110, [30, 80], [29, 2, 79], [7] * 15 + [5]):
        other = drive(program(kernel), first(kernel), counts, options)
        jax.tree.map(np.testing.assert_array_equal, one, other)
    assert one[1]["x"].shape == (80, 3)


def test_a_full_buffer_ends_the_call_and_loses_nothing():
    run, options = program("nuts"), chunk.options(30)
    state, outputs = run(first("nuts"), DATA, np.int32(1000), options)
    assert (int(outputs["kept"]), int(outputs["done"])) == (100, 130)
    _, more = run(state, DATA, np.int32(20), options)
    _, whole = drive(run, first("nuts"), [65, 65, 20], options)
    np.testing.assert_array_equal(whole["x"][100:], np.asarray(more["draws"]["x"])[:20])


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_third_draw_is_every_third_draw(kernel):
    options = chunk.options(30)
    _, every = drive(program(kernel), first(kernel), [30, 60], options)
    _, third = drive(program(kernel, thin=3), first(kernel), [40, 50], options)
    np.testing.assert_array_equal(every["x"][2::3], third["x"])


def test_a_full_buffer_of_thinned_draws_is_not_written_over():
    options = chunk.options(30)
    _, every = drive(program("metropolis"), first("metropolis"), [30, 60], options)
    _, third = drive(program("metropolis", thin=3, length=7), first("metropolis"), [30, 500], options)
    np.testing.assert_array_equal(every["x"][2::3][:7], third["x"])


def test_warm_up_draws_are_kept_when_asked():
    options = chunk.options(30)
    _, without = drive(program("nuts"), first("nuts"), [90], options)
    _, with_them = drive(program("nuts", keep_warmup=True), first("nuts"), [90], options)
    assert with_them["x"].shape == (90, 3)
    np.testing.assert_array_equal(with_them["x"][30:], without["x"])


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_density_is_traced_once_and_its_gradient_stands_in_one_place(kernel):
    traces = []

    def counted(q, spread):
        traces.append(1)
        return jnp.sum(jnp.sin(q / spread)) - jnp.sum(q**2)

    run = chunk.build(kernel, counted, record, length=10)
    program = jax.make_jaxpr(run)(first(kernel), DATA, np.int32(1), chunk.options())
    assert len(traces) == 1
    assert appearances(program.jaxpr, "sin") == 1
    assert appearances(program.jaxpr, "cos") == (kernel != "metropolis")


def appearances(jaxpr, name):
    """How often a primitive stands in a program and in all programs within it."""
    count = 0
    for equation in jaxpr.eqns:
        count += equation.primitive.name == name
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "jaxpr")):
            inner = getattr(value, "jaxpr", value)
            count += appearances(inner, name) if hasattr(inner, "eqns") else 0
    return count


@pytest.mark.parametrize("kernel", KERNELS)
def test_choices_are_inputs_and_compile_nothing(kernel):
    traces = []

    def counted(q, spread):
        traces.append(1)
        return density(q, spread)

    run = jax.jit(chunk.build(kernel, counted, record, length=10))
    for options in (chunk.options(), chunk.options(3, 0.9, 4, 7)):
        for data in (DATA, 2 * DATA):
            run(first(kernel), data, np.int32(5), options)
    assert len(traces) == 1


def test_chains_and_seeds_share_no_randomness():
    words = {tuple(chunk.chain_words([0, seed], chain)) for seed in range(30) for chain in range(30)}
    assert len(words) == 900
    assert len({high for high, _ in words}) > 890


@pytest.mark.false_alarm(1e-9)
def test_chains_that_start_alike_move_apart():
    """Rank correlations of 400 draws between 4 chains from one start; sees a correlation of 0.35."""
    options, draws = chunk.options(100), []
    for chain in range(4):
        start = np.full(3, 0.1, np.float32)
        state = chunk.initial_state("nuts", start, start == 0, [0, 3], chain)
        draws.append(drive(program("nuts"), state, [100] + [80] * 5, options)[1]["x"][:, 0])
    for i in range(4):
        for j in range(i):
            assert scipy.stats.spearmanr(draws[i], draws[j]).pvalue > 1e-10


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("spread", [np.nan, 0.0])
def test_a_density_that_is_nowhere_finite_fails_after_a_hundred_candidates(kernel, spread):
    """A spread of nan gives a density of nan, and one of 0 a density of -inf."""
    state, outputs = program(kernel)(first(kernel), DATA * np.float32(spread), np.int32(50), chunk.options())
    assert int(state.chain.phase) == chunk.FAILED
    assert int(state.chain.attempt) == chunk.MOST_STARTS
    assert (int(outputs["done"]), int(outputs["kept"])) == (0, 0)
    assert int(outputs["gradients"]) < chunk.MOST_STARTS + 1


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_density_finite_on_one_side_starts_after_some_candidates(kernel):
    half = lambda q, _: jnp.sum(jnp.where(q > 0, -q, -jnp.inf))  # noqa: E731
    run = jax.jit(chunk.build(kernel, half, lambda q, _: {"x": q}, length=20))
    state, outputs = run(first(kernel), (), np.int32(60), chunk.options(40))
    assert int(outputs["kept"]) == 20
    assert 1 < int(state.chain.attempt) < 90
    assert np.all(np.asarray(outputs["draws"]["x"]) > 0)


def test_fixed_entries_of_a_start_stay():
    """One entry is given and outside of what can be redrawn; the density is finite only near it."""

    def narrow(q, _):
        return jnp.where(jnp.abs(q[0] - 30) < 1, 0.0, -jnp.inf) + jnp.where(q[1] > 1, -q[1], -jnp.inf)

    run = jax.jit(chunk.build("metropolis", narrow, lambda q, _: {"x": q}, length=20))
    start, free = np.array([30.0, -5.0], np.float32), np.array([False, True])
    state, outputs = run(chunk.initial_state("metropolis", start, free, [1, 2], 0), (), np.int32(20), chunk.options(0))
    assert int(outputs["kept"]) == 20
    assert np.all(np.abs(np.asarray(outputs["draws"]["x"])[:, 0] - 30) < 1)
    stuck = chunk.initial_state("metropolis", start, np.array([False, False]), [1, 2], 0)
    state, outputs = run(stuck, (), np.int32(20), chunk.options(0))
    assert (int(state.chain.phase), int(state.chain.attempt)) == (chunk.FAILED, 1)


def test_a_given_start_is_where_the_chain_starts():
    start = np.array([0.3, -0.2, 1.5], np.float32)
    state = chunk.initial_state("nuts", start, np.ones(3, bool), [0, 1], 0, step_size=1e-8)
    _, outputs = program("nuts")(state, DATA, np.int32(1), chunk.options(0, max_depth=1))
    np.testing.assert_allclose(np.asarray(outputs["draws"]["x"])[0], start, atol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_batch_of_chains_draws_what_single_chains_draw(kernel):
    """Over 40 transitions, to rounding; a different order of random numbers would give something else altogether."""
    options = chunk.options(0)
    choices = {"scale": 0.5} if kernel == "metropolis" else {"step_size": 0.3}
    run = program(kernel, chains=3)
    start = np.zeros((3, 3), np.float32)
    state = chunk.initial_state(kernel, start, start == 0, [0, 7], 0, chains=3, redraw_first=True, **choices)
    state, outputs = run(state, DATA, np.int32(40), options)
    for chain in range(3):
        single, alone = program(kernel)(first(kernel, chain, **choices), DATA, np.int32(40), options)
        np.testing.assert_allclose(
            np.asarray(outputs["draws"]["x"])[:40, chain], np.asarray(alone["draws"]["x"])[:40], rtol=2e-3, atol=2e-3
        )
        assert int(single.chain.tick) == int(state.chain.tick[chain])
    assert chunk.statistics(kernel, outputs)["lp"].shape == (40, 3)


def test_batched_chains_wait_until_all_have_started():
    half = lambda q, _: jnp.sum(jnp.where(q > 0, -q, -jnp.inf))  # noqa: E731
    run = jax.jit(chunk.build("hmc", half, lambda q, _: {"x": q}, length=20, chains=5))
    start = np.zeros((5, 3), np.float32)
    state = chunk.initial_state("hmc", start, start == 0, [0, 7], 0, chains=5, redraw_first=True)
    state, outputs = run(state, (), np.int32(60), chunk.options(40))
    assert int(outputs["kept"]) == 20
    assert np.all(np.asarray(outputs["draws"]["x"]) > 0)
    assert len(set(np.asarray(state.chain.attempt).tolist())) > 1


@pytest.mark.parametrize("kernel", KERNELS)
def test_statistics_have_the_names_and_types_of_the_schema(kernel):
    _, outputs = program(kernel)(first(kernel), DATA, np.int32(50), chunk.options(30))
    found = chunk.statistics(kernel, outputs)
    names = {
        "nuts": "lp acceptance_rate step_size tree_depth n_steps reached_max_treedepth diverging energy energy_error "
        "max_energy_error",
        "hmc": "lp acceptance_rate step_size n_steps int_time diverging energy energy_error",
        "metropolis": "lp acceptance_rate",
    }[kernel]
    assert set(found) == set(names.split())
    kinds = {"n_steps": "i", "tree_depth": "i", "diverging": "b", "reached_max_treedepth": "b"}
    for name, values in found.items():
        assert values.shape == (20,)
        assert values.dtype.kind == kinds.get(name, "f")
    draws = np.asarray(outputs["draws"]["x"])[:20]
    np.testing.assert_allclose(found["lp"], [density(q, DATA) for q in draws], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_single_precision_stays_single_when_double_is_on(kernel, x64):
    run = jax.jit(chunk.build(kernel, density, record, length=10))
    for real in (np.float32, np.float64):
        start = np.zeros(3, real)
        state = chunk.initial_state(kernel, start, start == 0, [0, 1], 0, redraw_first=True)
        _, outputs = run(state, DATA.astype(real), np.int32(20), chunk.options(10))
        assert outputs["draws"]["x"].dtype == real
        assert outputs["stats"].dtype == real
