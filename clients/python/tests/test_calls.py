"""Every collective on 1 to 5 ranks, against what NumPy computes in one process."""

import functools
import math
import operator

import numpy
import pytest
from ranks import COUNTS, SIZES, Guarded, block_lengths, data, on_ranks, same

import colls

DTYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "g", "c8", "c16", "?", "S5", "V24", "M8[s]"]


def check_moves(comm, dtypes, counts):
    n, r = comm.size, comm.rank
    for dtype in dtypes:
        if dtype == "bfloat16":
            dtype = pytest.importorskip("ml_dtypes").bfloat16
        of = functools.partial(data, dtype=dtype if not str(dtype).startswith("M8") else "i8")
        view = (lambda a: a.view(dtype)) if str(dtype).startswith("M8") else (lambda a: a)
        for count in counts:
            root = (count + 1) % n
            # broadcast
            g = Guarded(count, dtype)
            g.array[:] = view(of(r, count))
            assert comm.broadcast(g.array, root) is g.array
            g.check(view(of(root, count)))
            # all_gather: a new array, a given one, in place
            every = view(numpy.concatenate([of(q, count) for q in range(n)]))
            x = view(of(r, count))
            same(comm.all_gather(x), every.reshape(n, count))
            g = Guarded(n * count, dtype)
            assert comm.all_gather(x, g.array) is g.array
            g.check(every)
            g = Guarded(n * count, dtype)
            own = g.array[r * count : (r + 1) * count]
            own[:] = x
            comm.all_gather(own, g.array)
            g.check(every)
            # gather
            result = comm.gather(x, root)
            same(result, every.reshape(n, count) if r == root else every.reshape(n, count)[:0])
            g = Guarded(n * count, dtype)
            comm.gather(x, root, g.array)
            g.check(every) if r == root else g.untouched()
            # scatter, of a number of elements that n does not divide
            m = n * count + (n - 1 if count % 2 else 0)
            lengths = block_lengths(m, n)
            begin = sum(lengths[:r])
            whole = view(of(root, m))
            g = Guarded(lengths[r], dtype)
            comm.scatter(whole if r == root else None, g.array, root)
            g.check(whole[begin : begin + lengths[r]])
            if r == root:
                kept = whole.copy()
                comm.scatter(kept, kept[begin : begin + lengths[r]], root)
                same(kept, whole)
            else:
                comm.scatter(None, g.array, root)
                g.check(whole[begin : begin + lengths[r]])
            # all_gather of blocks of those lengths
            g = Guarded(m, dtype)
            comm.all_gather(view(of(root, m))[begin : begin + lengths[r]], g.array)
            g.check(whole)
            # all_to_all: into another array, and in place
            x = view(of(r, n * count))
            expected = view(numpy.concatenate([of(q, n * count)[r * count : (r + 1) * count] for q in range(n)]))
            g = Guarded(n * count, dtype)
            comm.all_to_all(x, g.array)
            g.check(expected)
            g.array[:] = x
            assert comm.all_to_all(g.array) is g.array
            g.check(expected)


@pytest.mark.parametrize("size", SIZES)
def test_moves(size):
    on_ranks(check_moves, size, DTYPES, COUNTS[:5])
    on_ranks(check_moves, size, ["i4"], COUNTS)


def test_moves_of_bfloat16():
    pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed: no bfloat16")
    on_ranks(check_moves, 3, ["bfloat16"], COUNTS)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_moves_over_tcp(size):
    on_ranks(check_moves, size, ["i8"], [0, 1, 1001], transport="tcp")


FOLDS = {
    "sum": operator.add,
    "prod": operator.mul,
    "min": numpy.minimum,
    "max": numpy.maximum,
    "logical_and": lambda x, y: numpy.logical_and(x, y).astype(x.dtype),
    "logical_or": lambda x, y: numpy.logical_or(x, y).astype(x.dtype),
    "logical_xor": lambda x, y: numpy.logical_xor(x, y).astype(x.dtype),
    "bit_and": numpy.bitwise_and,
    "bit_or": numpy.bitwise_or,
    "bit_xor": numpy.bitwise_xor,
}


