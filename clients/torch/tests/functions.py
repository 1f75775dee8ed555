"""Every function of torch.distributed, on 1 to 4 ranks, for every element type, compared with a serial computation,
and with gloo where gloo has the function for the type."""

import datetime
import fractions
import os
import signal
import threading
import time
import unittest
import unittest.mock

import torch
import torch.distributed as dist

from ranks import run

Op = dist.ReduceOp
integers = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
wide_unsigned = [torch.uint16, torch.uint32, torch.uint64]
floats = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
complexes = [torch.complex64, torch.complex128]
small_floats = [torch.float8_e4m3fn, torch.float8_e5m2]
moved = integers + wide_unsigned + floats + complexes + [torch.bool] + small_floats
lengths = [0, 1, 7, 20_000]


def contribution(rank, length, dtype, salt=0):
    """Small whole numbers, so that sums and products are exact in all types, in any order."""
    values = (torch.arange(length, dtype=torch.int64) * 7 + rank * 5 + salt) % 3
    if dtype.is_complex:
        return torch.complex(values.to(torch.float64), (values + 1.0).to(torch.float64) % 2).to(dtype)
    return values.to(dtype)


def reduce_serially(op, parts):
    dtype = parts[0].dtype
    wide = dtype if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    total = parts[0].to(wide)
    for part in (p.to(wide) for p in parts[1:]):
        if op in (Op.SUM, Op.AVG):
            total = total + part
        elif op == Op.PRODUCT:
            total = total * part
        elif op == Op.MIN:
            total = torch.minimum(total, part)
        elif op == Op.MAX:
            total = torch.maximum(total, part)
        elif op == Op.BAND:
            total = total & part
        elif op == Op.BOR:
            total = total | part
        elif op == Op.BXOR:
            total = total ^ part
    if op == Op.AVG:
        total = total / len(parts) if wide != torch.int64 else torch.div(total, len(parts), rounding_mode="trunc")
    return total.to(dtype)


def operators(dtype):
    if dtype == torch.bool:
        return [Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX, Op.BAND, Op.BOR, Op.BXOR]
    if dtype.is_complex:
        return [Op.SUM, Op.AVG]  # torch.distributed refuses the others
    if dtype.is_floating_point:
        return [Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX, Op.AVG]
    return [Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX, Op.AVG, Op.BAND, Op.BOR, Op.BXOR]


def same(a, b):
    if a.dtype in small_floats:
        a, b = a.view(torch.uint8), b.view(torch.uint8)
    if a.dtype == torch.float16 or a.dtype == torch.bfloat16 or a.dtype.is_complex or a.dtype.is_floating_point:
        return torch.allclose(a.to(torch.complex128), b.to(torch.complex128), rtol=1e-2 if a.element_size() == 2 else 1e-6)
    return torch.equal(a, b)


def expect(what, got, wanted):
    if isinstance(got, (list, tuple)):
        if len(got) != len(wanted):
            raise AssertionError(f"{what}: {len(got)} results")
        for i, (g, w) in enumerate(zip(got, wanted)):
            expect(f"{what}, part {i}", g, w)
    elif got.shape != wanted.shape or not same(got, wanted):
        raise AssertionError(f"{what}: {got.flatten()[:8]}... and not {wanted.flatten()[:8]}...")


def both(group, what, call, wanted):
    """call(group) returns results. They are compared with those that are wanted, and gloo's, where it has the call."""
    expect(what, call(None), wanted)
    try:
        theirs = call(group)
    except (RuntimeError, ValueError, NotImplementedError, IndexError):
        return
    expect(f"{what}, by gloo", theirs, wanted)


def reductions(rank, n):
    gloo = dist.new_group(backend="gloo")
    for dtype in integers + wide_unsigned + floats + complexes + [torch.bool]:
        for op in operators(dtype):
            for length in lengths:
                what = f"{dtype} {op} {length} on {n}"
                parts = [contribution(r, length, dtype) for r in range(n)]
                total = reduce_serially(op, parts)
                # gloo sums bytes where colls has logical operators, and has no average
                theirs = gloo if length <= 7 and length > 0 and dtype != torch.bool and op != Op.AVG else None

                def all_reduce(group):
                    x = parts[rank].clone()
                    dist.all_reduce(x, op, group=group)
                    return x

                both(theirs, f"all_reduce {what}", all_reduce, total)

                def reduce(group):
                    x = parts[rank].clone()
                    dist.reduce(x, n - 1, op, group=group)
                    return x if rank == n - 1 else total

                both(theirs, f"reduce {what}", reduce, total)
                whole = [torch.cat([contribution(r, length, dtype, b) for b in range(n)]) for r in range(n)]
                own = reduce_serially(op, [contribution(r, length, dtype, rank) for r in range(n)])

                def reduce_scatter_tensor(group):
                    out = torch.zeros(length, dtype=dtype)
                    dist.reduce_scatter_tensor(out, whole[rank], op, group=group)
                    return out

                both(None, f"reduce_scatter_tensor {what}", reduce_scatter_tensor, own)

                def reduce_scatter(group):
                    out = torch.zeros(length, dtype=dtype)
                    dist.reduce_scatter(out, [t.clone() for t in whole[rank].chunk(n)] if length else
                                        [out.clone() for _ in range(n)], op, group=group)
                    return out

                both(None, f"reduce_scatter {what}", reduce_scatter, own)
    for dtype in floats + [torch.int32]:
        for factor in (2.0, torch.tensor([3.0])):
            x = contribution(rank, 9, dtype)
            dist.all_reduce(x, dist._make_nccl_premul_sum(factor))
            wanted = reduce_serially(Op.SUM, [contribution(r, 9, dtype) for r in range(n)]) * int(factor)
            expect(f"premul_sum {dtype} {factor}", x, wanted.to(dtype))


