"""Errors of the library."""

from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """What has gone wrong. After MISMATCH, TIMEOUT and PEER_FAILED the group is broken on every rank, and `shrink` makes
    a new one. After the others it is as before, and nothing has moved."""

    INVALID_ARGUMENT = 1
    UNSUPPORTED = 2
    WRONG_SCHEDULE = 3
    MISMATCH = 4
    TIMEOUT = 5
    PEER_FAILED = 6
    INVALID_HANDLE = 7
    OUT_OF_MEMORY = 8
    STORE_FAILED = 9
    INTERNAL = 10


class Error(RuntimeError):
    """An error of a call. Its text says which rank, what is wrong, where, and what to do."""

    code: Code
    #: The rank that has the error; the one that it is about, such as the one that has died; the round of the schedule.
    #: -1 where there is none.
    rank: int
    peer: int
    round: int
    #: The latest 64 calls of this rank before it, in lines.
    calls: str

    def __init__(self, text: str, code: int = Code.INTERNAL, rank: int = -1, peer: int = -1, round: int = -1, calls: str = ""):
        super().__init__(text)
        self.code = Code(code)
        self.rank = rank
        self.peer = peer
        self.round = round
        self.calls = calls

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (str(self), self.code, self.rank, self.peer, self.round, self.calls)


class RankError(RuntimeError):
    """A rank of `colls.run` has failed. Its exception is the cause, where it has raised one that can be pickled."""

    def __init__(self, text: str, rank: int):
        super().__init__(text)
        #: The rank that has failed first.
        self.rank = rank

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (str(self), self.rank)
