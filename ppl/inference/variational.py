"""A model and a guide, aligned: what every objective is made of.

    log w = log p(x, z) - log q(z; parameters),        z drawn by the guide

A guide is a program like a model: the variables that it yields are the model's latent variables, by equal names (or by
`align`, from the guide's name to the model's). What it derives (`Deterministic`) stands for a latent variable too, as a point
that has no density. Guides that are made here (`guides`) live on free space instead, where every latent variable is R^n.

Everything is checked before the first step: `Problem.of` names what is missing, what is too much, and shapes that differ.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ppl.errors import DataError, ModelError, listed, suggest
from ppl.inference.parameters import Parametric, parameter_name
from ppl.tracing.bind import bind, signature
from ppl.tracing.handle import handler, model_name
from ppl.tracing.programs import Context, draw_key, run, total


@dataclasses.dataclass(frozen=True)
class Automatic:
    """A guide that is made for a model: `vi(model, mean_field, data)`, or with options `vi(model, low_rank(rank=3), data)`.

    Args:
      name: what it is called.
      build: a function of `(target, **options)` that returns a `Guide`; `target` is a `Target`.
      options: what differs from the defaults of `build`.
    """

    name: str
    build: Callable
    options: tuple = ()

    def __call__(self, **options: Any) -> "Automatic":
        """Return the guide with these options."""
        known = list(inspect.signature(self.build).parameters)[1:]
        for option in options:
            if option not in known:
                raise ModelError(f"{self.name} has no option {option!r} ({listed(known)}).{suggest(option, known)}")
        return dataclasses.replace(self, options=(*self.options, *options.items()))

    @property
    def __doc__(self):
        return self.build.__doc__


@dataclasses.dataclass(frozen=True)
class Guide:
    """A guide and how it is to be read.

    Args:
      program: a generator function of its parameters, and of arguments that data has.
      init: its first parameters.
      free: whether its values are free values of the latent variables, in place of natural ones.
      auxiliary: names that it yields beside the latent variables.
      volume: whether log p includes the volume terms of the maps from free space; a point estimate leaves them out.
      gradient: the estimator that suits it best.
      rate: the first learning rate of the default optimizer.
      implicit: whether it may have latent variables beside those of the model: then it has no density of the latter.
      finish: None, or a function of `(problem, parameters)` that returns another guide and parameters after the last step.
    """

    program: Any
    init: Any
    free: bool = False
    auxiliary: tuple = ()
    volume: bool = True
    gradient: str | None = None
    rate: float = 0.02
    implicit: bool = False
    finish: Any = None


@dataclasses.dataclass(frozen=True)
class Drawing(Context):
    """A context for guides: remembers exact densities of what it draws, and where gradients must not pass.

    Draws of variables that are no differentiable function of their parameters (discrete ones, mixtures) are cut off from
    the gradient; with `cut` all draws are. `entropies` puts the negative entropy of each family that knows it in place of
    the log density at the draw. `exact` passes a density from where a value is drawn to where it is asked for.
    """

    cut: bool = False
    entropies: bool = False
    exact: dict = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, ctx, cut=False, entropies=False):
        """Return a drawing context with the fields of another context."""
        fields = {f.name: getattr(ctx, f.name) for f in dataclasses.fields(Context)}
        return cls(**fields, cut=cut, entropies=entropies)

    def draw(self, rv):
        """Return a value, cut off from the gradient where a gradient would be wrong."""
        if self.key is None:
            return super().draw(rv)
        key = draw_key(self.key, rv)
        if self.cut or not is_pathwise(rv):
            return jax.lax.stop_gradient(_fixed(rv).sample(key))
        if hasattr(rv, "sample_and_log_prob") and isinstance(rv.weight, int | float):
            value, log_prob = rv.sample_and_log_prob(key)
            self.exact[rv.name] = rv.weight * log_prob
            return value
        return rv.sample(key)

    def log_prob(self, rv, value, inside):
        """Return the log density, or what stands for it."""
        exact = self.exact.pop(rv.name, None)
        if self.entropies and rv.role == "latent" and is_pathwise(rv) and hasattr(rv, "entropy"):
            entropy = rv.entropy()
            weight = rv.weight if isinstance(rv.weight, int | float) else jnp.broadcast_to(rv.weight, entropy.shape)
            return -weight * entropy
        return exact if exact is not None else super().log_prob(rv, value, inside)


def is_pathwise(rv):
    """Tell whether a draw is a differentiable function of the parameters of its law."""
    return not rv.support.discrete and getattr(rv, "pathwise", True)


def _fixed(rv):
    """Return a random variable whose parameters are constants for the gradient."""
    new = object.__new__(type(rv))
    new.__dict__.update(rv.__dict__)
    for name in rv.parameter_names:
        fixed = jax.tree.map(lambda x: jax.lax.stop_gradient(x) if isinstance(x, jax.Array) else x, getattr(rv, name))
        new.__dict__[name] = fixed
    return new


@dataclasses.dataclass(frozen=True, eq=False)
class Draw:
    """One draw of a guide.

    Args:
      noise: values of the guide's own latent variables, by its names.
      values: values of the model's latent variables, by the model's names.
      log_guide: log q of the draw, or what the estimator puts in its place.
      score: log q of the variables that no gradient passes through.
    """

    noise: dict
    values: dict
    log_guide: Any
    score: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Target:
    """A model bound to data, as the makers of guides see it."""

    bound: Any
    init: Any = None
    seed: Any = 0

    @property
    def latents(self):
        """`{name: Latent}` in program order."""
        return self.bound.structure.latents


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """A model and a guide, aligned and bound to data.

    Args:
      model: the model's `Bound`.
      guide: the guide's `Bound`.
      spec: the `Guide`.
      names: from the guide's names to the model's, for each latent variable of the model.
      taken: the name of the model's argument that the parameters are, or None.
      parameter: the name of the guide's first argument.
      cut: names of guide variables that no gradient passes through, with their weights.
    """

    model: Any
    guide: Any
    spec: Guide
    names: tuple
    taken: str | None
    parameter: str
    cut: tuple

    @classmethod
    def of(cls, model, spec, data, params, align=None, rows=()):
        """Bind and align. `params` is a whole pytree like the guide's parameters; of entries `rows` steps take some rows."""
        data = dict(data or {})
        parameter = parameter_name(spec.program)
        if parameter in data:
            raise DataError(
                f"data has {parameter!r}, which is the first argument of the guide `{model_name(spec.program)}`: its parameters. "
                "Give them as init=, or rename one of the two"
            )
        taken = parameter if parameter in signature(model) else None
        wants = [n for n in signature(spec.program) if n != parameter]
        guide_data = {n: data[n] for n in wants if n in data}
        program, arrays = Parametric.of(spec.program, parameter, params)
        rows = (parameter, *rows)
        guide_bound = bind(program, {parameter: arrays, **guide_data}).as_given(rows)
        if taken:
            model, arrays = Parametric.of(model, parameter, params)
            data[parameter] = arrays
        data = _for_model(model, data, wants)
        bound = bind(model, data).as_given(rows)
        pairs = _aligned(bound, guide_bound, spec, align or {})
        return cls(bound, guide_bound, spec, pairs, taken, parameter, _cut(guide_bound))

    def key(self):
        """Return what a compiled program depends on, apart from shapes that jax sees itself."""
        return (self.guide.structure, self.names, self.spec.free, self.spec.volume)

    @property
    def arrays(self):
        """The arrays of data of both programs."""
        return {"model": self.model.arrays, "guide": self.guide.arrays}

    def _given(self, which, params, arrays):
        """Return arrays of one program with the trained parameters put in."""
        wrapper = getattr(self, which).structure.model
        if not isinstance(wrapper, Parametric):
            return arrays[which]
        leaves = jax.tree.leaves(params)
        kept = {k: v for k, v in arrays[which].items() if k.startswith(f"{self.parameter}:")}
        floats = [k for k in sorted(kept, key=_number) if jnp.issubdtype(kept[k].dtype, jnp.inexact)]
        return {**arrays[which], **dict(zip(floats, leaves, strict=True))}

    def draw(self, key, params, arrays, cut=False, entropies=False):
        """Draw once from the guide. Returns a `Draw`."""
        structure = self.guide.structure
        arguments, ctx = structure.given(self._given("guide", params, arrays), key=key)
        _, sites = run(structure.model, arguments, Drawing.of(ctx, cut, entropies))
        noise = {n: s.value for n, s in sites.items() if s.role == "latent"}
        stopped = [(n, w) for n, p, w in self.cut if cut or not p]
        score = [jnp.sum(sites[n].log_prob) / w for n, w in stopped]
        values = {theirs: sites[ours].value for ours, theirs in self.names}
        return Draw(noise, values, total(sites, volume=False), sum(score[1:], score[0]) if score else jnp.zeros(()))

    def log_guide(self, noise, params, arrays):
        """Return log q at values of the guide's own latent variables."""
        _, sites = self.guide.structure.run(self._given("guide", params, arrays), values=noise)
        return total(sites, volume=False)

    def sites(self, values, params, arrays, density=True):
        """Run the model at values of its latent variables; returns its sites."""
        given = {"free": values} if self.spec.free else {"values": values}
        return self.model.structure.run(self._given("model", params, arrays), density=density, **given)[1]

    def log_joint(self, values, params, arrays):
        """Return log p(x, z); of free values where the guide draws them, with the volume of their maps."""
        return total(self.sites(values, params, arrays), volume=self.spec.free and self.spec.volume)

    def prior(self, key, params, arrays):
        """Draw the model's latent variables before it sees its observations; free values where the guide draws them."""
        _, sites = self.model.structure.run(self._given("model", params, arrays), key=key, density=False)
        return {n: self.model.structure.part(n, sites[n].value) for n in self.model.structure.latents}

    def record(self, values, params, arrays):
        """Return natural values of the model's latent and derived variables."""
        structure = self.model.structure
        sites = self.sites(values, params, arrays, density=False)
        return {n: structure.part(n, sites[n].value) for n in structure.recorded}


