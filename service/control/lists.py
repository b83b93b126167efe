"""The savepoints and the newest dead letters of an app, as HTTP shows them and commands print them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from snapreplay.errors import RetryableError
from snapreplay.service.control.vocabulary import Count, Time, one_of, said


class SavepointPart(msgspec.Struct, frozen=True):
    """The state of one partition in a savepoint. What is null is not there."""

    partition: Count
    batch: Annotated[Count | None, said("Whose state it is.")] = None
    entries: Count | None = None
    digest: str | None = None
    positions: Annotated[dict[str, Count] | None, said("Input → next offset.")] = None
    kept_at: Time | None = None
    problem: Annotated[str | None, said("Why it cannot be used; null: it can be.")] = None


class SavepointShown(msgspec.Struct, frozen=True):
    """A savepoint, with a part for each partition."""

    app_id: str
    savepoint: Annotated[str, said("Its name.")]
    usable: Annotated[bool, said("Whether every part is there, by its increment and its manifest.")]
    by: str | None
    reason: str | None
    partitions: tuple[SavepointPart, ...]

    @property
    def problems(self) -> list[str]:
        """Why it cannot be used; empty: it can be."""
        return [f"partition {part.partition}: {part.problem}" for part in self.partitions if part.problem]


class SavepointList(msgspec.Struct, frozen=True, tag="savepoints"):
    """Savepoints, by name."""

    items: tuple[SavepointShown, ...] = ()


class SavepointsUnread(RetryableError):
    """The savepoints cannot be read now.

    Safe: Nothing was changed.
    """

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the savepoints cannot be read: {why}", hint="ask again; GET /readyz shows the state of the cluster"
        )
        self.why = why


LETTERS_MAX = 100
VALUE_CHARACTERS_MAX = 4000


class DeadLetter(msgspec.Struct, frozen=True):
    """A record or timer that a handler could not process, with the reason. Text that is not UTF-8 has escapes."""

    partition: Annotated[Count, said("Of the dead-letters topic.")]
    offset: Annotated[Count, said("There.")]
    written_at: Time
    exception: str
    message: str
    app_version: str
    state: Annotated[
        str, one_of("open", "sent_back", "passed_over"), said("`open`: no redrive has come as far as this one.")
    ]
    passed_over: Annotated[str, said("Why a redrive passed it over, in a word.", examples=["timer"])] = ""
    topic: Annotated[str, said("The input of the record; empty: it is a timer.")] = ""
    input_partition: Count | None = None
    input_offset: Count | None = None
    timer: Annotated[str, said("Its name; empty: it is a record.")] = ""
    key: str | None = None
    value: Annotated[str | None, said(f"Its first {VALUE_CHARACTERS_MAX:,} characters.")] = None
    value_is_cut: Annotated[bool, said("Whether the value is longer.")] = False
    headers: Annotated[dict[str, str], said(f"Those of the record: {VALUE_CHARACTERS_MAX:,} characters of them.")] = {}
    headers_left_out: Annotated[Count, said("So many more headers the record has.")] = 0
    dropped: Annotated[str, said("The parts that did not fit into the dead letter, such as `value`.")] = ""


class DeadLetterList(msgspec.Struct, frozen=True, tag="dead-letters"):
    """The newest dead letters, newest first."""

    topic: Annotated[str | None, said("Null: the app has none, because `errors.policy` is not `dead_letter`.")]
    items: tuple[DeadLetter, ...] = ()
