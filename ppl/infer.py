"""Inference: `infer.hmc(model, data)` and its kin.

Samplers and what follows from their draws. The kernels that samplers are made of are modules of their own, to be
driven by
hand: `ppl.inference.nuts`, `ppl.inference.hmc`, `ppl.inference.metropolis`.

Examples in docstrings are about a coin that was tossed four times:

  >>> def coin():
  ...     p = yield ppl.Beta(1.0, 1.0, name="p")
  ...     yield ppl.Bernoulli(p, shape=(4,), name="y")
  >>> tosses = {"y": [1, 1, 0, 1]}
"""

from ppl.inference.calibration import Calibration as Calibration
from ppl.inference.calibration import calibrate as calibrate
from ppl.inference.fit import Fit as Fit
from ppl.inference.flow_guides import flow as flow
from ppl.inference.guides import full_rank as full_rank
from ppl.inference.guides import laplace as laplace
from ppl.inference.guides import low_rank as low_rank
from ppl.inference.guides import map as map
from ppl.inference.guides import mean_field as mean_field
from ppl.inference.guides import structured as structured
from ppl.inference.neutra import neutra as neutra
from ppl.inference.objectives import density_ratio as density_ratio
from ppl.inference.objectives import elbo as elbo
from ppl.inference.objectives import forward_kl as forward_kl
from ppl.inference.objectives import importance_weighted as importance_weighted
from ppl.inference.objectives import renyi as renyi
from ppl.inference.pathfinder import pathfinder as pathfinder
from ppl.inference.posterior import Posterior as Posterior
from ppl.inference.predict import log_likelihood as log_likelihood
from ppl.inference.predict import predict as predict
from ppl.inference.predict import prior as prior
from ppl.inference.predict import returned as returned
from ppl.inference.samplers import hmc as hmc
from ppl.inference.samplers import metropolis as metropolis
from ppl.inference.samplers import nuts as nuts
from ppl.inference.vi import vi as vi
from ppl.inference.vi import vi_step as vi_step
