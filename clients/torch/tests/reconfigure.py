"""Groups that get other members, as c10d of torch 2.15 has them: reconfigure, shrink_group, abort hooks."""

import datetime
import os
import signal
import threading
import time
import unittest

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from ranks import run


def seconds(s):
    return datetime.timedelta(seconds=s)


def exchange(own, name, text, members):
    """What each of these processes has given. They know each other by numbers that stay, whatever ranks they have."""
    store = distributed_c10d._get_default_store()
    store.set(f"{name}/{own}", text)
    return [store.get(f"{name}/{i}").decode() for i in members]


def handles_of(own, name, members):
    return exchange(own, name, dist._get_reconfigure_handle(), members)


def fails(call, kind, *texts):
    try:
        call()
    except Exception as error:
        text = str(error)
        if type(error) is kind and text.startswith("colls: ") and all(t in text for t in texts):
            return text
        raise AssertionError(f"not {kind.__name__} with {texts}") from error
    raise AssertionError(f"it has ended well, not by {kind.__name__}")


def expect_group(rank, n):
    """torch's functions and the backend agree on who is in the group, and all its ranks are reached."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    for found in ((dist.get_rank(), dist.get_world_size()), (backend.rank(), backend.size())):
        if found != (rank, n):
            raise AssertionError(f"rank and size {found}, not {(rank, n)}")
    ranks = [torch.zeros(1) for _ in range(n)]
    dist.all_gather(ranks, torch.tensor([float(rank)]))
    if [int(t) for t in ranks] != list(range(n)):
        raise AssertionError(f"ranks {ranks}")
    x = torch.zeros(1)
    sent = dist.isend(torch.tensor([float(rank)]), (rank + 1) % n) if n > 1 else None
    if sent:
        dist.recv(x, (rank - 1) % n)
        sent.wait()
        if x.item() != (rank - 1) % n:
            raise AssertionError(f"message {x.item()}")
    dist.monitored_barrier()
    dist.barrier()


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def without_members(own, n):
    """enable_reconfigure: no members until the first reconfigure."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert (dist.get_rank(), dist.get_world_size(), backend.rank(), backend.size()) == (own, n, own, n)
    assert dist._supports_reconfigure() and backend.supports_shrinking
    dist.group.WORLD.abort()  # nothing to abort
    for call in (lambda: dist.all_reduce(torch.ones(1)), lambda: dist.isend(torch.ones(1), (own + 1) % n),
                 dist.monitored_barrier):
        fails(call, dist.DistBackendError, "has no members yet: call reconfigure first")
    handles = handles_of(own, "first", range(n))
    assert handles[own] == dist._get_reconfigure_handle() and len(set(handles)) == n
    work = dist._reconfigure(7, handles[::-1])  # ranks by position
    assert work.wait() and work.is_completed() and work.get_future().wait() == []
    expect_group(n - 1 - own, n)
    if n > 1:
        part = dist.new_group([0, n - 1])
        if dist.get_rank() in (0, n - 1):
            x = torch.ones(1)
            dist.all_reduce(x, group=part)
            assert x.item() == min(n, 2)
        dist.barrier()


def other_members(own, n):
    """From all ranks to some of them and back, in this order and that, again and again."""
    expect_group(own, n)
    handles = handles_of(own, "live", range(n))
    uuid, before = 0, None
    for turn in range(8):
        uuid += 1
        dist._reconfigure(uuid, handles[turn % n:] + handles[: turn % n])
        expect_group((own - turn) % n, n)
        uuid += 1
        if own != 0:
            dist._reconfigure(uuid, handles[1:], timeout=seconds(30))
            expect_group(own - 1, n - 1)
        uuid += 1
        dist._reconfigure(uuid, set(handles))
        expect_group(sorted(handles).index(handles[own]), n)
        if turn == 1:
            before = descriptors()
    if descriptors() > before + 2:
        raise AssertionError(f"{descriptors()} descriptors, and {before} six rounds ago")


