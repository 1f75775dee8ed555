"""Times the calls of torch.distributed with colls and with gloo, in the same processes, in turns.

    python benchmark.py [--ranks 2] [--sizes 8,65536] [--functions all_reduce,...] [--backends colls,gloo] [--dispatch]
    python benchmark.py --functions ping_pong,ring,pipeline --sizes 4,65536 [--load 14]

Prints microseconds of a call: the median of several runs, each the mean of as many calls as take --seconds; of each run
the slowest rank counts. Sizes are bytes of the whole buffer: what each rank contributes to all_reduce and broadcast, and
the larger buffer of the others. --dispatch: also what a call takes in a group of one rank, which is Python, torch's
dispatcher and the backend without a partner.

Of messages, a size is that of one message. ping_pong: there and back, between ranks 0 and 1; ring: each rank sends to the
next and receives from the one before; pipeline: 8 messages from rank 0 through all ranks to the last. --load N: N other
processes compute meanwhile.
"""

import argparse
import contextlib
import multiprocessing
import os
import statistics
import sys
import tempfile
import time

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--ranks", type=int, default=2)
options.add_argument("--sizes", default=",".join(str(8 * 8**k) for k in range(8)) + ",67108864")
options.add_argument("--functions", default="all_reduce,all_gather,reduce_scatter,broadcast,all_to_all")
options.add_argument("--backends", default="colls,gloo")
options.add_argument("--runs", type=int, default=5)
options.add_argument("--seconds", type=float, default=0.02)
options.add_argument("--dispatch", action="store_true")
options.add_argument("--load", type=int, default=0, help="processes that compute meanwhile")
options.add_argument("--realtime", action="store_true", help="as root, on a machine that others use: with priority")


def calls(dist, torch, function, size, n, group):
    """The call, on float32 buffers of `size` bytes in all."""
    count = max(size // 4 // n * n, n)
    whole, part = torch.ones(count), torch.ones(count // n)
    other = torch.ones(count)
    return {
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group),
        "broadcast": lambda: dist.broadcast(whole, 0, group=group),
        "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group),
        "ping_pong": lambda: ping_pong(dist, torch, size, group),
        "ring": lambda: ring(dist, torch, size, n, group),
        "pipeline": lambda: pipeline(dist, torch, size, n, group),
    }[function]


def ping_pong(dist, torch, size, group):
    x = torch.ones(max(size // 4, 1))
    rank = dist.get_rank()
    if rank == 0:
        dist.send(x, 1, group=group)
    if rank < 2:
        dist.recv(x, 1 - rank, group=group)
    if rank == 1:
        dist.send(x, 0, group=group)


def ring(dist, torch, size, n, group):
    x, y = torch.ones(max(size // 4, 1)), torch.empty(max(size // 4, 1))
    rank = dist.get_rank()
    sent = dist.isend(x, (rank + 1) % n, group=group)
    dist.recv(y, (rank - 1) % n, group=group)
    sent.wait()


def pipeline(dist, torch, size, n, group):
    x = torch.ones(max(size // 4, 1))
    rank = dist.get_rank()
    for _ in range(8):
        if rank > 0:
            dist.recv(x, rank - 1, group=group)
        if rank < n - 1:
            dist.send(x, rank + 1, group=group)


def compute():
    while True:
        pass


@contextlib.contextmanager
def priority(wanted):
    """Real-time priority for a short time: Linux takes it away from who uses it for longer."""
    def schedule(policy, level):
        for thread in os.listdir("/proc/self/task") if wanted else []:  # gloo works in threads of its own
            with contextlib.suppress(ProcessLookupError):
                os.sched_setscheduler(int(thread), policy, os.sched_param(level))

    time.sleep(0.05 if wanted else 0)
    schedule(os.SCHED_RR, 1)
    yield
    schedule(os.SCHED_OTHER, 0)


def timed(dist, call, seconds, group):
    """Seconds of a call, in a loop of as many as take about that long; all ranks make as many."""
    import torch

    begin = time.perf_counter()
    for _ in range(3):
        call()
    many = torch.tensor([max(1, min(5000, int(3 * seconds / (time.perf_counter() - begin))))])
    dist.all_reduce(many, dist.ReduceOp.MIN, group=group)
    many = int(many)
    dist.barrier(group=group)
    begin = time.perf_counter()
    for _ in range(many):
        call()
    took = torch.tensor([(time.perf_counter() - begin) / many])
    dist.all_reduce(took, dist.ReduceOp.MAX, group=group)
    return float(took)


def rank_main(rank, chosen, folder):
    import torch
    import torch.distributed as dist

    import colls_torch  # noqa: F401

    torch.set_num_threads(1)
    n, backends = chosen.ranks, chosen.backends.split(",")
    dist.init_process_group(backends[0], store=dist.FileStore(os.path.join(folder, "s"), n), rank=rank, world_size=n)
    groups = {b: dist.new_group(backend=b) for b in backends}
    alone = {b: [dist.new_group([r], backend=b) for r in range(n)][rank] for b in backends} if chosen.dispatch else {}
    columns = backends + [f"{b}, 1 rank" for b in alone] + ([f"{backends[1]} / {backends[0]}"] if backends[1:] else [])
    if rank == 0:
        print(f"| {n} ranks | bytes | " + " | ".join(columns) + " |\n|---|---|" + "---|" * len(columns), flush=True)
    for function in chosen.functions.split(","):
        for size in map(int, chosen.sizes.split(",")):
            times = {}
            for _ in range(chosen.runs):
                for b, group in groups.items():
                    call = calls(dist, torch, function, size, n, group)
                    with priority(chosen.realtime):
                        times.setdefault(b, []).append(timed(dist, call, chosen.seconds, group))
            for b, group in alone.items():
                call = calls(dist, torch, function, size, 1, group)
                if function == "broadcast":
                    whole = torch.ones(max(size // 4, 1))
                    call = lambda: dist.broadcast(whole, rank, group=group)  # noqa: E731
                with priority(chosen.realtime):
                    times[b + "1"] = [timed(dist, call, chosen.seconds, group) for _ in range(3)]
            if rank == 0:
                medians = [statistics.median(t) for t in times.values()]
                row = [f"{1e6 * t:.1f}" for t in medians] + ([f"{medians[1] / medians[0]:.2f}"] if backends[1:] else [])
                print(f"| {function} | {size} | " + " | ".join(row) + " |", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    chosen = options.parse_args()
    import torch  # noqa: F401

    with tempfile.TemporaryDirectory() as folder:
        fork = multiprocessing.get_context("fork")
        load = [fork.Process(target=compute, daemon=True) for _ in range(chosen.load)]
        ranks = [fork.Process(target=rank_main, args=(r, chosen, folder)) for r in range(chosen.ranks)]
        for process in load + ranks:
            process.start()
        for process in ranks:
            process.join()
        for process in load:
            process.kill()
        sys.exit(any(process.exitcode for process in ranks))
