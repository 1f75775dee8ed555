"""The backend "colls" of torch.distributed: dist.init_process_group("colls", ...).

Importing this module registers the backend. Where torch reads the entry points of backends (2.15 and later do), that
happens by itself, once colls_torch is installed.
"""

import atexit

import torch  # noqa: F401  (the extension needs torch's libraries)
import torch.distributed as dist

from . import _backend

__all__ = ["register"]


def _create(options, _backend_options):
    return _backend.create(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout.total_seconds(),
        options.group_id,
        options.global_ranks_in_group,
    )


def register():
    """Registers the backend with torch.distributed. A second call does nothing."""
    if "COLLS" not in dist.Backend._plugins:
        dist.Backend.register_backend("colls", _create, extended_api=True, devices=["cpu"])


# A program may end without destroy_process_group. What it has sent by then is to arrive, where the receiver comes soon.
atexit.register(_backend.finish_sends, 10.0)

if dist.is_available():
    register()
