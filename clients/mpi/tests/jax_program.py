"""Collectives of JAX on CPUs over MPI, each process a rank, beside NumPy: for scripts/test-jax, which starts it by mpirun.

    jax_program.py PORT RANK SIZE
"""

import atexit
import os
import sys

# JAX frees its communicators after it has finalised MPI, which aborts the process, with any MPI and without colls, too.
# Handlers run in reverse order: this one after JAX's, which finalises.
status = 1
atexit.register(lambda: os._exit(status))

import jax

port, rank, size = map(int, sys.argv[1:])
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "mpi")
jax.config.update("jax_enable_x64", True)
jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=size, process_id=rank)

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

mesh = Mesh(np.array(jax.devices()), ("ranks",))
shared, whole = PartitionSpec("ranks"), PartitionSpec()
wrong = 0


def placed(x, spec):
    return jax.make_array_from_callback(x.shape, NamedSharding(mesh, spec), lambda index: x[index])


def by_ranks(f, out):
    """f on each rank's part of an array."""
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=shared, out_specs=out, check_vma=False))


def expect(what, result, right, exact=True):
    """Compares this rank's part of an array, or a whole one that each rank has."""
    global wrong
    got = np.asarray(result.addressable_shards[0].data)
    same = np.array_equal(got, right) if exact else np.allclose(got, right, rtol=1e-5)
    if got.shape != right.shape or not same:
        wrong += 1
        print(f"rank {rank}: {what} is wrong: {got.ravel()[:4]}, not {np.ravel(right)[:4]}", flush=True)


for kind in (np.float32, np.float64, np.int32, np.uint8, jnp.bfloat16):
    for columns in (1, 3, 1000, 70_001):
        # Small integers: sums are exact in every type.
        x = (np.arange(size * size * columns) % 3).astype(kind).reshape(size, size, columns)
        g = placed(x.reshape(size * size, columns), shared)
        name = f"{np.dtype(kind).name} x {columns}"
        expect(f"psum of {name}", by_ranks(lambda v: jax.lax.psum(v, "ranks"), whole)(g), x.astype(np.float64).sum(0).astype(kind))
        expect(f"pmax of {name}", by_ranks(lambda v: jax.lax.pmax(v, "ranks"), whole)(g), x.max(0))
        expect(
            f"psum_scatter of {name}",
            by_ranks(lambda v: jax.lax.psum_scatter(v, "ranks", scatter_dimension=0, tiled=True), shared)(g),
            x.astype(np.float64).sum(0).astype(kind)[rank : rank + 1],
        )
        expect(f"all_gather of {name}", by_ranks(lambda v: jax.lax.all_gather(v, "ranks"), whole)(g), x)
        expect(
            f"all_to_all of {name}",
            by_ranks(lambda v: jax.lax.all_to_all(v, "ranks", 0, 0, tiled=True), shared)(g),
            x[:, rank],
        )
        expect(
            f"ppermute of {name}",
            by_ranks(lambda v: jax.lax.ppermute(v, "ranks", [(r, (r + 1) % size) for r in range(size)]), shared)(g),
            x[(rank - 1) % size],
        )

# Steps of a regression on parts of the data, with gradients that JAX sums over the ranks, and on all of it.
random = np.random.default_rng(1)
inputs = random.standard_normal((60 * size, 20)).astype(np.float32)
answers = inputs @ random.standard_normal(20).astype(np.float32)


def loss(w, x, y):
    return jnp.mean((x @ w - y) ** 2)


step = jax.jit(lambda w, x, y: w - 0.1 * jax.grad(loss)(w, x, y))
w, x, y = placed(np.zeros(20, np.float32), whole), placed(inputs, shared), placed(answers, shared)
reference = np.zeros(20)
for _ in range(50):
    w = step(w, x, y)
    reference -= 0.1 * 2 * inputs.T @ (inputs @ reference - answers) / len(answers)
expect("the regression", w, reference, exact=False)

print(f"rank {rank} of {size}: {'all right' if wrong == 0 else f'{wrong} wrong'}", flush=True)
status = 0 if wrong == 0 else 1
