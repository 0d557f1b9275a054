"""How far draws can be trusted: effective sample sizes, R-hat and standard errors.

Every function takes draws as `[chain, draw, ...]` and returns an array of the remaining shape, in double precision
whatever the precision of the draws. Chains are split in halves first, so that a drift shows as a disagreement and one
chain is enough. Draws that are all equal say nothing about mixing: their R-hat and effective sample size are nan.

    ess = M N / tau,     tau = 1 + 2 sum_t rho_t,     rho_t = 1 - (W - mean_m c_m(t)) / V

with M half-chains of N draws, W the mean within-chain variance, V the variance of all of them together and c_m(t) the
autocovariance of half-chain m; the sum follows Geyer's initial monotone sequence.

Reference: Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021), Rank-normalization, folding, and localization,
arXiv:1903.08008; equations cited as [V n]. Numbers equal those of arviz-stats. Only numpy is imported.
"""

import functools
import math

import numpy as np

COLUMNS = ("mean", "sd", "eti89_lb", "eti89_ub", "ess_bulk", "ess_tail", "r_hat", "mcse_mean", "mcse_sd")
LAGS = 16  # autocovariances computed one by one before a Fourier transform computes all
TAILS = (1.0 - 0.89, 0.89)  # the quantiles of `ess_tail`, as in ArviZ's summary
BLOCK = 2**16  # numbers handled at once: bounds memory, and keeps the work in the processor's cache

# Rational approximation of the normal quantile; relative error 1e-16 for probabilities in [1e-11, 1 - 1e-11].
# Wichura (1988), The percentage points of the normal distribution, Applied Statistics 37, algorithm AS 241.
CENTER = (
    (2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457)
    + (13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.3871328727963666080),
    (5226.4952788528545610, 28729.085735721942674, 39307.895800092710610, 21213.794301586595867)
    + (5394.1960214247511077, 687.18700749205790830, 42.313330701600911252, 1.0),
)
TAIL = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258)
    + (3.64784832476320460504, 5.76949722146069140550, 4.63033784615654529590, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1)
    + (6.89767334985100004550e-1, 1.67638483018380384940, 2.05319162663775882187, 1.0),
)


def normal_quantile(probability):
    """Return the standard normal quantile of probabilities in [1e-11, 1 - 1e-11]; `scipy.special.ndtri` there."""
    probability = np.asarray(probability, float)
    centered = probability - 0.5
    square = 0.180625 - centered**2
    center = centered * np.polyval(CENTER[0], square) / np.polyval(CENTER[1], square)
    distance = np.sqrt(-np.log(np.minimum(probability, 1.0 - probability))) - 1.6
    tail = np.polyval(TAIL[0], distance) / np.polyval(TAIL[1], distance)
    return np.where(np.abs(centered) <= 0.425, center, np.copysign(tail, centered))


def summarize(draws):
    """Return every column of the summary at once: `{"mean": ..., "sd": ..., ...}`, each of the shape `draws.shape[2:]`.

    Sorting and Fourier transforms are shared between the columns; this is what a printed table calls.
    """
    rows, shape = _rows(draws)
    columns = {name: np.full(rows.shape[0], np.nan) for name in COLUMNS}
    for block in _blocks(rows):
        for name, values in _summarize_block(rows[block]).items():
            columns[name][block] = values
    return {name: values.reshape(shape) for name, values in columns.items()}


def ess_bulk(draws):
    """Effective sample size of the rank-normalized draws [V 4.1]: for the center of a distribution."""
    return _by_block(draws, lambda rows: _unless_equal(rows, _ess(_normal_scores(_split(rows))[0])))


def ess_tail(draws):
    """The smaller effective sample size of the 11% and the 89% quantile, as in ArviZ [V 4.3 takes 5% and 95%]."""
    return _by_block(draws, lambda rows: _unless_equal(rows, _ess_tail(rows, _sorted(rows))))


def ess_mean(draws):
    """Effective sample size of the mean, without rank normalization."""
    return _by_block(draws, lambda rows: _unless_equal(rows, _ess(_split(rows))))


