"""One of several processes that sample together: `python host_program.py RANK PORT MODE`. See `test_hosts`."""

import sys
from pathlib import Path

import jax

rank, port, mode = int(sys.argv[1]), sys.argv[2], sys.argv[3]
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)

import numpy as np  # noqa: E402

sys.path.append(str(Path(__file__).parents[1]))

from meshes import FACTORS, FACTORS_ROWS, LOGISTIC, LOGISTIC_ROWS, factors, logistic  # noqa: E402

import ppl  # noqa: E402
from ppl.inference import hosts  # noqa: E402

mesh = jax.make_mesh((4,), ("rows",))
mine = slice(32 * rank, 32 * rank + 32)
data = ppl.from_process_local({n: v[mine] for n, v in LOGISTIC.items()}, mesh=mesh, sharding=LOGISTIC_ROWS)
settings = dict(chains=2, draws=10, warmup=0, step_size=0.2, max_depth=5, seed=5)

if mode == "draws":
    posterior = ppl.infer.nuts(logistic, data, **settings)
    rating = ppl.from_process_local(
        {"rating": FACTORS["rating"][24 * rank : 24 * rank + 24]},
        mesh=mesh,
        sharding={"rating": FACTORS_ROWS["rating"]},
    )
    latents = ppl.infer.hmc(
        factors,
        {**rating, "num_users": 48},
        sharding=FACTORS_ROWS,
        chains=1,
        draws=4,
        warmup=0,
        step_size=0.1,
        num_steps=3,
        progress=False,
    )
    users = ppl.gather(latents["users"])
    assert not latents["users"].is_fully_addressable
    np.savez(sys.argv[4], w=posterior["w"], lp=posterior.stats["lp"], users=users)
elif mode == "seeds":
    ppl.infer.nuts(logistic, data, **{**settings, "seed": 5 + rank})
elif mode == "shapes":
    few = {n: v[: 32 - 2 * rank] for n, v in LOGISTIC.items()}
    data = ppl.from_process_local(few, mesh=mesh, sharding=LOGISTIC_ROWS)
    ppl.infer.nuts(logistic, data, **settings)
elif mode == "long":
    agree = hosts.Together.agree

    def tell(self, n, due):
        if self.chunk == 3:
            print("drawing", flush=True)
        return agree(self, n, due)

    hosts.Together.agree = tell
    ppl.infer.nuts(logistic, data, **{**settings, "draws": 10**7}, keep=[], progress=False)
