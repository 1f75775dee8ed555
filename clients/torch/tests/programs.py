"""Installing by pip, and the programs beside the package."""

import gzip
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

here = pathlib.Path(__file__).resolve().parent
client = here.parent
root = client.parent.parent

# Makes empty output files, so that an installation takes seconds.
fake_compiler = """#!/bin/sh
while [ $# -gt 0 ]; do
    [ "$1" = -o ] && { : > "$2"; exit 0; }
    shift
done
echo 12.2.0
"""


def run(*command, cwd, **environment):
    done = subprocess.run([str(part) for part in command], cwd=cwd, env={**os.environ, **environment},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


sends_and_ends = """
import sys, time, torch, torch.distributed as dist, colls_torch
rank, store, length = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
dist.init_process_group("colls", store=dist.FileStore(store, 2), rank=rank, world_size=2)
if rank == 0:
    for i in range(3):
        dist.send(torch.full((length,), float(i)), 1)
else:
    time.sleep(1)
    x = torch.zeros(length)
    for i in range(3):
        dist.recv(x, 0)
        assert x[0].item() == i
    print("received")
"""


class programs(unittest.TestCase):
    def test_program_that_ends_without_destroying_its_group_delivers(self):
        for length in (10, 100_000):
            with self.subTest(length=length), tempfile.TemporaryDirectory() as folder:
                ranks = [subprocess.Popen([sys.executable, "-c", sends_and_ends, str(r), f"{folder}/store", str(length)],
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for r in range(2)]
                texts = [process.communicate()[0] for process in ranks]
                self.assertIn("received", texts[1])

    def test_pip_leaves_nothing_in_the_tree(self):
        if subprocess.run([sys.executable, "-m", "pip", "--version"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("this Python has no pip")
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder) / "tree"
            no_caches = shutil.ignore_patterns("__pycache__")
            shutil.copytree(client, tree / "clients" / "torch", ignore=no_caches)
            shutil.copytree(root / "include", tree / "include", ignore=no_caches)
            compiler = pathlib.Path(folder) / "g++"
            compiler.write_text(fake_compiler)
            compiler.chmod(0o755)
            before = files(tree)
            run(sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index",
                "--disable-pip-version-check", "--target", pathlib.Path(folder) / "installed", ".",
                cwd=tree / "clients" / "torch", CXX=str(compiler), CC=str(compiler), TORCH_DONT_CHECK_COMPILER_ABI="1",
                PYTHONDONTWRITEBYTECODE="1", PYTHONPATH="")
            self.assertEqual(files(tree), before)
            installed = files(pathlib.Path(folder) / "installed" / "colls_torch")
            self.assertIn("__init__.py", installed)
            self.assertTrue(any(name.startswith("_backend") and name.endswith(".so") for name in installed), installed)

    def test_benchmark_runs_in_any_folder(self):
        for folder in (client, root, here, "/"):
            text = run(sys.executable, client / "benchmark.py", "--functions", "all_reduce,ping_pong,ring,pipeline",
                       "--sizes", "8,300000", "--runs", "1", "--seconds", "0.001", cwd=folder)
            for row in ("| all_reduce | 8 |", "| ping_pong | 8 |", "| ring | 300000 |", "| pipeline | 300000 |"):
                self.assertIn(row, text)

    def test_demo_runs_in_any_folder(self):
        with tempfile.TemporaryDirectory() as data:
            for part, images in (("train", 128), ("t10k", 16)):
                with gzip.open(f"{data}/{part}-images-idx3-ubyte.gz", "wb") as file:
                    file.write(struct.pack(">IIII", 2051, images, 28, 28) + os.urandom(784 * images))
                with gzip.open(f"{data}/{part}-labels-idx1-ubyte.gz", "wb") as file:
                    file.write(struct.pack(">II", 2049, images) + bytes(i % 10 for i in range(images)))
            for folder in (client, "/"):
                text = run(sys.executable, client / "demo.py", "--data", data, "--backends", "colls", cwd=folder)
                self.assertIn("colls  2 ranks: 2 steps", text)


if __name__ == "__main__":
    unittest.main()
