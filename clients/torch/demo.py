"""Trains one network by DistributedDataParallel, first with gloo and then with colls, and prints what each takes.

    python demo.py [--ranks 2] [--epochs 1] [--batch 64] [--width 256] [--data FOLDER]

The images are those of Fashion-MNIST, from Debian's package dataset-fashion-mnist.
"""

import argparse
import gzip
import multiprocessing
import os
import sys
import tempfile
import time

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--ranks", type=int, default=2)
options.add_argument("--epochs", type=int, default=1)
options.add_argument("--batch", type=int, default=64, help="images of a step, on all ranks together")
options.add_argument("--width", type=int, default=256, help="of the two hidden layers")
options.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
options.add_argument("--backends", default="gloo,colls")


def load(folder, part):
    import numpy
    import torch

    def read(name, header):
        with gzip.open(os.path.join(folder, name)) as file:
            return torch.from_numpy(numpy.frombuffer(file.read(), numpy.uint8, offset=header).copy())

    images = read(f"{part}-images-idx3-ubyte.gz", 16).view(-1, 784) / 255.0
    return images, read(f"{part}-labels-idx1-ubyte.gz", 8).long()


def rank_main(rank, backend, chosen, training, test, store_file):
    import torch
    import torch.distributed as dist
    from torch import nn

    import colls_torch  # noqa: F401

    torch.set_num_threads(1)
    n = chosen.ranks
    dist.init_process_group(backend, store=dist.FileStore(store_file, n), rank=rank, world_size=n)
    torch.manual_seed(1)
    w = chosen.width
    model = nn.Sequential(nn.Linear(784, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, 10))
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images, labels = training
    steps = 0
    dist.barrier()
    begin = time.perf_counter()
    for epoch in range(chosen.epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(chosen.batch)[:len(images) // chosen.batch]:
            mine = batch.chunk(n)[rank]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[mine]), labels[mine]).backward()
            optimizer.step()
            steps += 1
    seconds = time.perf_counter() - begin
    with torch.no_grad():
        right = (model.module(test[0]).argmax(1) == test[1]).float().mean().item()
    gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(50):
        dist.all_reduce(gradients)
    alone = (time.perf_counter() - begin) / 50
    if rank == 0:
        print(f"{backend:6} {n} ranks: {steps} steps in {seconds:6.1f} s, {1e3 * seconds / steps:6.2f} ms each; "
              f"{100 * right:.1f} % of the test images right; an all_reduce of all {4 * len(gradients)} bytes of "
              f"gradients {1e3 * alone:.2f} ms", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    chosen = options.parse_args()
    import torch  # noqa: F401

    if not os.path.exists(chosen.data):
        sys.exit(f"demo: {chosen.data} is missing: apt install dataset-fashion-mnist, or name its folder by --data")
    training, test = load(chosen.data, "train"), load(chosen.data, "t10k")
    fork = multiprocessing.get_context("fork")
    failed = False
    for backend in chosen.backends.split(","):
        with tempfile.TemporaryDirectory() as folder:
            arguments = (backend, chosen, training, test, os.path.join(folder, "store"))
            ranks = [fork.Process(target=rank_main, args=(r, *arguments)) for r in range(chosen.ranks)]
            for process in ranks:
                process.start()
            for process in ranks:
                process.join()
            failed = failed or any(process.exitcode for process in ranks)
    sys.exit(failed)
