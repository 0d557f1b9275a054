"""Data sets: small ones embedded, large ones downloaded once.

>>> from ppl.data import eight_schools
>>> sorted(eight_schools())
['sigma', 'y']
"""

from ppl.data.covertype import covertype
from ppl.data.embedded import SCHOOLS, eight_schools
from ppl.data.fetch import fetch
from ppl.data.mnist import mnist
from ppl.data.movielens import movielens, synthetic_ratings

__all__ = ["SCHOOLS", "covertype", "eight_schools", "fetch", "mnist", "movielens", "synthetic_ratings"]
