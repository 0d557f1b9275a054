"""Tracing: the loop that runs models, handlers, and what may be done with a model."""

from ppl.tracing.bind import bind as bind
from ppl.tracing.bind import log_density as log_density
from ppl.tracing.handle import Foreign as Foreign
from ppl.tracing.handle import handle as handle
from ppl.tracing.handle import handler as handler
from ppl.tracing.handlers import block as block
from ppl.tracing.handlers import condition as condition
from ppl.tracing.handlers import do as do
from ppl.tracing.handlers import mask as mask
from ppl.tracing.handlers import noncentered as noncentered
from ppl.tracing.handlers import replay as replay
from ppl.tracing.handlers import reweight as reweight
from ppl.tracing.handlers import scope as scope
from ppl.tracing.handlers import shard as shard
from ppl.tracing.handlers import substitute as substitute
from ppl.tracing.linear import linear as linear
from ppl.tracing.loops import Map as Map
from ppl.tracing.loops import Scan as Scan
from ppl.tracing.programs import Trace as Trace
from ppl.tracing.programs import log_joint as log_joint
from ppl.tracing.programs import sample as sample
from ppl.tracing.programs import trace as trace
