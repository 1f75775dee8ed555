"""Runs a function on several ranks, each a process."""

import contextlib
import multiprocessing
import os
import tempfile
import traceback

import torch
import torch.distributed as dist

import colls_torch  # noqa: F401

# Where a call first fails, torch writes its flight recorder to a file, before the error is seen. That takes seconds.
os.environ.setdefault("TORCH_FR_DUMP_ON_TIMEOUT", "0")

# Forked, since each import of torch takes seconds. The parent has made no threads of torch.
_processes = multiprocessing.get_context("fork")


def _rank(f, rank, size, store_file, backend, errors, arguments, options):
    try:
        torch.set_num_threads(1)
        store = dist.FileStore(store_file, size)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, **options)
        f(rank, size, *arguments)
        dist.destroy_process_group()
        errors.put((rank, None))
    except BaseException:
        errors.put((rank, traceback.format_exc()))
        errors.close()
        errors.join_thread()
        os._exit(1)
    errors.close()
    errors.join_thread()
    os._exit(0)


def run(size, f, *arguments, backend="colls", dies=(), seconds=120, **options):
    """Calls f(rank, size, *arguments) in a group of `size` ranks, which init_process_group makes with these options.
    Raises the text of all errors of ranks but those that are to die."""
    with tempfile.TemporaryDirectory() as folder:
        errors = _processes.Queue()
        store = os.path.join(folder, "store")
        ranks = [
            _processes.Process(target=_rank, args=(f, r, size, store, backend, errors, arguments, options))
            for r in range(size)
        ]
        for process in ranks:
            process.start()
        found, texts = 0, []
        with contextlib.suppress(Exception):
            while found < size - len(dies):
                rank, error = errors.get(timeout=seconds)
                found += 1
                if error is not None:
                    texts.append(f"rank {rank}:\n{error}")
        late = [r for r, process in enumerate(ranks) if process.join(10) or process.is_alive()]
        for process in ranks:
            process.kill()
        if texts or late or found < size - len(dies):
            raise AssertionError(f"ranks that did not end: {late}; {found} reported\n" + "\n".join(texts))
