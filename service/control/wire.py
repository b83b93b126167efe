"""The traffic between a service and the process that serves its HTTP: messages, and how they lie on a socket.

The HTTP process asks, and the service answers in the same order. A message is MessagePack, after its length in four
bytes. Reads of a state have a line of their own, because the loop of the runners answers them: a handler that blocks it
delays reads, and neither statuses nor probes. Their answers come in any order, because some wait for a batch.
"""

from __future__ import annotations

from typing import Any

import msgspec

from snapreplay.errors import PartitionNotLive, SnapreplayError, UnknownPartition
from snapreplay.service.control.draining import NoSuccessor
from snapreplay.service.control.framing import LENGTH as LENGTH  # noqa: PLC0414 - a part of the wire
from snapreplay.service.control.framing import AskStatus as AskStatus  # noqa: PLC0414 - too
from snapreplay.service.control.framing import Logged as Logged  # noqa: PLC0414 - too
from snapreplay.service.control.framing import frame as frame  # noqa: PLC0414 - too
from snapreplay.service.control.key_history import KeyHistory, ReadKeyHistory
from snapreplay.service.control.operation_registry import NotCancellable
from snapreplay.service.control.partition_history import PartitionHistory, ReadHistory
from snapreplay.service.control.protocol import (
    Busy,
    Command,
    Family,
    KeyReused,
    NotFailed,
    Once,
    Operation,
    StatusDocument,
)
from snapreplay.service.control.savepoint_list import ReadSavepoints, SavepointList, SavepointsUnread
from snapreplay.service.control.state_reads import (
    BatchNotReached,
    NoMap,
    NotReadable,
    StateAnswer,
    StateRead,
    UnknownMap,
    WrongRead,
)

DEFECT = "defect"
_REFUSALS: dict[str, tuple[type[SnapreplayError], tuple[str, ...]]] = {
    "unknown-partition": (UnknownPartition, ("partition", "partition_count")),
    "not-live": (PartitionNotLive, ("partition", "detail")),
    "not-failed": (NotFailed, ("partition", "phase")),
    "key-reused": (KeyReused, ("key",)),
    "no-successor": (NoSuccessor, ("why",)),
    "savepoints-unread": (SavepointsUnread, ("why",)),
    "not-cancellable": (NotCancellable, ("operation_id", "why")),
    "busy": (Busy, ("partition", "operation_id", "kind")),
    "unknown-map": (UnknownMap, ("stores",)),
    "no-map": (NoMap, ()),
    "wrong-read": (WrongRead, ("where", "why")),
    "not-readable": (NotReadable, ("partition", "phase", "reason")),
    "batch-not-reached": (BatchNotReached, ("partition", "batch", "min_batch")),
}


class AskCounted(msgspec.Struct, frozen=True, tag="ask-counted"):
    """Asks for `Counted`."""


class Suspected(msgspec.Struct, frozen=True, tag="suspected"):
    """A peer seems to be dead. Not answered."""

    process_id: str
    why: str
    silent_seconds: float | None = None


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A peer has said that it ends in good order. Not answered."""

    process_id: str


class Counted(msgspec.Struct, frozen=True, tag="counted"):
    """The counts of what happened in the process."""

    families: tuple[Family, ...]


class Performed(msgspec.Struct, frozen=True, tag="performed"):
    """The command is under way."""

    operation: Operation


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """Nothing was started. `error` is a word of a fixed set; `DEFECT` for everything unforeseen, which was logged."""

    error: str
    values: tuple[Any, ...] = ()

    @classmethod
    def because(cls, error: Exception) -> Refused:
        for word, (kind, names) in _REFUSALS.items():
            if isinstance(error, kind):
                return cls(word, tuple(getattr(error, name) for name in names))
        return cls(DEFECT)

    def as_error(self) -> Exception:
        if self.error not in _REFUSALS:
            return RuntimeError("the service could not answer; its log has the reason")
        return _REFUSALS[self.error][0](*self.values)


FromKafka = ReadHistory | ReadKeyHistory | ReadSavepoints
"""Reads of what a process has not in memory."""
ReadFromKafka = PartitionHistory | KeyHistory | SavepointList


class AskState(msgspec.Struct, frozen=True):
    """A read. `expires_at`: boot seconds, which all processes of a machine share."""

    id: int
    expires_at: float
    read: StateRead | FromKafka


class Answered(msgspec.Struct, frozen=True):
    """The answer to the read of this id."""

    id: int
    answer: StateAnswer | ReadFromKafka | Refused


Question = AskStatus | AskCounted | Command | Once
News = Logged | Suspected | Ended
Answer = StatusDocument | Counted | Performed | Refused

_questions: msgspec.msgpack.Decoder[Question | News] = msgspec.msgpack.Decoder(Question | News)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)

asked = msgspec.msgpack.Decoder(AskState).decode
answered = msgspec.msgpack.Decoder(Answered).decode


def question(encoded: bytes) -> Question | News:
    """Decode what was framed, without its length."""
    return _questions.decode(encoded)


def answer(encoded: bytes) -> Answer:
    """Decode what was framed, without its length."""
    return _answers.decode(encoded)
