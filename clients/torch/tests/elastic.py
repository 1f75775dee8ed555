"""Trains with workers that are killed and others that come, in processes that are never started again.

The manager, this process, decides who is a member: it keeps a list of handles for each epoch in a store. The workers
compare the losses of all steps with those of one process.
"""

import datetime
import multiprocessing
import os
import signal
import sys
import time
import traceback
import unittest

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import colls_torch  # noqa: F401
from training import images, network

STEPS, BATCH = 60, 60  # 60 images are shared evenly by 2, 3 and 4 workers
LAST = 50  # no further before the manager has decided on the last epoch: it may be slow

processes = multiprocessing.get_context("fork")


def manager_store(port, is_manager=False):
    return dist.TCPStore("127.0.0.1", port, is_master=is_manager, wait_for_workers=False,
                         timeout=datetime.timedelta(seconds=60))


def losses_of_one_process():
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


class worker:
    """A member of one epoch after the other. All state of the training is in `model`, `optimizer`, `losses`."""

    def __init__(self, number, store):
        self.number, self.store, self.epoch, self.steps = number, store, 0, 0
        self.model = network()
        if number >= 3:
            for p in self.model.parameters():  # wrong, until it has those of the others
                nn.init.ones_(p)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.losses = []
        dist.init_process_group("colls", store=dist.PrefixStore("c10d", store), rank=0, world_size=1,
                                timeout=datetime.timedelta(seconds=20), enable_reconfigure=True)
        store.set(f"handle/{number}", dist._get_reconfigure_handle())

    def latest_epoch(self):
        return int(self.store.get("epoch"))

    def join(self, later_than):
        """Becomes a member of the latest epoch, or of a later one where one of its members dies meanwhile."""
        while True:
            epoch = self.latest_epoch()
            handles = self.store.get(f"epoch/{epoch}").decode().split() if epoch > later_than else []
            if dist._get_reconfigure_handle() not in handles:
                later_than = max(epoch, later_than)
                self.store.wait([f"epoch/{later_than + 1}"], datetime.timedelta(seconds=60))
                continue
            try:
                dist._reconfigure(epoch, handles, timeout=datetime.timedelta(seconds=30)).wait()
                self.epoch = epoch
                self.take_latest_state()
                return
            except dist.DistBackendError:
                later_than = epoch

    def take_latest_state(self):
        """Some may have finished a step that failed for others: that of the furthest one counts."""
        steps = [torch.zeros((), dtype=torch.long) for _ in range(dist.get_world_size())]
        dist.all_gather(steps, torch.tensor(self.steps))
        root = max(range(len(steps)), key=lambda r: steps[r].item())
        state = [self.steps, self.model.state_dict(), self.optimizer.state_dict(), self.losses]
        dist.broadcast_object_list(state, root)
        self.steps, weights, optimizer, self.losses = state
        self.model.load_state_dict(weights)
        self.optimizer.load_state_dict(optimizer)
        self.parallel = nn.parallel.DistributedDataParallel(self.model, bucket_cap_mb=0.05)

    def step(self):
        rank, n = dist.get_rank(), dist.get_world_size()
        x, labels = (t.chunk(n)[rank] for t in images(100 + self.steps, BATCH))
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.parallel(x), labels)
        loss.backward()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        self.optimizer.step()
        self.losses.append(mean.item())
        self.steps += 1
        self.store.set("steps", str(self.steps))

    def train(self):
        self.join(0)
        while self.steps < STEPS:
            try:
                is_last = self.store.check(["last"])  # before the epoch: it is set after the last one
                news = torch.tensor([self.latest_epoch(), int(is_last)])
                dist.all_reduce(news, dist.ReduceOp.MAX)  # so that all leave at the same boundary
                latest, is_last = news.tolist()
                if latest > self.epoch:
                    self.join(self.epoch)
                elif self.steps < LAST or is_last:
                    self.step()
                else:
                    time.sleep(0.001)
            except dist.DistBackendError:
                self.join(self.epoch)


def work(number, port, results):
    try:
        torch.set_num_threads(1)
        w = worker(number, manager_store(port))
        w.train()
        results.put((number, w.epoch, dist.get_world_size(), w.losses, None))
        w.store.wait(["over"], datetime.timedelta(seconds=60))
        dist.destroy_process_group()
    except BaseException:
        results.put((number, 0, 0, [], traceback.format_exc()))
    results.close()
    results.join_thread()
    os._exit(0)


class elastic(unittest.TestCase):
    def test_workers_are_killed_and_others_come(self):
        expected = losses_of_one_process()
        store = manager_store(0, True)
        results = processes.Queue()
        workers, members, epoch = {}, [], 0

        def start(number):
            workers[number] = processes.Process(target=work, args=(number, store.port, results))
            workers[number].start()
            members.append(number)

        def decide():
            nonlocal epoch
            epoch += 1
            handles = " ".join(store.get(f"handle/{m}").decode() for m in members)
            store.set(f"epoch/{epoch}", handles)
            store.set("epoch", str(epoch))

        def reach(step):
            until = time.monotonic() + 60
            while int(store.get("steps")) < step:
                self.assertLess(time.monotonic(), until, f"step {step} is not reached")
                if not results.empty():
                    self.fail(f"a worker has ended: {results.get()}")
                time.sleep(0.001)

        def kill(number):
            os.kill(workers[number].pid, signal.SIGKILL)
            workers[number].join()
            members.remove(number)
            decide()

        store.set("steps", "0")
        store.set("epoch", "0")
        for number in range(3):
            start(number)
        decide()
        reach(8)
        kill(1)
        reach(16)
        start(3)
        start(4)
        decide()
        reach(26)
        kill(0)  # the first of the list
        reach(34)
        start(5)
        decide()
        reach(42)
        kill(3)
        kill(2)  # all that were there at the beginning have gone
        reach(48)
        start(6)
        decide()
        store.set("last", "")
        try:
            for _ in members:
                number, last, size, losses, error = results.get(timeout=120)
                self.assertIsNone(error, error)
                self.assertEqual((last, size), (epoch, len(members)))
                difference = (torch.tensor(losses) - torch.tensor(expected)).abs().max().item()
                print(f"worker {number}: epoch {last}, {size} workers, losses {losses[0]:.5f} to {losses[-1]:.5f}, at "
                      f"most {difference:.1e} from one process's", file=sys.stderr)
                self.assertEqual(len(losses), STEPS)
                torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected), rtol=1e-4, atol=1e-5)
                self.assertLess(losses[-1], losses[0])
        finally:
            store.set("over", "")
            for process in workers.values():
                process.join(10)
                process.kill()


if __name__ == "__main__":
    if not hasattr(dist, "_reconfigure"):
        print("elastic.py: this torch has no reconfigure: nothing is tested (2.15 has it)")
        raise SystemExit(0)
    unittest.main()
