"""Export to ArviZ: an xarray `DataTree` with the groups, names and attributes of ArviZ's schema.

Only `to_arviz` and `plot` need the extra `arviz`; everything they use is imported when they are called. A name such as
`slopes/tau` becomes `slopes.tau`, since a slash separates groups there.
"""

import inspect

import numpy as np

from ppl.errors import ModelError, listed, suggest
from ppl.inference.labels import axis_names
from ppl.inference.storage import legal_name
from ppl.sharding import gather


def to_arviz(
    posterior,
    model=None,
    data=None,
    *,
    prior=None,
    predictive=None,
    predictions=None,
    new_data=None,
    log_likelihood=None,
):
    """Return the `DataTree` of a posterior.

    Args:
      posterior: draws and statistics.
      model: with `data`, adds `log_likelihood`, `posterior_predictive`, `log_prior` and `unconstrained_posterior`.
      data: the mapping that the run was given: `observed_data` and `constant_data`.
      prior: what `infer.prior` returned: the groups `prior` and `prior_predictive`.
      predictive: what `infer.predict` returned for the fitted data: `posterior_predictive`.
      predictions: what it returned for other data.
      new_data: these other data: `predictions_constant_data`.
      log_likelihood: what `infer.log_likelihood` returned.

    Raises:
      ImportError: the extra is not installed.
      ModelError: `model` is given without `data`.
    """
    arviz_base = _imported("arviz_base")
    if model is not None and data is None:
        raise ModelError("to_arviz was given a model without data. Give both, or neither.")
    given = {"posterior_predictive": predictive, "log_likelihood": log_likelihood}
    groups = {"posterior": dict(posterior.draws), "sample_stats": dict(posterior.stats)}
    groups |= {group: dict(arrays) for group, arrays in given.items() if arrays is not None}
    if model is not None:
        groups |= _model_groups(posterior, model, data, groups)
    observed = _observed(posterior, data, groups)
    if data is not None:
        numbers = _numbers(data)
        groups["observed_data"] = {name: array for name, array in numbers.items() if name in observed}
        groups["constant_data"] = {name: array for name, array in numbers.items() if name not in observed}
    if prior is not None:
        groups["prior"] = {name: array for name, array in prior.items() if name not in observed}
        groups["prior_predictive"] = {name: array for name, array in prior.items() if name in observed}
    groups["predictions"] = dict(predictions or {})
    groups["predictions_constant_data"] = {n: a for n, a in _numbers(new_data or {}).items() if n not in observed}
    for group, arrays in (posterior.warmup or {}).items():
        groups["warmup_posterior" if group == "draws" else "warmup_sample_stats"] = arrays
    groups = {group: arrays for group, arrays in groups.items() if arrays}
    attributes = _attributes(posterior)
    tree = _imported("xarray").DataTree.from_dict(
        {group: _dataset(arviz_base, group, arrays, posterior, attributes) for group, arrays in groups.items()},
        name=posterior.settings.get("model"),
    )
    tree.attrs = attributes
    if "inv_metric" in posterior.state and "sample_stats" in groups:  # one for each chain, or one for all
        metric = posterior.state["inv_metric"]
        over = [f"inv_metric_dim_{i}" for i in range(metric.ndim)]
        over = ["chain", *over[:-1]] if metric.ndim > 1 and len(metric) == posterior.chains else over
        tree["sample_stats"].dataset = tree["sample_stats"].to_dataset().assign(inv_metric=(over, metric))
    return tree


def _dataset(arviz_base, group, arrays, posterior, attributes):
    """Return one group; labels are left out along axes that have another length here."""
    skip = 0 if group.endswith("_data") else 2
    axes = {name: axis_names(name, np.shape(array)[skip:], posterior.dims) for name, array in arrays.items()}
    lengths = {
        (axis, length)
        for name, array in arrays.items()
        for axis, length in zip(axes[name], np.shape(array)[skip:], strict=True)
    }
    other = {axis for axis, length in lengths if len(posterior.coords.get(axis, range(length))) != length}
    if group in ("posterior", "warmup_posterior"):
        attributes = attributes | {
            "sampled_variables": [legal_name(name) for name in posterior if posterior.roles.get(name) != "derived"]
        }
    return arviz_base.dict_to_dataset(
        {legal_name(name): gather(array) for name, array in arrays.items()},
        attrs=attributes | ({"sample_dims": ["chain", "draw"]} if skip else {}),
        dims={legal_name(name): [legal_name(axis) for axis in over] for name, over in axes.items() if over},
        coords={legal_name(axis): values for axis, values in posterior.coords.items() if axis not in other},
        sample_dims=["chain", "draw"] if skip else [],
        check_conventions=False,
    )


def plot(posterior, kind, **options):
    """Call `arviz_plots.plot_<kind>` on a posterior; options of `to_arviz` go there."""
    arviz_plots = _imported("arviz_plots")
    known = [name.removeprefix("plot_") for name in dir(arviz_plots) if name.startswith("plot_")]
    if kind not in known:
        raise ModelError(f"arviz_plots has no plot {kind!r}; it has {listed(known, 40)}.{suggest(kind, known)}")
    groups = {name: options.pop(name) for name in inspect.signature(to_arviz).parameters if name in options}
    tree = to_arviz(posterior, **groups)
    return getattr(arviz_plots, f"plot_{kind}")(tree, **options)


def _imported(name):
    try:
        return __import__(name)
    except ImportError as error:
        raise ImportError(f'{name} is not installed; type: pip install "ppl-jax[arviz]"') from error


def _model_groups(posterior, model, data, given):
    """Return what follows from a model and its data and was not given."""
    from ppl.inference.predict import log_likelihood, log_prior, predict

    likelihood = given.get("log_likelihood") or log_likelihood(model, posterior, data)
    prior, free = log_prior(model, posterior, data)
    groups = {"log_likelihood": likelihood, "log_prior": prior, "unconstrained_posterior": free}
    if "posterior_predictive" not in given:
        inputs = {name: value for name, value in data.items() if name not in likelihood}
        groups["posterior_predictive"] = dict(predict(model, posterior, inputs))
    return groups


def _observed(posterior, data, groups):
    """Return the names of observed variables: known from the run, or from their likelihoods and predictions."""
    if "observed" in posterior.settings:
        return set(posterior.settings["observed"])
    found = set(groups.get("log_likelihood", {})) | set(groups.get("posterior_predictive", {}))
    return {name for name in found if data is None or name in data}


def _numbers(data):
    """Return the entries of `data` that are arrays of numbers; missing ones are nan."""
    found = {}
    for name, value in data.items():
        if isinstance(value, np.ma.MaskedArray) and value.mask.any():
            value = value.astype(float).filled(np.nan)
        try:
            array = gather(value)
        except (TypeError, ValueError):  # a tree of arrays, or ragged
            continue
        if array.dtype.kind in "biuf":
            found[name] = array
    return found


def _attributes(posterior):
    import datetime

    version = posterior.versions.get("ppl", "unknown")
    found = {
        "created_at": datetime.datetime.now(datetime.UTC).isoformat(),
        "creation_library": "ppl",
        "creation_library_version": version,
        "creation_library_language": "Python",
        "inference_library": "ppl",
        "inference_library_version": version,
        "sampling_time": posterior.timings.get("sampling"),
        "tuning_steps": posterior.settings.get("warmup"),
    }
    return {name: value for name, value in found.items() if value is not None}
