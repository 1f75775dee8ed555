"""How processes become a group: launchers, stores, MPI, multiprocessing, and parts of groups."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy
import pytest
from ranks import SIZES, data, on_ranks, same

import colls

HERE = os.path.dirname(os.path.abspath(__file__))


def check_sum(comm):
    n, r = comm.size, comm.rank
    same(comm.all_reduce(data(r, 11)), sum(data(q, 11) for q in range(n)))
    same(comm.all_gather(numpy.array([r])), numpy.arange(n).reshape(n, 1))


def returns_its_rank(comm, factor, plus=0):
    check_sum(comm)
    return comm.rank * factor + plus


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_run(method):
    results = colls.run(returns_its_rank, 3, (10,), {"plus": 1}, method=method)
    assert results == [1, 11, 21]
    assert colls.run(returns_its_rank, 1, (10,), method=method) == [0]
    with pytest.raises(ValueError):
        colls.run(returns_its_rank, 0)


def fails(comm, how):
    comm.barrier()
    if comm.rank == 1:
        if how == "raise":
            raise ValueError("it is rank 1")
        os._exit(7) if how == "exit" else os.kill(os.getpid(), signal.SIGKILL)
    comm.recv(numpy.zeros(1), 1)


@pytest.mark.parametrize("how, text", [("raise", "it is rank 1"), ("exit", "status 7"), ("kill", "signal 9")])
def test_run_raises_what_the_first_failed_rank_has_raised(how, text):
    with pytest.raises(colls.RankError, match=text) as raised:
        on_ranks(fails, 3, how)
    assert raised.value.rank == 1
    assert (how == "raise") == isinstance(raised.value.__cause__, ValueError)
    assert multiprocessing.active_children() == []


def member(rank, size, folder, name):
    with colls.bootstrap(rank, size, folder, name) as comm:
        assert (comm.rank, comm.size) == (rank, size)
        check_sum(comm)


class FileStore:
    """A store of the program, over files."""

    def __init__(self, folder):
        self.folder = folder

    def path(self, key):
        return os.path.join(self.folder, key.replace("/", "-"))

    def set(self, key, value):
        with open(self.path(key) + ".new", "wb") as f:
            f.write(value)
        os.rename(self.path(key) + ".new", self.path(key))

    def get(self, key):
        until = time.monotonic() + 60
        while not os.path.exists(self.path(key)):
            if time.monotonic() > until:
                raise TimeoutError(f"no value for {key}")
            time.sleep(0.002)
        with open(self.path(key), "rb") as f:
            return f.read()


def member_over_store(rank, size, folder, name):
    member(rank, size, FileStore(folder), name)


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.parametrize("target", [member, member_over_store])
def test_bootstrap_in_processes_of_multiprocessing(method, target, tmp_path):
    context = multiprocessing.get_context(method)
    ranks = [context.Process(target=target, args=(r, 3, str(tmp_path), "g")) for r in range(3)]
    for p in ranks:
        p.start()
    for p in ranks:
        p.join(100)
        assert p.exitcode == 0


def test_errors_of_a_store(tmp_path):
    class Broken(FileStore):
        def get(self, key):
            raise LookupError("the store is down")

    class Short(FileStore):
        def get(self, key):
            return b"12"

    with pytest.raises(LookupError, match="down"):
        colls.bootstrap(0, 2, Broken(tmp_path), "a")
    with pytest.raises(ValueError, match="2 bytes"):
        colls.bootstrap(0, 2, Short(tmp_path), "b")
    with pytest.raises(TypeError):
        colls.bootstrap_exchange(0, 2, lambda own: 5)
    with pytest.raises(ValueError, match="1 values for 2 ranks"):
        colls.bootstrap_exchange(0, 2, lambda own: [own])
    with pytest.raises(colls.Error, match="does the folder exist") as raised:
        colls.bootstrap(0, 2, tmp_path / "none", "c")
    assert raised.value.code == colls.Code.STORE_FAILED
    with pytest.raises(colls.Error, match="rank"):
        colls.bootstrap(2, 2, tmp_path, "d")


class Mpi:
    """What from_mpi needs of a communicator of mpi4py."""

    def __init__(self, comm):
        self.comm = comm

    def Get_rank(self):
        return self.comm.rank

    def Get_size(self):
        return self.comm.size

    def allgather(self, own):
        return [row.tobytes() for row in self.comm.all_gather(numpy.frombuffer(own, "u1"))]


def check_from_mpi(comm):
    made = colls.from_mpi(Mpi(comm))
    assert (made.rank, made.size) == (comm.rank, comm.size)
    check_sum(made)


@pytest.mark.parametrize("transport, own, expected", [("shm+ofi", None, "0"), ("ofi", "7", "7"), ("tcp", None, "None")])
def test_settings_of_libfabric(transport, own, expected):
    """Threads of NumPy keep the library from making them. Those of the program stay."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FI_")} | {"COLLS_TRANSPORT": transport}
    if own is not None:
        environment["FI_TCP_STAGING_SBUF_SIZE"] = own
    program = "import os, colls; print(os.environ.get('FI_TCP_STAGING_SBUF_SIZE'))"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == expected + "\n"


