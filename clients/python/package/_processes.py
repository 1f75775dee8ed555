"""Ranks as processes that a program starts, and keeps until they are over."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Callable, Mapping, Sequence

from colls._errors import RankError
from colls._groups import bootstrap

# multiprocessing and what it needs take longer to import than all else, so only those who start ranks do so.

#: Seconds that the other ranks have, after the first has failed, to end by an error of their own.
GRACE = 2.0


def _rank(
    function: Callable[..., Any],
    rank: int,
    size: int,
    folder: str,
    results: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """The life of a rank: sends ("result", value) or ("error", exception or None, its text)."""
    import pickle
    import traceback

    try:
        with bootstrap(rank, size, folder, "run") as comm:
            value = function(comm, *args, **kwargs)
        results.send(("result", value))
    except BaseException as e:
        text = traceback.format_exc()
        try:
            pickle.loads(pickle.dumps(e))
        except Exception:
            results.send(("error", None, text))
        else:
            results.send(("error", e, text))
        sys.exit(1)


def run(
    function: Callable[..., Any],
    size: int,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    method: str = "spawn",
) -> list[Any]:
    """Calls `function(comm, *args, **kwargs)` in `size` processes of this host, and returns what they return, in rank
    order.

    `method` is that of multiprocessing: "spawn", "fork" or "forkserver"; with "spawn", the function is one of a module.
    The first rank that fails ends all: `RankError`, after at most some seconds. So does an exception here, such as
    KeyboardInterrupt.
    """
    if size < 1:
        raise ValueError(f"colls.run: the size is {size}: there is at least one rank")
    import multiprocessing
    import tempfile

    context: Any = multiprocessing.get_context(method)
    processes: list[Any] = []
    readers: list[Any] = []
    values: list[Any] = [None] * size
    with tempfile.TemporaryDirectory(prefix="colls-") as folder:
        try:
            for r in range(size):
                reader, writer = context.Pipe(duplex=False)
                p = context.Process(
                    target=_rank, args=(function, r, size, folder, writer, args, kwargs or {}), name=f"colls rank {r}"
                )
                p.start()
                processes.append(p)
                readers.append(reader)
                writer.close()
            _collect(processes, readers, values)
        finally:
            end(processes)
            for reader in readers:
                reader.close()
    return values


def _collect(processes: list[Any], readers: list[Any], values: list[Any]) -> None:
    """Waits for the results of all ranks, or until the first has failed."""
    import multiprocessing.connection

    waiting = {reader: r for r, reader in enumerate(readers)}
    while waiting:
        for ready in multiprocessing.connection.wait(list(waiting)):
            r = waiting.pop(ready)
            try:
                message = readers[r].recv()
            except EOFError:
                message = None
            if message is not None and message[0] == "result":
                values[r] = message[1]
                continue
            # Another rank's error may come at the same time, and be the cause of this one.
            _raise(*_cause((r, message), waiting, readers), processes)


def _cause(failed: tuple[int, Any], waiting: dict[Any, int], readers: list[Any]) -> tuple[int, Any]:
    """Of the ranks that fail within a moment one that died, or else one whose error is about no other rank."""
    if failed[1] is None or getattr(failed[1][1], "peer", -1) < 0:
        return failed
    import multiprocessing.connection

    until = time.monotonic() + GRACE
    while waiting and (left := until - time.monotonic()) > 0:
        for ready in multiprocessing.connection.wait(list(waiting), left):
            r = waiting.pop(ready)
            try:
                message = readers[r].recv()
            except EOFError:
                return r, None
            if message[0] == "error" and getattr(message[1], "peer", -1) < 0:
                return r, message
    return failed


def _raise(rank: int, message: Any, processes: list[Any]) -> None:
    p = processes[rank]
    if message is not None:
        raise RankError(f"colls.run: rank {rank} has failed:\n{message[2]}", rank) from message[1]
    p.join(GRACE)
    how = f"was ended by signal {-p.exitcode}" if p.exitcode and p.exitcode < 0 else f"has ended with status {p.exitcode}"
    raise RankError(f"colls.run: rank {rank} (process {p.pid}) {how}, and has returned nothing", rank)


def end(processes: list[Any]) -> None:
    """Waits for processes that are at their end, and ends the others."""
    until = time.monotonic() + GRACE
    for p in processes:
        p.join(max(0.0, until - time.monotonic()) if sys.exc_info()[0] is None else 0.1)
    for p in processes:
        if p.exitcode is None:
            p.terminate()
    for p in processes:
        p.join(GRACE)
        if p.exitcode is None:
            p.kill()
            p.join()


def environment(rank: int, size: int, token: str, port: int) -> dict[str, str]:
    """What a rank on this host needs for `colls.world`."""
    return {
        **os.environ,
        "COLLS_RANK": str(rank),
        "COLLS_SIZE": str(size),
        "COLLS_LOCAL_RANK": str(rank),
        "COLLS_MASTER_ADDR": "127.0.0.1",
        "COLLS_MASTER_PORT": str(port),
        "COLLS_TOKEN": token,
        "PYTHONUNBUFFERED": "1",
    }


def new_token() -> str:
    """A secret of a group."""
    return os.urandom(16).hex()
