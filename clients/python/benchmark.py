"""What a call takes from Python beside the same call of C, in nanoseconds: an all_reduce of 8 bytes.

    benchmark.py [--ranks 2]

The ways take turns in the same processes, some milliseconds each, so that what else the machine does is the same for all;
medians of the turns, of rank 0. `c` is a loop in C (colls_all_reduce) with plan runs beside it, compiled by cc.
"""

import argparse
import ctypes
import os
import statistics
import subprocess
import tempfile
import time

import numpy

import colls
from colls import _core

LOOP = r"""
#include <colls.h>
#include <stddef.h>
int loop(colls_comm comm, void* x, int times) {
    for (int i = 0; i < times; ++i)
        if (colls_all_reduce(comm, x, x, 2, COLLS_FLOAT32, COLLS_SUM, NULL) != COLLS_OK) return 1;
    return 0;
}
int loop_plan(colls_comm comm, void* x, int times) {
    static colls_plan plan;
    if (!plan && colls_prepare_all_reduce(comm, x, x, 2, COLLS_FLOAT32, COLLS_SUM, NULL, &plan) != COLLS_OK) return 1;
    for (int i = 0; i < times; ++i)
        if (colls_plan_run(plan) != COLLS_OK) return 1;
    return 0;
}
"""


def measure(comm, folder, turns):
    loops = ctypes.CDLL(f"{folder}/loop.so")
    libcolls = ctypes.CDLL(None if not LIBRARY else LIBRARY)
    libcolls.colls_bootstrap_folder.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p]
    raw = ctypes.c_void_p()
    assert libcolls.colls_bootstrap_folder(comm.rank, comm.size, folder.encode(), b"raw", ctypes.byref(raw)) == 0
    x = numpy.zeros(2, "f4")
    y = numpy.zeros(2, "f4")
    plan = comm.prepare.all_reduce(x)
    at = ctypes.c_void_p(x.ctypes.data)
    all_reduce = libcolls.colls_all_reduce
    all_reduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p]

    def by_ctypes(times):
        for _ in range(times):
            address = x.ctypes.data
            all_reduce(raw, address, address, x.size, 10, 0, None)

    def python(times):
        for _ in range(times):
            comm.all_reduce(x)

    def two_arrays(times):
        for _ in range(times):
            comm.all_reduce(x, y)

    def planned(times):
        for _ in range(times):
            plan()

    ways = {
        "c": lambda times: loops.loop(raw, at, times),
        "colls, in place": python,
        "colls, two arrays": two_arrays,
        "ctypes": by_ctypes,
        "c, plan": lambda times: loops.loop_plan(raw, at, times),
        "colls, plan": planned,
    }
    times = {name: [] for name in ways}
    for turn in range(turns):
        for name, way in ways.items():
            comm.barrier()
            begin = time.perf_counter_ns()
            way(300)
            times[name].append((time.perf_counter_ns() - begin) / 300)
    return {name: (statistics.median(t), statistics.quantiles(t, n=10)[0]) for name, t in times.items()}


LIBRARY = os.environ.get("COLLS_LIBRARY", "")


def main():
    global LIBRARY
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=300)
    o = parser.parse_args()
    with open("/proc/self/maps") as maps:
        LIBRARY = LIBRARY or next(line.split()[-1] for line in maps if "libcolls.so" in line)
    assert _core is not None
    include = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "c", "include")
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/loop.c", "w") as f:
            f.write(LOOP)
        command = ["cc", "-O2", "-shared", "-fPIC", "-I", include, f"{folder}/loop.c", "-o", f"{folder}/loop.so", LIBRARY]
        subprocess.run([*command, f"-Wl,-rpath,{os.path.dirname(LIBRARY)}"], check=True)
        results = colls.run(measure, o.ranks, (folder, o.turns), method="fork")
    print(f"{o.ranks} ranks, all_reduce of 8 bytes; nanoseconds, median and lowest tenth")
    for name, (median, tenth) in results[0].items():
        print(f"{name:20}{median:10.0f}{tenth:10.0f}")
    print(f"import colls, after numpy: {start_up() * 1000:.1f} ms")


def start_up():
    program = "import numpy, time; t = time.perf_counter(); import colls; print(time.perf_counter() - t)"
    import sys

    return min(float(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout) for _ in range(10))


if __name__ == "__main__":
    main()
