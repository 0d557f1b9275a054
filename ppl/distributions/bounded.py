"""What `Truncated` and `Censored` have in common: a base and two bounds."""

from typing import ClassVar

from ppl.distributions.tails import has_tails
from ppl.errors import ModelError
from ppl.random_variable import ArrayLike, RandomVariable, concrete, random_variable
from ppl.supports import any_real, between, bounds
from ppl.supports.bounds import greatest, least


@random_variable
class Bounded(RandomVariable):
    """A random variable of numbers with a distribution function, and bounds; None leaves a side open."""

    base: RandomVariable
    low: ArrayLike | None = None
    high: ArrayLike | None = None

    domain = dict(low=any_real, high=any_real)
    pathwise = False
    verb: ClassVar[str] = "bounded"  # how a message says what the bounds do

    def check(self):
        """Refuse bases and bounds that make no sense."""
        if not isinstance(self.base, RandomVariable):
            raise ModelError(f"{self._label()}: base must be a random variable, not {type(self.base).__name__}")
        if not has_tails(self.base):
            raise ModelError(
                f"{self._label()}: {type(self.base).__name__} cannot be {self.verb}: it has no `cdf`. Families of "
                "single numbers with `cdf` or `log_cdf` can"
            )
        if self.low is None and self.high is None:
            raise ModelError(f"{self._label()}: give low, high or both")
        low, high = (None if b is None else concrete(b) for b in (self.low, self.high))
        if low is not None and high is not None and not (low <= high).all():
            raise ModelError(f"{self._label()}: low must not exceed high, but low is {low} and high is {high}")

    def __post_init__(self):
        super().__post_init__()
        if self.base.shape != self.shape:
            self.__dict__["base"] = self.base.replace(shape=self.shape)

    @property
    def support(self):
        """The part of the base's support between the bounds."""
        low, high = bounds(self.base.support)
        low = greatest(*(b for b in (low, self.low) if b is not None))
        high = least(*(b for b in (high, self.high) if b is not None))
        return between(low, high, self.base.support.discrete)

    @property
    def dtype(self):
        """The dtype of a draw."""
        return self.base.dtype
