"""How processes become a group."""

from __future__ import annotations

import os
import threading
from typing import Any, Callable, Protocol, Sequence

from colls import _core
from colls.communicator import Communicator


class Store(Protocol):
    """A key/value store that all members of a group reach."""

    def set(self, key: str, value: bytes, /) -> Any:
        """Stores at most 64 bytes under a key that has no value yet."""

    def get(self, key: str, /) -> bytes:
        """Waits until the key has a value, and returns it. To wait for too long is an exception."""


def world() -> Communicator:
    """The group of all ranks that `python -m colls run`, mpirun, srun or torchrun has started, or of those whose
    environment has COLLS_RANK and COLLS_SIZE; one rank without any of these. Collective: every rank calls it within
    COLLS_TIMEOUT seconds."""
    return Communicator(_core.world())


def bootstrap(rank: int, size: int, store: Store | str | os.PathLike[str], name: str) -> Communicator:
    """A group of `size` processes, of which this is rank `rank`, over a store, or files in a folder that all members see.

    Needs no launcher, and no process but the members. `name` is the group's: keys begin with it, and no other group may
    ever use it with this store or folder, in which the files stay. Collective.
    """
    if isinstance(store, (str, os.PathLike)):
        return Communicator(_core.bootstrap_folder(rank, size, os.fspath(store), name))
    return Communicator(_core.bootstrap_store(rank, size, store.set, store.get, name))


def bootstrap_exchange(rank: int, size: int, all_gather: Callable[[bytes], Sequence[bytes]]) -> Communicator:
    """The same over an all_gather that the members have: it takes at most 64 bytes of this member, and returns those of
    all members, in rank order. It is called a few times. Collective."""
    return Communicator(_core.bootstrap_exchange(rank, size, all_gather))


def from_mpi(comm: Any) -> Communicator:
    """The group of a communicator of mpi4py, which must be no intercommunicator. Its ranks are the same. Collective."""
    return bootstrap_exchange(comm.Get_rank(), comm.Get_size(), comm.allgather)


def _set_main() -> None:
    _core.set_main(threading.main_thread().ident or threading.get_ident())


_set_main()
os.register_at_fork(after_in_child=lambda: _core.set_main(threading.get_ident()))