def movements(rank, n):
    gloo = dist.new_group(backend="gloo")
    for dtype in moved:
        for length in lengths:
            what = f"{dtype} {length} on {n}"
            theirs = gloo if 0 < length <= 7 and dtype not in small_floats else None
            parts = [contribution(r, length, dtype, r) for r in range(n)]
            empty = torch.zeros(length, dtype=torch.uint8).to(dtype)
            root = n // 2

            def broadcast(group):
                x = parts[rank].clone()
                dist.broadcast(x, root, group=group)
                return x

            both(theirs, f"broadcast {what}", broadcast, parts[root])

            def all_gather(group):
                out = [empty.clone() for _ in range(n)]
                dist.all_gather(out, parts[rank], group=group)
                return out

            both(theirs, f"all_gather {what}", all_gather, parts)

            def all_gather_into_tensor(group):
                out = torch.cat([empty] * n) if dtype not in small_floats else empty.repeat(n)
                dist.all_gather_into_tensor(out, parts[rank], group=group)
                return [out[r * length:(r + 1) * length] for r in range(n)]

            both(theirs, f"all_gather_into_tensor {what}", all_gather_into_tensor, parts)

            def gather(group):
                out = [empty.clone() for _ in range(n)] if rank == root else None
                dist.gather(parts[rank], out, root, group=group)
                return out or parts

            both(theirs, f"gather {what}", gather, parts)

            def scatter(group):
                out = empty.clone()
                dist.scatter(out, [p.clone() for p in parts] if rank == root else None, root, group=group)
                return out

            both(theirs, f"scatter {what}", scatter, parts[rank])

            def all_to_all(group):
                out = [empty.clone() for _ in range(n)]
                dist.all_to_all(out, [contribution(rank, length, dtype, b) for b in range(n)], group=group)
                return out

            both(None, f"all_to_all {what}", all_to_all, [contribution(r, length, dtype, rank) for r in range(n)])
            if dtype in small_floats:
                continue

            def all_to_all_single(group):
                out = torch.cat([empty] * n)
                dist.all_to_all_single(out, torch.cat([contribution(rank, length, dtype, b) for b in range(n)]),
                                       group=group)
                return out

            both(theirs, f"all_to_all_single {what}", all_to_all_single,
                 torch.cat([contribution(r, length, dtype, rank) for r in range(n)]))

            # Uneven: rank r sends (r + b) % 3 rows to rank b.
            def uneven(group):
                sent = [(rank + b) % 3 for b in range(n)]
                got = [(r + rank) % 3 for r in range(n)]
                x = torch.cat([contribution(rank, length * rows, dtype, b) for b, rows in enumerate(sent)])
                out = torch.zeros(sum(got), length, dtype=dtype)
                dist.all_to_all_single(out, x.view(sum(sent), length), got, sent, group=group)
                return out

            if length > 0:
                both(theirs, f"all_to_all_single, uneven, {what}", uneven,
                     torch.cat([contribution(r, length * ((r + rank) % 3), dtype, rank)
                                for r in range(n)]).view(-1, length))
    # Lists of different lengths.
    out = [torch.zeros(r + 1) for r in range(n)]
    dist.all_gather(out, torch.full((rank + 1,), float(rank)))
    expect("all_gather, uneven", out, [torch.full((r + 1,), float(r)) for r in range(n)])
    out = torch.zeros(rank + 1)
    dist.reduce_scatter(out, [torch.ones(r + 1) for r in range(n)])
    expect("reduce_scatter, uneven", out, torch.full((rank + 1,), float(n)))


def strided(rank, n):
    """Tensors whose elements do not lie in a row, in and out, as gloo takes them or better."""
    def matrix(r):
        return torch.arange(12.0).view(3, 4) + r

    x = matrix(rank).t()
    dist.all_reduce(x)
    expect("all_reduce of a transposed tensor", x, sum(matrix(r).t() for r in range(n)))
    wide = torch.zeros(3, 8)
    wide[:, ::2] = matrix(rank)
    dist.broadcast(wide[:, ::2], 0)
    expect("broadcast to every other column", wide[:, ::2], matrix(0))
    expect("the columns between", wide[:, 1::2], torch.zeros(3, 4))
    out = torch.zeros(4, 3 * n)
    dist.all_gather(list(out.chunk(n, dim=1)), matrix(rank).t())
    expect("all_gather into columns", out, torch.cat([matrix(r).t() for r in range(n)], dim=1))
    out = torch.zeros(4, 3).t()
    dist.reduce_scatter(out, [matrix(rank + b) for b in range(n)])
    expect("reduce_scatter to a transposed tensor", out, sum(matrix(r + rank) for r in range(n)))
    whole = torch.zeros(n, 6)
    whole[rank] = rank + 1.0
    dist.all_gather_into_tensor(whole, whole[rank])
    expect("all_gather in place", whole, (torch.arange(n) + 1.0).repeat_interleave(6).view(n, 6))