def _number(key):
    return int(key.rpartition(":")[2])


def _for_model(model, data, wants):
    """Return the entries of data that are the model's: all but those that the guide alone takes."""
    arguments = signature(model)
    unclear = [n for n in wants if n in data and n not in arguments]
    if not unclear:
        return data
    families = bind(model, {n: v for n, v in data.items() if n in arguments}).structure.families
    return {n: v for n, v in data.items() if n not in unclear or n in families}


def _cut(bound):
    """Return `(name, whether a gradient passes through its draws, weight)` of each latent variable of a guide."""
    structure, found = bound.structure, {}

    def watch(rv, value, log_prob):
        if rv.role == "latent":
            found[rv.name] = (rv.name, is_pathwise(rv), rv.weight if isinstance(rv.weight, int | float) else 1.0)

    shapes = {n: jax.ShapeDtypeStruct(a.shape, a.dtype) for n, a in bound.arrays.items()}
    if ("cut",) not in structure.compiled:
        jax.eval_shape(lambda a: structure.run(a, shapes=True, density=False, watch=watch)[1], shapes)
        structure.compiled[("cut",)] = tuple(found.values())
    return structure.compiled[("cut",)]


def _aligned(model, guide, spec, align):
    """Return pairs (name in the guide, name in the model) of all latent variables, or refuse what does not fit."""
    ours, theirs = guide.structure, model.structure
    _known_names(align, ours, theirs)
    if not theirs.latents:
        raise ModelError(
            f"`{model_name(theirs.model)}` has no latent variable left: everything is observed or fixed, "
            "so there is nothing to infer"
        )
    given = {align.get(n, n): n for n in (*ours.derived, *ours.latents) if n not in spec.auxiliary}
    sizes = {n: latent.free_shape if spec.free else latent.shape for n, latent in theirs.latents.items()}
    if not spec.free:
        _check_at_its_line(ours, guide, theirs, align, sizes, spec)
    for name, latent in theirs.latents.items():
        if name not in given:
            raise ModelError(
                f"the guide `{model_name(ours.model)}` does not draw {name!r} ({theirs.families[name]}, shape {latent.shape}), "
                f"which is latent in `{model_name(theirs.model)}`: it would stay at its prior. Yield a variable called {name!r} in "
                f"the guide, or rename one with align={{...: {name!r}}}. The guide has {listed(ours.families)}."
                f"{suggest(name, ours.families)}"
            )
    return tuple((given[name], name) for name in theirs.latents)