def pending(own, n):
    """What is not over when a rank reconfigures ends by an error, and no message goes to a later group."""
    handles = handles_of(own, "pending", range(n))
    dist._reconfigure(1, handles)
    x, y, z = torch.ones(3), torch.zeros(1), torch.zeros(1)
    if own == 0:
        calls = [dist.all_reduce(x, async_op=True) for _ in range(3)]  # which no other rank makes
        receives = [dist.irecv(y, 1, tag=5), dist.irecv(z, tag=6)]
        failed = []

        def waits():
            failed.append(fails(calls[0].wait, dist.DistBackendError, "the process group is reconfigured"))
            distributed_c10d._get_default_store().set("pending has ended", "")

        waiting = threading.Thread(target=waits)
        waiting.start()
        time.sleep(0.3)
    else:
        assert dist.isend(torch.full((1,), 1.0), 0, tag=7).wait()  # which is over, and that no receive takes
        assert dist.isend(torch.full((1 << 18,), 1.0), 0, tag=7).wait()
        store, until = distributed_c10d._get_default_store(), time.monotonic() + 5
        while not store.check(["pending has ended"]) and time.monotonic() < until:
            time.sleep(0.01)  # else the calls of rank 0 would end since this rank leaves
    began = time.monotonic()
    dist._reconfigure(2, handles[::-1])
    assert time.monotonic() - began < 20
    if own == 0:
        waiting.join(10)
        assert failed
        for work in calls:
            fails(work.wait, dist.DistBackendError, "the process group is reconfigured")
            assert work.is_completed() and not work.is_success()
        for work in receives:
            fails(work.wait, dist.DistBackendError, "the process group is reconfigured")
    expect_group(n - 1 - own, n)
    if own == 0:
        dist.recv(y, n - 2, tag=7)
        assert y.item() == 2.0
    elif own == 1:
        dist.send(torch.full((1,), 2.0), n - 1, tag=7)
    dist.barrier()


def breaks_off(own, n):
    """Where a rank is stuck in a call, another rank's reconfigure ends that call."""
    handles = handles_of(own, "stuck", range(n))
    dist._reconfigure(1, handles)
    if own != 1:
        fails(lambda: dist.all_reduce(torch.ones(1)), dist.DistBackendError, "rank 1")
    else:
        time.sleep(0.3)
    dist._reconfigure(2, handles)
    expect_group(own, n)


def last_message(own, n):
    """A message that has been sent before a rank reconfigures is there for a receive a little later."""
    handles = handles_of(own, "message", range(n))
    for turn, length in enumerate((1, 100_000, 250_000)):
        dist._reconfigure(turn, handles)
        x = torch.zeros(length)
        if own == 0:
            dist.send(torch.ones(length), 1)
        elif own == 1:
            time.sleep(0.1)
            dist.recv(x, 0)
            assert x.sum().item() == length
    dist._reconfigure(9, handles)


def after_a_death(own, n):
    handles = handles_of(own, "death", range(n))
    for turn, victim in enumerate((1, 0)):  # from a group over the store, then from one of handles
        if own == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        began = time.monotonic()
        fails(lambda: [dist.all_reduce(torch.ones(100)) for _ in range(1000)], dist.DistBackendError)
        alive = [i for i in range(n) if i not in (1, 0)[: turn + 1]]
        fails(lambda: dist._reconfigure(10 * turn + 1, handles), dist.DistBackendError,
              f"position {victim} of the list", "is not there any more" if victim else "position 0")
        fails(dist.barrier, dist.DistBackendError, "its reconfiguration has failed", "with another uuid")
        dist._reconfigure(10 * turn + 2, [handles[i] for i in alive])
        assert time.monotonic() - began < 30
        expect_group(alive.index(own), len(alive))
        exchange(own, f"alive/{turn}", "", alive)  # none is still in a call when the next one dies
    dist.barrier()