def expanded(rank, n):
    """Elements that share a place: taken in place, as by gloo, and refused where results would be lost."""
    def row(r):
        return torch.tensor([[r + 1.0], [10.0]]).expand(2, 3)

    total = sum(row(r) for r in range(n))
    x = row(rank)
    dist.all_reduce(x)
    expect("all_reduce", x, total)
    x = row(rank)
    dist.all_reduce_coalesced([x, torch.ones(2)])
    expect("all_reduce_coalesced", x, total)
    x = row(rank)
    dist.reduce(x, n - 1)
    expect("reduce", x, total if rank == n - 1 else row(rank))
    x = row(rank)
    dist.broadcast(x, n - 1)
    expect("broadcast", x, row(n - 1))
    x = torch.arange(3.0) if rank == 0 else torch.zeros(1).expand(3)
    dist.broadcast(x, 0)
    expect("broadcast of elements that differ", x, torch.arange(3.0) if rank == 0 else torch.full((3,), 2.0))
    for call in [
        lambda: dist.all_gather_into_tensor(torch.zeros(1).expand(2 * n), torch.ones(2)),
        lambda: dist.reduce_scatter_tensor(torch.zeros(1).expand(2), torch.ones(2 * n)),
        lambda: dist.scatter(torch.zeros(1).expand(2), [torch.ones(2)] * n if rank == 0 else None, 0),
    ]:
        try:
            call()
        except RuntimeError as error:
            if "single memory location" not in str(error):
                raise
        else:
            raise AssertionError("not refused")
    dist.barrier()


def without_waiting(work):
    """Until another thread has made the call."""
    while not work.is_completed():
        time.sleep(1e-4)
    work.wait()


def views(rank, n):
    """Conjugate views and negative ones, whose memory has other numbers: in and out."""
    def negative(t):
        return torch._neg_view(t.clone())

    gloo = dist.new_group(backend="gloo")
    parts = [torch.arange(4.0 * n) + r for r in range(n)]
    total = sum(parts)
    for op, wanted in ((Op.SUM, -total), (Op.MAX, -parts[0])):
        for asynchronous in (False, True):
            x = parts[rank].clone()
            work = dist.all_reduce(torch._neg_view(x), op, async_op=asynchronous)
            if asynchronous:
                without_waiting(work)
            expect(f"all_reduce {op} of a negative view", -x, wanted)
    x = negative(parts[rank])
    dist.reduce(x, n - 1)
    expect("reduce", x, -total if rank == n - 1 else -parts[rank])
    x = negative(parts[rank])
    dist.broadcast(x, n - 1)
    expect("broadcast", x, -parts[n - 1])
    xs = [negative(parts[rank]), parts[rank].clone()]
    dist.all_reduce_coalesced(xs)
    expect("all_reduce_coalesced", xs, [-total, total])
    for group in (None, gloo):  # gloo gets what it got
        out = [torch.zeros(4 * n) for _ in range(n)]
        dist.all_gather(out, negative(parts[rank]), group=group)
        expect("all_gather", out, [-p for p in parts])
    out = [negative(torch.zeros(4 * n)) for _ in range(n)]
    dist.all_gather(out, parts[rank])
    expect("all_gather to negative views", out, parts)
    out = negative(torch.zeros(4 * n * n))
    dist.all_gather_into_tensor(out, negative(parts[rank]))
    expect("all_gather_into_tensor", out, -torch.cat(parts))
    out = [negative(torch.zeros(4 * n)) for _ in range(n)] if rank == 0 else None
    dist.gather(negative(parts[rank]), out, 0)
    if rank == 0:
        expect("gather", out, [-p for p in parts])
    out = negative(torch.zeros(4 * n))
    dist.scatter(out, [negative(p) for p in parts] if rank == 0 else None, 0)
    expect("scatter", out, -parts[rank])
    out = negative(torch.zeros(4))
    dist.reduce_scatter_tensor(out, negative(parts[rank]))
    expect("reduce_scatter_tensor", out, -total[4 * rank : 4 * rank + 4])
    out = negative(torch.zeros(4))
    dist.reduce_scatter(out, [negative(p) for p in parts[rank].chunk(n)])
    expect("reduce_scatter", out, -total[4 * rank : 4 * rank + 4])
    out = negative(torch.zeros(4 * n))
    dist.all_to_all_single(out, negative(parts[rank]))
    expect("all_to_all_single", out, -torch.cat([p.chunk(n)[rank] for p in parts]))
    out = [negative(torch.zeros(4)) for _ in range(n)]
    dist.all_to_all(out, [negative(p) for p in parts[rank].chunk(n)])
    expect("all_to_all", out, [-p.chunk(n)[rank] for p in parts])
    if n > 1 and rank < 2:
        for source in (1, None):
            if rank == 1:
                dist.send(negative(parts[1]), 0)
            else:
                out = negative(torch.zeros(4 * n))
                dist.recv(out, source)
                expect("recv", out, -parts[1])
    # Python's functions refuse conjugate views; the group's take them.
    z = torch.complex(parts[rank], parts[rank] + 1)
    conjugate, total = z.conj(), sum(torch.complex(p, p + 1) for p in parts)
    dist.group.WORLD.allreduce([conjugate]).wait()
    expect("all_reduce of a conjugate view", z, total)


def inference(rank, n):
    """Calls that another thread makes, with what holds for the thread of the caller: inference mode; no gradients."""
    with torch.inference_mode():
        x = torch.ones(4, 2)
        without_waiting(dist.all_reduce(x.t(), async_op=True))
        expect("all_reduce", x, torch.full((4, 2), float(n)))
        out = [torch.empty(4) for _ in range(n)]
        without_waiting(dist.all_gather(out, torch.full((4,), float(rank)), async_op=True))
        expect("all_gather", out, [torch.full((4,), float(r)) for r in range(n)])
        out = torch.empty(4 * n)
        without_waiting(dist.all_gather_into_tensor(out, torch.ones(4), async_op=True))
        expect("all_gather_into_tensor", out, torch.ones(4 * n))
        if n > 1:
            x = torch.zeros(2, 3)
            receive = dist.irecv(x.t(), (rank - 1) % n)
            dist.isend(torch.ones(3, 2), (rank + 1) % n).wait()
            without_waiting(receive)
            expect("into a transposed tensor", x, torch.ones(2, 3))
            dist.isend(torch.ones(3), (rank + 1) % n, tag=1).wait()
            dist.isend(torch.ones(3), (rank + 1) % n, tag=2).wait()
            for tag in (2, 1):  # the one with tag 1 is there before its receive
                x = torch.zeros(3)
                without_waiting(dist.irecv(x, (rank - 1) % n, tag=tag))
                expect(f"tag {tag}", x, torch.ones(3))
    x = torch.ones(4, 2, requires_grad=True)
    without_waiting(dist.all_reduce(x.t(), async_op=True))
    expect("of a parameter", x.detach(), torch.full((4, 2), float(n)))


