"""Element types and operators."""

from __future__ import annotations

from typing import Any, Callable

import numpy

from colls import _core
from colls._core import Operator
from colls._errors import Error

_numbers = {
    "int8": 0, "int16": 1, "int32": 2, "int64": 3, "uint8": 4, "uint16": 5, "uint32": 6, "uint64": 7, "float16": 8,
    "bfloat16": 9, "float32": 10, "float64": 11, "longdouble": 12, "complex64": 13, "complex128": 14, "bool": 15,
}  # fmt: skip
_pairs = {"float32": 16, "float64": 17, "int16": 18, "int32": 19, "int64": 20, "longdouble": 21}

#: The names that `op` takes. "avg" of integers is rounded towards zero; "exact" is a sum whose bits do not depend on the
#: order or the number of ranks, of floating-point numbers, in blocking calls that are no scans.
OPERATORS: dict[str, int] = {
    "sum": 0, "prod": 1, "min": 2, "max": 3, "avg": 4, "logical_and": 6, "logical_or": 7, "logical_xor": 8,
    "bit_and": 9, "bit_or": 10, "bit_xor": 11, "minloc": 12, "maxloc": 13, "exact": 14,
}  # fmt: skip


def _name(dtype: numpy.dtype[Any]) -> str:
    return "longdouble" if dtype == numpy.dtype(numpy.longdouble) and dtype.itemsize == 16 else dtype.name


def pair(dtype: Any) -> numpy.dtype[Any]:
    """The structured dtype of a value and an index, for the operators "minloc" and "maxloc"."""
    value = numpy.dtype(dtype)
    if _name(value) not in _pairs:
        raise TypeError(f"there are no pairs of {value}: of {', '.join(_pairs)}")
    return numpy.dtype([("value", value), ("index", numpy.int32)], align=True)


def _type_code(dtype: numpy.dtype[Any]) -> int:
    """The library's code of a dtype."""
    if not isinstance(dtype, numpy.dtype):
        raise TypeError(f"an array of NumPy is needed, and this has the dtype {dtype!r}")
    if dtype.hasobject:
        raise TypeError(f"the dtype {dtype} has Python objects, whose addresses mean nothing elsewhere: pickle them")
    if not dtype.isnative:
        raise TypeError(f"the dtype {dtype} has another byte order than this machine: x.astype(x.dtype.newbyteorder('='))")
    if dtype.itemsize == 0:
        raise TypeError(f"the dtype {dtype} has elements of 0 bytes")
    if dtype.names is None and _name(dtype) in _numbers:
        return _numbers[_name(dtype)]
    if dtype.names == ("value", "index") and _name(dtype["value"]) in _pairs and dtype == pair(dtype["value"]):
        return _pairs[_name(dtype["value"])]
    return _core.bytes_code(dtype.itemsize)  # moved, and reduced by an operator of the program


def premul_sum(factor: int | float) -> Operator:
    """The sum of every rank's contribution times its `factor`, which may differ between ranks."""
    return _core.premul_sum(factor)


def operator(
    function: Callable[[numpy.ndarray[Any, Any], numpy.ndarray[Any, Any]], Any],
    dtype: Any,
    *,
    commutative: bool = False,
    name: str | None = None,
) -> Operator:
    """An operator of the program, for arrays of `dtype`.

    `function(lower, upper)` gets two arrays of one axis, of the same length, and returns the results, or None if it has
    written them into `upper`. `lower` has the contributions of lower ranks. It must be associative, and must not call
    this library. With `commutative`, operands may be swapped; else contributions are folded in the order of ranks. Ranks
    compare their calls by `name`, by default the function's.
    """
    of = numpy.dtype(dtype)
    _type_code(of)

    def fold(lower: memoryview, upper: memoryview) -> None:
        into = numpy.frombuffer(upper, of)
        result = function(numpy.frombuffer(lower, of), into)
        if result is not None:
            into[:] = result

    named = name if name is not None else getattr(function, "__qualname__", "function")
    return _core.op_function(fold, of, of.itemsize, commutative, named)


_core.set_parts(Error, _type_code, OPERATORS)
