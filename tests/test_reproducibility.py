"""Draws are a function of versions, device and seed; golden values guard them."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from models import LINE, SCHOOLS, line, schools

import ppl
from ppl import infer

GOLDEN = pathlib.Path(__file__).parent / "golden" / "draws.json"
quiet = pytest.mark.filterwarnings("ignore::ppl.InferenceWarning")


def golden_values():
    """Prior draws, and the first transitions of each sampler at a fixed step size, before rounding can part trajectories."""
    prior = ppl.sample(schools, 7, {"sigma": SCHOOLS["sigma"]})
    options = dict(chains=2, draws=4, warmup=0, init={"a": 1.0, "b": 1.5}, progress=False, seed=3)
    runs = {
        "hmc": infer.hmc(line, LINE, step_size=0.1, num_steps=3, **options),
        "nuts": infer.nuts(line, LINE, step_size=0.3, max_depth=2, **options),
        "metropolis": infer.metropolis(line, LINE, scale=0.1, **options),
    }
    found = {f"prior {name}": np.ravel(value) for name, value in prior.items()}
    found |= {f"{sampler} {name}": np.ravel(run[name]) for sampler, run in runs.items() for name in run}
    return {name: [float(v) for v in value] for name, value in found.items()}


@quiet
def test_golden_draws(request):
    """Fails when draws change: then say so in the changelog and run `python tests/test_reproducibility.py`."""
    stored, found = json.loads(GOLDEN.read_text()), golden_values()
    assert list(stored) == list(found)
    for name, values in stored.items():
        assert np.allclose(values, found[name], rtol=1e-4, atol=1e-5), name


@quiet
def test_another_process_has_the_same_draws():
    script = "import ppl, numpy, hashlib\nfrom models import LINE, line\n"
    script += "x = ppl.infer.nuts(line, LINE, draws=50, seed=11, progress=False)['a']\n"
    script += "print(hashlib.sha256(x.tobytes()).hexdigest())"
    here = os.path.dirname(__file__)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([os.path.dirname(here), here]),
        "PYTHONWARNINGS": "ignore",
    }
    runs = [
        subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout and len(runs[0].stdout.strip()) == 64


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(golden_values(), indent=1) + "\n")