def coalesced(rank, n):
    xs = [torch.full((k,), rank + 1.0) for k in (1, 5, 300)]
    dist.all_reduce_coalesced(xs)
    expect("all_reduce_coalesced", xs, [torch.full((k,), n * (n + 1) / 2) for k in (1, 5, 300)])
    with dist._coalescing_manager():
        ys = [torch.full((k,), rank + 1.0) for k in (2, 6)]
        for y in ys:
            dist.all_reduce(y)
    expect("coalescing manager, all_reduce", ys, [torch.full((k,), n * (n + 1) / 2) for k in (2, 6)])
    with dist._coalescing_manager():
        outs = [torch.zeros(n * k) for k in (2, 3)]
        for out, k in zip(outs, (2, 3)):
            dist.all_gather_into_tensor(out, torch.full((k,), float(rank)))
    expect("coalescing manager, all_gather", outs, [torch.arange(n * 1.0).repeat_interleave(k) for k in (2, 3)])
    with dist._coalescing_manager():
        outs = [torch.zeros(k) for k in (2, 3)]
        for out, k in zip(outs, (2, 3)):
            dist.reduce_scatter_tensor(out, torch.arange(n * 1.0).repeat_interleave(k))
    expect("coalescing manager, reduce_scatter", outs, [torch.full((k,), float(n * rank)) for k in (2, 3)])
    x = torch.sparse_coo_tensor([[0, rank + 1]], torch.tensor([1.0, 2.0]), (n + 2,))
    dist.all_reduce(x)
    wanted = torch.zeros(n + 2)
    wanted[0] = n
    wanted[1:n + 1] = 2
    expect("all_reduce of sparse tensors", x.to_dense(), wanted)


def messages(rank, n):
    right, left = (rank + 1) % n, (rank - 1) % n
    if n > 1:
        for length in (0, 1, 1000, 300_000):
            sends = [dist.isend(torch.full((length,), 10.0 * rank + t), right, tag=t) for t in range(4)]
            for t in (2, 0, 3, 1):  # in another order than they were sent
                x = torch.zeros(length)
                if dist.recv(x, left, tag=t) != left:
                    raise AssertionError("recv returns the sender")
                expect(f"tag {t} of {length}", x, torch.full((length,), 10.0 * left + t))
            for s in sends:
                s.wait()
        if rank == 0:
            seen = set()
            for _ in range(2 * (n - 1)):
                x = torch.zeros(3)
                source = dist.recv(x, tag=7)
                expect("from any rank", x[:1], torch.tensor([float(source)]))
                seen.add((source, x[1].item()))
            if len(seen) != 2 * (n - 1):
                raise AssertionError(f"messages of any rank: {seen}")
        else:
            for i in range(2):
                dist.send(torch.tensor([float(rank), float(i), 0.0]), 0, tag=7)
        # Receives first: each rank waits for both neighbours before it sends.
        into = [torch.zeros(2000), torch.zeros(2000)]
        ops = [dist.P2POp(dist.irecv, into[0], left), dist.P2POp(dist.irecv, into[1], right)]
        ops += [dist.P2POp(dist.isend, torch.full((2000,), float(rank)), r) for r in (right, left)]
        for w in dist.batch_isend_irecv(ops):
            w.wait()
        expect("neighbours", into, [torch.full((2000,), float(left)), torch.full((2000,), float(right))])
        # A collective call while a message is open, and a strided receive.
        x = torch.zeros(4, 6)
        open_receive = dist.irecv(x.t(), left, tag=9)
        dist.barrier()
        dist.send(torch.full((6, 4), float(rank)), right, tag=9)
        open_receive.wait()
        expect("into a transposed tensor", x, torch.full((4, 6), float(left)))
        if rank == 0:
            dist.send(torch.zeros(3), 1, tag=1)
        if rank == 1:
            try:
                dist.recv(torch.zeros(5), 0, tag=1)
                raise AssertionError("a message of another length was received")
            except RuntimeError as error:
                if "12 bytes" not in str(error) or "20 bytes" not in str(error):
                    raise
        # Small sends are over before they are received, and none is lost.
        many = 300
        if rank == 0:
            for i in range(many):
                dist.send(torch.full((1 + i * 7,), float(i)), n - 1, tag=2)
            dist.barrier()
            for length in (5000, 100_000, 1_000_000):  # longer than what is kept, and in pieces
                dist.send(torch.arange(float(length)), n - 1, tag=2)
        else:
            dist.barrier()  # which rank 0 reaches though nobody has received
            if rank == n - 1:
                for i in range(many):
                    x = torch.zeros(1 + i * 7)
                    dist.recv(x, 0, tag=2)
                    expect(f"message {i}", x, torch.full((1 + i * 7,), float(i)))
                for length in (5000, 100_000, 1_000_000):
                    x = torch.zeros(length)
                    dist.recv(x, 0, tag=2)
                    expect(f"message of {length}", x, torch.arange(float(length)))
        # A receive that no thread waits for, and one in the callback of another.
        if rank == 1:
            dist.send(torch.tensor([1.0]), 0, tag=3)
            dist.send(torch.tensor([2.0]), 0, tag=4)
        if rank == 0:
            x, y = torch.zeros(1), torch.zeros(1)
            w = dist.irecv(x, 1, tag=3)
            then = w.get_future().then(lambda f: dist.recv(y, 1, tag=4))
            while not w.is_completed():
                time.sleep(1e-4)
            if then.wait() != 1:
                raise AssertionError("recv in a callback")
            expect("receives without a waiting thread", [x, y], [torch.tensor([1.0]), torch.tensor([2.0])])
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
    if objects != [{"rank": r, "text": "x" * r} for r in range(n)]:
        raise AssertionError(objects)
    shared = ["from 0", 42] if rank == 0 else [None, None]
    dist.broadcast_object_list(shared, 0)
    if shared != ["from 0", 42]:
        raise AssertionError(shared)
    own = [None]
    dist.scatter_object_list(own, [f"for {r}" for r in range(n)] if rank == 0 else None, 0)
    if own != [f"for {rank}"]:
        raise AssertionError(own)
    gathered = [None] * n if rank == 0 else None
    dist.gather_object(rank, gathered, 0)
    if rank == 0 and gathered != list(range(n)):
        raise AssertionError(gathered)