def r_hat(draws):
    """The larger of rank-normalized split R-hat of the draws and of their distances from the median [V 4.1, 4.2]."""
    return _by_block(draws, lambda rows: _rank_r_hat(*_normal_scores(_split(rows))))


def split_r_hat(draws):
    """Classic split R-hat, without ranks: `sqrt(V / W)` over half-chains; nan where all draws are equal."""
    return _by_block(draws, lambda rows: _r_hat(_split(rows)))


def mcse_mean(draws):
    """Monte Carlo standard error of the mean: `sd / sqrt(ess_mean)`."""
    return _by_block(draws, lambda rows: _unless_equal(rows, _mcse_mean(rows, _ess(_split(rows)))))


def mcse_sd(draws):
    """Monte Carlo standard error of the standard deviation, from the effective size of the squared deviations."""
    return _by_block(draws, lambda rows: _unless_equal(rows, _mcse_sd(rows, _ess(_split(_squared(rows))))))


def eti(draws, probability=0.89):
    """Equal-tailed interval: the two quantiles that leave `(1 - probability) / 2` on either side, as `(low, high)`."""
    both = _edges(probability)
    return tuple(_by_block(draws, lambda rows, q=q: _quantile(_sorted(rows), q), least=1) for q in both)


def ebfmi(energy):
    """Energy Bayesian fraction of missing information of each chain: `mean((E_t - E_{t-1})^2) / var(E)`.

    Below 0.3 the momentum moves the energy too little at a time to reach the tails.

    Args:
      energy: `[chain, draw]`.
    """
    energy = np.asarray(energy, float)
    if energy.shape[1] < 2:
        return np.full(energy.shape[0], np.nan)
    with np.errstate(all="ignore"):
        return np.mean(np.diff(energy, axis=1) ** 2, axis=1) / np.var(energy, axis=1, ddof=1)


def chance_r_hat(ess, chains, comparisons=1.0, probability=1e-6):
    """The R-hat that chains of `ess` effective draws in all exceed by chance with `probability / comparisons`.

        R-hat^2 - 1  ~  (M / ess) chi^2_{M-1} / (M - 1),     M = 2 * chains half-chains in equilibrium

    Chains that disagree have few effective draws, so the bound never hides them once a lower limit on `ess` holds.
    """
    freedom = 2 * chains - 1
    z = normal_quantile(1.0 - np.clip(probability / max(comparisons, 1.0), 1e-11, 0.5))
    spread = 2.0 / (9.0 * freedom)
    chi_square = freedom * (1.0 - spread + z * np.sqrt(spread)) ** 3  # Wilson and Hilferty (1931)
    return np.sqrt(1.0 + (2 * chains) / np.asarray(ess, float) * chi_square / freedom)


# Below: every array is [row, chain, draw] in double precision, a row being one scalar quantity.


def _rows(draws):
    draws = np.asarray(draws)
    if draws.ndim == 1:
        draws = draws[None]
    shape = draws.shape[2:]
    return np.moveaxis(draws.reshape(*draws.shape[:2], math.prod(shape)), -1, 0), shape


