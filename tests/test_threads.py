"""Models are traced from several threads at once: each gets its own results, since handlers and runs share nothing."""

from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np

import ppl
from ppl import HalfNormal, Normal


def plain():
    x = yield Normal(0.0, 1.0, name="x")
    yield Normal(x, 1.0, name="y")


def scaled():
    tau = yield HalfNormal(1.0, name="tau")
    yield Normal(0.0, tau, name="theta")


def scoped():
    yield from ppl.scope("a", plain())
    yield from ppl.scope("b", plain())


MODELS = [plain, scaled, ppl.noncentered(scaled, "theta"), ppl.reweight(ppl.do(scoped, {"a/x": 1.0}), {"b/y": 0.5})]
TRACES = 100


def result(model, key):
    trace = ppl.trace(model, key=key)
    return [(n, s.role, float(s.value), None if s.log_prob is None else float(s.log_prob)) for n, s in trace.items()]


def test_four_threads_with_four_models_get_their_own_results():
    expected = [[result(model, key) for key in range(TRACES)] for model in MODELS]
    with ThreadPoolExecutor(len(MODELS)) as pool:
        found = list(pool.map(lambda model: [result(model, key) for key in range(TRACES)], MODELS))
    assert found == expected


def test_threads_may_bind_compile_and_fail_at_the_same_time():
    def work(i):
        model = MODELS[i % len(MODELS)]
        try:
            ppl.bind(model, {"no such name": np.zeros(1)})
        except ppl.ModelError:
            pass
        density = ppl.log_density(model)
        position = {n: np.zeros(latent.free_shape, np.float32) for n, latent in density.latents.items()}
        return float(jax.jit(density)(position))

    expected = [work(i) for i in range(len(MODELS))]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(4 * len(MODELS)))) == expected * 4