def left_open(rank, n):
    """A receive that is open ends with its group."""
    for source in (None, 1):
        group = dist.new_group()
        if rank == 0:
            work = dist.irecv(torch.zeros(3), source, group=group, tag=5)
            time.sleep(0.2)  # the queue's own thread looks for the message
            dist.destroy_process_group(group)
            try:
                work.wait()
                raise AssertionError("a message has come that was not sent")
            except dist.DistBackendError as error:
                if "destroyed while messages are under way" not in str(error):
                    raise
        dist.barrier()


def forked(rank, n):
    """A process that is forked from a rank can leave its groups."""
    dist.all_reduce(torch.ones(2), async_op=True).wait()
    sent = dist.isend(torch.ones(2), (rank + 1) % n)
    dist.recv(torch.ones(2), (rank - 1) % n)
    sent.wait()
    time.sleep(0.1)  # the threads of the queues wait
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        dist.destroy_process_group()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status != 0:
        raise AssertionError(f"the child has ended with status {status}")
    dist.barrier()


def sends_and_rests(rank, n):
    """A message arrives though its sender makes no further call."""
    store = dist.distributed_c10d._get_default_store()
    for turn in range(20):
        group = dist.new_group()  # a first message needs a connection, over TCP
        for length in (1, 1000, 250_000):
            if rank > 0:
                dist.send(torch.full((length,), float(rank)), 0, group=group)
            else:
                for r in range(1, n):
                    x = torch.zeros(length)
                    dist.recv(x, r, group=group)
                    expect("a message", x, torch.full((length,), float(r)))
        if rank == 0:
            store.set(f"received/{turn}", "")
        store.get(f"received/{turn}")


def works(rank, n):
    total = n * (n + 1) / 2
    xs = [torch.full((1000 * i,), rank + 1.0) for i in range(1, 30)]
    started = [dist.all_reduce(x, async_op=True) for x in xs]
    y = torch.full((3,), rank + 1.0)
    dist.all_reduce(y)  # a synchronous call behind asynchronous ones
    for w in reversed(started):
        if w.wait() is not True or not w.is_completed():
            raise AssertionError("a work that was waited for is not over")
    expect("asynchronous calls", xs + [y], [torch.full_like(x, total) for x in xs] + [torch.full((3,), total)])
    x = torch.full((5,), rank + 1.0)
    doubled = dist.all_reduce(x, async_op=True).get_future().then(lambda f: f.value()[0] * 2)
    expect("a future", doubled.wait(), torch.full((5,), 2 * total))
    x = torch.full((5,), rank + 1.0)

    def again(f):  # a call within a callback, which it waits for
        return [dist.all_reduce(f.value()[0], async_op=True).get_future().wait()[0]]

    expect("a call in a callback", dist.all_reduce(x, async_op=True).get_future().then(again).wait()[0],
           torch.full((5,), n * total))
    w = dist.all_reduce(x, async_op=True)
    while not w.is_completed():
        time.sleep(1e-4)
    for members in ([0], [0, n - 1], list(range(n))[::-1]):
        members = list(dict.fromkeys(members))
        group = dist.new_group(members)
        if rank in members:
            x = torch.full((2,), float(rank))
            dist.all_reduce(x, group=group)
            expect(f"group {members}", x, torch.full((2,), float(sum(members))))
    dist.monitored_barrier()


def callbacks(rank, n):
    """Callbacks of futures make calls and wait for them, for works and for futures, whatever others wait for."""
    def future(start, *arguments, **options):
        return start(*arguments, **options).get_future()

    def all_reduce():
        return dist.all_reduce(torch.ones(2), async_op=True)

    store = dist.distributed_c10d._get_default_store()
    if rank > 0:
        for turn in range(3):
            store.get(f"callbacks/{turn}")  # until rank 0 has its callbacks
            if turn < 2:
                for _ in range(2 + turn):
                    dist.all_reduce(torch.ones(2))
            else:
                for tag in (3, 4):
                    dist.send(torch.full((1,), float(tag)), 0, tag=tag)
                    time.sleep(0.2)
        dist.barrier()
        return

    a, b = all_reduce(), all_reduce()
    then = a.get_future().then(lambda _: b.get_future().wait()[0])
    store.set("callbacks/0", "")
    expect("a call that was made before", then.wait(), torch.full((2,), float(n)))

    entered, left = threading.Event(), threading.Event()
    a = all_reduce()
    first = a.get_future().then(lambda _: (entered.set(), left.wait(60)) and None)
    b = all_reduce()
    second = b.get_future().then(lambda _: future(all_reduce).wait()[0])
    store.set("callbacks/1", "")
    entered.wait()
    b.wait()
    expect("a call of a second callback", second.wait(), torch.full((2,), float(n)))
    left.set()
    first.wait()

    x, y = torch.zeros(1), torch.zeros(1)
    then = future(dist.irecv, x, 1, tag=3).then(lambda _: future(dist.irecv, y, 1, tag=4).wait() and None)
    store.set("callbacks/2", "")
    then.wait()
    expect("a receive in a callback", [x, y], [torch.full((1,), 3.0), torch.full((1,), 4.0)])
    dist.barrier()


