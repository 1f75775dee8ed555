#!/usr/bin/env python3
# Every rank has an array of numpy; all_reduce adds them up. mpirun -n 4 python3 all_reduce.py, or by hand, each rank with
# COLLS_RANK and COLLS_SIZE. COLLS_LIBRARY names libcolls.so.0 where the loader does not find it.
# example-begin all_reduce
import ctypes
import os
import sys

import numpy

lib = ctypes.CDLL(os.environ.get("COLLS_LIBRARY", "libcolls.so.0"))
lib.colls_error_text.restype = ctypes.c_char_p
handle, size_t, code = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64
types = {"int32": 2, "int64": 3, "float32": 10, "float64": 11}  # as in colls.h
SUM = 0


def call(name, *arguments):
    if getattr(lib, name)(*arguments) != 0:
        sys.exit(lib.colls_error_text().decode())


def number(name, comm):
    result = ctypes.c_int()
    call(name, comm, ctypes.byref(result))
    return result.value


def all_reduce(comm, x, op=SUM):
    """In place; x is contiguous."""
    at = handle(x.ctypes.data)
    call("colls_all_reduce", comm, at, at, size_t(x.size), code(types[x.dtype.name]), code(op), None)


comm = handle()
call("colls_check_abi", 0)
call("colls_world", ctypes.byref(comm))
x = numpy.full(1000, number("colls_rank", comm) + 1, dtype=numpy.float32)
all_reduce(comm, x)
if number("colls_rank", comm) == 0:
    print(f"{number('colls_size', comm)} ranks: x[999] is {x[999]:g}")
call("colls_comm_free", ctypes.byref(comm))
# example-end
