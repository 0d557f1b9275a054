"""Export to ArviZ: an xarray `DataTree` with the groups, names and attributes of ArviZ's schema.

Only these two functions need the extra `arviz`; everything they use is imported when they are called. A name such as
`slopes/tau` becomes `slopes.tau`, since a slash separates groups there.
"""

import numpy as np

from ppl.errors import ModelError, listed, suggest
from ppl.inference.labels import axis_names
from ppl.inference.storage import legal_name
from ppl.sharding import gather


def to_arviz(posterior, model=None, data=None):
    """Return the `DataTree` of a posterior.

    Args:
      posterior: draws and statistics.
      model: with `data`, adds `log_likelihood`, `posterior_predictive`, `observed_data` and `constant_data`.
      data: the mapping that the run was given.

    Raises:
      ImportError: the extra is not installed.
      ModelError: only one of `model` and `data` is given.
    """
    arviz_base = _imported("arviz_base")
    if (model is None) != (data is None):
        raise ModelError("to_arviz was given one of model and data. Give both, or neither.")
    groups = {"posterior": dict(posterior.draws), "sample_stats": dict(posterior.stats)}
    if model is not None:
        groups |= _model_groups(posterior, model, data)
    for group, arrays in (posterior.warmup or {}).items():
        groups["warmup_posterior" if group == "draws" else "warmup_sample_stats"] = arrays
    groups = {group: arrays for group, arrays in groups.items() if arrays}
    axes = {name: axis_names(name, shape, posterior.dims) for name, shape in _shapes(groups).items()}
    attributes = _attributes(posterior)
    sampled = {"sampled_variables": [legal_name(n) for n in posterior if posterior.roles.get(n) != "derived"]}
    tree = arviz_base.from_dict(
        {
            group: {legal_name(name): gather(array) for name, array in arrays.items()}
            for group, arrays in groups.items()
        },
        name=posterior.settings.get("model"),
        save_warmup=True,
        dims={legal_name(name): [legal_name(axis) for axis in over] for name, over in axes.items() if over},
        coords={legal_name(axis): values for axis, values in posterior.coords.items()},
        attrs={
            group: attributes | (sampled if group.endswith("posterior") else {}) | _sample_dims(group)
            for group in groups
        }
        | {"/": attributes},
        check_conventions=False,
    )
    if "inv_metric" in posterior.state and "sample_stats" in groups:  # one for each chain, or one for all
        metric = posterior.state["inv_metric"]
        over = [f"inv_metric_dim_{i}" for i in range(metric.ndim)]
        over = ["chain", *over[:-1]] if metric.ndim > 1 and len(metric) == posterior.chains else over
        tree["sample_stats"].dataset = tree["sample_stats"].to_dataset().assign(inv_metric=(over, metric))
    return tree


def plot(posterior, kind, **options):
    """Call `arviz_plots.plot_<kind>` on a posterior; of the options, `model` and `data` go to `to_arviz`."""
    arviz_plots = _imported("arviz_plots")
    known = [name.removeprefix("plot_") for name in dir(arviz_plots) if name.startswith("plot_")]
    if kind not in known:
        raise ModelError(f"arviz_plots has no plot {kind!r}; it has {listed(known, 40)}.{suggest(kind, known)}")
    tree = to_arviz(posterior, options.pop("model", None), options.pop("data", None))
    return getattr(arviz_plots, f"plot_{kind}")(tree, **options)


def _imported(name):
    try:
        return __import__(name)
    except ImportError as error:
        raise ImportError(f'{name} is not installed; type: pip install "ppl-jax[arviz]"') from error


def _model_groups(posterior, model, data):
    from ppl.inference.predict import log_likelihood, predict

    likelihood = log_likelihood(model, posterior, data)
    inputs = {name: value for name, value in data.items() if name not in likelihood}
    arrays = {name: np.asarray(value) for name, value in data.items() if not isinstance(value, str)}
    arrays = {name: array for name, array in arrays.items() if array.dtype.kind in "biuf"}
    return {
        "log_likelihood": dict(likelihood),
        "posterior_predictive": dict(predict(model, posterior, inputs).items()),
        "observed_data": {name: array for name, array in arrays.items() if name in likelihood},
        "constant_data": {name: array for name, array in arrays.items() if name not in likelihood},
    }


def _shapes(groups):
    """The shape of every array without its chains and draws, by name."""
    return {
        name: np.shape(array)[0 if group.endswith("_data") else 2 :]
        for group, arrays in groups.items()
        for name, array in arrays.items()
    }


def _sample_dims(group):
    return {} if group.endswith("_data") else {"sample_dims": ["chain", "draw"]}


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
