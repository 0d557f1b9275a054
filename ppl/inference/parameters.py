"""Parameters of guides: any pytree, and which of its leaves are trained.

Arrays of floats are trained. Arrays of integers, keys, functions, strings and None are carried along as they are, so that
a pytree may be a dict of numbers, a tree of network weights, or a whole network object that is a pytree.
"""

import dataclasses
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppl.errors import ModelError
from ppl.tracing.handle import model_name


def is_trained(leaf):
    """Tell whether a leaf is an array of floats (Python floats count)."""
    if isinstance(leaf, float):
        return True
    return isinstance(leaf, jax.Array | np.ndarray | np.generic) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def _is_array(leaf):
    return is_trained(leaf) or isinstance(leaf, jax.Array | np.ndarray)


def _hole(x):
    return x is None


def apart(tree):
    """Take a pytree apart into `(trained, rest)`: two trees of its structure, each with None where the other has a leaf."""
    trained = jax.tree.map(lambda x: jnp.asarray(x) if is_trained(x) else None, tree)
    rest = jax.tree.map(lambda x: None if is_trained(x) else x, tree)
    return trained, rest


def together(trained, rest):
    """Put what `apart` returned together again."""
    return jax.tree.map(lambda a, b: b if a is None else a, trained, rest, is_leaf=_hole)


@dataclasses.dataclass(frozen=True)
class Parametric:
    """A program that takes a pytree as its argument `name`, seen as one that takes a flat dict of the tree's arrays there.

    Equal functions with trees of equal structure are equal, so that a bound program is found again.

    Args:
      function: a model or a guide.
      name: which argument the parameters are.
      outline: structure of the parameters.
      fixed: for each leaf, `(whether it is an array, the leaf if it is none)`.
    """

    function: Any
    name: str
    outline: Any
    fixed: tuple

    @classmethod
    def of(cls, function, name, tree):
        """Return the program for parameters like `tree`, and the dict of arrays that it takes."""
        leaves, outline = jax.tree.flatten(tree)
        fixed = tuple((True, None) if _is_array(x) else (False, x) for x in leaves)
        return cls(function, name, outline, fixed), cls.arrays(tree)

    @staticmethod
    def arrays(tree):
        """Return the arrays of a tree, by number, in the order in which jax sorts them."""
        arrays = [jnp.asarray(x) for x in jax.tree.leaves(tree) if _is_array(x)]
        return {f"{i:06d}": x for i, x in enumerate(arrays)}

    def tree(self, arrays):
        """Return the pytree with these arrays."""
        arrays = iter([arrays[key] for key in sorted(arrays)])
        return jax.tree.unflatten(self.outline, [next(arrays) if array else leaf for array, leaf in self.fixed])

    def __call__(self, **arguments):
        """Return the running program."""
        arguments[self.name] = self.tree(arguments[self.name])
        first = next(iter(inspect.signature(self.function).parameters.values()))
        if first.name == self.name and first.kind is first.POSITIONAL_ONLY:
            return self.function(arguments.pop(self.name), **arguments)
        return self.function(**arguments)

    @property
    def __wrapped__(self):
        return self.function

    @property
    def __name__(self):
        return model_name(self.function)


def parameter_name(guide):
    """Return the name of a guide's first argument, which is its parameters."""
    parameters = list(inspect.signature(guide).parameters.values())
    if not parameters:
        raise ModelError(
            f"the guide `{model_name(guide)}` takes no arguments: its first one is its parameters, a pytree like init=, "
            f"as in `def {model_name(guide)}(q): ...`"
        )
    return parameters[0].name