def operators_of(dtype):
    kind = numpy.dtype(dtype).kind
    if kind in "iu":
        return list(FOLDS)
    if kind == "b":
        return [op for op in FOLDS if op not in ("sum", "prod")]
    return ["sum", "prod", "min", "max"] if kind == "f" else ["sum", "prod"]


def check_reductions(comm, dtypes, counts, schedule=None):
    n, r = comm.size, comm.rank
    for dtype in dtypes:
        if dtype == "bfloat16":
            dtype = pytest.importorskip("ml_dtypes").bfloat16
        for op in operators_of(dtype) if dtype.__class__ is str else ["sum", "max"]:
            for count in counts:
                fold = FOLDS[op]
                inputs = [data(q, count, dtype) for q in range(n)]
                total = functools.reduce(fold, inputs)
                x, root = inputs[r], count % n
                how = {"schedule": schedule} if schedule else {}
                # all_reduce: into another array, and in place
                g = Guarded(count, dtype)
                assert comm.all_reduce(x, g.array, op, **how) is g.array
                g.check(total)
                same(x, data(r, count, dtype))
                g.array[:] = x
                assert comm.all_reduce(g.array, op=op, **how) is g.array
                g.check(total)
                # reduce
                g = Guarded(count, dtype)
                comm.reduce(x, root, g.array, op, **how)
                g.check(total) if r == root else g.untouched()
                g.array[:] = x
                assert comm.reduce(g.array, root, op=op, **how) is g.array
                g.check(total if r == root else x)
                # reduce_scatter
                lengths = block_lengths(count, n)
                own = slice(sum(lengths[:r]), sum(lengths[: r + 1]))
                g = Guarded(lengths[r], dtype)
                comm.reduce_scatter(x, g.array, op, **how)
                g.check(total[own])
                if count % n == 0 and count != n:
                    same(comm.reduce_scatter(x, op=op, **how), total[own])
                kept = x.copy()
                comm.reduce_scatter(kept, kept[own], op, **how)
                same(kept[own], total[own])
                # scans
                if schedule:
                    continue
                g = Guarded(count, dtype)
                comm.inclusive_scan(x, g.array, op)
                g.check(functools.reduce(fold, inputs[: r + 1]))
                g = Guarded(count, dtype)
                comm.exclusive_scan(x, g.array, op)
                g.check(functools.reduce(fold, inputs[:r])) if r > 0 else g.untouched()
                kept = x.copy()
                comm.inclusive_scan(kept, op=op)
                same(kept, functools.reduce(fold, inputs[: r + 1]))


NUMBERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "?"]


@pytest.mark.parametrize("size", SIZES)
def test_reductions(size):
    on_ranks(check_reductions, size, NUMBERS, [0, 1, 7])
    on_ranks(check_reductions, size, ["i4", "f8"], COUNTS)


def test_reductions_of_other_types():
    pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed: no bfloat16")
    on_ranks(check_reductions, 3, ["bfloat16"], [1, 7])


@pytest.mark.parametrize("schedule", ["ring", "direct", "bine"])
def test_schedules_by_name(schedule):
    on_ranks(check_reductions, 4, ["i4"], [1, 7, 64], schedule)


def check_averages_and_pairs(comm):
    n, r = comm.size, comm.rank
    x = numpy.array([n * (r + 1.0), -n * r])
    comm.all_reduce(x, op="avg")
    same(x, [sum(range(1, n + 1)), -sum(range(n))])
    whole = numpy.array([r, -r])
    comm.all_reduce(whole, op="avg")
    same(whole, [int(sum(range(n)) / n), int(-sum(range(n)) / n)])  # towards zero
    for value in ["f4", "f8", "i2", "i4", "i8"]:
        x = numpy.zeros(3, colls.pair(value))
        x["value"] = [r, -r, 5]
        x["index"] = r + 10
        low, high = comm.all_reduce(x.copy(), op="minloc"), comm.all_reduce(x.copy(), op="maxloc")
        assert low["value"].tolist() == [0, 1 - n, 5] and low["index"].tolist() == [10, n + 9, 10]
        assert high["value"].tolist() == [n - 1, 0, 5] and high["index"].tolist() == [n + 9, 10, 10]
    x = numpy.array([1.5, 2.5])
    comm.all_reduce(x, op=colls.premul_sum(0.5 * (r + 1)))
    same(x, numpy.array([1.5, 2.5]) * sum(0.5 * (q + 1) for q in range(n)))
    x = numpy.array([3, 4])
    comm.all_reduce(x, op=colls.premul_sum(r - 1))
    same(x, numpy.array([3, 4]) * sum(q - 1 for q in range(n)))