def refusals(own, n):
    """What is wrong with the arguments is found before the group ends."""
    handles = handles_of(own, "refusals", range(n))
    dist._reconfigure(1, handles)
    name = handles[own].split("/")[2]
    other = handles[own].replace(name, "0" * len(name))
    for uuid, list_of_handles, *texts in [
        (1, handles, "'1'", "has used that uuid before"),
        (2, [], "the list of handles is empty"),
        (2, set(), "the list of handles is empty"),
        (2, handles + handles[:1], f"positions 0 and {n} of the list are the same handle"),
        (2, handles[:own] + handles[own + 1:], "own handle is not among the") if n > 1 else (2, [other], "own handle"),
        (2, handles + ["gloo:0:-1:0:"], f"position {n} of the list is no handle of an endpoint: 'gloo:0:-1:0:'"),
        (2, handles + [other[:-9]], f"position {n} of the list"),
        (2, handles + ["colls9/x"], "is a handle of another version of colls"),
    ]:
        fails(lambda: dist._reconfigure(uuid, list_of_handles), ValueError, *texts)
    fails(lambda: dist._reconfigure(2, handles, timeout=seconds(0)), ValueError, "above 0")
    expect_group(own, n)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    fails(lambda: backend.shrink([n]), ValueError, f"rank {n} is not in the group")
    fails(lambda: backend.shrink([own]), ValueError, "is to be left out")
    dist._reconfigure(2, handles)
    expect_group(own, n)
    if n > 1:  # not the same list
        mine = handles if own == 0 else handles[::-1]
        fails(lambda: dist._reconfigure(3, mine, timeout=seconds(20)), dist.DistBackendError)
        exchange(own, "after", "", range(n))
        dist._reconfigure(4, handles)
        expect_group(own, n)


def late(own, n):
    """A member that does not come is named at the deadline."""
    handles = handles_of(own, "late", range(n))
    dist._reconfigure(1, handles)
    expect_group(own, n)
    pids = exchange(own, "pid", str(os.getpid()), range(n))
    if own != n - 1:
        began = time.monotonic()
        fails(lambda: dist._reconfigure(2, handles, timeout=seconds(1)), dist.DistBackendError,
              f"position {n - 1} of the list (process {pids[-1]} at ", "has not come within", "'2'")
        assert 0.9 < time.monotonic() - began < 10
        fails(lambda: dist.all_reduce(torch.ones(1)), dist.DistBackendError,
              "all_reduce: this process group has no members", f"process {pids[-1]}")
    exchange(own, "waited", "", range(n))
    dist._reconfigure(3, handles)
    if own != n - 1:  # that it came to the barrier of another group does not count
        fails(lambda: dist.monitored_barrier(timeout=seconds(0.3), wait_all_ranks=True), dist.DistBackendError,
              f"Rank {n - 1} failed" if own == 0 else "monitoredBarrier")
    dist.barrier()


def shrinks(own, n, again):
    """shrink_group without a rank that lives on, and makes no call."""
    if again:
        dist._reconfigure(1, handles_of(own, "shrinks", range(n)))
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    x = torch.zeros(1)
    store = distributed_c10d._get_default_store()
    dist.new_group()  # shrink_group ends it
    if own == 1:
        store.set("shrunk/1", "")
        for i in range(n):
            store.get(f"shrunk/{i}")
        return
    pending = dist.irecv(x, 1) if again else None
    began = time.monotonic()
    dist.shrink_group([1], shrink_flags=distributed_c10d.SHRINK_ABORT if again else distributed_c10d.SHRINK_DEFAULT)
    assert time.monotonic() - began < 10
    if pending:
        fails(pending.wait, dist.DistBackendError, "the process group is shrunk")
    fails(lambda: backend.barrier().wait(), dist.DistBackendError, "has been destroyed")
    rank = own if own == 0 else own - 1
    expect_group(rank, n - 1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1, bias=False))
    model(torch.full((1, 3), rank + 1.0)).sum().backward()
    torch.testing.assert_close(model.module.weight.grad, torch.full((1, 3), n / 2))
    if n > 3:  # and again, without the last one
        if rank != n - 2:
            dist.shrink_group([n - 2])
            expect_group(rank, n - 2)
    store.set(f"shrunk/{own}", "")
    for i in range(n):
        store.get(f"shrunk/{i}")


def shrinks_after_death(own, n):
    part = dist.new_group([0, n - 1]) if n > 2 else dist.new_group()
    if own == n - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if own == 0:
        fails(lambda: [dist.all_reduce(torch.ones(100), group=part) for _ in range(1000)], dist.DistBackendError)
        smaller = dist.shrink_group([1], group=part, shrink_flags=distributed_c10d.SHRINK_ABORT)
        x = torch.ones(1)
        dist.all_reduce(x, group=smaller)
        assert (dist.get_rank(smaller), dist.get_world_size(smaller), x.item()) == (0, 1, 1)
    dist.shrink_group([n - 1])
    expect_group(own, n - 1)


