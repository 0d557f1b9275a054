"""The driver: compilations are counted, runs can be stopped, saved and continued, memory stays flat, nothing is left behind."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc

import jax
import jax.monitoring
import numpy as np
import pytest
from models import LINE, SCHOOLS, flat_schools, gaussian, line, mean_of, schools

import ppl
from ppl import InferenceWarning, ModelError, Normal, infer

quiet = pytest.mark.filterwarnings("ignore::ppl.InferenceWarning")
GRADIENT = [infer.hmc, infer.nuts]


class Compilations:
    """Counts the programs that XLA compiles while it is open."""

    def __enter__(self):
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._hear)
        return self

    def _hear(self, event, duration, **_):
        self.count += event == "/jax/core/compile/backend_compile_duration"

    def __exit__(self, *_):
        jax.monitoring.clear_event_listeners()


def counted_model():
    """Return a model that counts its calls, and the list that grows."""
    calls = []

    def model(x):
        calls.append(1)
        return (yield from line(x))

    return model, calls


@pytest.mark.parametrize("sampler", GRADIENT, ids=lambda f: f.__name__)
@quiet
def test_traces_and_compilations_are_counted(sampler):
    """One program for a run; none for a second run, for new data, more draws, more chains, another seed or target."""
    model, calls = counted_model()
    with Compilations() as first:
        sampler(model, LINE, draws=50)
    traces = len(calls)
    assert first.count == 1
    assert traces <= 5
    with Compilations() as later:
        sampler(model, LINE, draws=50)
        sampler(model, {**LINE, "y": LINE["y"] + 1}, draws=50)
        sampler(model, LINE, draws=170)
        sampler(model, LINE, draws=50, chains=7)
        sampler(model, LINE, draws=50, seed=3, target_accept=0.9, warmup=100)
        sampler(model, {name: value.tolist() for name, value in LINE.items()}, draws=50)
    assert later.count == 0
    assert len(calls) == traces


@quiet
def test_a_handler_made_anew_is_the_same_model():
    infer.nuts(ppl.noncentered(schools, "theta"), SCHOOLS, draws=20)
    with Compilations() as again:
        infer.nuts(ppl.noncentered(schools, "theta"), SCHOOLS, draws=20)
    assert again.count == 0


@quiet
def test_draws_do_not_depend_on_chunks_or_threads(monkeypatch):
    from ppl.inference import chains

    every = infer.nuts(flat_schools, SCHOOLS, draws=150)
    monkeypatch.setattr(chains, "CHUNK_SECONDS", 1e-4)
    monkeypatch.setattr(chains, "workers", lambda: 1)
    cut = infer.nuts(flat_schools, SCHOOLS, draws=150)
    for name in every:
        assert np.array_equal(every[name], cut[name])


class TestCheckpoint:
    @pytest.mark.parametrize("sampler", [*GRADIENT, infer.metropolis], ids=lambda f: f.__name__)
    @quiet
    def test_more_draws_go_on_where_the_file_ends(self, sampler, tmp_path):
        """100 + 100 draws with a save between equal 200 in one go, bit for bit."""
        path = tmp_path / "run.ppl"
        whole = sampler(flat_schools, SCHOOLS, draws=200)
        sampler(flat_schools, SCHOOLS, draws=100, checkpoint=path)
        both = sampler(flat_schools, SCHOOLS, draws=200, checkpoint=path)
        for name in whole:
            assert np.array_equal(whole[name], both[name])
        for name in whole.stats:
            assert np.array_equal(whole.stats[name], both.stats[name])

    @quiet
    def test_a_run_stopped_in_its_warmup_goes_on(self, tmp_path, monkeypatch):
        """Also in a new process: the file alone is enough."""
        from ppl.inference import chains

        whole = infer.nuts(flat_schools, SCHOOLS, draws=60)
        path, advance, count = tmp_path / "run.ppl", chains.Chain.advance, []

        def stop_after_a_while(self, arrays):
            count.append(1)
            if len(count) == 6:
                signal.raise_signal(signal.SIGINT)
            return advance(self, arrays)

        monkeypatch.setattr(chains, "CHUNK_SECONDS", 1e-3)
        monkeypatch.setattr(chains.Chain, "advance", stop_after_a_while)
        part = infer.nuts(flat_schools, SCHOOLS, draws=60, checkpoint=path)
        assert part.interrupted and part.num_draws == 0
        monkeypatch.undo()
        rest = infer.nuts(flat_schools, SCHOOLS, draws=60, checkpoint=path)
        assert not rest.interrupted and np.array_equal(rest["theta"], whole["theta"])

    @quiet
    def test_another_run_is_refused_by_what_differs(self, tmp_path):
        path = tmp_path / "run.ppl"
        infer.nuts(flat_schools, SCHOOLS, draws=20, checkpoint=path)
        for change, words in [
            (dict(data={**SCHOOLS, "y": SCHOOLS["y"] + 1}), "the numbers in data differ"),
            (dict(seed=5), "seed differs"),
            (dict(warmup=30), "warmup differs: 400 there, 30 here"),
            (dict(model=schools), "variables differ"),
        ]:
            arguments = {"model": flat_schools, "data": SCHOOLS, "draws": 20, "checkpoint": path, **change}
            with pytest.raises(ModelError, match=words):
                infer.nuts(**arguments)

    @quiet
    def test_a_damaged_or_foreign_file_is_refused(self, tmp_path):
        path = tmp_path / "run.ppl"
        infer.nuts(line, LINE, draws=20, checkpoint=path)
        content = bytearray(path.read_bytes())
        for damaged in (
            content[:-10],
            content[:2000] + bytes([content[2000] ^ 1]) + content[2001:],
            b"cposix\nsystem\n",
        ):
            path.write_bytes(damaged)
            with pytest.raises(ppl.FormatError, match="no checkpoint of ppl, or it was damaged"):
                infer.nuts(line, LINE, draws=20, checkpoint=path)


class TestInterrupt:
    @pytest.mark.parametrize("sampler", GRADIENT, ids=lambda f: f.__name__)
    def test_ctrl_c_returns_what_was_drawn(self, sampler):
        """The interpreter stays usable, and what was drawn is the beginning of the whole run."""
        whole = sampler(gaussian, draws=300)
        timer = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        part = sampler(gaussian, draws=2_000_000)
        timer.cancel()
        assert part.interrupted and "interrupted" in str(part)
        assert 0 < part.num_draws < 2_000_000
        shared = min(part.num_draws, 300)
        assert np.array_equal(part["x"][:, :shared], whole["x"][:, :shared])
        assert not [t for t in threading.enumerate() if t.name.startswith("ppl-chain")]
        assert np.array_equal(sampler(gaussian, draws=300)["x"], whole["x"])

    @quiet
    def test_an_exception_in_the_model_leaves_a_usable_interpreter(self):
        def broken(x):
            yield Normal(0.0, 1.0, name="a")
            raise RuntimeError("a mistake")

        with pytest.raises(RuntimeError, match="a mistake"):
            infer.nuts(broken, {"x": LINE["x"]})
        assert infer.nuts(line, LINE, draws=100, warmup=100, progress=False).num_draws == 100

    @quiet
    def test_samplers_run_in_several_threads_at_once(self):
        alone = {seed: infer.nuts(line, LINE, draws=50, seed=seed, progress=False)["a"] for seed in range(4)}
        together = {}

        def work(seed):
            together[seed] = infer.nuts(line, LINE, draws=50, seed=seed, progress=False)["a"]

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(np.array_equal(alone[seed], together[seed]) for seed in range(4))


class TestMemory:
    def wide(self):
        yield Normal(0.0, 1.0, shape=(1000,), name="x")

    def peak(self, draws, **options):
        """Return the most bytes that Python and numpy held during a run."""
        gc.collect()
        tracemalloc.start()
        infer.hmc(self.wide, draws=draws, warmup=20, num_steps=2, progress=False, **options)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    @quiet
    def test_without_kept_draws_memory_does_not_grow_with_their_number(self, monkeypatch):
        """On the device not at all; on the host by some 200 bytes a transition, the statistics and their check."""
        from ppl.inference import chains

        advance, on_device = chains.Chain.advance, []

        def watched(chain, arrays):
            done = advance(chain, arrays)
            on_device.append(sum(a.nbytes for a in jax.live_arrays()))
            return done

        self.peak(100, keep=[])
        # How chunks overlap in time would change what is alive at once.
        monkeypatch.setattr(chains, "workers", lambda: 1)
        monkeypatch.setattr(chains.Chain, "advance", watched)
        few = self.peak(1000, keep=[]), max(on_device)
        on_device.clear()
        many = self.peak(20_000, keep=[]), max(on_device)
        assert many[1] < 1.1 * few[1] + 1e6
        assert many[0] < few[0] + 20_000 * 4 * 256

    @quiet
    def test_with_all_draws_kept_the_peak_is_below_one_and_a_third_of_their_size(self):
        self.peak(100)
        draws = 10_000
        size = 4 * draws * 1000 * 4
        assert self.peak(draws) < 1.3 * size


@pytest.mark.slow
def test_repeated_runs_leave_nothing_behind():
    """Resident memory and open files after run 10 and run 100 differ by less than 5 percent."""
    script = """