def aborted_callbacks(rank, n):
    """Where several works end at once, callbacks of one wait for another, and for its future."""
    def after(work, other):
        def wait(_):
            for f in (other.wait, other.get_future().wait):
                try:
                    f()
                    raise AssertionError("it has ended well")
                except RuntimeError as error:
                    if "was aborted" not in str(error):
                        raise

        return work.get_future().then(wait)

    group = dist.new_group()
    if rank == 0:
        started = [dist.irecv(torch.zeros(3), 1, group=group, tag=tag) for tag in (1, 2, 3)]
        calls = [dist.all_reduce(torch.ones(2), group=group, async_op=True) for _ in range(3)]
        futures = [after(a, b) for works in (started, calls) for a, b in zip(works, works[1:] + works[:1])]
        time.sleep(0.1)
        group.abort()
        for f in futures:
            f.wait()
    dist.barrier()


def complex_halves(rank, n):
    """torch views them as reals in some calls, and hands them over in others."""
    parts = [torch.view_as_complex(torch.tensor([[r + 1.0, b - 2.0 * r] for b in range(2 * n)]).half())
             for r in range(n)]
    total = sum(torch.view_as_real(p) for p in parts)

    def both_are(what, got, wanted):
        if got.dtype != torch.complex32 or not torch.equal(torch.view_as_real(got), wanted.to(torch.float16)):
            raise AssertionError(f"{what}: {torch.view_as_real(got)} and not {wanted}")

    for op, wanted in ((Op.SUM, total), (Op.AVG, total / n)):
        x = parts[rank].clone()
        dist.all_reduce(x, op)
        both_are("all_reduce", x, wanted)
        own = wanted[2 * rank:2 * rank + 2]
        out = torch.zeros(2, dtype=torch.complex32)
        dist.reduce_scatter_tensor(out, parts[rank], op)
        both_are("reduce_scatter_tensor", out, own)
        out = torch.zeros(2, dtype=torch.complex32)
        dist.reduce_scatter(out, list(parts[rank].chunk(n)), op)
        both_are("reduce_scatter", out, own)
        x = parts[rank].clone()
        dist.reduce(x, 0, op)
        if rank == 0:
            both_are("reduce", x, wanted)
    out = torch.zeros(2 * n * n, dtype=torch.complex32)
    dist.all_gather_into_tensor(out, parts[rank])
    both_are("all_gather_into_tensor", out, torch.cat([torch.view_as_real(p) for p in parts]))
    try:
        dist.reduce_scatter_tensor(torch.zeros(2, dtype=torch.complex32), parts[rank], Op.MAX)
    except (RuntimeError, ValueError):
        return
    raise AssertionError("a maximum of complex numbers")


def connections_to(port):
    """The connections of this process to a port of this host."""
    own = set()
    for file in os.listdir("/proc/self/fd"):
        try:
            own.add(os.readlink(f"/proc/self/fd/{file}"))
        except OSError:
            pass
    count = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table) as lines:
            for line in list(lines)[1:]:
                words = line.split()
                count += int(words[2].split(":")[1], 16) == port and f"socket:[{words[9]}]" in own
    return count


def groups_over_tcp(rank, n):
    """A group makes no connection to the store, since that takes a quarter of a second where names are looked up."""
    first = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, n, True, wait_for_workers=False)
        first.set("port", str(store.port))
    port = int(first.get("port"))
    if rank > 0:
        store = dist.TCPStore("127.0.0.1", port, n, False, wait_for_workers=False)
    dist.destroy_process_group()
    dist.init_process_group("colls", store=store, rank=rank, world_size=n)
    before = connections_to(port)
    if before == 0:
        raise AssertionError("the store's connection is not found")
    groups = [dist.new_group() for _ in range(5)]
    if connections_to(port) != before:
        raise AssertionError(f"{before} connections, and {connections_to(port)} with 5 more groups")
    x = torch.ones(2)
    dist.all_reduce(x, group=groups[4])
    expect("in a group over TCPStore", x, torch.full((2,), float(n)))
    dist.monitored_barrier()
    dist.barrier()


