"""Deletes an app: its own topics and its groups. Inputs and outputs stay. An internal topic is deleted if the
increments name it as an input, or if it is empty. The groups go first: the coordinator refuses to delete one with
members. A repetition finds what an interrupted deletion has left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from snapreplay.app import names
from snapreplay.counted import counted
from snapreplay.errors import StopError, UsageError
from snapreplay.service.core.kafka_errors import GroupInUse
from snapreplay.service.decisions.savepoints import Deleting
from snapreplay.service.ports import Cluster, TopicFacts, TopicPartition
from snapreplay.service.topics.increments import last_increment
from snapreplay.service.topics.reading import holds_records, reading
from snapreplay.service.topics.savepoint_names import apps_in, names_of
from snapreplay.snapshots.log.reading import is_ours


class NoSuchApp(UsageError):
    """No app of this id has topics in the cluster.

    Safe: Nothing was deleted.
    """


class StillRuns(StopError):
    """The app still runs: its group has members.

    Safe: No topic was deleted, no state was reset, and the app continues.
    """


class NotOurs(StopError):
    """A topic with the name of one of the app's own topics has records of another program."""


class Deletion(Struct, frozen=True):
    """The topics that would be deleted, and those of the app that would stay."""

    app_id: str
    topics: tuple[str, ...]
    kept: tuple[str, ...]


async def propose(app_id: str, cluster: Cluster, *, dead_letters: bool = False, savepoints: bool = False) -> Deletion:
    """Find out what deleting an app means, with its dead letters and savepoints if asked. Only reads.

    Raises:
        NoSuchApp: none of the topics that would go exists.
        StillRuns: the app's group has members.
        NotOurs: a topic holds records of another program.
    """
    letters = [names.dead_letters_topic(app_id)]
    saved = [
        topic for name in await names_of(app_id, cluster) for topic in names.own_pair(names.savepoint_id(app_id, name))
    ]
    internal = [name for name in await cluster.topic_names() if names.is_internal_topic(app_id, name)]
    chosen = [*names.own_pair(app_id), *(letters if dead_letters else ()), *(saved if savepoints else ())]
    facts = await cluster.topics({*chosen, *letters, *saved, *internal})
    chosen += await _unshared(cluster, app_id, facts, internal)
    topics = tuple(name for name in chosen if name in facts)
    if not topics:
        raise await _unknown(app_id, cluster, tuple(facts))
    await refuse_running(app_id, cluster)
    for name in topics:
        if name not in (*letters, *internal):
            await _refuse_foreign(cluster, name, facts[name].partition_count)
    return Deletion(app_id, topics, tuple(sorted(facts.keys() - set(topics))))


async def carry_out(deletion: Deletion, cluster: Deleting) -> None:
    """Delete the groups, then the topics. Repeating it deletes what is left.

    Raises:
        StillRuns: a process has joined a group meanwhile; no topic was deleted.
        NotAuthorized, StopError, Unreachable: some may be deleted.
    """
    app_id = deletion.app_id
    try:
        for group_id in (app_id, names.witness_group(app_id)):
            await cluster.delete_group(group_id)
    except GroupInUse as error:
        raise _runs(app_id, error.message) from error
    await cluster.delete_topics(deletion.topics)


async def refuse_running(app_id: str, cluster: Cluster) -> None:
    """Raise StillRuns if the group of the app has members."""
    count = await cluster.member_count(app_id)
    if count:
        raise _runs(app_id, f"its group has {counted(count, 'member')}")


def _runs(app_id: str, why: str) -> StillRuns:
    return StillRuns(
        f"app {app_id} runs: {why}",
        hint="stop all its processes, and run the command again; one that was killed counts until its session has timed"
        " out (`group.session_timeout_ms`)",
    )


async def _refuse_foreign(cluster: Cluster, name: str, partition_count: int) -> None:
    """Raise NotOurs if the topic begins with records of somebody else: what is deleted is gone."""
    async with reading(cluster, read_committed=False) as reader:
        for number in range(partition_count):
            place = TopicPartition(name, number)
            async for records in reader.read(place, *await reader.bounds(place)):
                if any(is_ours(record.value or b"", record.headers) for record in records):
                    break
                raise NotOurs(f"topic {name} holds records that snapreplay did not write, so it is not deleted")


async def _unshared(cluster: Cluster, app_id: str, facts: Mapping[str, TopicFacts], internal: list[str]) -> list[str]:
    """Return those that are internal topics of the app, and not topics of somebody else with such a name."""
    increments, inputs = names.increments_topic(app_id), set[str]()
    async with reading(cluster) as reader:
        if internal and increments in facts:
            log = TopicPartition(increments, 0)
            last = await last_increment(reader, log)
            inputs |= {*last.increment.positions, *last.increment.retired_inputs} if last is not None else set()
        return [each for each in internal if each in inputs or not await holds_records(reader, facts[each])]


async def _unknown(app_id: str, cluster: Cluster, kept: Sequence[str]) -> NoSuchApp:
    also = f"; only these topics of it exist: {', '.join(sorted(kept))}" if kept else ""
    return NoSuchApp(
        f"there is no app {app_id} in this cluster{also}; apps with increments here: {await apps_in(cluster)}",
        hint="use the app id that App(…) has" if not kept else "`--dead-letters` and `--savepoints` delete them, too",
    )