import os, warnings, ppl
from models import LINE, line
warnings.simplefilter("ignore")
def state():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages, len(os.listdir("/proc/self/fd"))
for i in range(100):
    ppl.infer.nuts(line, LINE, draws=100, seed=i, progress=False)
    if i == 9: first = state()
last = state()
assert last[0] < 1.05 * first[0] and last[1] <= first[1], (first, last)
"""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([os.getcwd(), os.path.dirname(os.path.dirname(__file__))]),
    }
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, timeout=300)


def test_healthy_runs_are_silent():
    """Fifty healthy runs give no warning; warnings are errors here."""
    y = np.random.default_rng(0).normal(size=50).astype(np.float32)
    for seed in range(50):
        infer.nuts(mean_of, {"n": 50, "y": y}, seed=seed, progress=False)


def test_the_warning_points_at_the_caller():
    with pytest.warns(InferenceWarning) as caught:
        infer.nuts(schools, SCHOOLS, draws=50, warmup=20)
    assert {w.filename for w in caught} == {__file__}


def test_a_run_says_within_a_second_that_it_compiles(capsys):
    def model():
        yield Normal(0.0, 1.0, shape=(3,), name="fresh")

    began = time.perf_counter()
    infer.nuts(model, draws=200)
    text = capsys.readouterr().err
    assert "compiling" in text or time.perf_counter() - began < 1.0


@pytest.mark.parametrize("chains", [32, 34, 37])
@quiet
def test_many_chains_run_in_blocks_and_draw_what_they_draw_alone(chains, monkeypatch):
    """Short runs, so that rounding in two programs cannot grow."""
    posterior = infer.nuts(line, LINE, chains=chains, draws=3, warmup=3, seed=5, progress=False)
    monkeypatch.setattr("ppl.inference.chains.MANY", 1000)
    alone = infer.nuts(line, LINE, chains=chains, draws=3, warmup=3, seed=5, progress=False)
    for name in alone:
        np.testing.assert_allclose(posterior[name], alone[name], rtol=2e-3, atol=2e-3)
    np.testing.assert_array_equal(posterior.stats["n_steps"], alone.stats["n_steps"])
