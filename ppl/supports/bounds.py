"""The ends of a support of numbers, and the support with given ends: for wrappers that cut, join or map supports."""

import jax.numpy as jnp
import numpy as np

from ppl.supports.integers import IntegerInterval
from ppl.supports.numbers import Circular, GreaterThan, Interval, LessThan, Real


def bounds(support):
    """Return `(low, high)` of a support of numbers, with None for a side that is open to infinity."""
    if isinstance(support, GreaterThan):
        return support.low, None
    if isinstance(support, LessThan):
        return None, support.high
    if isinstance(support, Interval | IntegerInterval):
        return support.low, support.high
    if isinstance(support, Circular):
        return -np.pi, np.pi
    return None, None


def between(low, high, discrete=False):
    """Return the support of all numbers (or whole numbers) from `low` to `high`; None leaves a side open."""
    if discrete:
        return IntegerInterval(low, high)
    if low is None:
        return Real() if high is None else LessThan(high)
    return GreaterThan(low) if high is None else Interval(low, high)


def greatest(*numbers):
    """Return the greatest of some numbers or arrays, or None if there are none; Python numbers stay Python numbers."""
    return _extreme(numbers, max, jnp.maximum)


def least(*numbers):
    """Return the least of some numbers or arrays, or None if there are none; Python numbers stay Python numbers."""
    return _extreme(numbers, min, jnp.minimum)


def _extreme(numbers, of_numbers, of_arrays):
    if all(isinstance(n, int | float) for n in numbers):
        return of_numbers(numbers, default=None)
    arrays = [jnp.asarray(n, dtype=jnp.result_type(float)) if isinstance(n, int | float) else n for n in numbers]
    result = arrays[0]
    for n in arrays[1:]:
        result = of_arrays(result.astype(jnp.result_type(result, n)), n.astype(jnp.result_type(result, n)))
    return result