@pytest.mark.parametrize("size", SIZES)
def test_averages_pairs_and_factors(size):
    on_ranks(check_averages_and_pairs, size)


def check_uneven(comm, dtype):
    n, r = comm.size, comm.rank
    for base in [0, 1, 5]:
        counts = [(3 * q + base) % 5 for q in range(n)]
        begins = numpy.concatenate([[0], numpy.cumsum(counts)]).tolist()
        inputs = [data(q, counts[q], dtype) for q in range(n)]
        every = numpy.concatenate(inputs)
        root = base % n
        same(comm.all_gather(inputs[r], counts=counts), every)
        result = comm.gather(inputs[r], root, counts=counts if r == root else [])
        same(result, every if r == root else numpy.empty((0, counts[r]), dtype))
        whole = data(root, len(every), dtype, salt=3)
        own = slice(begins[r], begins[r + 1])
        g = Guarded(counts[r], dtype)
        comm.scatter(whole if r == root else None, g.array, root, counts=numpy.array(counts) if r == root else ())
        g.check(whole[own])
        everyone = [data(q, len(every), dtype) for q in range(n)]
        total = functools.reduce(operator.add, everyone)
        same(comm.reduce_scatter(everyone[r], counts=counts), total[own])
        # Blocks in reverse order, with gaps of one element.
        places = [0] * n
        at = 1
        for q in reversed(range(n)):
            places[q] = at
            at += counts[q] + 1
        expected = numpy.full(at, 9, dtype)
        for q in range(n):
            expected[places[q] : places[q] + counts[q]] = inputs[q]
        g = Guarded(at, dtype)
        g.array[:] = 9
        comm.all_gather(inputs[r], g.array, counts=counts, displacements=places)
        g.check(expected)
        g.array[:] = 9
        comm.gather(inputs[r], root, g.array, counts=counts, displacements=places)
        g.check(expected if r == root else numpy.full(at, 9, dtype))
        g = Guarded(counts[r], dtype)
        comm.scatter(expected, g.array, root, counts=counts, displacements=places)
        g.check(inputs[r])
        spread = [numpy.zeros(at, dtype) for q in range(n)]
        for q in range(n):
            spread[q][:] = data(q, at, dtype)
        total = functools.reduce(operator.add, spread)
        g = Guarded(counts[r], dtype)
        comm.reduce_scatter(spread[r], g.array, counts=counts, displacements=places)
        g.check(total[places[r] : places[r] + counts[r]])
        # all_to_all: rank a sends (a + 2 b) % 4 elements to rank b.
        sent = [(r + 2 * b + base) % 4 for b in range(n)]
        received = [(a + 2 * r + base) % 4 for a in range(n)]

        def block(a, b):
            return data(a, (a + 2 * b + base) % 4, dtype, salt=17 * b)

        x = numpy.concatenate([block(r, b) for b in range(n)])
        expected = numpy.concatenate([block(a, r) for a in range(n)])
        same(comm.all_to_all(x, sent=sent, received=received), expected)
        into = numpy.concatenate([[0], numpy.cumsum([c + 1 for c in received])]).tolist()
        g = Guarded(into[-1], dtype)
        g.array[:] = 9
        comm.all_to_all(x, g.array, sent=sent, received=received, received_displacements=into[:-1])
        spaced = numpy.full(into[-1], 9, dtype)
        for a in range(n):
            spaced[into[a] : into[a] + received[a]] = block(a, r)
        g.check(spaced)


@pytest.mark.parametrize("size", SIZES)
def test_uneven(size):
    on_ranks(check_uneven, size, "i4")
    on_ranks(check_uneven, size, "f8")


