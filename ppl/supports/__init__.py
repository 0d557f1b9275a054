"""Supports: where a random variable lives, and a map onto it from R^n; `base.py` states the rules that all keep."""

from ppl.supports.base import Support
from ppl.supports.bounds import between, bounds
from ppl.supports.integers import Counts, IntegerInterval
from ppl.supports.matrices import Cholesky, CorrCholesky, Covariance
from ppl.supports.numbers import AnyReal, Circular, GreaterThan, Interval, LessThan, NonNegative, Real
from ppl.supports.vectors import Ordered, PositiveOrdered, RealVector, Simplex, SumToZero, UnitVector

real = Real()
any_real = AnyReal()
positive = GreaterThan()
nonnegative = NonNegative()
negative = LessThan()
unit_interval = Interval()
circular = Circular()
real_vector = RealVector()
simplex = Simplex()
sum_to_zero = SumToZero()
unit_vector = UnitVector()
ordered = Ordered()
positive_ordered = PositiveOrdered()
corr_cholesky = CorrCholesky()
cholesky = Cholesky()
covariance = Covariance()
boolean = IntegerInterval(0, 1)
nonnegative_integer = IntegerInterval(0)
positive_integer = IntegerInterval(1)
greater_than = GreaterThan
less_than = LessThan
interval = Interval
integer_interval = IntegerInterval
counts = Counts

__all__ = [
    "AnyReal",
    "Cholesky",
    "Circular",
    "CorrCholesky",
    "Counts",
    "Covariance",
    "GreaterThan",
    "IntegerInterval",
    "Interval",
    "LessThan",
    "NonNegative",
    "Ordered",
    "PositiveOrdered",
    "Real",
    "RealVector",
    "Simplex",
    "SumToZero",
    "Support",
    "UnitVector",
    "any_real",
    "between",
    "boolean",
    "bounds",
    "cholesky",
    "circular",
    "corr_cholesky",
    "counts",
    "covariance",
    "greater_than",
    "integer_interval",
    "interval",
    "less_than",
    "negative",
    "nonnegative",
    "nonnegative_integer",
    "ordered",
    "positive",
    "positive_integer",
    "positive_ordered",
    "real",
    "real_vector",
    "simplex",
    "sum_to_zero",
    "unit_interval",
    "unit_vector",
]
