"""Collective calls between processes, on arrays of NumPy.

    import colls, numpy

    comm = colls.world()                         # python -m colls run -n 4 PROGRAM
    x = numpy.full(1000, comm.rank + 1.0)
    comm.all_reduce(x)                           # in place: x[i] is the sum over all ranks

Terms: n is the number of ranks of a group, which are 0 to n - 1. All ranks of a group make the same collective calls in
the same order; the library checks that they do. A wrong argument is a `colls.Error` before anything moves.
"""

import os

from colls._core import Operator, Plan, Request
from colls._core import version as _version
from colls._errors import Code, Error, RankError
from colls._groups import bootstrap, bootstrap_exchange, from_mpi, world
from colls._processes import run
from colls._types import OPERATORS, operator, pair, premul_sum
from colls.communicator import Communicator, Prepare, Start, wait_all, wait_any

__all__ = [
    "Code",
    "Communicator",
    "Error",
    "OPERATORS",
    "Operator",
    "Plan",
    "Prepare",
    "RankError",
    "Request",
    "Start",
    "bootstrap",
    "bootstrap_exchange",
    "from_mpi",
    "operator",
    "pair",
    "premul_sum",
    "run",
    "wait_all",
    "wait_any",
    "world",
]

# libfabric reads these once. The library itself makes them only in a process of one thread: transports/ofi.hpp says why.
if "ofi" in os.environ.get("COLLS_TRANSPORT", ""):
    for _setting in ("FI_TCP_STAGING_SBUF_SIZE=0", "FI_NET_STAGING_SBUF_SIZE=0", "FI_OFI_RXM_EAGER_LIMIT=1048576"):
        os.environ.setdefault(*_setting.split("="))

__version__: str = "{}.{}.{}".format(_version() // 10000, _version() // 100 % 100, _version() % 100)
