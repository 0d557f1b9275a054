"""netCDF classic files with 64-bit offsets: named arrays with named axes and attributes, in one plain file.

    file       = "CDF" 2, 0, axes, attributes, variables, data
    axes       = 10, count, (name, length)*
    attributes = 12, count, (name, type, count, values)*
    variables  = 11, count, (name, axis numbers, attributes, type, bytes, offset)*

All numbers are big-endian and every part is padded to 4 bytes. Nothing in such a file can be run. An axis of length 0
cannot be stored (it would mean an axis that grows), nor an integer of more than 32 bits.
Reference: Unidata, The NetCDF classic format specification.
"""

import struct

import numpy as np

TYPES = {1: "i1", 2: "S1", 3: "i2", 4: "i4", 5: "f4", 6: "f8"}
NUMBERS = {np.dtype(name): number for number, name in TYPES.items()}
MAGIC = b"CDF\x02"
AXES, VARIABLES, ATTRIBUTES = 10, 11, 12


def write(stream, axes, attributes, variables):
    """Write a file.

    Args:
      stream: a binary file.
      axes: the length of each axis, by name.
      attributes: of the file: text or numpy arrays, by name.
      variables: a list of `(name, axes, array, attributes)`; the dtype of an array is one of `TYPES`.
    """
    stream.write(header(axes, attributes, variables))
    for _, _, array, _ in variables:
        stream.write(np.ascontiguousarray(array, array.dtype.newbyteorder(">")).data if array.size else b"")
        stream.write(b"\0" * (_padded(array.nbytes) - array.nbytes))


def header(axes, attributes, variables):
    """Return all that stands before the data."""
    number = {name: i for i, name in enumerate(axes)}
    start = MAGIC + _int(0) + _list(AXES, [_text(name) + _int(length) for name, length in axes.items()])
    start += _attributes(attributes)
    heads = [
        (_text(name) + _int(len(over)) + b"".join(_int(number[axis]) for axis in over) + _attributes(notes))
        + _int(NUMBERS[array.dtype])
        + struct.pack(">I", min(_padded(array.nbytes), 2**32 - 1))
        for name, over, array, notes in variables
    ]
    offset = len(start) + 8 + sum(len(head) + 8 for head in heads)
    entries = []
    for head, (_, _, array, _) in zip(heads, variables, strict=True):
        entries.append(head + struct.pack(">q", offset))
        offset += _padded(array.nbytes)
    return start + _list(VARIABLES, entries)


def read(buffer):
    """Return the attributes and the variables `{name: (array, attributes)}` of a file that lies in `buffer`.

    Arrays are copies. What is no such file ends in a ValueError, and so does one that is cut short.
    """
    reader = _Reader(buffer)
    if bytes(buffer[:4]) != MAGIC or reader.integer() != 0:
        raise ValueError("no netCDF classic file with 64-bit offsets")
    lengths = [(reader.text(), reader.integer())[1] for _ in reader.entries(AXES)]
    attributes = reader.attributes()
    return attributes, dict(reader.variable(lengths) for _ in reader.entries(VARIABLES))


class _Reader:
    """A place in a buffer, moving forward."""

    def __init__(self, buffer):
        self.buffer, self.at = buffer, len(MAGIC)

    def integer(self, form=">i"):
        size = struct.calcsize(form)
        try:
            (value,) = struct.unpack_from(form, self.buffer, self.at)
        except struct.error as error:
            raise ValueError("the file is cut short") from error
        self.at += size
        return value

    def data(self, number, count, at):
        if number not in TYPES or count < 0 or at < 0:
            raise ValueError(f"there is no type {number} of {count} values at {at}")
        dtype = np.dtype(TYPES[number])
        if at + count * dtype.itemsize > len(self.buffer):
            raise ValueError("the file is cut short")
        return np.frombuffer(self.buffer, dtype.newbyteorder(">"), count, at).astype(dtype)

    def values(self, number):
        values = self.data(number, self.integer(), self.at)
        self.at += _padded(values.nbytes)
        return values

    def text(self):
        return self.values(2).tobytes().decode()

    def entries(self, kind):
        found, count = self.integer(), self.integer()
        if found not in (kind, 0) or (found == 0 and count):
            raise ValueError(f"there is a list of kind {found} where one of kind {kind} was expected")
        return range(count)

    def attributes(self):
        found = {}
        for _ in self.entries(ATTRIBUTES):
            name, number = self.text(), self.integer()
            values = self.values(number)
            found[name] = values.tobytes().decode() if number == 2 else values
        return found

    def variable(self, lengths):
        name = self.text()
        over = [self.integer() for _ in range(self.integer())]
        if not all(0 <= axis < len(lengths) for axis in over):
            raise ValueError(f"{name!r} has an axis that the file does not have")
        shape = [lengths[axis] for axis in over]
        attributes, number = self.attributes(), self.integer()
        self.integer()
        size = 1
        for length in shape:
            size *= length
        return name, (self.data(number, size, self.integer(">q")).reshape(shape), attributes)


def _padded(size):
    return size + -size % 4


def _int(value):
    return struct.pack(">i", value)


def _bytes(values):
    return values + b"\0" * (-len(values) % 4)


def _text(text):
    encoded = text.encode()
    return _int(len(encoded)) + _bytes(encoded)


def _list(kind, entries):
    return _int(kind if entries else 0) + _int(len(entries)) + b"".join(entries)


def _attributes(attributes):
    entries = []
    for name, value in attributes.items():
        if isinstance(value, str):
            entries.append(_text(name) + _int(2) + _text(value))
        else:
            array = np.atleast_1d(value)
            data = array.astype(array.dtype.newbyteorder(">")).tobytes()
            entries.append(_text(name) + _int(NUMBERS[array.dtype]) + _int(len(array)) + _bytes(data))
    return _list(ATTRIBUTES, entries)