def _known_names(align, ours, theirs):
    for mine, yours in align.items():
        if mine not in ours.families:
            raise ModelError(
                f"align has {mine!r}, which is no variable of the guide ({listed(ours.families)}).{suggest(mine, ours.families)}"
            )
        if yours not in theirs.latents:
            raise ModelError(
                f"align sends {mine!r} to {yours!r}, which is no latent variable of the model ({listed(theirs.latents)})."
                f"{suggest(yours, theirs.latents)}"
            )


def _check_at_its_line(ours, guide, theirs, align, sizes, spec):
    """Where a variable of the guide does not fit, run the guide again and complain at its line."""
    known = {**ours.latents, **{n: v for n, v in ours.derived.items() if align.get(n, n) in theirs.latents}}

    def fits(name, latent):
        theirs_name = align.get(name, name)
        if theirs_name not in theirs.latents:
            return spec.implicit and theirs_name not in theirs.observed
        discrete = theirs.latents[theirs_name].free_shape is None
        return latent.shape == sizes[theirs_name] and (name in ours.derived or (latent.free_shape is None) == discrete)

    if all(fits(name, latent) for name, latent in known.items()):
        return

    def respond(rv):
        if rv.name in known and not fits(rv.name, known[rv.name]):
            raise ModelError(_misfit(rv, known[rv.name], ours, theirs, align, sizes))
        return (yield rv)

    checking = handler(ours.model, respond)
    arguments, ctx = ours.given(guide.arrays, shapes=True, density=False)
    jax.eval_shape(lambda: run(checking, arguments, ctx)[1])


def _misfit(rv, latent, ours, theirs, align, sizes):
    """Word what is wrong with one variable of a guide."""
    name, kind = align.get(rv.name, rv.name), f"{rv.name!r} ({type(rv).__name__})"
    if name in theirs.observed:
        return f"{kind} is drawn by the guide, and observed in `{model_name(theirs.model)}`: remove it from the guide, or from data"
    if name not in theirs.latents:
        return (
            f"{kind} is drawn by the guide, and `{model_name(theirs.model)}` has no latent variable of that name "
            f"({listed(theirs.latents)}): remove it, or rename it with align={{{rv.name!r}: ...}}.{suggest(name, theirs.latents)}"
        )
    if latent.shape != sizes[name]:
        return (
            f"{kind} has shape {latent.shape} in the guide, and {name!r} ({theirs.families[name]}) has shape {sizes[name]} in "
            f"`{model_name(theirs.model)}`: give both one shape; values are never broadcast"
        )
    words = "discrete" if latent.free_shape is None else "continuous"
    other = "continuous" if latent.free_shape is None else "discrete"
    return f"{kind} is {words} in the guide, and {name!r} ({theirs.families[name]}) is {other} in `{model_name(theirs.model)}`"
