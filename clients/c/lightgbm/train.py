#!/usr/bin/env python3
"""One worker of scripts/test-lightgbm: trains on its part of the rows, over LightGBM's own sockets or over colls.

COLLS_RANK and COLLS_SIZE say which worker it is. Prints the seconds that the training took; with --model, rank 0 writes
the model into that file. An error is printed, with status 3.
"""
import argparse
import ctypes
import os
import signal
import sys
import time

import lightgbm
import numpy as np

options = argparse.ArgumentParser()
options.add_argument("network", choices=["sockets", "colls", "colls_free"], help="colls_free: with its own choice of schedules")
options.add_argument("objective", choices=["regression", "binary"])
options.add_argument("--rows", type=int, default=20000)
options.add_argument("--features", type=int, default=30)
options.add_argument("--rounds", type=int, default=40)
options.add_argument("--leaves", type=int, default=31)
options.add_argument("--first-port", type=int, default=12400)
options.add_argument("--libraries", default="", help="the folder of libcolls.so.0 and libcolls_lightgbm.so")
options.add_argument("--quantized", action="store_true", help="gradients as small integers")
options.add_argument("--model")
options.add_argument("--killed", type=int, default=-1, help="the rank that is killed, after half of the rounds")
options = options.parse_args()
rank, size = int(os.environ["COLLS_RANK"]), int(os.environ["COLLS_SIZE"])

random = np.random.default_rng(1)
x = random.normal(size=(options.rows, options.features))
y = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]) + 0.5 * x[:, 3] + 0.1 * random.normal(size=options.rows)
if options.objective == "binary":
    y = (y > 0).astype(float)
parameters = {
    "objective": options.objective, "num_leaves": options.leaves, "tree_learner": "data", "pre_partition": True,
    "num_machines": size, "num_threads": 1, "verbosity": -1, "seed": 3,
    "deterministic": True, "force_row_wise": True,  # else it times two ways and takes the faster one
    "use_quantized_grad": options.quantized,
}

if options.network == "sockets":
    ports = [options.first_port + r for r in range(size)]
    parameters["machines"] = ",".join(f"127.0.0.1:{port}" for port in ports)
    parameters["local_listen_port"] = ports[rank]
else:
    # example-begin network
    colls = ctypes.CDLL(os.path.join(options.libraries, "libcolls.so.0"))
    colls.colls_error_text.restype = ctypes.c_char_p
    network = ctypes.CDLL(os.path.join(options.libraries, "libcolls_lightgbm.so"))
    comm = ctypes.c_void_p()
    in_order = options.network == "colls"  # sums in the order of LightGBM's sockets, if ranks are a power of two
    if colls.colls_world(ctypes.byref(comm)) or network.colls_lightgbm_use(comm, in_order):
        sys.exit(colls.colls_error_text().decode())
    lightgbm.basic._safe_call(lightgbm.basic._LIB.LGBM_NetworkInitWithFunctions(
        size, rank, network.colls_lightgbm_reduce_scatter, network.colls_lightgbm_all_gather))
    # example-end

try:
    data = lightgbm.Dataset(x[rank::size], y[rank::size])
    booster = lightgbm.Booster(parameters, data)  # connects, and finds the bins
    begin = time.perf_counter()
    for iteration in range(options.rounds):
        if iteration == options.rounds // 2 and rank == options.killed:
            print(f"killed at {time.time()}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        booster.update()
    seconds = time.perf_counter() - begin
except lightgbm.basic.LightGBMError as error:
    print(f"rank {rank}: {error}")
    print(f"ended at {time.time()}")
    sys.exit(3)
print(f"rank {rank}: {seconds:.3f} s")
if rank == 0 and options.model:
    booster.save_model(options.model)
lightgbm.basic._safe_call(lightgbm.basic._LIB.LGBM_NetworkFree())
if options.network != "sockets":
    colls.colls_comm_free(ctypes.byref(comm))
