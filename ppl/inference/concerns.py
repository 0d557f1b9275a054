"""Sentences on what is wrong with a run: what happened, to which variable, and one thing to try.

A healthy run gets none. R-hat and effective sample sizes are estimates: R-hat counts as too large only where it exceeds
both 1.01 and what chains in equilibrium with as many effective draws reach by chance; too few effective draws are a
complaint of their own, so nothing is hidden by that.
"""

import warnings

import numpy as np

from ppl.errors import InferenceWarning
from ppl.inference import diagnostics

LARGEST_R_HAT = 1.01
LEAST_ESS = 100  # effective draws for each chain
LARGEST_SATURATION = 0.05  # share of a chain's transitions that may reach the largest tree depth
LEAST_EBFMI = 0.3


def concerns(posterior, summary):
    """Return the sentences, most serious first.

    Args:
      posterior: draws and statistics of the sampler.
      summary: the `Summary` of its draws.
    """
    if not posterior.num_draws:
        return ["the run holds no draws: it ended before the first one was kept; run it again, for longer."]
    stuck = _stuck(posterior)
    slowest = _slowest(summary)
    sentences = [_divergences(posterior), stuck, _not_finite(posterior)]
    sentences += [_r_hat(posterior, summary), None if stuck else _ess(posterior, summary)]
    sentences += [_saturation(posterior, slowest), _ebfmi(posterior, slowest)]
    return [sentence for sentence in sentences if sentence]


def warn(sentences):
    """Give each sentence once, as an `InferenceWarning` at the caller's line."""
    for sentence in sentences:
        warnings.warn(sentence, InferenceWarning, stacklevel=4)


def _by_chain(counts):
    return ", ".join(f"chain {chain}: {count}" for chain, count in enumerate(counts) if count)


def _divergences(posterior):
    if "diverging" not in posterior.stats:
        return None
    diverging = posterior.stats["diverging"].astype(bool)
    counts, total = diverging.sum(1), diverging.size
    if not counts.any():
        return None
    if counts.sum() == total:
        return (
            f"all {total} transitions diverged ({_by_chain(counts)}): no draw can be used; look for a gradient that is "
            "nan or huge at the start, or start elsewhere with init=."
        )
    return (
        f"{counts.sum()} of {total} transitions diverged ({_by_chain(counts)}): the draws miss a part of the "
        "distribution; try ppl.noncentered on variables whose scale is itself drawn, or target_accept closer to 1."
    )


def _stuck(posterior):
    if posterior.num_draws < 2:
        return None
    moved, names = np.zeros(posterior.chains, bool), []
    for name, draws in posterior.draws.items():
        if draws.size and posterior.roles.get(name, "latent") == "latent":
            flat = draws.reshape(*draws.shape[:2], -1)
            moved |= (flat != flat[:, :1]).any((1, 2))
            names.append(name)
    if moved.all() or not names:
        return None
    which = ", ".join(str(chain) for chain in np.flatnonzero(~moved))
    return (
        f"all draws are equal in chain{'s' * int((~moved).sum() > 1)} {which} ({_quoted(names)}): the sampler did not "
        "move; give a longer warmup=, or start elsewhere with init=."
    )


def _not_finite(posterior):
    for name, draws in posterior.draws.items():
        if draws.dtype.kind not in "biu":
            count = draws.size - int(np.isfinite(draws).sum())
            if count:
                return (
                    f"{count} of {draws.size} numbers of {name!r} are nan or infinite, and so are its mean and "
                    "standard errors; find them with numpy.isfinite, and the term of the model that gives them."
                )
    return None


def _r_hat(posterior, summary):
    r_hat = summary.columns.get("r_hat", np.zeros(0))
    ess = np.fmin(summary.columns.get("ess_bulk", r_hat), summary.columns.get("ess_tail", r_hat))
    with np.errstate(all="ignore"):
        chance = diagnostics.chance_r_hat(ess, posterior.chains, comparisons=max(1, r_hat.size))
        enough = ess >= LEAST_ESS * posterior.chains
        bad = (r_hat > LARGEST_R_HAT) & ~(enough & (r_hat <= chance))
    if not bad.any():
        return None
    worst = int(np.argmax(np.where(bad, r_hat, 0.0)))
    size = f"{r_hat[worst]:.3f}" if r_hat[worst] < 1000 else "over 1000"
    return (
        f"R-hat of {summary.label(worst)!r} is {size}, above {LARGEST_R_HAT}{_others(bad)}: the chains do "
        "not agree yet; give more warmup= and draws=, or try ppl.noncentered on variables that depend on it."
    )


def _ess(posterior, summary):
    few = LEAST_ESS * posterior.chains
    if posterior.num_draws < 4 or "ess_bulk" not in summary.columns:
        return None
    bulk, tail = summary.columns["ess_bulk"], summary.columns["ess_tail"]
    smaller = np.fmin(bulk, tail)
    bad = smaller < few
    if not bad.any():
        return None
    worst = int(np.argmin(np.where(bad, smaller, np.inf)))
    kind = "bulk" if bulk[worst] <= tail[worst] else "tail"
    wanted = int(np.ceil(posterior.num_draws * few / max(smaller[worst], 1.0) * 1.2 / 100.0)) * 100
    advice = f"give draws={wanted}" if wanted <= 20 * posterior.num_draws else "try another parametrization of it"
    return (
        f"{summary.label(worst)!r} has {smaller[worst]:.0f} effective draws ({kind}), fewer than {LEAST_ESS} for each "
        f"of {posterior.chains} chains{_others(bad)}: its estimates are unreliable; {advice}."
    )


def _saturation(posterior, slowest):
    if "reached_max_treedepth" not in posterior.stats:
        return None
    share = posterior.stats["reached_max_treedepth"].astype(bool).mean(1)
    if not (share > LARGEST_SATURATION).any():
        return None
    worst = int(np.argmax(share))
    dense = posterior.settings.get("metric") == "dense"
    advice = (
        "give more warmup=, or another parametrization" if dense else "try metric='dense', or similar scales for all"
    )
    return (
        f"{share[worst]:.0%} of the transitions of chain {worst} reached the largest tree depth: trajectories were cut "
        f"short and draws are costly ({slowest} moves slowest); {advice}."
    )


def _ebfmi(posterior, slowest):
    if "energy" not in posterior.stats:
        return None
    fraction = diagnostics.ebfmi(posterior.stats["energy"])
    if not (fraction < LEAST_EBFMI).any():
        return None
    worst = int(np.nanargmin(fraction))
    return (
        f"E-BFMI of chain {worst} is {fraction[worst]:.2g}, below {LEAST_EBFMI}: the tails are reached seldom "
        f"({slowest} moves slowest); try ppl.noncentered on variables whose scale is itself drawn, or priors with "
        "lighter tails."
    )


def _slowest(summary):
    ess = summary.columns.get("ess_bulk", np.zeros(0))
    return repr(summary.label(int(np.nanargmin(ess)))) if np.isfinite(ess).any() else "no variable"


def _others(bad):
    return f", and so for {bad.sum() - 1} more" if bad.sum() > 1 else ""


def _quoted(names, most=4):
    return ", ".join(repr(n) for n in names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
