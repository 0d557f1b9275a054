"""Inference: `infer.hmc(model, data)` and its kin.

Samplers and what follows from their draws. The kernels that samplers are made of are modules of their own, to be
driven by
hand: `ppl.inference.nuts`, `ppl.inference.hmc`, `ppl.inference.metropolis`.
"""

from ppl.inference.calibration import Calibration as Calibration
from ppl.inference.calibration import calibrate as calibrate
from ppl.inference.posterior import Posterior as Posterior
from ppl.inference.predict import log_likelihood as log_likelihood
from ppl.inference.predict import predict as predict
from ppl.inference.predict import prior as prior
from ppl.inference.predict import returned as returned
from ppl.inference.samplers import hmc as hmc
from ppl.inference.samplers import metropolis as metropolis
from ppl.inference.samplers import nuts as nuts
