"""python -m colls run -n 4 PROGRAM: starts the ranks of a program on this host."""

from __future__ import annotations

import argparse
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import time
from typing import IO

from colls._processes import GRACE, environment, new_token


def _free_port() -> int:
    """One that nobody listens at now, below those that the system gives to connections."""
    for port in random.sample(range(20000, 30000), 100):
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise SystemExit("colls run: of 100 ports from 20000 to 29999 none is free")


class _Output:
    """The lines of one rank's stdout or stderr."""

    def __init__(self, of: IO[bytes], to: IO[bytes], label: bytes):
        self.of, self.to, self.label = of, to, label
        self.rest = b""

    def read(self) -> bool:
        """Passes on what has come; False at the end."""
        data = os.read(self.of.fileno(), 1 << 16)
        lines = (self.rest + data).splitlines(keepends=True)
        self.rest = lines.pop() if lines and data and not lines[-1].endswith(b"\n") else b""
        for line in lines:
            self.to.write(self.label + line + (b"" if line.endswith(b"\n") else b"\n"))
        self.to.flush()
        return bool(data)


def _status(code: int) -> int:
    return code if code >= 0 else 128 - code


def run(command: list[str], size: int, label: bool) -> int:
    """Starts the ranks, passes on their output, and returns the status of the first that has failed, or 0."""
    token, port = new_token(), _free_port()
    ranks: list[subprocess.Popen[bytes]] = []
    selector = selectors.DefaultSelector()
    failed = 0
    ending: float | None = None  # when those that are left are ended
    killing: float | None = None
    pipe = subprocess.PIPE if label else None
    # A launcher that is ended ends its ranks.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        for r in range(size):
            p = subprocess.Popen(
                command,
                env=environment(r, size, token, port),
                stdin=None if r == 0 else subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
            )
            ranks.append(p)
            for of, to in ((p.stdout, sys.stdout.buffer), (p.stderr, sys.stderr.buffer)):
                if of is not None:
                    selector.register(of, selectors.EVENT_READ, _Output(of, to, f"[{r}] ".encode()))
        left = dict(enumerate(ranks))
        while left or selector.get_map():
            for key, _ in selector.select(0.02) if selector.get_map() else ():
                if not key.data.read():
                    selector.unregister(key.fileobj)
            if not selector.get_map():
                time.sleep(0.01)
            for r, p in list(left.items()):
                code = p.poll()
                if code is None:
                    continue
                del left[r]
                if code != 0 and ending is None:
                    failed, ending = _status(code), time.monotonic() + GRACE
                    how = f"was ended by signal {-code}" if code < 0 else f"has ended with status {code}"
                    print(f"colls run: rank {r} {how}: all others end", file=sys.stderr, flush=True)
            now = time.monotonic()
            if ending is not None and killing is None and now > ending:
                killing = now + GRACE
                for p in left.values():
                    p.terminate()
            if killing is not None and now > killing:
                for p in left.values():
                    p.kill()
                if not left:
                    break  # what still writes is no rank
        return failed
    except KeyboardInterrupt:
        # The terminal has interrupted the ranks, too.
        until = time.monotonic() + GRACE
        for p in ranks:
            try:
                p.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
        for key in list(selector.get_map().values()):
            while selector.get_map() and key.data.read():
                pass
        return 128 + signal.SIGINT
    finally:
        for p in ranks:
            if p.poll() is None:
                p.terminate()
        for p in ranks:
            try:
                p.wait(GRACE)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m colls", description="Collective calls on arrays of NumPy.")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser(
        "run",
        help="start the ranks of a script on this host",
        description="Starts N processes of a script, whose colls.world() is their group. The lines of their output begin "
        "with the rank. The first that fails ends all, and its status is that of this command: 128 + S after signal S.",
    )
    one.add_argument("-n", type=int, required=True, metavar="N", help="number of ranks")
    one.add_argument("-m", action="store_true", dest="module", help="the script is the name of a module")
    one.add_argument("--no-label", action="store_false", dest="label", help="pass the output on as it is")
    one.add_argument("script")
    one.add_argument("arguments", nargs=argparse.REMAINDER, help="for the script")
    o = parser.parse_args()
    if o.n < 1:
        parser.error(f"-n is {o.n}: there is at least one rank")
    return run([sys.executable, *(["-m"] if o.module else []), o.script, *o.arguments], o.n, o.label)


if __name__ == "__main__":
    sys.exit(main())
