"""The newest dead letters of an app, as HTTP shows them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from snapreplay.service.control.vocabulary import Count, Time, one_of, said

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
