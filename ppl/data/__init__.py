"""Data sets: small ones embedded, large ones downloaded once.

>>> from ppl.data import eight_schools
>>> sorted(eight_schools())
['sigma', 'y']
"""

from ppl.data.embedded import SCHOOLS, eight_schools
from ppl.data.fetch import fetch

__all__ = ["SCHOOLS", "eight_schools", "fetch"]