def refusals(rank, n):
    f32, f64 = torch.ones(2 * n), torch.ones(2 * n, dtype=torch.float64)
    group = dist.group.WORLD
    for call in [
        lambda: dist.all_reduce(f32, Op.BAND),
        lambda: dist.all_reduce(torch.ones(2, dtype=torch.bfloat16), Op.BXOR),
        lambda: dist.all_reduce(torch.ones(2, dtype=torch.float8_e5m2)),
        lambda: group.allreduce([torch.ones(2, dtype=torch.complex32)], Op.MAX).wait(),
        lambda: group.allreduce([torch.ones(2, dtype=torch.complex64)], Op.MAX).wait(),
        lambda: dist.all_reduce(torch.ones(2, dtype=torch.bool), Op.AVG),
        lambda: dist.all_reduce(torch.ones(2, dtype=torch.bool), dist._make_nccl_premul_sum(2.0)),
        lambda: group.allreduce([f32, f32]),
        lambda: dist.all_gather_into_tensor(torch.ones(n * 2 + 1), torch.ones(2)),
        lambda: group._allgather_base(f64, torch.ones(2)),
        lambda: group.allgather([[f64] * n], [f32]),
        lambda: group.allgather([[f32] * (n + 1)], [f32]),
        lambda: group._reduce_scatter_base(torch.ones(2), torch.ones(n * 2 + 1)),
        lambda: group.alltoall_base(f32, f64, [], []),
        lambda: group.alltoall_base(torch.ones(n + 1), torch.ones(n + 1), [], []),
        lambda: group.alltoall_base(f32, f32, [1] * n, [2] * n),
        lambda: group.alltoall_base(f32, f32, [2], [2] * n),
        lambda: group.send([f32], rank, 0),
        lambda: group.recv([f32], n, 0),
    ]:
        try:
            work = call()
            if work is not None:
                work.wait()
        except (RuntimeError, ValueError) as error:
            text = str(error)
            if not text.startswith("colls: ") or any(
                    name in text for name in ("::", "Float", "Double", "BFloat", "Complex", "ScalarType", "std")):
                raise AssertionError(f"not in plain words: {text}")
        else:
            raise AssertionError("not refused")
    for call, text in [
        (lambda: dist.all_reduce(torch.ones(2), Op.BAND), "float"),
        (lambda: dist.all_reduce(torch.ones(2, dtype=torch.float8_e5m2)), "not reduced"),
        (lambda: dist.all_gather_into_tensor(torch.ones(n * 2 + 1), torch.ones(2)), "elements"),
        (lambda: dist.reduce_scatter_tensor(torch.ones(2), torch.ones(n * 2 + 1)), "elements"),
    ]:
        try:
            call()
        except (RuntimeError, ValueError) as error:
            if text not in str(error):
                raise
        else:
            raise AssertionError(f"not refused: {text}")
    x = torch.ones(2)
    dist.all_reduce(x)  # the group is whole
    expect("after refusals", x, torch.full((2,), float(n)))


def refused_together(rank, n):
    """What all ranks refuse leaves the group whole, also where one of them is slower."""
    for asynchronous in (False, True):
        for _ in range(2):
            try:
                work = dist.all_gather([torch.ones(3)] * n, torch.ones(2), async_op=asynchronous)
                if work is not None:
                    work.wait()
            except (RuntimeError, ValueError) as error:
                if f"rank {rank} in all_gather: the output holds" not in str(error):
                    raise
            else:
                raise AssertionError("not refused")
            if rank == n - 1:
                time.sleep(0.3)
        x = torch.ones(2)
        dist.all_reduce(x)
        expect("after a refusal of all", x, torch.full((2,), float(n)))


def late(rank, n):
    """A rank that does not come to a monitored barrier."""
    try:
        if rank != 1:
            dist.monitored_barrier(timeout=datetime.timedelta(seconds=0.3))
            raise AssertionError("passed without rank 1")
    except RuntimeError as error:
        if rank == 0 and "Rank 1 failed to pass monitoredBarrier in 300 ms" not in str(error):
            raise
        if rank > 1 and f"Rank {rank} successfully reached monitoredBarrier" not in str(error):
            raise
    dist.barrier()


def late_in_another_group(rank, n):
    """A rank that came to a monitored barrier of an earlier group over the same store."""
    store = dist.distributed_c10d._get_default_store().underlying_store
    dist.monitored_barrier()
    dist.destroy_process_group()
    dist.init_process_group("colls", store=store, rank=rank, world_size=n)
    late(rank, n)


