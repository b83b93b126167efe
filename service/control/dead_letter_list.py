"""The newest dead letters of an app, as HTTP shows them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from snapreplay.service.control.vocabulary import Count, Time, said

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
    redriven: Annotated[bool, said("Whether it was sent back to its input.")]
    topic: Annotated[str, said("The input of the record; empty: it is a timer.")] = ""
    input_partition: Count | None = None
    input_offset: Count | None = None
    timer: Annotated[str, said("Its name; empty: it is a record.")] = ""
    key: str | None = None
    value: Annotated[str | None, said(f"Its first {VALUE_CHARACTERS_MAX:,} characters.")] = None
    headers: Annotated[dict[str, str], said("Those of the record.")] = {}
    dropped: Annotated[str, said("The parts that did not fit into the dead letter, such as `value`.")] = ""


class DeadLetterList(msgspec.Struct, frozen=True, tag="dead-letters"):
    """The newest dead letters, newest first."""

    topic: Annotated[str | None, said("Null: the app has none, because `errors.policy` is not `dead_letter`.")]
    items: tuple[DeadLetter, ...] = ()
