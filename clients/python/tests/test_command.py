"""python -m colls run."""

import os
import signal
import subprocess
import sys
import time

import pytest


def launch(*arguments, script=None, folder=None, **options):
    if script is not None:
        file = folder / "script.py"
        file.write_text(script)
        arguments = (*arguments, str(file))
    return subprocess.run([sys.executable, "-m", "colls", "run", *arguments], capture_output=True, text=True, timeout=150,
                          **options)


def test_lines_begin_with_the_rank(tmp_path):
    script = """
import os, sys, colls, numpy
assert len(os.environ["COLLS_TOKEN"]) == 32
comm = colls.world()
print("size", comm.size)
sys.stderr.write(f"two\\nlines of {comm.rank}")
x = numpy.array([comm.rank + 1])
comm.all_reduce(x)
print(x[0])
"""
    for n in (1, 3):
        done = launch("-n", str(n), script=script, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        expected = [f"[{r}] {line}" for r in range(n) for line in (f"size {n}", str(n * (n + 1) // 2))]
        assert sorted(done.stdout.splitlines()) == sorted(expected)
        assert sorted(done.stderr.splitlines()) == sorted(f"[{r}] {t}" for r in range(n) for t in ("two", f"lines of {r}"))


def test_arguments_modules_and_output_as_it_is(tmp_path):
    (tmp_path / "a_module.py").write_text(
        # One write a line: print() makes two, and the other rank's line may come between them.
        "import sys, os; sys.stdout.write(f\"{sys.argv[1:]} {os.environ['COLLS_SIZE']}\\n\")")
    done = launch("-n", "2", "--no-label", "-m", "a_module", "-n", "--x", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout == "['-n', '--x'] 2\n" * 2, done
    assert launch("-n", "0", "a.py").returncode == 2
    assert launch("a.py").returncode == 2


@pytest.mark.parametrize("how, status, text", [
    ("sys.exit(3)", 3, "status 3"),
    ("raise ValueError('so it is')", 1, "so it is"),
    ("os.kill(os.getpid(), 9)", 137, "signal 9"),
])
def test_the_first_failure_ends_all(how, status, text, tmp_path):
    script = f"""
import os, pathlib, sys, time, colls
comm = colls.world()
comm.barrier()
here = pathlib.Path({str(tmp_path / "here")!r})
here.mkdir(exist_ok=True)
(here / str(comm.rank)).touch()
while comm.rank == 1 and len(os.listdir(here)) < 3: time.sleep(0.01)  # one that is still in the barrier would fail, too
if comm.rank == 1: {how}
time.sleep(1000)
"""
    done = launch("-n", "3", script=script, folder=tmp_path)
    assert done.returncode == status and text in done.stderr, done
    assert "rank 1" in done.stderr.splitlines()[-1], done.stderr


def test_a_rank_that_does_not_end_is_killed(tmp_path):
    script = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.environ["COLLS_RANK"] == "0": sys.exit(5)
time.sleep(1000)
"""
    assert launch("-n", "2", script=script, folder=tmp_path).returncode == 5


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_ranks(number, status, tmp_path):
    file = tmp_path / "script.py"
    file.write_text("import os, time; print(os.getpid(), flush=True); time.sleep(1000)")
    command = [sys.executable, "-m", "colls", "run", "-n", "2", str(file)]
    p = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    pids = [int(p.stdout.readline().split()[1]) for _ in range(2)]
    # As a terminal does; a service manager ends the launcher alone.
    os.killpg(p.pid, number) if number == signal.SIGINT else os.kill(p.pid, number)
    assert p.wait(60) == status
    until = time.monotonic() + 30
    for pid in pids:
        while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
            time.sleep(0.01)
        assert not os.path.exists(f"/proc/{pid}")
