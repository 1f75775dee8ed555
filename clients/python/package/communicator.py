"""Communicators: the calls of a group, in their three forms."""

from __future__ import annotations

import math
import time
from typing import Any, Generic, Iterable, Sequence, TypeVar

import numpy

from colls._core import Comm, Operator, Plan, Request

Array = numpy.ndarray[Any, Any]
Counts = Sequence[int] | numpy.ndarray[Any, Any]
Op = str | Operator
R = TypeVar("R")

_NOW, _START, _PREPARE = 0, 1, 2
_BROADCAST, _SCATTER, _GATHER, _ALL_GATHER, _ALL_TO_ALL, _REDUCE, _ALL_REDUCE, _REDUCE_SCATTER = range(8)
_INCLUSIVE_SCAN, _EXCLUSIVE_SCAN, _BARRIER, _SEND, _RECV = range(8, 13)


class _Calls(Generic[R]):
    """The collectives. `R` is what they return: the array with the result, a request, or a plan."""

    __slots__ = ("_core", "_rank", "_size", "__weakref__")
    _form = _NOW
    _core: Comm
    _rank: int
    _size: int

    def _begin(self, core: Comm) -> None:
        self._core = core
        self._rank = core.rank()
        self._size = core.size()

    def _refuse(self, call: str, why: str) -> Any:
        """Raises, and tells ranks that wait for this one in the call."""
        self._core.refuse(call, why)

    def _array(self, x: Any, call: str, name: str = "x") -> Array:
        if not isinstance(x, numpy.ndarray):
            self._refuse(call, f"{name} is of type {type(x).__name__}: pass an array of NumPy (numpy.asarray)")
        return x

    def broadcast(self, x: Array, root: int = 0, *, schedule: str | None = None) -> R:
        """Copies the root's `x` to the `x` of every rank, which has as many elements."""
        return self._core.call(self._form, _BROADCAST, x, None, None, root, x, schedule, False)

    def reduce(
        self, x: Array, root: int = 0, out: Array | None = None, op: Op = "sum", *, schedule: str | None = None, reproducible: bool = False
    ) -> R:
        """As `all_reduce`, with the result on the root alone. Elsewhere `out` is not written, and may be missing; the call
        returns `x` or `out` as it is."""
        result = x if out is None else out
        if self._rank != root:
            out = None
        return self._core.call(self._form, _REDUCE, x, out, op, root, result, schedule, reproducible)

    def all_reduce(
        self, x: Array, out: Array | None = None, op: Op = "sum", *, schedule: str | None = None, reproducible: bool = False
    ) -> R:
        """Reduces `x` of all ranks: on every rank, element i of the result is x_0[i] op ... op x_(n-1)[i].

        The result is in `out`, an array of as many elements and the same dtype; without it in place, in `x`. `op` is one
        of `colls.OPERATORS`, or an operator of the program. `schedule` is the name of one, such as "ring"; without it
        the library chooses. With `reproducible` the bits of the result do not depend on its choice."""
        result = x if out is None else out
        return self._core.call(self._form, _ALL_REDUCE, x, out, op, None, result, schedule, reproducible)

    def inclusive_scan(
        self, x: Array, out: Array | None = None, op: Op = "sum", *, schedule: str | None = None, reproducible: bool = False
    ) -> R:
        """Reduces `x` of ranks 0 to r to the result of rank r, otherwise as `all_reduce`."""
        result = x if out is None else out
        return self._core.call(self._form, _INCLUSIVE_SCAN, x, out, op, None, result, schedule, reproducible)

    def exclusive_scan(
        self, x: Array, out: Array | None = None, op: Op = "sum", *, schedule: str | None = None, reproducible: bool = False
    ) -> R:
        """Reduces `x` of ranks 0 to r - 1 to the result of rank r, otherwise as `all_reduce`. That of rank 0 stays as it
        is."""
        result = x if out is None else out
        return self._core.call(self._form, _EXCLUSIVE_SCAN, x, out, op, None, result, schedule, reproducible)

    def all_gather(
        self,
        x: Array,
        out: Array | None = None,
        *,
        counts: Counts | None = None,
        displacements: Counts | None = None,
        schedule: str | None = None,
    ) -> R:
        """Collects `x` of rank r as block r of every rank's `out`, in which the blocks follow each other.

        Without `out`, x has the same shape on all ranks, and the result is a new array of the shape (n, *x.shape). With
        `counts`, rank r has counts[r] elements, the same numbers on every rank, and a new array has one axis. Of m
        elements without counts, the first m % n blocks have one more. displacements[r] is the element of `out` at which
        block r begins; such an `out` must be given. In place: `x` is the rank's own block of `out`."""
        if out is None:
            out = self._gathered(self._array(x, "all_gather"), counts, displacements, "all_gather")
        return self._core.call(
            self._form, _ALL_GATHER, x, out, None, None, out, schedule, False, counts, displacements, None, None
        )

    def gather(
        self,
        x: Array,
        root: int = 0,
        out: Array | None = None,
        *,
        counts: Counts | None = None,
        displacements: Counts | None = None,
        schedule: str | None = None,
    ) -> R:
        """As `all_gather`, with the result on the root alone. On other ranks `out` is not written, and a new array has no
        elements; a rank that does not know the counts passes an empty list."""
        if out is None:
            if self._rank == root:
                out = self._gathered(self._array(x, "gather"), counts, displacements, "gather")
            else:
                out = numpy.empty((0, *self._array(x, "gather").shape), x.dtype)
        into = out if self._rank == root else None
        return self._core.call(
            self._form, _GATHER, x, into, None, root, out, schedule, False, counts, displacements, None, None
        )

    def scatter(
        self,
        x: Array | None,
        out: Array | None = None,
        root: int = 0,
        *,
        counts: Counts | None = None,
        displacements: Counts | None = None,
        schedule: str | None = None,
    ) -> R:
        """Hands block r of the root's `x` to the `out` of rank r. Other ranks may pass None for `x`, and an empty list
        for counts that they do not know; the blocks are as in `all_gather`. On the root a missing `out` is a new array of its block, of the shape
        x.shape[1:] where x has n rows. In place: on the root, `out` is its own block of `x`."""
        if out is None:
            if self._rank != root or x is None:
                self._refuse("scatter", "out is missing: only the root knows how long a block is; pass an array for it")
            out = self._own_block(self._array(x, "scatter"), counts, "scatter")
        elif self._rank != root:
            x = None
        elif x is None:
            self._refuse("scatter", "x is None on the root, whose blocks are scattered")
        return self._core.call(
            self._form, _SCATTER, x, out, None, root, out, schedule, False, counts, displacements, None, None
        )

    def reduce_scatter(
        self,
        x: Array,
        out: Array | None = None,
        op: Op = "sum",
        *,
        counts: Counts | None = None,
        displacements: Counts | None = None,
        schedule: str | None = None,
        reproducible: bool = False,
    ) -> R:
        """Reduces `x` of all ranks, which have as many elements, and hands block r of the result to the `out` of rank r. The
        blocks are as in `all_gather`. Without `out` the result is a new array, as in `scatter`. In place: `out` is the
        rank's own block of `x`."""
        if out is None:
            out = self._own_block(self._array(x, "reduce_scatter"), counts, "reduce_scatter")
        return self._core.call(
            self._form, _REDUCE_SCATTER, x, out, op, None, out, schedule, reproducible, counts, displacements, None, None
        )

    def all_to_all(
        self,
        x: Array,
        out: Array | None = None,
        *,
        sent: Counts | None = None,
        received: Counts | None = None,
        sent_displacements: Counts | None = None,
        received_displacements: Counts | None = None,
        schedule: str | None = None,
    ) -> R:
        """Sends block b of this rank's `x` to rank b, which stores it as block r of its `out`.

        Blocks are equal, and `out` has as many elements as `x`; without it in place, in `x`. Or there are sent[b]
        elements for rank b, and received[a] from rank a, which must be what rank a sends; then `x` and `out` are two
        arrays, and without `out` the result is a new one of one axis."""
        if sent is None and received is None:
            result = x if out is None else out
            if sent_displacements is not None or received_displacements is not None:
                self._refuse("all_to_all", "there are displacements without sent and received: pass these, too")
            return self._core.call(self._form, _ALL_TO_ALL, x, out, None, None, result, schedule, False)
        if sent is None or received is None:
            self._refuse("all_to_all", "of sent and received one is missing: pass both, or none")
        if out is None:
            if received_displacements is not None:
                self._refuse("all_to_all", "out is missing: with received_displacements pass an array")
            out = numpy.empty(self._sum(received, "all_to_all"), self._array(x, "all_to_all").dtype)
        lists = (sent, sent_displacements, received, received_displacements)
        return self._core.call(self._form, _ALL_TO_ALL, x, out, None, None, out, schedule, False, *lists)

    def _sum(self, counts: Any, call: str) -> int:
        try:
            total = sum(int(c) for c in counts)
        except (TypeError, ValueError) as e:
            total = self._refuse(call, f"the counts {counts!r} are no whole numbers: {e}")
        return total if total >= 0 else int(self._refuse(call, f"the counts {counts!r} must not be negative"))

    def _gathered(self, x: Array, counts: Counts | None, displacements: Counts | None, call: str) -> Array:
        """A new array for the blocks of all ranks."""
        if displacements is not None:
            self._refuse(call, "out is missing: with displacements pass an array")
        shape = (self._size, *x.shape) if counts is None else (self._sum(counts, call),)
        return numpy.empty(shape, x.dtype)

    def _own_block(self, x: Array, counts: Counts | None, call: str) -> Array:
        """A new array for this rank's block of x."""
        n, r = self._size, self._rank
        if counts is not None:
            if len(counts) != n:
                self._refuse(call, f"counts has {len(counts)} numbers, and the group {n} ranks: pass one for each")
            return numpy.empty(self._sum([counts[r]], call), x.dtype)
        if x.ndim > 0 and x.shape[0] == n:
            return numpy.empty(x.shape[1:], x.dtype)
        return numpy.empty(x.size // n + (r < x.size % n), x.dtype)


class Communicator(_Calls[Array]):
    """One rank's membership in a group. Its collectives return when they are over on this rank, with the array that has
    the result. `start` and `prepare` have the same calls in other forms.

    One thread at a time uses a communicator; others may use those that were split from it, each its own. The rank leaves
    the group at `close`, at the end of a `with` block, or when nothing refers to the communicator, its requests and its
    plans.
    """

    __slots__ = ()

    def __init__(self, core: Comm):
        """For the package: `world`, `bootstrap` and others make communicators."""
        self._begin(core)

    @property
    def rank(self) -> int:
        """This rank, 0 to n - 1."""
        return self._rank

    @property
    def size(self) -> int:
        """n."""
        return self._size

    @property
    def start(self) -> Start:
        """The calls that start and return a request: `comm.start.all_reduce(x).wait()`."""
        return Start(self._core)

    @property
    def prepare(self) -> Prepare:
        """The calls that are checked once, and return a plan: `plan = comm.prepare.all_reduce(x)`, then `plan()`."""
        return Prepare(self._core)

    def barrier(self, *, schedule: str | None = None) -> None:
        """Returns when every rank has called it."""
        self._core.call(_NOW, _BARRIER, None, None, None, None, None, schedule, False)

    # Messages

    def send(self, x: Array, peer: int) -> None:
        """Sends `x` to a rank; returns when that has copied it."""
        self._core.call(_NOW, _SEND, x, None, None, peer, None)

    def recv(self, out: Array, peer: int) -> Array:
        """Receives the next message of a rank into `out`, which has its length and dtype; returns `out`."""
        return self._core.call(_NOW, _RECV, None, out, None, peer, out)

    def recv_any(self, out: Array) -> int:
        """Receives the next message of any rank; returns that rank."""
        return self._core.recv_any(out)

    def probe_any(self) -> int | None:
        """The rank whose message `recv_any` would receive now, or None."""
        source = self._core.probe_any()
        return None if source < 0 else source

    def exchange(self, x: Array, to: int, out: Array, source: int) -> Array:
        """Sends `x` to one rank, and receives `out` from another at the same time; returns `out`."""
        return self._core.exchange(x, to, out, source)

    # The group

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Divides the group: ranks with the same `color`, 0 or more, form one, ordered by `key`, then by their rank here.
        None: this rank joins none, and gets None. Collective."""
        part = self._core.split(-1 if color is None else color, key)
        return None if part is None else Communicator(part)

    def shrink(self) -> Communicator:
        """After an error: the group of the ranks that still call it, in their order. This one ends. Collective among
        these; a rank that does not call it within the deadline is left out."""
        return Communicator(self._core.shrink())

    def abort(self, why: str) -> None:
        """Breaks the group: the current or the next call of every rank is an error that quotes `why`."""
        self._core.abort(why)

    def set_timeout(self, seconds: float | None) -> None:
        """The deadline of this rank's waits here, and in groups that are split from this one later. None: no deadline. By
        default COLLS_TIMEOUT, 300 s."""
        self._core.set_timeout(math.inf if seconds is None else seconds)

    def dump(self) -> None:
        """Prints to stderr in which call every rank is, and for which rank it waits."""
        self._core.dump()

    def empty(self, shape: int | Sequence[int], dtype: Any = float) -> Array:
        """A new array in memory that ranks of the host reach directly, so that calls move its elements faster. It may
        outlive the communicator. Its elements are not set."""
        of = numpy.dtype(dtype)
        lengths = (shape,) if isinstance(shape, int) else tuple(shape)
        elements = math.prod(lengths)
        memory: Any = self._core.allocate(elements * of.itemsize)
        return numpy.frombuffer(memory, of, elements).reshape(lengths)

    def close(self) -> None:
        """Leaves the group, once requests and plans are gone. Calls are errors from then on."""
        self._core.close()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<colls.Communicator: rank {self._rank} of {self._size}>"


def wait_all(requests: Iterable[Request]) -> list[Any]:
    """Waits for all; returns their results. Where one fails, waits for the others, and then raises the first error."""
    results, failure = [], None
    for r in requests:
        try:
            results.append(r.wait())
        except Exception as e:
            failure = failure or e
    if failure is not None:
        raise failure
    return results


def wait_any(requests: Sequence[Request]) -> int:
    """Waits for one of several requests that are not over; returns its place in the sequence."""
    if not requests:
        raise ValueError("colls: wait_any of no requests")
    pause = 0.0
    while True:
        for i, r in enumerate(requests):
            if r.test():
                return i
        time.sleep(pause)
        pause = min(pause + 1e-6, 1e-3)


class _Form(_Calls[R]):
    """The collectives in a form that makes an object."""

    __slots__ = ()

    def __init__(self, core: Comm):
        self._begin(core)


class Start(_Form[Request]):
    """The calls of a communicator that start: each returns a `Request`, and the arrays must be left alone until it is
    over."""

    __slots__ = ()
    _form = _START

    def barrier(self, *, schedule: str | None = None) -> Request:
        """A request that is over when every rank has started it."""
        return self._core.call(_START, _BARRIER, None, None, None, None, None, schedule, False)

    def send(self, x: Array, peer: int) -> Request:
        """As `Communicator.send`."""
        return self._core.call(_START, _SEND, x, None, None, peer, None)

    def recv(self, out: Array, peer: int) -> Request:
        """As `Communicator.recv`."""
        return self._core.call(_START, _RECV, None, out, None, peer, out)


class Prepare(_Form[Plan]):
    """The calls of a communicator that are prepared: each returns a `Plan`."""

    __slots__ = ()
    _form = _PREPARE

    def barrier(self, *, schedule: str | None = None) -> Plan:
        """A plan of `Communicator.barrier`."""
        return self._core.call(_PREPARE, _BARRIER, None, None, None, None, None, schedule, False)