def check_layouts(comm):
    n, r = comm.size, comm.rank
    table = numpy.arange(60.0).reshape(5, 12)
    kinds = {
        "columns": lambda a: a[:, 2:9],
        "every second": lambda a: a[::2, ::3],
        "transposed": lambda a: a.T,
        "one column": lambda a: a[:, 3],
        "three axes": lambda a: a.reshape(5, 3, 4)[1:4, :, 1:3].transpose(2, 0, 1),
    }
    for of in kinds.values():
        elements = of(table).size
        root = elements % n
        inputs = [table * (q + 1) + q for q in range(n)]
        total = sum(inputs)

        def whole(change):
            expected = numpy.full_like(table, -1)
            of(expected)[...] = change
            return expected

        # Into an array in a row, from one, and between two layouts; in place.
        same(comm.all_reduce(of(inputs[r]), numpy.empty(of(table).shape)), of(total).copy())
        out = numpy.full_like(table, -1)
        comm.all_reduce(of(inputs[r]).copy(), of(out))
        same(out, whole(of(total)))
        out = numpy.full_like(table, -1)
        comm.all_reduce(of(inputs[r]), of(out))
        same(out, whole(of(total)))
        out = numpy.full_like(table, -1)
        of(out)[...] = of(inputs[r])
        comm.all_reduce(of(out))
        same(out, whole(of(total)))
        out = numpy.full_like(table, -1)
        comm.start.all_reduce(of(inputs[r]), of(out)).wait()
        same(out, whole(of(total)))
        plan = comm.prepare.inclusive_scan(of(inputs[r]), of(out))
        plan()
        same(out, whole(sum(of(inputs[q]) for q in range(r + 1))))
        out = numpy.full_like(table, -1)
        of(out)[...] = of(inputs[r])
        comm.broadcast(of(out), root)
        same(out, whole(of(inputs[root])))
        same(comm.all_gather(of(inputs[r])), numpy.stack([of(i) for i in inputs]))
        result = comm.gather(of(inputs[r]), root)
        if r == root:
            same(result, numpy.stack([of(i) for i in inputs]))
        # Blocks of a layout, which n need not divide.
        row = of(total).flatten()
        lengths = block_lengths(row.size, n)
        own = slice(sum(lengths[:r]), sum(lengths[: r + 1]))
        g = Guarded(lengths[r], "f8")
        comm.reduce_scatter(of(inputs[r]), g.array)
        g.check(row[own])
        comm.scatter(of(inputs[root]) if r == root else None, g.array, root)
        g.check(of(inputs[root]).flatten()[own])
        if n > 1:
            out = numpy.full_like(table, -1)
            comm.exchange(of(inputs[r]), (r + 1) % n, of(out), (r - 1) % n)
            same(out, whole(of(inputs[(r - 1) % n])))
    # A row that is repeated may be read.
    same(comm.all_reduce(numpy.broadcast_to(numpy.arange(3.0), (4, 3)), numpy.empty((4, 3))),
         numpy.broadcast_to(numpy.arange(3.0) * n, (4, 3)))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_layouts(size):
    on_ranks(check_layouts, size)


def check_order(comm):
    """Maps x -> a x + b, composed in the order of ranks."""
    n, r = comm.size, comm.rank
    affine = numpy.dtype([("a", "i8"), ("b", "i8")])

    def compose(first, then):
        then["b"] = then["a"] * first["b"] + then["b"]
        then["a"] = then["a"] * first["a"]

    def maps(q, count):
        x = numpy.zeros(count, affine)
        x["a"], x["b"] = q % 3 + 2, numpy.arange(count) + q
        return x

    op = colls.operator(compose, affine)
    for count in [0, 1, 5, 300]:
        expected = [maps(0, count)]
        for q in range(1, n):
            then = maps(q, count)
            compose(expected[-1], then)
            expected.append(then)
        x = maps(r, count)
        same(comm.all_reduce(x.copy(), op=op), expected[-1])
        same(comm.inclusive_scan(x.copy(), op=op), expected[r])
        same(comm.start.all_reduce(x.copy(), op=op).wait(), expected[-1])
        plan = comm.prepare.all_reduce(x, numpy.empty_like(x), op)
        for _ in range(3):
            same(plan(), expected[-1])
    larger = colls.operator(lambda a, b: numpy.maximum(a, b), "f4", commutative=True, name="larger")
    same(comm.all_reduce(numpy.full(9, r, "f4"), op=larger), numpy.full(9, n - 1, "f4"))


