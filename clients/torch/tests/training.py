"""Trains small models with torch's own parallel modules, on colls and on gloo, and compares the losses of each step.

The data are images of Fashion-MNIST, where Debian's package dataset-fashion-mnist is installed. Elsewhere they are made
here: images of 28 x 28 in ten classes, a pattern for each class, moved and under noise.
"""

import functools
import gzip
import os
import signal
import sys
import time
import unittest
import warnings

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from ranks import run

STEPS, BATCH = 20, 64


FOLDER = "/usr/share/datasets/fashion-mnist"


@functools.cache
def fashion_mnist():
    """All images and their classes, or None where the package is missing."""
    def read(name, header):
        with gzip.open(os.path.join(FOLDER, name)) as file:
            return torch.from_numpy(numpy.frombuffer(file.read(), numpy.uint8, offset=header).copy())

    if not os.path.exists(FOLDER):
        return None
    return (read("train-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28), read("train-labels-idx1-ubyte.gz", 8).long())


@functools.cache
def images(seed, count):
    """`count` images with their classes."""
    random = torch.Generator().manual_seed(seed)
    if fashion_mnist():
        x, labels = fashion_mnist()
        some = torch.randint(len(x), (count,), generator=random)
        return x[some] / 255.0, labels[some]
    patterns = torch.rand(10, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    labels = torch.randint(10, (count,), generator=random)
    shifts = torch.randint(-2, 3, (count, 2), generator=random)
    x = torch.stack([patterns[k].roll(tuple(s.tolist()), (1, 2)) for k, s in zip(labels, shifts)])
    return x + 0.3 * torch.randn(x.shape, generator=random), labels


def network():
    torch.manual_seed(7)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def train(model, optimizer, rank, n, forward=None):
    """The mean loss of each step over all ranks, in which each rank has its part of the batch."""
    losses = []
    for step in range(STEPS):
        x, labels = (t.chunk(n)[rank] for t in images(100 + step, BATCH))
        optimizer.zero_grad()
        loss = F.cross_entropy((forward or model)(x), labels)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
    return losses


def ddp(rank, n):
    model = nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=0.05)
    return train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), rank, n)


def ddp_with_batch_norm(rank, n):
    torch.manual_seed(7)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(676, 10))
    model = nn.parallel.DistributedDataParallel(model, static_graph=True)
    return train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, n)


def fsdp(strategy):
    def program(rank, n):
        from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

        model = FullyShardedDataParallel(network(), sharding_strategy=ShardingStrategy[strategy],
                                         device_id=torch.device("cpu"), use_orig_params=True)
        return train(model, torch.optim.Adam(model.parameters(), lr=1e-2), rank, n)

    return program


def fully_shard(rank, n):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard as shard

    model = network()
    shard(model, mesh=init_device_mesh("cpu", (n,)))
    return train(model, torch.optim.Adam(model.parameters(), lr=1e-2), rank, n)


def zero(rank, n):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(network())
    return train(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-2), rank, n)


def tensor_parallel(rank, n):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = parallelize_module(network(), init_device_mesh("cpu", (n,)), {"1": ColwiseParallel(), "3": RowwiseParallel()})
    # All ranks have all of the batch, and a part of the weights.
    return train(model, torch.optim.SGD(model.parameters(), lr=0.1), 0, 1)


class mixture_of_experts(nn.Module):
    """An expert on each rank: tokens are sent to the rank of their expert and back, by all_to_all with uneven counts."""

    def __init__(self, rank, n):
        super().__init__()
        torch.manual_seed(7)
        self.embed, self.gate, self.head = nn.Linear(784, 32), nn.Linear(32, n), nn.Linear(32, 10)
        torch.manual_seed(20 + rank)
        self.expert = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
        self.n = n

    def forward(self, x):
        from torch.distributed.nn.functional import all_to_all_single

        x = self.embed(x.flatten(1))
        weight, expert = self.gate(x).softmax(1).max(1)
        order = expert.argsort(stable=True)
        sent = torch.bincount(expert, minlength=self.n)
        received = torch.zeros_like(sent)
        dist.all_to_all_single(received, sent)
        sent, received = sent.tolist(), received.tolist()
        tokens = all_to_all_single(torch.empty(sum(received), 32), x[order], received, sent)
        answers = all_to_all_single(torch.empty(len(x), 32), self.expert(tokens), sent, received)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        return self.head(x + weight[:, None] * answers[back])


