"""Where things lie: one mapping from names to `PartitionSpec`s places data, latent variables and parameters of a fit.

    infer.vi(model, guide, data, mesh=mesh, sharding={"X": P("rows"), "z": P("rows"), "decoder/weights": P(None, "hidden")})

A name is an entry of data, a variable of the model or the guide, or the path of parameters: "users" covers "users/loc" and
"users/log_scale". What is not named is on all devices. The mesh may have axes of any type; programs run under its twin with
`Auto` axes, where the compiler lays out everything that is not said.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from ppl.errors import ModelError, listed, suggest
from ppl.sharding import place, twin
from ppl.tracing.handle import handler


@dataclasses.dataclass(frozen=True, eq=False)
class Placement:
    """A mesh and what lies how on it.

    Args:
      mesh: with `Auto` axes, or None.
      specs: `(name, PartitionSpec)` pairs.
    """

    mesh: Any = None
    specs: tuple = ()

    @classmethod
    def of(cls, mesh, sharding):
        """Return the placement that the two arguments of a fit ask for."""
        if not sharding:
            return cls() if mesh is None else cls(twin(mesh))
        for name, spec in sharding.items():
            if isinstance(spec, NamedSharding):
                mesh = spec.mesh if mesh is None else mesh
            elif not isinstance(spec, PartitionSpec):
                raise ModelError(
                    f"sharding[{name!r}] is {spec!r}: give a jax.sharding.PartitionSpec, one entry an axis, as P('rows')"
                )
        if mesh is None:
            raise ModelError(
                f"sharding names {listed(sharding)}, but there is no mesh: give mesh=jax.make_mesh((8,), ('rows',))"
            )
        specs = tuple((n, s.spec if isinstance(s, NamedSharding) else s) for n, s in sharding.items())
        return cls(twin(mesh), specs)

    @property
    def active(self):
        """Whether there is a mesh."""
        return self.mesh is not None

    @property
    def key(self):
        """What compiled programs depend on."""
        return None if self.mesh is None else (self.mesh, self.specs)

    def model(self, model):
        """Return a model or guide whose variables are laid out."""
        specs = tuple((name, NamedSharding(self.mesh, spec)) for name, spec in self.specs)
        if not specs:
            return model

        def respond(rv):
            for name, spec in specs:
                if name == rv.name and rv.sharding is None:
                    rv = rv.replace(sharding=spec)
            return (yield rv)

        return handler(model, respond)

    def data(self, data):
        """Return data whose named entries lie on their devices."""
        for name, spec in self.specs:
            if name in data:
                data[name] = jax.tree.map(lambda x, s=spec, n=name: self._put(x, s, f"data[{n!r}]"), data[name])
        return data

    def params(self, tree):
        """Return parameters that lie as their paths say."""
        if not self.active:
            return tree

        def one(path, leaf):
            if not isinstance(leaf, jax.Array | np.ndarray | float):
                return leaf
            return self._put(leaf, self.spec_of(path), f"parameter {path_name(path)!r}")

        return jax.tree_util.tree_map_with_path(one, tree)

    def spec_of(self, path):
        """Return the spec of a parameter by its path, `P()` if none is said."""
        name = path_name(path)
        for known, spec in self.specs:
            if name == known or name.startswith(f"{known}/"):
                return spec
        return PartitionSpec()

    def _put(self, leaf, spec, label):
        leaf = leaf if hasattr(leaf, "ndim") else np.asarray(leaf, np.dtype(jax.dtypes.canonicalize_dtype(float)))
        sharding = NamedSharding(self.mesh, spec)
        like = jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))
        jax.eval_shape(lambda x: place(x, sharding, label), like)  # or refuse
        return jax.device_put(leaf, sharding)

    def arrays(self, arrays):
        """Return arrays all of which lie on the mesh: those that are elsewhere go to all devices."""
        everywhere = NamedSharding(self.mesh, PartitionSpec())

        def one(x):
            if not isinstance(x, jax.Array) or not isinstance(x.sharding, NamedSharding):
                return jax.device_put(x, everywhere)
            return x if x.sharding.mesh == self.mesh else jax.device_put(x, NamedSharding(self.mesh, x.sharding.spec))

        return jax.tree.map(one, arrays)

    def keeping(self, step, trained):
        """Return a step that leaves the parameters where they are."""
        if not self.active:
            return step
        specs = jax.tree_util.tree_map_with_path(lambda path, x: self.spec_of(path), trained)

        def placed(state, key, arrays, total):
            state, info = step(state, key, arrays, total)
            params = jax.tree.map(
                lambda x, spec: jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, spec)), state.params, specs
            )
            return state._replace(params=params), info

        return placed

    def check(self, problem, data, params):
        """Refuse names that are nothing."""
        paths = [path_name(path) for path, _ in jax.tree_util.tree_flatten_with_path(params)[0]]
        known = [*data, *problem.model.structure.families, *problem.guide.structure.families, *paths]
        for name, _ in self.specs:
            if name not in known and not any(p.startswith(f"{name}/") for p in paths):
                raise ModelError(
                    f"sharding has {name!r}, which is no entry of data, no variable and no parameter ({listed(known)})."
                    f"{suggest(name, known)}"
                )


def path_name(path):
    """Return the path of a leaf as "encoder/weights/0"."""
    return "/".join(str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", k)))) for k in path)
