"""The backend "colls" of torch.distributed: dist.init_process_group("colls", ...).

Importing this module registers the backend. Where torch reads the entry points of backends (2.15 and later do), that
happens by itself, once colls_torch is installed.
"""

import atexit
import os

import torch  # noqa: F401  (the extension needs torch's libraries)
import torch.distributed as dist

from . import _built_for


def _refuse_another_torch():
    """torch's C++ interfaces differ between versions: in another one, calls would go to wrong functions."""
    here, needed = torch.__version__.split("+")[0], _built_for.torch
    abi = torch.compiled_with_cxx11_abi()
    if here == needed and abi == _built_for.cxx11_abi:
        return
    names = {True: "the new C++ ABI of libstdc++", False: "the old C++ ABI of libstdc++"}
    what = f"torch {needed}, and this is torch {torch.__version__}"
    if here == needed:
        what = f"a torch {needed} with {names[_built_for.cxx11_abi]}, and this one has {names[abi]}"
    raise ImportError(
        f"colls_torch {_built_for.version} was built for {what} ({os.path.dirname(torch.__file__)}). Install torch=={needed}, "
        f"or build colls_torch for the torch that is here: pip install colls_torch-"
        f"{_built_for.version}.tar.gz, which needs a compiler with C++20"
    )


# libfabric reads these once. The library itself makes them only in a process of one thread: transports/ofi.hpp says why.
if "ofi" in os.environ.get("COLLS_TRANSPORT", ""):
    for _setting in ("FI_TCP_STAGING_SBUF_SIZE=0", "FI_NET_STAGING_SBUF_SIZE=0", "FI_OFI_RXM_EAGER_LIMIT=1048576"):
        os.environ.setdefault(*_setting.split("="))

_refuse_another_torch()
from . import _backend  # noqa: E402  (not to be loaded before that)

__all__ = ["register"]


def _create(options, _backend_options):
    return _backend.create(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout.total_seconds(),
        options.group_id,
        options.global_ranks_in_group,
        enable_reconfigure=getattr(options, "enable_reconfigure", False),
    )


def register():
    """Registers the backend with torch.distributed. A second call does nothing."""
    if "COLLS" not in dist.Backend._plugins:
        dist.Backend.register_backend("colls", _create, extended_api=True, devices=["cpu"])


def _correct_shrink_group():
    """torch's shrink_group takes each backend for CPUs for gloo's class, and DistributedDataParallel then crashes."""
    from torch.distributed import distributed_c10d

    create = getattr(distributed_c10d, "_create_shrunk_process_group", None)
    if create is None:
        return

    def create_and_correct(new_backend, *arguments, **named):
        group = create(new_backend, *arguments, **named)
        if new_backend.name() == "colls":
            group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, new_backend)
            group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        return group

    distributed_c10d._create_shrunk_process_group = create_and_correct


# A program may end without destroy_process_group. What it has sent by then is to arrive, where the receiver comes soon.
atexit.register(_backend.finish_sends, 10.0)

if dist.is_available():
    register()
    _correct_shrink_group()
