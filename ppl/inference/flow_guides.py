"""Flows as guides: one vector on free space, a normal one seen through a chain of bijections.

References: Rezende and Mohamed (2015), arXiv 1505.05770; see `ppl.distributions.flows` for the layers.
"""

import jax
import jax.numpy as jnp

from ppl.distributions import Autoregressive, Chain, Coupling, Inverse, Normal, Reverse, Shift, Transformed
from ppl.errors import ModelError, listed, suggest
from ppl.inference.guides import _joint_name, _layout, _pieces, _start
from ppl.inference.variational import Automatic, Guide, Target

KINDS = ("spline_coupling", "affine_coupling", "autoregressive", "inverse_autoregressive")


def _flow(
    target: Target,
    kind: str = "spline_coupling",
    layers: int = 4,
    hidden: int = 32,
    bins: int = 8,
    spline: bool = False,
) -> Guide:
    """A normalizing flow on free space: takes the shape of curved and skewed posteriors.

    `kind` is "spline_coupling", "affine_coupling", "autoregressive" (slow draws) or "inverse_autoregressive" (fast draws); the
    latter two are affine, or splines with `spline=True`. `layers`, `hidden` (units of each network) and `bins` (pieces of a
    spline) set its size.
    """
    layout = _layout(target)
    n = layout.size
    if kind not in KINDS:
        raise ModelError(f"flow: kind={kind!r} is none of {listed(KINDS)}.{suggest(kind, KINDS)}")
    if kind.endswith("coupling") and n < 2:
        raise ModelError(
            f"flow: coupling needs at least two numbers, and the model has {n}: give kind='inverse_autoregressive'"
        )
    mean, sd, _ = _start(target)
    parts = []
    for key in jax.random.split(jax.random.key(0), layers):
        if kind.endswith("coupling"):
            parts.append(Coupling.init(key, n, kind.removesuffix("_coupling"), hidden, bins))
        else:
            layer = Autoregressive.init(key, n, "spline" if spline else "affine", hidden, bins)
            parts.append(Inverse(layer) if kind == "inverse_autoregressive" else layer)
        parts.append(Reverse())
    init = {"flow": Chain([*parts, Shift(jnp.asarray(mean), jnp.log(jnp.asarray(sd)))])}
    joint = _joint_name(layout)

    def flow(q):
        vector = yield Transformed(Normal(0.0, 1.0, shape=(n,)), q["flow"], name=joint)
        yield from _pieces(layout, vector)

    # "sticking" has many times the variance here: it differentiates a spline's slope by the draw.
    return Guide(flow, init, free=True, auxiliary=(joint,), gradient="pathwise", rate=0.01)


flow = Automatic("flow", _flow)