@pytest.mark.parametrize("size", SIZES)
def test_from_mpi(size):
    on_ranks(check_from_mpi, size)


def test_from_mpi4py():
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    mpirun = shutil.which("mpiexec")
    if mpirun is None:
        pytest.skip("there is no mpiexec")
    script = (
        "from mpi4py import MPI; import colls, numpy;"
        "half = MPI.COMM_WORLD.Split(0, -MPI.COMM_WORLD.rank);"
        "c = colls.from_mpi(half); assert c.rank == half.rank;"
        "x = c.all_gather(numpy.array([MPI.COMM_WORLD.rank])); assert x.flatten().tolist() == [2, 1, 0], x;"
        "print('well')"
    )
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    done = subprocess.run([mpirun, "-n", "3", sys.executable, "-c", script], env=environment, capture_output=True, text=True,
                          timeout=120)
    if done.returncode != 0 and "libmpi" in done.stderr:
        pytest.skip("mpi4py does not find this machine's MPI")
    assert done.stdout.count("well") == 3, done.stdout + done.stderr


def test_world_of_the_environment():
    script = "import colls; c = colls.world(); print(c.rank, c.size, len(c.all_gather(__import__('numpy').zeros(2))))"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env={**os.environ, "COLLS_RANK": str(r), "COLLS_SIZE": "3", "COLLS_TOKEN": f"python test {os.getpid()}"},
            stdout=subprocess.PIPE,
        )
        for r in range(3)
    ]
    assert [p.communicate(timeout=100)[0].split() for p in ranks] == [[b"%d" % r, b"3", b"3"] for r in range(3)]
    alone = {k: v for k, v in os.environ.items() if not k.startswith("COLLS_")}
    done = subprocess.run([sys.executable, "-c", script], env=alone, capture_output=True, timeout=100)
    assert done.stdout.split() == [b"0", b"1", b"1"]
    done = subprocess.run([sys.executable, "-c", script], env={**alone, "COLLS_RANK": "0"}, capture_output=True, timeout=100)
    assert done.returncode == 1 and b"COLLS_SIZE" in done.stderr and b"colls" in done.stderr.splitlines()[-1]


def check_split(comm):
    n, r = comm.size, comm.rank
    odd = comm.split(r % 2, -r)
    members = [q for q in reversed(range(n)) if q % 2 == r % 2]
    same(odd.all_gather(numpy.array([r])).flatten(), members)
    assert odd.rank == members.index(r)
    none = comm.split(None if r == 0 else 0)
    assert (none is None) == (r == 0)
    if none is not None:
        check_sum(none)
    check_sum(comm.split(0))


@pytest.mark.parametrize("size", SIZES)
def test_split(size):
    on_ranks(check_split, size)


def check_fork(comm):
    """A child of a rank is no rank: its calls are refused, and its end does not disturb the group."""
    comm.barrier()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            comm.barrier()
        except colls.Error:
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    check_sum(comm)


