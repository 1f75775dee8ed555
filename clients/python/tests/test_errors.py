"""What is refused before anything moves, and what ends a group."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy
import pytest
from ranks import data, on_ranks, refused, same

import colls


def check_refusals(comm):
    n, r = comm.size, comm.rank
    f, i = numpy.zeros(4), numpy.zeros(4, "i4")
    fixed = numpy.zeros(4)
    fixed.flags.writeable = False
    refused(lambda: comm.all_reduce(f, i), f"rank {r} in all_reduce", "float64", "int32")
    refused(lambda: comm.all_reduce(f, numpy.zeros(5)), "4 elements", "out 5")
    refused(lambda: comm.all_reduce([1.0, 2.0]), "list", "numpy.asarray")
    refused(lambda: comm.all_reduce(memoryview(b"1234")), "memoryview")
    refused(lambda: comm.all_reduce(fixed), "read-only")
    refused(lambda: comm.all_gather(f, fixed), "read-only")
    refused(lambda: comm.all_reduce(f[::-1]), "reverse")
    refused(lambda: comm.all_reduce(f, numpy.broadcast_to(f[:1], 4)), "read-only")
    refused(lambda: comm.all_reduce(f, numpy.lib.stride_tricks.as_strided(f, (4,), (0,))), "the same memory")
    refused(lambda: comm.all_reduce(f.astype(">f8")), "byte order")
    refused(lambda: comm.all_reduce(numpy.array([None])), "objects")
    refused(lambda: comm.all_reduce(numpy.array(["ab"])))
    refused(lambda: comm.all_reduce(f, op="bit_and"))
    refused(lambda: comm.all_reduce(i, op="exact"))
    refused(lambda: comm.all_reduce(f, op="plus"), "'plus'", "OPERATORS")
    refused(lambda: comm.all_reduce(f, op=colls.operator(max, "i4", name="x")), "float64", "int32")
    refused(lambda: comm.all_reduce(f, schedule="rink"), "rink")
    refused(lambda: comm.all_reduce(f, schedule=3), "schedule")
    refused(lambda: comm.broadcast(f, n), f"root {n}")
    refused(lambda: comm.broadcast(f, "0"))
    refused(lambda: comm.broadcast(numpy.broadcast_to(f[:1], 4), (r + 1) % n) if n > 1 else comm.broadcast(f, -1))
    refused(lambda: comm.all_gather(f, numpy.zeros(4 * n + 4 * n)))
    refused(lambda: comm.all_gather(f, counts=[4] * (n + 1)), f"{n + 1} numbers", f"{n} ranks")
    refused(lambda: comm.all_gather(f, counts=[-4] * n), "negative")
    refused(lambda: comm.all_gather(f, counts=["4"] * n + ["x"]), "whole numbers")
    refused(lambda: comm.all_gather(f, numpy.zeros(4 * n), counts=[1.5] * n))
    refused(lambda: comm.all_gather(f, numpy.zeros(4 * n), counts=[4] * n, displacements=[-1] * n), "negative")
    refused(lambda: comm.all_gather(f, displacements=[0] * n), "displacements")
    refused(lambda: comm.scatter(f, root=(r + 1) % n) if n > 1 else comm.scatter(None), "out is missing")
    refused(lambda: comm.scatter(None, f, r), "None on the root")
    refused(lambda: comm.all_to_all(numpy.zeros(n + 1) if n > 1 else f, sent=[1] * n), "missing")
    refused(lambda: comm.all_to_all(f, sent_displacements=[0] * n), "displacements")
    if n > 1:
        refused(lambda: comm.all_to_all(numpy.zeros(n + 1)))
        refused(lambda: comm.send(f, r))
    refused(lambda: comm.send(f, n))
    refused(lambda: comm.send("text", 0) if n == 1 else comm.send(f, -1))
    refused(lambda: comm.recv(fixed, 0) if n == 1 else comm.recv(f, n))
    refused(lambda: comm.set_timeout(0))
    refused(lambda: comm.start.all_reduce(f, i), "float64")
    refused(lambda: comm.prepare.all_reduce(f, i), "float64")
    with pytest.raises(TypeError):
        comm.all_reduce()
    assert not f.any() and not i.any()
    # The group is as before.
    same(comm.all_reduce(data(r, 7)), sum(data(q, 7) for q in range(n)))


@pytest.mark.parametrize("size", [1, 3])
def test_refusals_leave_the_group_whole(size):
    on_ranks(check_refusals, size)


def check_one_is_wrong(comm, folder):
    x = numpy.ones(4)
    with pytest.raises(colls.Error) as raised:
        comm.all_reduce(x, numpy.zeros(4, "i4") if comm.rank == 1 else None)
    e = raised.value
    assert "out of int32" in str(e)
    assert e.code == colls.Code.INVALID_ARGUMENT if comm.rank == 1 else e.peer == 1
    assert e.rank == comm.rank
    (folder / str(comm.rank)).touch()
    until = time.monotonic() + 60
    while len(os.listdir(folder)) < 3 and time.monotonic() < until:
        time.sleep(0.01)  # a rank that leaves, or shrinks the group, would be another cause
    same(comm.shrink().all_reduce(numpy.array([1])), [3])
    return e


def test_ranks_that_wait_for_a_refused_call_get_to_know_why(tmp_path):
    errors = on_ranks(check_one_is_wrong, 3, tmp_path)  # errors can be pickled
    assert [e.rank for e in errors] == [0, 1, 2] and errors[0].peer == 1


def check_mismatch(comm):
    x = numpy.ones(4, "f4" if comm.rank == 0 else "f8")
    with pytest.raises(colls.Error) as raised:
        comm.all_reduce(x)
    assert raised.value.code == colls.Code.MISMATCH and "float" in str(raised.value)
    with pytest.raises(colls.Error):
        comm.barrier()
    rest = comm.shrink()
    assert rest.size == comm.size and rest.rank == comm.rank
    same(rest.all_reduce(numpy.array([1])), [comm.size])


def test_ranks_with_other_types():
    on_ranks(check_mismatch, 3)


def check_death(comm, victim):
    if comm.rank == victim:
        comm.barrier()
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(colls.Error) as raised:
        comm.barrier()  # which the victim has left, while others may still be in it
        while True:
            comm.all_reduce(numpy.ones(3))
    e = raised.value
    assert e.code == colls.Code.PEER_FAILED and e.peer == victim and "has died" in str(e), e
    rest = comm.shrink()
    assert rest.size == comm.size - 1 and rest.rank == comm.rank - (comm.rank > victim)
    same(rest.all_gather(numpy.array([comm.rank])).flatten(), [q for q in range(comm.size) if q != victim])
    # A request and a plan of the broken group are errors, too, and say so again.
    with pytest.raises(colls.Error):
        comm.start.all_reduce(numpy.ones(3)).wait()
    os._exit(0)


@pytest.mark.parametrize("size, transport", [(2, "shm"), (4, "shm"), (5, "tcp")])
def test_a_killed_rank_ends_the_calls_of_the_others(size, transport):
    with pytest.raises(colls.RankError) as raised:
        on_ranks(check_death, size, size - 1, transport=transport)
    # Each of the others has ended well, and returned nothing.
    assert "signal 9" in str(raised.value) or "status 0" in str(raised.value), raised.value


def check_timeout(comm, over):
    comm.set_timeout(0.5)
    if comm.rank == 1:
        with pytest.raises(colls.Error) as raised:
            comm.barrier()
        over.touch()
        assert raised.value.code == colls.Code.TIMEOUT and raised.value.peer == 0, raised.value
        assert "barrier" in str(raised.value)
    else:
        until = time.monotonic() + 60
        while not over.exists() and time.monotonic() < until:
            time.sleep(0.01)
        with pytest.raises(colls.Error):
            comm.barrier()


def test_a_rank_that_does_not_come(tmp_path):
    on_ranks(check_timeout, 2, tmp_path / "over")


def check_abort(comm):
    if comm.rank == 0:
        comm.abort("enough of this")
    with pytest.raises(colls.Error, match="enough of this") as raised:
        while True:
            comm.barrier()
    assert raised.value.peer in (0, -1)


def test_abort():
    on_ranks(check_abort, 3)


def check_closed(comm):
    part = comm.split(0)
    request, plan = part.start.barrier(), None
    request.wait()
    plan = part.prepare.all_reduce(numpy.ones(2))
    part.close()
    part.close()
    same(plan(), numpy.full(2, comm.size))  # a plan holds the group
    with pytest.raises(colls.Error) as raised:
        part.barrier()
    assert raised.value.code == colls.Code.INVALID_HANDLE
    with pytest.raises(colls.Error) as raised:
        part.all_reduce([1])
    assert raised.value.code == colls.Code.INVALID_HANDLE
    with comm.split(0) as other:
        other.barrier()
    with pytest.raises(colls.Error):
        other.barrier()
    assert "rank" in repr(comm)


def test_closed_communicators():
    on_ranks(check_closed, 2)


def check_raising_operator(comm):
    def fails(lower, upper):
        if comm.rank == 1:
            raise KeyError("no such thing")

    op = colls.operator(fails, "f8")
    x = numpy.ones(3)
    # The rank on which it raises has the exception, and the group ends for all.
    with pytest.raises(KeyError if comm.rank == 1 else colls.Error) as raised:
        comm.all_reduce(x, op=op)
        while True:
            comm.barrier()
    assert ("no such thing" if comm.rank == 1 else "operator has raised") in str(raised.value), raised.value


def test_an_operator_that_raises():
    on_ranks(check_raising_operator, 2)


# Interrupts. A rank is sent the signal while the others are known to be in a call.


def interrupt_later(pid, seconds=0.5):
    def kill():
        time.sleep(seconds)
        os.kill(pid, signal.SIGINT)

    threading.Thread(target=kill, daemon=True).start()


def check_interrupt(comm, handler_later):
    comm.barrier()
    if handler_later:  # a program's own handler, set after the group was made
        seen = []

        def own(*_):
            seen.append(1)
            raise KeyboardInterrupt

        signal.signal(signal.SIGINT, own)
    if comm.rank == 1:
        interrupt_later(os.getpid(), 1.0)
        with pytest.raises(KeyboardInterrupt):
            comm.recv(numpy.zeros(1), 0)  # never sent
        assert not handler_later or seen == [1]
    else:
        with pytest.raises(colls.Error, match="interrupted") as raised:
            comm.recv(numpy.zeros(1), 1)
        assert raised.value.code == colls.Code.PEER_FAILED and raised.value.peer in (1, -1)
    rest = comm.shrink()
    same(rest.all_reduce(numpy.array([1])), [comm.size])


@pytest.mark.parametrize("handler_later", [False, True])
def test_an_interrupt_ends_a_call(handler_later, tmp_path):
    # The ranks are children of a process that has a group, too.
    with colls.bootstrap(0, 1, tmp_path, "own"):
        on_ranks(check_interrupt, 3, handler_later)


def check_interrupted_wait(comm):
    comm.barrier()
    x = numpy.array([comm.rank + 1])
    if comm.rank == 0:
        interrupt_later(os.getpid())
        request = comm.start.all_reduce(x)
        with pytest.raises(KeyboardInterrupt):
            request.wait()
        with pytest.raises(TimeoutError, match="goes on"):
            request.wait(0.01)
        assert not request.test()
        comm.send(numpy.zeros(1), 1)
        same(request.wait(), [3])
    else:
        comm.recv(numpy.zeros(1), 0)
        same(comm.start.all_reduce(x).wait(), [3])


def test_after_an_interrupt_a_request_goes_on():
    on_ranks(check_interrupted_wait, 2)


def test_an_interrupt_ends_the_forming_of_a_group(tmp_path):
    interrupt_later(os.getpid(), 0.5)
    with pytest.raises(KeyboardInterrupt):
        colls.bootstrap(0, 2, tmp_path, "never")
    # The other process comes late, so that the thread that still waits ends.
    program = f"import colls; colls.bootstrap(1, 2, {str(tmp_path)!r}, 'never')"
    subprocess.run([sys.executable, "-c", program], timeout=100, capture_output=True)