@pytest.mark.parametrize("size", SIZES)
def test_operators_of_the_program_in_the_order_of_ranks(size):
    on_ranks(check_order, size)


def check_exact(comm, dtype):
    n, r = comm.size, comm.rank
    # From 2^-20 to 2^40, with cancellation: sums in another order have other bits.
    random = [numpy.random.default_rng(q) for q in range(n)]
    inputs = [(g.standard_normal(300) * 2.0 ** g.integers(-20, 20 if dtype == "f8" else 5, 300)).astype(dtype) for g in random]
    big = 2.0**40 if dtype == "f8" else 2.0**18
    # Without bits that are too far below the largest addend for the library to keep them.
    unit = 2.0**-24 if dtype == "f8" else 2.0**-12
    inputs = [(numpy.round(i / unit) * unit).astype(dtype) for i in inputs]
    inputs[0][:100] += numpy.array(big, dtype)
    inputs[-1][:100] -= numpy.array(big, dtype)
    # fsum rounds once to a double; floats are summed without rounding in one.
    expected = numpy.array([math.fsum(float(i[k]) for i in inputs) for k in range(300)]).astype(dtype)
    same(comm.all_reduce(inputs[r].copy(), op="exact"), expected)
    same(comm.all_reduce(inputs[(r + 1) % n].copy(), op="exact"), expected)  # who has which does not matter
    own = slice(sum(block_lengths(300, n)[:r]), sum(block_lengths(300, n)[: r + 1]))
    g = Guarded(block_lengths(300, n)[r], dtype)
    comm.reduce_scatter(inputs[r], g.array, "exact")
    g.check(expected[own])
    in_order = functools.reduce(operator.add, inputs)
    same(comm.all_reduce(inputs[r].copy(), reproducible=True), in_order)


@pytest.mark.parametrize("size", SIZES)
def test_exact_sums(size):
    on_ranks(check_exact, size, "f8")
    on_ranks(check_exact, size, "f4")


def check_forms(comm):
    n, r = comm.size, comm.rank
    x = data(r, 12 * n)
    inputs = [data(q, 12 * n) for q in range(n)]
    total = sum(inputs)
    own = slice(12 * r, 12 * (r + 1))

    def calls(made):
        return [
            (made.broadcast(x.copy(), n - 1), inputs[-1]),
            (made.gather(x, 0), numpy.stack(inputs) if r == 0 else numpy.empty((0, 12 * n))),
            (made.scatter(x if r == 0 else None, numpy.empty(12, "i8"), 0), inputs[0][own]),
            (made.all_gather(x), numpy.stack(inputs)),
            (made.all_to_all(x.copy()), numpy.concatenate([i[own] for i in inputs])),
            (made.reduce(x.copy(), n - 1), total if r == n - 1 else x),
            (made.all_reduce(x, numpy.empty_like(x)), total),
            (made.reduce_scatter(x), total[own]),
            (made.inclusive_scan(x.copy()), sum(inputs[: r + 1])),
            (made.exclusive_scan(x.copy()), sum(inputs[:r]) if r else x),
            (made.all_gather(x[: r + 1], counts=range(1, n + 1)), numpy.concatenate([inputs[q][: q + 1] for q in range(n)])),
        ]

    started = calls(comm.start)
    barrier = comm.start.barrier()
    for request, expected in reversed(started):  # in another order than they were started
        same(request.wait(), expected)
        assert request.test() and request.result is request.wait()
    barrier.wait()
    started = calls(comm.start)
    for result, (_, expected) in zip(colls.wait_all([q for q, _ in started]), started):
        same(result, expected)
    left = list(calls(comm.start))
    while left:
        i = colls.wait_any([q for q, _ in left])
        same(left[i][0].result, left[i][1])
        del left[i]
    for _ in range(2):
        planned = calls(comm.prepare)
        for plan, expected in planned:
            same(plan.run(), expected)
    # A plan of arrays that change, run and started in turns.
    a, b = numpy.zeros(5, "f4"), numpy.zeros(5, "f4")
    plan = comm.prepare.all_reduce(a, b)
    for i in range(20):
        a[:] = i + r
        same(plan() if i % 2 else plan.start().wait(), numpy.full(5, n * i + sum(range(n)), "f4"))
    comm.barrier()
    comm.prepare.barrier()()