def hooks(own, n):
    """Abort hooks run before a call ends by the group's error, and before abort; not where a call is only refused."""
    group, ran = dist.group.WORLD, []
    backend = group._get_backend(torch.device("cpu"))
    assert backend.supports_abort_hooks
    group.register_abort_hook(1, lambda: ran.append("first"))
    group.register_abort_hook(2, lambda: ran.append("second"))
    group.register_abort_hook(3, lambda: 1 / 0)
    group.unregister_abort_hook(2)
    group.unregister_abort_hook(22)
    try:
        dist.all_reduce(torch.ones(1), dist.ReduceOp.BAND)
    except RuntimeError:
        pass
    expect_group(own, n)
    assert ran == []
    # A send that is over for its caller fails with the group, too, and would run the hooks once more. One of more than
    # a chunk has been received when it is over, and so have all before it.
    x = torch.ones(1 << 19)
    for r in range(n - 1):
        if own == n - 1:
            dist.send(x, r)
        elif own == r:
            dist.recv(x, n - 1)
    exchange(own, "hooks", "", range(n))
    if own == n - 1:
        handles_of(own, "again", range(n))
        group.abort()
    else:
        seen = dist.all_reduce(torch.ones(1), async_op=True).get_future().then(lambda f: list(ran))
        handles_of(own, "again", range(n))
        assert seen.wait() == ["first"], seen.wait()
    assert set(ran) == {"first"}
    ran.clear()
    dist._reconfigure(1, handles_of(own, "again", range(n)))
    expect_group(own, n)
    assert ran == []
    if own == 0:  # of messages, too
        backend.set_timeout(seconds(0.3))
        fails(lambda: dist.recv(torch.ones(1), 1), dist.DistBackendError, "rank 1")  # that it has not sent, or cannot be asked
        assert "first" in ran
    exchange(own, "messages", "", range(n))


def aborted_call(own, n):
    """abort ends a call that another thread is in."""
    failed = []
    if own == 0:
        stuck = threading.Thread(target=lambda: failed.append(
            fails(lambda: dist.all_reduce(torch.ones(1)), dist.DistBackendError, "the process group was aborted")))
        stuck.start()
        time.sleep(0.3)
        assert stuck.is_alive()
        began = time.monotonic()
        dist.group.WORLD.abort()
        stuck.join(20)
        assert failed and time.monotonic() - began < 10
    exchange(own, "aborted", "", range(n))


class reconfigure(unittest.TestCase):
    def everywhere(self, f, *arguments, sizes=(2, 3), **options):
        for n in sizes:
            with self.subTest(ranks=n):
                run(n, f, *arguments, **options)

    def test_there_are_no_members_before_the_first_one(self):
        self.everywhere(without_members, sizes=(1, 2, 3), enable_reconfigure=True)

    def test_other_members(self):
        self.everywhere(other_members)

    def test_pending_works_end(self):
        self.everywhere(pending, enable_reconfigure=True)

    def test_call_of_another_rank_ends(self):
        self.everywhere(breaks_off, enable_reconfigure=True)

    def test_last_message_arrives(self):
        self.everywhere(last_message, enable_reconfigure=True)

    def test_after_a_death(self):
        self.everywhere(after_a_death, sizes=(3, 4), dies=(0, 1))

    def test_refusals(self):
        self.everywhere(refusals, sizes=(1, 2, 3), enable_reconfigure=True)

    def test_late_member_is_named(self):
        self.everywhere(late, enable_reconfigure=True)

    def test_shrink_group(self):
        for again in (False, True):
            with self.subTest(reconfigured=again):
                self.everywhere(shrinks, again, sizes=(2, 3, 4), enable_reconfigure=again)

    def test_shrink_group_after_a_death(self):
        for n in (2, 3, 4):
            with self.subTest(ranks=n):
                run(n, shrinks_after_death, dies=(n - 1,))

    def test_abort_hooks(self):
        self.everywhere(hooks)

    def test_abort_ends_the_call_of_another_thread(self):
        self.everywhere(aborted_call)


if __name__ == "__main__":
    if not hasattr(dist, "_reconfigure"):
        print("reconfigure.py: this torch has no reconfigure: nothing is tested (2.15 has it)")
        raise SystemExit(0)
    unittest.main()
