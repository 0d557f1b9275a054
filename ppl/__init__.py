"""ppl: probabilistic programs on jax.

A model is a generator function that yields random variables:

    def schools(sigma):
        mu = yield Normal(0., 5., name="mu")
        tau = yield HalfNormal(5., name="tau")
        theta = yield Normal(mu, tau, shape=sigma.shape, name="theta")
        yield Normal(theta, sigma, name="y")

    posterior = ppl.infer.nuts(ppl.noncentered(schools, "theta"), {"sigma": sigma, "y": y})
"""

from ppl import data as data
from ppl import distributions as distributions
from ppl import infer as infer
from ppl import supports as supports
from ppl.distributions import Affine as Affine
from ppl.distributions import Autoregressive as Autoregressive
from ppl.distributions import Bernoulli as Bernoulli
from ppl.distributions import Beta as Beta
from ppl.distributions import BetaBinomial as BetaBinomial
from ppl.distributions import Binomial as Binomial
from ppl.distributions import Categorical as Categorical
from ppl.distributions import Cauchy as Cauchy
from ppl.distributions import Censored as Censored
from ppl.distributions import Chain as Chain
from ppl.distributions import Chi2 as Chi2
from ppl.distributions import Coupling as Coupling
from ppl.distributions import Deterministic as Deterministic
from ppl.distributions import Dirichlet as Dirichlet
from ppl.distributions import DirichletMultinomial as DirichletMultinomial
from ppl.distributions import DiscreteUniform as DiscreteUniform
from ppl.distributions import Exponential as Exponential
from ppl.distributions import Factor as Factor
from ppl.distributions import Flat as Flat
from ppl.distributions import Gamma as Gamma
from ppl.distributions import Geometric as Geometric
from ppl.distributions import Gumbel as Gumbel
from ppl.distributions import HalfCauchy as HalfCauchy
from ppl.distributions import HalfNormal as HalfNormal
from ppl.distributions import HalfStudentT as HalfStudentT
from ppl.distributions import Inverse as Inverse
from ppl.distributions import InverseGamma as InverseGamma
from ppl.distributions import Kumaraswamy as Kumaraswamy
from ppl.distributions import Laplace as Laplace
from ppl.distributions import LKJCholesky as LKJCholesky
from ppl.distributions import Logistic as Logistic
from ppl.distributions import LogNormal as LogNormal
from ppl.distributions import Mixture as Mixture
from ppl.distributions import Multinomial as Multinomial
from ppl.distributions import MultivariateNormal as MultivariateNormal
from ppl.distributions import MultivariateStudentT as MultivariateStudentT
from ppl.distributions import NegativeBinomial as NegativeBinomial
from ppl.distributions import Normal as Normal
from ppl.distributions import OrderedLogistic as OrderedLogistic
from ppl.distributions import Pareto as Pareto
from ppl.distributions import Poisson as Poisson
from ppl.distributions import Reverse as Reverse
from ppl.distributions import Shift as Shift
from ppl.distributions import SkewNormal as SkewNormal
from ppl.distributions import StudentT as StudentT
from ppl.distributions import Tanh as Tanh
from ppl.distributions import Transformed as Transformed
from ppl.distributions import Truncated as Truncated
from ppl.distributions import TruncatedNormal as TruncatedNormal
from ppl.distributions import Uniform as Uniform
from ppl.distributions import VonMises as VonMises
from ppl.distributions import Weibull as Weibull
from ppl.distributions import Wishart as Wishart
from ppl.distributions import ZeroInflated as ZeroInflated
from ppl.errors import DataError as DataError
from ppl.errors import FormatError as FormatError
from ppl.errors import InferenceWarning as InferenceWarning
from ppl.errors import ModelError as ModelError
from ppl.errors import ModelWarning as ModelWarning
from ppl.errors import StartError as StartError
from ppl.inference.hosts import from_process_local as from_process_local
from ppl.inference.padding import pad as pad
from ppl.inference.plan import plan as plan
from ppl.inference.posterior import Posterior as Posterior
from ppl.inference.storage import load as load
from ppl.random_variable import RandomVariable as RandomVariable
from ppl.random_variable import random_variable as random_variable
from ppl.sharding import gather as gather
from ppl.tracing import Foreign as Foreign
from ppl.tracing import Map as Map
from ppl.tracing import Scan as Scan
from ppl.tracing import Trace as Trace
from ppl.tracing import bind as bind
from ppl.tracing import block as block
from ppl.tracing import condition as condition
from ppl.tracing import do as do
from ppl.tracing import handle as handle
from ppl.tracing import handler as handler
from ppl.tracing import linear as linear
from ppl.tracing import log_density as log_density
from ppl.tracing import log_joint as log_joint
from ppl.tracing import mask as mask
from ppl.tracing import noncentered as noncentered
from ppl.tracing import replay as replay
from ppl.tracing import reweight as reweight
from ppl.tracing import sample as sample
from ppl.tracing import scope as scope
from ppl.tracing import shard as shard
from ppl.tracing import substitute as substitute
from ppl.tracing import trace as trace
from ppl.version import __version__ as __version__
from ppl.version import versions as versions
