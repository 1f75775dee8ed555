"""Ranks of a test, and data that every rank can compute for every other."""

import os

import numpy
import pytest

import colls

numpy.set_printoptions(threshold=20)
SIZES = [1, 2, 3, 4, 5]
COUNTS = [0, 1, 2, 3, 7, 64, 1001]
GUARD = 0x5B


def on_ranks(function, size, *args, transport="shm", timeout=60, method="fork"):
    """What function(comm, *args) returns on each of `size` ranks, which wait for `timeout` seconds at most."""
    before = dict(os.environ)
    os.environ.update(COLLS_TRANSPORT=transport, COLLS_TIMEOUT=str(timeout))
    try:
        return colls.run(function, size, args, method=method)
    finally:
        os.environ.clear()
        os.environ.update(before)


def data(rank, count, dtype="int64", salt=0):
    """Elements that differ between ranks and places, and whose sums and products are exact."""
    at = numpy.arange(count) * 7 + rank * 13 + salt
    of = numpy.dtype(dtype)
    if of.kind == "b":
        return (at % 3 == 0).astype(of)
    values = at % 5 + 1
    if of.kind == "c":
        return (values + 1j * (at % 3)).astype(of)
    if of.kind in "SV":
        return numpy.frombuffer((at % 251).astype("u1").repeat(of.itemsize).tobytes(), of)
    return values.astype(of)


class Guarded:
    """An array of `count` elements with bytes around it that nobody may write."""

    def __init__(self, count, dtype="int64"):
        of = numpy.dtype(dtype)
        self.around = 64
        self.bytes = numpy.full(2 * self.around + count * of.itemsize, GUARD, "u1")
        self.array = self.bytes[self.around : len(self.bytes) - self.around].view(of)

    def check(self, expected):
        assert (self.bytes[: self.around] == GUARD).all() and (self.bytes[len(self.bytes) - self.around :] == GUARD).all()
        same(self.array, expected)

    def untouched(self):
        assert (self.bytes == GUARD).all()


def same(result, expected):
    """Equal, to the bit."""
    expected = numpy.asarray(expected, result.dtype)
    assert result.shape == expected.shape, (result.shape, expected.shape)
    padded = result.dtype == numpy.longdouble  # has bytes without a meaning
    if not ((result == expected).all() if padded else result.tobytes() == expected.tobytes()):
        at = numpy.argwhere(result != expected)[:5].tolist()
        raise AssertionError(f"{result} instead of {expected}, first at {at}")


def refused(call, *texts):
    """The call is a colls.Error for its argument, whose text has all of `texts`."""
    with pytest.raises(colls.Error) as raised:
        call()
    assert raised.value.code in (colls.Code.INVALID_ARGUMENT, colls.Code.UNSUPPORTED), raised.value
    for text in texts:
        assert text in str(raised.value), raised.value
    return raised.value


def block_lengths(m, n):
    return [m // n + (r < m % n) for r in range(n)]
