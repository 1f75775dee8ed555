"""The tests that torch ships for its own backends (torch/testing/_internal/distributed/distributed_test.py), against
colls: those that torch runs on gloo, with colls in gloo's place.

    python torch_suite.py [--backend gloo] [--ranks N] [NAME_PART...]

Prints how many passed, failed and were skipped. Needs the package expecttest.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import unittest

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--backend", default="colls", choices=["colls", "gloo"])
options.add_argument("--ranks", default="3")
options.add_argument("--part", default="1/1", help="2/4: the second quarter of the tests")
options.add_argument("names", nargs="*", help="only tests whose names contain one of these")
chosen = options.parse_args()

# What the tests are told by the environment, before they are imported.
folder = tempfile.mkdtemp()
os.environ.update(BACKEND="gloo", WORLD_SIZE=chosen.ranks, TEMP_DIR=folder, INIT_METHOD=f"file://{folder}/shared",
                  MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", DISTRIBUTED_TESTS_DEFAULT_TIMEOUT="60",
                  CUDA_VISIBLE_DEVICES="")
for name in ("barrier", "test_dir"):
    os.makedirs(os.path.join(folder, name), exist_ok=True)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402

if chosen.backend == "colls":
    import colls_torch

    # These tests ask for "gloo" in a hundred places: they get colls by that name.
    def create(options, _):
        return colls_torch._backend.create(
            options.store, options.group_rank, options.group_size, options.timeout.total_seconds(), options.group_id,
            options.global_ranks_in_group, "gloo", getattr(options, "enable_reconfigure", False))

    dist.Backend._plugins["GLOO"] = dist.Backend._BackendPlugin(create, True)
    # By this type torch's DDP would take the backend for an object of gloo's class.
    dist.Backend.backend_type_map["gloo"] = dist.ProcessGroup.BackendType.CUSTOM

# They compare the name of the backend with "gloo".
of_gloo_alone = ["test_ddp_logging_data_cpu"] if chosen.backend == "colls" else []

torch.set_num_threads(1)


class torch_suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):  # forked, since each import of torch takes seconds
        super().setUp()
        self._start_processes(multiprocessing.get_context("fork").Process)
        assert len(self.processes) == int(chosen.ranks)


class quiet_result(unittest.TextTestResult):
    def startTest(self, test):
        super().startTest(test)
        print(test._testMethodName, end=": ", flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        print("passed", flush=True)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        print("failed", flush=True)

    def addError(self, test, error):
        super().addError(test, error)
        print("failed:", str(error[1])[-1500:], flush=True)

    def addSkip(self, test, why):
        super().addSkip(test, why)
        print("skipped:", why[:100], flush=True)


if __name__ == "__main__":
    names = unittest.TestLoader().getTestCaseNames(torch_suite)
    names = [n for n in names if not chosen.names or any(part in n for part in chosen.names)]
    for n in of_gloo_alone:
        if n in names:
            print(f"{n}: left out, since it compares the name of the backend with gloo's")
            names.remove(n)
    part, parts = map(int, chosen.part.split("/"))
    suite = unittest.TestSuite(torch_suite(n) for n in names[part - 1::parts])
    result = unittest.TextTestRunner(stream=open(os.devnull, "w"), resultclass=quiet_result).run(suite)
    bad = len(result.failures) + len(result.errors)
    print(f"{chosen.backend}, {chosen.ranks} ranks: {result.testsRun} tests: "
          f"{result.testsRun - bad - len(result.skipped)} passed, {bad} failed, {len(result.skipped)} skipped")
    sys.exit(bad > 0)