def moe(rank, n):
    model = mixture_of_experts(rank, n)
    shared = [p for name, p in model.named_parameters() if not name.startswith("expert")]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = optimizer.step

    def average_shared_then_step():
        for p in shared:
            dist.all_reduce(p.grad, dist.ReduceOp.SUM)
            p.grad /= n
        step()

    optimizer.step = average_shared_then_step
    return train(model, optimizer, rank, n)


def on_one_rank():
    """The losses of the same network and data without torch.distributed."""
    model, losses = network(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        x, labels = images(100 + step, BATCH)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


programs = {
    "ddp": ddp, "ddp_with_batch_norm": ddp_with_batch_norm, "fsdp_full_shard": fsdp("FULL_SHARD"),
    "fsdp_shard_grad_op": fsdp("SHARD_GRAD_OP"), "fully_shard": fully_shard, "zero": zero,
    "tensor_parallel": tensor_parallel, "moe": moe,
}


def record(rank, n, name, path):
    losses = programs[name](rank, n)
    if rank == 0:
        torch.save(losses, path)


def killed_under_ddp(rank, n):
    model = nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=0.05)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        for step in range(1000):
            if step == 3 and rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            began = time.monotonic()  # a slower rank may still be in step 2
            x, labels = (t.chunk(n)[rank] for t in images(100 + step % 5, BATCH))
            optimizer.zero_grad()
            F.cross_entropy(model(x), labels).backward()
            optimizer.step()
        raise AssertionError("the ranks that are left go on without rank 1")
    except RuntimeError as error:
        if "rank 1" not in str(error) or time.monotonic() - began > 10:
            raise
        print(f"rank {rank}, {time.monotonic() - began:.2f} s after rank 1 was killed: {str(error).splitlines()[0]}",
              file=sys.stderr)


class training(unittest.TestCase):
    def losses(self, name, n, backend, folder):
        path = os.path.join(folder, f"{name}-{n}-{backend}")
        run(n, record, name, path, backend=backend)
        return torch.load(path)

    def same_losses(self, name):
        import tempfile

        for n in (2, 4):
            with self.subTest(ranks=n), tempfile.TemporaryDirectory() as folder:
                colls = torch.tensor(self.losses(name, n, "colls", folder))
                gloo = torch.tensor(self.losses(name, n, "gloo", folder))
                print(f"{name}, {n} ranks: losses {colls[0]:.5f} to {colls[-1]:.5f}, at most "
                      f"{(colls - gloo).abs().max():.1e} from gloo's", file=sys.stderr)
                torch.testing.assert_close(colls, gloo, rtol=1e-4, atol=1e-5)
                self.assertLess(colls[-1], colls[0])
                if name == "ddp":
                    torch.testing.assert_close(colls, torch.tensor(on_one_rank()), rtol=1e-4, atol=1e-5)

    def test_killed_rank_under_ddp_is_named(self):
        for n in (2, 4):
            with self.subTest(ranks=n):
                run(n, killed_under_ddp, dies=(1,))


for name in programs:
    setattr(training, f"test_{name}", lambda self, name=name: self.same_losses(name))

warnings.filterwarnings("ignore", message=".*all_to_all_single is deprecated")
print("data:", "Fashion-MNIST" if fashion_mnist() else "made here", file=sys.stderr)

if __name__ == "__main__":
    unittest.main()