def _blocks(rows):
    size = max(1, BLOCK // max(1, rows.shape[1] * rows.shape[2]))
    return [slice(start, start + size) for start in range(0, rows.shape[0], size)]


def _by_block(draws, function, least=4):
    rows, shape = _rows(draws)
    result = np.full(rows.shape[0], np.nan)
    if rows.shape[1] and rows.shape[2] >= least:
        with np.errstate(all="ignore"):
            for block in _blocks(rows):
                x = np.ascontiguousarray(rows[block], float)
                result[block] = np.where(np.isnan(x).any((1, 2)), np.nan, function(x))
    return result.reshape(shape)


def _summarize_block(rows):
    x = np.ascontiguousarray(rows, float)
    count, chains, draws = x.shape
    if not chains * draws:
        return {}
    with np.errstate(all="ignore"):
        ordered = _sorted(x)
        low, high = _edges(0.89)
        columns = dict(mean=x.mean((1, 2)), eti89_lb=_quantile(ordered, low), eti89_ub=_quantile(ordered, high))
        columns["sd"] = x.std((1, 2), ddof=1) if chains * draws > 1 else np.full(count, np.nan)
        if draws >= 4:
            scores, folded = _normal_scores(_split(x))
            low, high = (_split(x <= _quantile(ordered, q)[:, None, None]) for q in TAILS)
            bulk, low, high, mean, square = _ess(
                np.concatenate([scores, low, high, _split(x), _split(_squared(x))])
            ).reshape(5, count)
            columns["ess_bulk"], columns["ess_tail"] = _unless_equal(x, bulk), _unless_equal(x, np.minimum(low, high))
            columns["r_hat"] = _rank_r_hat(scores, folded)
            columns["mcse_mean"] = _unless_equal(x, _mcse_mean(x, mean))
            columns["mcse_sd"] = _unless_equal(x, _mcse_sd(x, square))
        has_nan = np.isnan(ordered[:, -1])
        return {name: np.where(has_nan, np.nan, values) for name, values in columns.items()}


def _unless_equal(x, values):
    return np.where(x.max((1, 2)) == x.min((1, 2)), np.nan, values)


def _edges(probability):
    edge = (1.0 - probability) / 2.0
    return edge, 1.0 - edge


def _sorted(x):
    return np.sort(x.reshape(x.shape[0], -1), axis=-1)


def _quantile(ordered, probability):
    """Linear interpolation between order statistics, numpy's default."""
    position = (ordered.shape[1] - 1) * probability
    below = int(position)
    above, part = min(below + 1, ordered.shape[1] - 1), position - below
    low, high = ordered[:, below], ordered[:, above]
    between = low + (high - low) * part if part < 0.5 else high - (high - low) * (1.0 - part)
    return np.where(low == high, low, between)


def _split(x):
    half = x.shape[2] // 2
    return np.concatenate([x[:, :, :half], x[:, :, x.shape[2] - half :]], axis=1)


def _squared(x):
    return (x - x.mean((1, 2), keepdims=True)) ** 2


def _normal_scores(x):
    """Normal scores of the draws, and of their distances from the median: `Phi^-1((rank - 3/8) / (S + 1/4))` [V 14]."""
    flat = x.reshape(x.shape[0], -1)
    size = flat.shape[1]
    row = size * np.arange(len(flat))[:, None]
    places = row + np.argsort(flat, axis=-1)
    ordered = flat.ravel()[places]
    distances = np.abs(ordered - 0.5 * (ordered[:, (size - 1) // 2] + ordered[:, size // 2])[:, None])
    folded = row + np.argsort(distances, axis=-1, kind="stable")  # a falling and a rising run: quick to merge
    scores, folded_scores = np.empty(flat.size), np.empty(flat.size)
    scores[places] = _scores_in_order(ordered)
    folded_scores[places.ravel()[folded]] = _scores_in_order(distances.ravel()[folded])
    return scores.reshape(x.shape), folded_scores.reshape(x.shape)


@functools.lru_cache(maxsize=8)
def _scores_by_rank(size):
    """Scores by twice the rank, which is an integer also where ties share the mean of their ranks."""
    return normal_quantile((np.maximum(np.arange(2 * size + 1), 2) / 2.0 - 0.375) / (size + 0.25))


def _scores_in_order(ordered):
    place = np.arange(ordered.shape[1])
    new = ordered[:, 1:] != ordered[:, :-1]
    if new.all():
        return _scores_by_rank(len(place))[2 * place + 2]
    edge = np.ones((len(ordered), 1), bool)
    first = np.maximum.accumulate(np.where(np.concatenate([edge, new], 1), place, 0), axis=-1)
    ends = np.where(np.concatenate([new, edge], 1), place, len(place))
    last = np.minimum.accumulate(ends[:, ::-1], axis=-1)[:, ::-1]
    return _scores_by_rank(len(place))[first + last + 2]


def _r_hat(x):
    """`sqrt(V / W)` of half-chains [V 1-4]; nan where every half-chain is constant at the same value."""
    size = x.shape[2]
    within = x.var(2, ddof=1).mean(1)
    between = x.mean(2).var(1, ddof=1)
    ratio = np.sqrt((size - 1) / size + between / within)
    return _unless_equal(x, ratio)


def _rank_r_hat(scores, folded):
    """The larger of both; distances from the median that are all equal (a fair coin) have no R-hat of their own."""
    bulk, tail = _r_hat(scores), _r_hat(folded)
    return np.where(np.isnan(tail), bulk, np.maximum(bulk, tail))


def _ess_tail(x, ordered):
    low, high = (_ess(_split(x <= _quantile(ordered, q)[:, None, None])) for q in TAILS)
    return np.minimum(low, high)


def _mcse_mean(x, ess):
    return x.std((1, 2), ddof=1) / np.sqrt(ess)


def _mcse_sd(x, ess):
    square = _squared(x)
    variance = square.mean((1, 2))
    return np.sqrt(((square**2).mean((1, 2)) - variance**2) / ess / variance / 4.0)


def _ess(x):
    """Effective sample size of half-chains; `M N` where all are equal, as for an indicator that is always true."""
    _, chains, draws = x.shape
    size = chains * draws
    means = x.mean(2, keepdims=True)
    centered, between = x - means, means[:, :, 0].var(1, ddof=1)
    # Most sums end within a few lags; the others need them all.
    time, ended = _autocorrelation_time(_first_covariances(centered, min(LAGS, draws)), between, draws)
    rest = np.flatnonzero(~ended)
    if rest.size:
        time[rest], _ = _autocorrelation_time(_covariances(centered[rest]), between[rest], draws)
    ess = size / np.maximum(time, 1.0 / np.log10(size))
    return np.where(x.max((1, 2)) == x.min((1, 2)), float(size), ess)


def _autocorrelation_time(covariance, between, draws):
    """Sum autocorrelations by Geyer's rule: two neighbors at a time, while positive, each at most the one before.

    Returns:
      the autocorrelation time of each row, nan where unknown, and whether the lags given were enough to tell.
    """
    count, lags = covariance.shape
    within = covariance[:, 0] * (draws / (draws - 1.0))
    rho = 1.0 - (within[:, None] - covariance) / (covariance[:, 0] + between)[:, None]
    unknown = np.isnan(rho).any(1)
    rho[:, 0] = 1.0
    last = max((draws - 1) // 2 - 1, 0)
    known = min(lags // 2, last + 1)
    pairs = rho[:, : 2 * known : 2] + rho[:, 1 : 2 * known : 2]
    ended = ~(pairs > 0.0)
    stop = np.where(ended.any(1), ended.argmax(1), known - 1)
    row = np.arange(count)
    even = rho[row, 2 * stop]
    final = np.where(pairs[row, stop] >= 0.0, even, np.maximum(even, 0.0))
    falling = np.minimum.accumulate(pairs, axis=1)
    total = np.where(np.arange(known) < stop[:, None], falling, 0.0).sum(1)
    time = np.where(unknown, np.nan, 2.0 * total - 1.0 + final)
    return time, unknown | ended.any(1) | (known > last)


def _first_covariances(centered, lags):
    """Autocovariance at the first lags, averaged over chains: zeros between the chains keep them apart."""
    count, chains, draws = centered.shape
    apart = np.zeros((count, chains, draws + lags))
    apart[:, :, :draws] = centered
    apart = apart.reshape(count, -1)
    products = [np.vecdot(apart[:, : apart.shape[1] - lag], apart[:, lag:]) for lag in range(lags)]
    return np.stack(products, axis=1) / (chains * draws)


def _covariances(centered):
    """Autocovariance at every lag, averaged over chains; their power spectra are added before the inverse transform."""
    draws = centered.shape[2]
    length = _fast_length(2 * draws)
    spectrum = np.fft.rfft(centered, n=length)
    power = (spectrum.real**2 + spectrum.imag**2).mean(1)
    return np.fft.irfft(power, n=length)[:, :draws] / draws


@functools.lru_cache(maxsize=64)
def _fast_length(least):
    """The smallest number from `least` on whose only prime factors are 2, 3 and 5."""
    length = least
    while True:
        rest = length
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return length
        length += 1