def timeouts(rank, n):
    """A call that a rank does not make ends at the deadline."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=0.5))
    if rank == 1:
        time.sleep(3)
        return
    began = time.monotonic()
    try:
        dist.all_reduce(torch.ones(2), group=group)
        raise AssertionError("a call without rank 1 has ended well")
    except dist.DistBackendError as error:
        if "rank 1" not in str(error) or time.monotonic() - began > 10:
            raise


def receive_timeouts(rank, n):
    """Receives of messages that do not come end at the deadline, and a new deadline holds for receives, too."""
    def ends(call, group, text):
        began = time.monotonic()
        for _ in range(2):  # the group is broken then
            try:
                call(group)
                raise AssertionError("a message has come that was not sent")
            except dist.DistBackendError as error:
                if text not in str(error) or time.monotonic() - began > 10:
                    raise

    short = datetime.timedelta(seconds=0.3)
    x = torch.zeros(2)
    for call, text in [
        (lambda g: dist.recv(x, group=g, tag=5), "from any rank in "),
        (lambda g: dist.irecv(x, group=g, tag=5).wait(), "from any rank in "),
        (lambda g: dist.recv(x, 1, group=g, tag=5), "rank 1"),
    ]:
        for later in (False, True):
            group = dist.new_group() if later else dist.new_group(timeout=short)
            if later:
                dist.distributed_c10d._set_pg_timeout(short, group)
            if rank == 0:
                ends(call, group, text)
            dist.barrier()
    # Messages with another tag do not put the deadline off.
    group = dist.new_group(timeout=short)
    if rank == 0:
        ends(lambda g: dist.recv(x, 1, group=g, tag=5), group, "rank 1")
    elif rank == 1:
        try:
            for _ in range(150):
                dist.send(x, 0, group=group, tag=6)
                time.sleep(0.1)
            raise AssertionError("rank 0 has waited for 15 s")
        except dist.DistBackendError as error:
            if "rank 0" not in str(error):
                raise
    dist.barrier()
    for wrong in (0, -1):
        try:
            dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=wrong), dist.group.WORLD)
            raise AssertionError("not refused")
        except RuntimeError as error:
            if "above 0" not in str(error):
                raise


def killed(rank, n, asynchronous):
    """Rank n - 1 dies: the others have an error that names it."""
    group = dist.new_group([1, 2]) if n > 2 else None  # in which rank 2 is rank 1
    dist.all_reduce(torch.ones(1000))
    if n > 2 and rank > 0:
        dist.all_reduce(torch.ones(1000), group=group)
    store = dist.distributed_c10d._get_default_store()
    store.set(f"has called/{rank}", "")
    if rank == n - 1:
        for r in range(n):  # none is still in these calls
            store.get(f"has called/{r}")
        os.kill(os.getpid(), signal.SIGKILL)
    groups = [(None, f"rank {n - 1}")]
    if n > 2 and rank == 1:
        groups.append((group, "rank 1 (global rank 2)"))
    for g, name in groups:
        began = time.monotonic()
        try:
            for _ in range(10):
                if asynchronous:
                    dist.all_reduce(torch.ones(1000), group=g, async_op=True).wait()
                else:
                    dist.all_reduce(torch.ones(1000), group=g)
            raise AssertionError("calls without a rank end well")
        except dist.DistBackendError as error:
            if name not in str(error) or time.monotonic() - began > 10:
                raise
    try:
        dist.recv(torch.zeros(1), n - 1)
        raise AssertionError("a message of a dead rank has come")
    except dist.DistBackendError as error:
        if f"rank {n - 1}" not in str(error):
            raise


def exact(rank, n):
    """Sums of which a plain sum loses most, by COLLS_TORCH_EXACT=1: the nearest number to the rational sum."""
    os.environ["COLLS_TORCH_EXACT"] = "1"
    bits = {torch.float16: 11, torch.bfloat16: 20, torch.float32: 20, torch.float64: 40}
    small = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 20, torch.float64: 40}
    for dtype in floats:
        addends = [2.0 ** bits[dtype], 1.0, -(2.0 ** bits[dtype]), 2.0 ** -small[dtype]]
        length = 8 * n
        parts = [torch.tensor([addends[(r + i) % 4] for i in range(length)], dtype=dtype) for r in range(n)]
        wanted = torch.tensor(
            [float(sum(fractions.Fraction(addends[(r + i) % 4]) for r in range(n))) for i in range(length)],
            dtype=torch.float64,
        ).to(dtype)
        x = parts[rank].clone()
        dist.all_reduce(x)
        expect(f"exact all_reduce {dtype}", x, wanted)
        x = parts[rank].clone()
        dist.reduce(x, n - 1)
        if rank == n - 1:
            expect(f"exact reduce {dtype}", x, wanted)
        own = torch.zeros(8, dtype=dtype)
        dist.reduce_scatter_tensor(own, parts[rank].clone())
        expect(f"exact reduce_scatter {dtype}", own, wanted[8 * rank : 8 * rank + 8])
    whole = torch.arange(5) + rank
    dist.all_reduce(whole)
    expect("a sum of whole numbers", whole, torch.arange(5) * n + n * (n - 1) // 2)


class functions(unittest.TestCase):
    def everywhere(self, f, sizes=(1, 2, 3, 4)):
        for n in sizes:
            with self.subTest(ranks=n):
                run(n, f)

    def test_reductions(self):
        self.everywhere(reductions)

    def test_exact_sums(self):
        self.everywhere(exact)

    def test_movements(self):
        self.everywhere(movements)

    def test_strided_tensors(self):
        self.everywhere(strided)

    def test_expanded_tensors(self):
        self.everywhere(expanded)

    def test_conjugate_and_negative_views(self):
        self.everywhere(views)

    def test_inference_mode(self):
        self.everywhere(inference)

    def test_coalesced_and_sparse(self):
        self.everywhere(coalesced)

    def test_messages_and_objects(self):
        self.everywhere(messages)

    def test_messages_of_ranks_that_rest(self):
        for transport in ("", "tcp"):
            with self.subTest(transport=transport), unittest.mock.patch.dict(os.environ, COLLS_TRANSPORT=transport):
                self.everywhere(sends_and_rests, (2, 3))

    def test_open_receives_end_with_their_group(self):
        run(2, left_open, seconds=20)

    def test_forked_process_leaves_its_groups(self):
        run(2, forked, seconds=40)

    def test_works_and_groups(self):
        self.everywhere(works)

    def test_callbacks_of_futures(self):
        for f in (callbacks, aborted_callbacks):
            with self.subTest(f=f):
                run(2, f, seconds=30)

    def test_complex_halves(self):
        self.everywhere(complex_halves)

    def test_groups_over_tcp_store(self):
        self.everywhere(groups_over_tcp, (1, 2, 3))

    def test_refusals(self):
        self.everywhere(refusals, (2, 3))

    def test_refused_together(self):
        self.everywhere(refused_together, (3,))

    def test_monitored_barrier_names_the_missing_rank(self):
        for f in (late, late_in_another_group):
            self.everywhere(f, (2, 3))

    def test_timeout_names_the_missing_rank(self):
        self.everywhere(timeouts, (2, 3))

    def test_receives_end_at_the_deadline(self):
        self.everywhere(receive_timeouts, (2, 3))

    def test_killed_rank_is_named(self):
        for n in (2, 3):
            for asynchronous in (False, True):
                with self.subTest(ranks=n, asynchronous=asynchronous):
                    run(n, killed, asynchronous, dies=(n - 1,))


if __name__ == "__main__":
    unittest.main()
