"""A state that may be read beside its handlers."""

from __future__ import annotations

from typing import NamedTuple

from snapreplay.service.control.state_reads import AnsweredBy
from snapreplay.snapshots.format.records import Increment
from snapreplay.state.contract import Store


class Readable(NamedTuple):
    """A state as of its last committed batch, whole, until the next `await`.

    Attributes:
        last: the increment of that batch.
        owner_epoch: of the owner, or of the one that a warm copy has followed.
        age_seconds: since it was known to be the newest: a copy as new as the log, and an owner the owner.
        doubt: why another process may own the partition by now; empty: no doubt.
    """

    store: Store
    last: Increment
    role: AnsweredBy
    owner_epoch: int
    age_seconds: float
    doubt: str = ""
