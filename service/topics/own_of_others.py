"""Topics that match a pattern and are own topics of an app of this library, told by what they hold.

A legal input may be called `orders-snapshots`, and an app of any id may come into being while another one runs. So a
name with such an ending only raises the question. The first record answers it. Until there is one, nothing is lost by
waiting: a topic that is taken in later is read from its beginning. The records of an internal topic show nothing: it is
one if the app has an increments topic.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from snapreplay.app.app import App
from snapreplay.app.failure import PREFIX as DEAD_LETTER_HEADER
from snapreplay.app.names import (
    INTERNAL,
    SAVEPOINT,
    dead_letters_topic,
    increments_topic,
    is_internal_topic,
    snapshots_topic,
)
from snapreplay.app.record import InputRecord
from snapreplay.errors import SnapreplayError
from snapreplay.service.ports import Cluster, Reader, TopicFacts, TopicPartition
from snapreplay.service.topics.reading import reading
from snapreplay.snapshots.log.place import is_ours

ENDINGS = tuple(name("") for name in (increments_topic, snapshots_topic, dead_letters_topic))

_SEEN: dict[str, str] = {}
"""Topic id → why it is an own topic of another app. A topic begins with the same kind of record for ever, and its id
names no other one: each is read once per process."""


def ending_of(app: App[Any], name: str) -> str:
    """Return the ending that makes a topic look like an own topic of another app; "": it does not, or a pattern asks
    for it by that very ending."""
    declared = app.declaration(name)
    if name in app.input_names or declared is None:
        return ""
    return next((each for each in ENDINGS if name.endswith(each) and not declared.name.endswith(each)), "")


def _owner_of(app: App[Any], name: str) -> str:
    """Return the other app whose internal topic this seems to be; "": none, or a pattern asks for such topics."""
    declared, owner = app.declaration(name), name.partition(INTERNAL)[0]
    is_asked_for = name in app.input_names or declared is None or INTERNAL in declared.name
    return "" if is_asked_for or not is_internal_topic(owner, name) else owner


async def marked(
    app: App[Any], cluster: Cluster, facts: Mapping[str, TopicFacts], known: Collection[str] = ()
) -> dict[str, TopicFacts]:
    """Return the facts, with the reason where a topic that matches a pattern is not to become an input.

    Args:
        known: topics that are not asked about, because they are inputs already.
    """
    new, found = [name for name, each in facts.items() if not each.denied and name not in known], dict(facts)
    owners = {name: owner for name in new if (owner := _owner_of(app, name))}
    there = await cluster.topics([increments_topic(owner) for owner in owners.values()]) if owners else {}
    for name, owner in owners.items():
        if increments_topic(owner) in there:
            found[name] = msgspec.structs.replace(facts[name], not_an_input=f"it is an internal topic of app {owner}")
    asked = [name for name in new if ending_of(app, name)]
    if not asked:
        return found
    async with reading(cluster, read_committed=False) as reader:
        for name in asked:
            why = await _why_not(reader, facts[name], ending_of(app, name))
            found[name] = msgspec.structs.replace(facts[name], not_an_input=why)
    return found


async def _why_not(reader: Reader, topic: TopicFacts, ending: str) -> str:
    """Say why the topic is not to become an input; "": it may."""
    if topic.topic_id in _SEEN:
        return _SEEN[topic.topic_id]
    try:
        first = await _first_record(reader, topic)
    except SnapreplayError as error:
        return f"its name ends in {ending}, and what it holds cannot be read: {error.message}"
    whose = topic.name.removesuffix(ending)
    if first is None:
        return f"its name ends in {ending}, and it holds no record yet that shows whether it belongs to app {whose}"
    reason = _whose_record(first, whose)
    if reason and topic.topic_id:
        _SEEN[topic.topic_id] = reason
    return reason


def _whose_record(first: InputRecord, whose: str) -> str:
    """Say of an app's own record what its topic holds; "": the record is not an own one."""
    if is_ours(first.value or b"", first.headers):
        app_id, is_saved, name = whose.partition(SAVEPOINT)
        return f"it holds the state of app {app_id}" + (f", as savepoint {name}" if is_saved else "")
    if any(name.startswith(DEAD_LETTER_HEADER) for name, _ in first.headers):
        return f"it holds the dead letters of app {whose}"
    return ""


async def _first_record(reader: Reader, topic: TopicFacts) -> InputRecord | None:
    for number in range(topic.partition_count):
        place = TopicPartition(topic.name, number)
        bounds = await reader.bounds(place)
        if bounds.start_offset < bounds.end_offset:
            async for records in reader.read(place, *bounds):
                if records:
                    return records[0]
    return None
