"""Exchanges between devices, counted in the text of a compiled program.

    exchanges(text) -> [Exchange(kind, computation, bytes), ...]

A program is a set of computations; the body of a loop is one of its own, so the exchanges of one leapfrog are those of
the innermost loop's body that evaluates the gradient.
"""

import re
from typing import NamedTuple

KINDS = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")
_HEAD = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(")
_CALL = re.compile(rf"= (.*?) ({'|'.join(KINDS)})(?:-start)?\(")
_SHAPE = re.compile(r"([a-z]+)(\d*)\[([\d,]*)\]")


class Exchange(NamedTuple):
    """One collective operation.

    Args:
      kind: such as "all-reduce".
      computation: the part of the program that it stands in.
      bytes: of its result, on each device.
      op: the jax operation it comes from, as the compiler noted it.
    """

    kind: str
    computation: str
    bytes: int
    op: str


def exchanges(text):
    """Return all exchanges of a compiled program, in the order of its text."""
    found, computation = [], ""
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            computation = head.group(1)
            continue
        call = _CALL.search(line)
        if call:
            op = re.search(r'op_name="([^"]*)"', line)
            found.append(Exchange(call.group(2), computation, _bytes(call.group(1)), op.group(1) if op else ""))
    return found


def _bytes(shapes):
    total = 0
    for kind, bits, lengths in _SHAPE.findall(shapes):
        count = 1
        for length in filter(None, lengths.split(",")):
            count *= int(length)
        total += count * (1 if kind == "pred" else int(bits or 8) // 8)
    return total
