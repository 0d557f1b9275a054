"""`ppl` itself: NUTS, or with the variant `hmc` HMC with learned trajectory lengths; its own default warm-up of 400."""

import ppl

VERSIONS = ("jax", "jaxlib", "numpy")
CHEES = 200, 200  # draws and warm-up, as of the other runners of ChEES


def sampler(case, options):
    model = case.ppl()
    draw = getattr(ppl.infer, options.variant or "nuts")
    if options.variant == "chees":
        options.draws, options.warmup = CHEES
    own = case.settings() if hasattr(case, "settings") else {}
    settings = dict(chains=options.chains, draws=options.draws, warmup=options.warmup, progress=False, **own)

    def run(data, seed):
        posterior = draw(model, data, seed=seed, **settings)

        def warmup_steps():
            again = draw(model, data, seed=seed, keep_warmup=True, **settings)
            return int(again.warmup["stats"]["n_steps"].sum(dtype=float))

        return {
            "draws": {name: posterior[name] for name in case.NAMES or posterior},
            "print": lambda: print(posterior),
            "seconds": posterior.timings["total"] - posterior.timings["compile"],
            "steps": int(posterior.stats["n_steps"].sum(dtype=float)),
            "warmup_steps": warmup_steps,
        }

    return run
