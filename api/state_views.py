"""Makes the answers of HTTP that show entries of a state."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from snapreplay.api.json_values import shown_value
from snapreplay.service.control.histories import ChangeAt, KeyHistory, Looked, ReadKeyHistory
from snapreplay.service.control.state_reads import NotRead, PartRead, ReadAt
from snapreplay.service.control.vocabulary import Count, said

PATH = "/api/v1/state/"
HISTORY_PATH = "/api/v1/key-history/"
"""Not below the key: `/history` may be the end of a key."""
Key = Annotated[
    Any,
    said("As a URL takes it, but a number for an int and an array for a tuple; bytes are base64.", examples=["ada"]),
]
Value = Annotated[Any, said('As JSON; bytes in it are text, or `{"base64": …}`.', examples=[{"amount": 5}])]


class StateValue(ReadAt, frozen=True, kw_only=True):
    """The value of a key in one partition, and the state that it was read from."""

    value: Value


class StateValues(msgspec.Struct, frozen=True):
    """The values of a key: one for each partition that has it."""

    store: str
    key: Annotated[str, said("As it was asked for.", examples=["ada"])]
    items: tuple[StateValue, ...]
    read: Annotated[tuple[Count, ...], said("Partitions that were read, also those that do not have the key.")]
    not_read: Annotated[tuple[NotRead, ...], said("Partitions that may have the key, too, and could not be read.")]


class StateEntry(msgspec.Struct, frozen=True):
    """An entry of a state."""

    key: Key
    value: Value


class StateEntries(ReadAt, frozen=True, kw_only=True):
    """Entries of one partition, all of the same batch."""

    store: str
    items: tuple[StateEntry, ...]
    next_after: Annotated[
        str | None, said("To be given as `after` for the entries that follow; null: there are no more.")
    ]
    partition_count: Annotated[int, said("Of the app.")]


class ShownChange(ChangeAt, frozen=True, kw_only=True):
    """A recorded change of a key: the value after the batch."""

    value: Annotated[Value, said("Null where the key was deleted.")]
    deleted: Annotated[bool, said("Also where its store was retired, whether or not it had the key.")]


class ShownChanges(Looked, frozen=True, kw_only=True):
    """The changes of a key in one partition, newest first, as far as its log was looked at."""

    store: str
    key: Annotated[str, said("As it was asked for.", examples=["ada"])]
    partition: Count
    partition_count: Annotated[Count, said("Of the app.")]
    items: tuple[ShownChange, ...]


def changes(read: ReadKeyHistory, found: KeyHistory) -> ShownChanges:
    items = [
        ShownChange(
            **{name: getattr(each, name) for name in ChangeAt.__struct_fields__},
            value=None if each.stored is None else shown_value(each.stored),
            deleted=each.stored is None,
        )
        for each in found.changes
    ]
    return ShownChanges(
        **{name: getattr(found, name) for name in Looked.__struct_fields__},
        store=read.store,
        key=read.key,
        partition=read.partition,
        partition_count=found.partition_count,
        items=tuple(items),
    )


def values(parts: Iterable[PartRead]) -> tuple[StateValue, ...]:
    found = [(each.at, stored) for each in parts for _, stored in each.items]
    return tuple(StateValue(**_fields(at), value=shown_value(stored)) for at, stored in found)


def entries(store: str, part: PartRead, partition_count: int) -> StateEntries:
    """Return the entries of one page."""
    return StateEntries(
        **_fields(part.at),
        store=store,
        items=tuple(StateEntry(_key(key), shown_value(stored)) for key, stored in part.items),
        next_after=part.next_after,
        partition_count=partition_count,
    )


def _fields(at: ReadAt) -> dict[str, Any]:
    return {name: getattr(at, name) for name in at.__struct_fields__}


def _key(key: Any) -> Any:
    """Show a decoded key; a tuple has become a list on its way."""
    if isinstance(key, bytes):
        return base64.b64encode(key).decode()
    return [_key(part) for part in key] if isinstance(key, list | tuple) else key
