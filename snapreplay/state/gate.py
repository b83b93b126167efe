"""The times when state and outputs may be written: while a handler runs, by its thread. Pure."""

from __future__ import annotations

from _thread import get_ident

from snapreplay.errors import UsageError


class Gate:
    """The gate of one partition, open while a handler runs. `owner`: the thread that may write; None: no thread."""

    __slots__ = ("owner",)

    def __init__(self) -> None:
        self.owner: int | None = get_ident()

    def open(self) -> None:
        """Let this thread write."""
        self.owner = get_ident()

    def close(self) -> None:
        self.owner = None


OPEN = Gate()
"""Of a state that no partition has."""


def refuse_write(gate: Gate, what: str) -> None:
    """Refuse a write by a thread that is not the owner of the gate, or raise UsageError: no handler runs, or it runs in
    another thread."""
    if gate is OPEN:
        return
    when = "after its handler had ended" if gate.owner is None else "in another thread than its handler's"
    raise UsageError(
        f"{what} {when}: it would belong to no record, and be lost",
        hint="write state and outputs before the handler returns; let what comes later be a record of an input",
    )