def test_a_forked_child_of_a_rank():
    on_ranks(check_fork, 2)


def check_threads(comm):
    """Each thread has a group of its own."""
    import threading

    parts = [comm.split(0) for _ in range(3)]
    failures = []

    def work(part):
        try:
            for _ in range(50):
                check_sum(part)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(p,)) for p in parts]
    for t in threads:
        t.start()
    for t in threads:
        t.join(100)
    assert not failures and not any(t.is_alive() for t in threads), failures


def test_threads_with_a_group_each():
    on_ranks(check_threads, 2)


def check_operator_of_another_thread(comm, what):
    """An operator needs the interpreter's lock within a call, for which another thread's call of the library may wait."""
    import faulthandler
    import threading
    import warnings

    faulthandler.dump_traceback_later(60, exit=True)
    warnings.simplefilter("ignore", ResourceWarning)
    a, b = comm.split(0), comm.split(0)
    failures = []

    def add(lower, upper):
        time.sleep(0.001)
        return lower + upper

    def reduce():
        try:
            for _ in range(300):
                same(a.all_reduce(numpy.ones(4), op=colls.operator(add, "f8")), numpy.full(4, 2.0))
        except BaseException as e:
            failures.append(e)

    def refuse():
        with pytest.raises(colls.Error):
            b.all_reduce(numpy.ones(4), numpy.ones(5))

    make = {"plan": lambda: b.prepare.all_reduce(numpy.ones(4)), "request": b.start.barrier, "refusal": refuse}[what]
    thread = threading.Thread(target=reduce)
    thread.start()
    for _ in range(3000 if what == "plan" else 200):
        make()
    thread.join()
    assert not failures, failures
    check_sum(b)
    faulthandler.cancel_dump_traceback_later()


@pytest.mark.parametrize("what", ["plan", "request", "refusal"])
def test_an_operator_while_another_thread_drops_or_refuses(what):
    on_ranks(check_operator_of_another_thread, 2, what)


def check_dropped_by_another_thread(comm):
    """A start tests dropped requests of its own group, and none of a group that another thread waits in."""
    import threading
    import warnings
    import weakref

    warnings.simplefilter("ignore", ResourceWarning)
    a, b = comm.split(0), comm.split(0)
    outcome = []

    def wait():
        a.start.recv(numpy.zeros(1), 1)
        try:
            outcome.append(a.recv(numpy.zeros(1), 1))
        except colls.Error as e:
            outcome.append(e)

    alive = []

    def drop():
        for _ in range(200):
            x = numpy.ones(1)
            alive.append(weakref.ref(x))
            b.start.all_reduce(x)
            del x
            b.start.barrier().wait()
            time.sleep(0.001)  # for the thread to be in its call

    if comm.rank == 0:
        thread = threading.Thread(target=wait)
        thread.start()
        drop()
        assert alive[100]() is None  # a group has 32 places for requests: it is over
        b.barrier()
        thread.join()
        same(outcome[0], [2.0])
    else:
        drop()
        b.barrier()  # until then the thread waits
        a.send(numpy.ones(1), 0)
        a.send(numpy.full(1, 2.0), 0)
    comm.barrier()


def test_a_request_that_another_thread_has_dropped():
    on_ranks(check_dropped_by_another_thread, 2)


def test_the_example_with_joblib():
    pytest.importorskip("joblib", reason="joblib is not installed")
    example = os.path.join(HERE, "..", "examples", "joblib_workers.py")
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "4 workers: the mean is 49999.5, and the standard deviation 28867.5\n"


def test_types():
    pytest.importorskip("mypy", reason="mypy is not installed")
    package = os.path.dirname(colls.__file__)
    config = os.path.join(HERE, "..", "pyproject.toml")
    command = [sys.executable, "-m", "mypy", "--config-file", config, "--no-incremental", "--cache-dir", os.devnull]
    done = subprocess.run([*command, package], capture_output=True, text=True, timeout=150, cwd=os.path.dirname(package))
    assert done.returncode == 0, done.stdout