@pytest.mark.parametrize("size", SIZES)
def test_started_and_prepared_calls(size):
    on_ranks(check_forms, size)


def check_dropped(comm):
    """A request that a program drops keeps its arrays until it is over."""
    import gc
    import warnings

    n, r = comm.size, comm.rank
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for i in range(100):
            comm.start.all_reduce(numpy.full(2000, r + i)) if i % 3 else comm.start.all_reduce(numpy.full(2000, r + i)).wait()
            gc.collect() if i % 10 == 0 else None
    same(comm.all_reduce(numpy.array([r])), [sum(range(n))])


def test_dropped_requests():
    on_ranks(check_dropped, 2)


def check_dropped_within_an_operator(comm):
    """The library refuses to test a request within an operator, where a collector may drop it: so it is not over."""
    import gc
    import warnings
    import weakref

    class Holder:
        pass

    gc.disable()
    warnings.simplefilter("ignore", ResourceWarning)
    part = comm.split(0)
    x, holder, collected = numpy.zeros(1000), Holder(), []
    alive = weakref.ref(x)
    if comm.rank == 0:
        holder.itself, holder.request = holder, comm.start.recv(x, 1)
    del x, holder

    def collect(lower, upper):
        collected.append(gc.collect())
        with pytest.raises(colls.Error, match="operator"):
            comm.start.barrier()  # would test what was dropped
        return lower + upper

    op = colls.operator(collect, "i8", name="collect")
    same(part.all_reduce(numpy.arange(4), op=op, schedule="ring"), numpy.arange(4) * 2)
    assert sum(collected) > 0 or comm.rank == 1
    assert (alive() is None) == (comm.rank == 1)
    if comm.rank == 1:
        comm.send(numpy.ones(1000), 0)  # is over when rank 0 has the message
    comm.barrier()
    comm.start.barrier().wait()
    assert alive() is None


def test_a_request_that_is_dropped_within_an_operator():
    on_ranks(check_dropped_within_an_operator, 2)


def check_messages(comm):
    n, r = comm.size, comm.rank
    after, before = (r + 1) % n, (r - 1) % n
    for count in COUNTS:
        if n == 1:
            break
        g = Guarded(count, "f4")
        comm.exchange(data(r, count, "f4"), after, g.array, before)
        g.check(data(before, count, "f4"))
        request = comm.start.send(data(r, count, "f4", 1), after)
        g = Guarded(count, "f4")
        assert comm.recv(g.array, before) is g.array
        g.check(data(before, count, "f4", 1))
        request.wait()
        receiving = comm.start.recv(g.array, before)
        comm.send(data(r, count, "f4", 2), after)
        same(receiving.wait(), data(before, count, "f4", 2))
    if r > 0:
        comm.send(numpy.array([r]), 0)
        return
    seen = set()
    while len(seen) < n - 1:
        out = numpy.zeros(1, "i8")
        assert comm.recv_any(out) == out[0]
        seen.add(int(out[0]))
    assert seen == set(range(1, n)) and comm.probe_any() is None


@pytest.mark.parametrize("size", SIZES)
def test_messages(size):
    on_ranks(check_messages, size)


def check_memory(comm):
    n, r = comm.size, comm.rank
    x = comm.empty((3, 1001), "f4")
    assert x.shape == (3, 1001) and x.dtype == numpy.float32 and x.flags.writeable
    x[:] = r
    part = x[1:]
    del x  # the memory lives as long as a view
    same(comm.all_reduce(part), numpy.full((2, 1001), sum(range(n)), "f4"))
    assert comm.empty(0).shape == (0,)


def test_memory_that_ranks_reach():
    on_ranks(check_memory, 3)
