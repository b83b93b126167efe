"""The commands about records of an app's topics: feed, tail, redrive."""

from __future__ import annotations

import difflib
import os
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from snapreplay.api.cli import options
from snapreplay.api.cli.options import cluster_of
from snapreplay.api.cli.output import Format, note, print_json
from snapreplay.app import names
from snapreplay.counted import counted
from snapreplay.errors import UsageError

if TYPE_CHECKING:
    from snapreplay.app.app import App
    from snapreplay.app.record import InputRecord
    from snapreplay.app.topic import Topic
    from snapreplay.service.config.settings import Settings
    from snapreplay.service.ports import Cluster, Reader, TopicFacts, TopicPartition

Records = AsyncGenerator[Iterable["InputRecord"], None]
POLL_RECORDS = 500
POLL_MS = 200


def feed(
    app: options.Loaded, topic: options.TopicName, *, settings: options.OfCluster, output: options.Output = Format.TABLE
) -> None:
    """Write JSON lines from standard input to an input topic, all of them or none.

    A line is {"key": …, "value": …, "timestamp_ms": …, "headers": {…}, "partition": …}; only value is required. The
    codecs of the topic encode key and value."""
    import asyncio

    target = input_of(app, topic)
    if sys.stdin.isatty():
        note("reading JSON lines until Ctrl-D")
    lines = sys.stdin.buffer.readlines()  # before there is a loop, which would delay Ctrl-C
    places = asyncio.run(_feed(app, settings, target, lines))
    _print_places(target.name, places, output)


async def _feed(
    app: App[Any], settings: Settings, topic: Topic[Any, Any], lines: list[bytes]
) -> list[tuple[TopicPartition, int]]:
    import uuid

    from snapreplay.api.cli.json_records import records_of
    from snapreplay.app.out import DEFAULT_LIMIT_BYTES
    from snapreplay.service.kafka.feeding import KafkaFeeder

    facts = await facts_of(cluster_of(settings), app, topic.name)
    limit_bytes = int(facts.config.get("max.message.bytes", DEFAULT_LIMIT_BYTES))
    records = records_of(lines, topic, facts.partition_count, limit_bytes)
    if not records:
        return []
    feeder = KafkaFeeder(settings, f"{app.app_id}-feed-{uuid.uuid4().hex}")
    await feeder.start()
    try:
        return await feeder.feed(records)
    finally:
        await feeder.close()


def _print_places(topic: str, places: list[tuple[TopicPartition, int]], output: Format) -> None:
    offsets: dict[int, list[int]] = defaultdict(list)
    for place, offset in places:
        offsets[place.partition].append(offset)
    ranges = {number: (min(some), max(some) + 1) for number, some in sorted(offsets.items())}
    if output is Format.JSON:
        partitions = [
            {"partition": number, "from_offset": first, "to_offset": end} for number, (first, end) in ranges.items()
        ]
        print_json({"topic": topic, "records": len(places), "partitions": partitions})
        return
    listed = ", ".join(f"partition {number} from offset {first} to {end}" for number, (first, end) in ranges.items())
    print(f"fed {counted(len(places), 'record')} to {topic}" + (f": {listed}" if listed else ""))


async def tail(
    app: options.Loaded,
    topic: options.TopicName,
    *,
    count: options.RecordLines = 10,
    start: options.FromStart = None,
    follow: options.Follow = False,
    partition: options.OnlyPartition = None,
    settings: options.OfCluster,
    output: options.Output = Format.TABLE,
) -> None:
    """Print the last committed records of a topic of the app, decoded.

    TOPIC is an input, an output, or dead-letters."""
    name = readable_of(app, topic)
    records = _records(app, settings, name, partition, None if start else count, follow=follow)
    try:
        await _print_records(app, records, output)
    except BrokenPipeError:  # `| head` has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _print_records(app: App[Any], records: Records, output: Format) -> None:
    from snapreplay.api.cli.json_records import Shower

    shower = Shower(app)
    async with aclosing(records):
        async for some in records:
            for record in some:
                if output is Format.JSON:
                    print_json(shower.document(record))
                else:
                    print(shower.line(record))
            sys.stdout.flush()


async def _records(
    app: App[Any], settings: Settings, name: str, partition: int | None, count: int | None, *, follow: bool
) -> Records:
    """Read the records; `count` None: all."""
    from snapreplay.service.ports import TopicPartition
    from snapreplay.service.topics.reading import newest, reading

    cluster = cluster_of(settings)
    partitions = (await facts_of(cluster, app, name)).partition_count
    if partition is not None and partition >= partitions:
        raise UsageError(
            f"partition {partition} of {name} does not exist: there are {partitions} (0 to {partitions - 1})"
        )
    chosen = range(partitions) if partition is None else [partition]
    async with reading(cluster, large=True) as reader:
        ends = {}
        for source in (TopicPartition(name, number) for number in chosen):
            bounds = await reader.bounds(source)
            ends[source] = bounds.end_offset
            if count is None:
                async for some in reader.read(source, *bounds):
                    yield some
            elif count:
                yield await newest(reader, source, count)
        if follow:
            async for fresh in _following(reader, ends):
                yield fresh


async def _following(reader: Reader, ends: dict[TopicPartition, int]) -> Records:
    await reader.follow(ends)
    while True:
        for some in (await reader.poll(POLL_RECORDS, POLL_MS)).values():
            yield some


async def redrive(
    app: options.Loaded,
    *,
    dry_run: options.DryRun = False,
    settings: options.OfCluster,
    output: options.Output = Format.TABLE,
) -> None:
    """Send the dead letters back to their inputs, each exactly once."""
    from snapreplay.service.dead_letters import redrive as redrive_app

    done = await redrive_app(app, settings, dry_run=dry_run)
    if output is Format.JSON:
        sent = [
            {"topic": place.topic, "partition": place.partition, "records": count}
            for place, count in sorted(done.sent.items())
        ]
        print_json({"dry_run": dry_run, "sent": sent, "left": done.left})
        return
    for line in done.left:
        note(f"left: {line}")
    would = "would be sent" if dry_run else "sent"
    for place, count in sorted(done.sent.items()):
        print(f"{would} back to {place}: {counted(count, 'record')}")
    if not done.sent and not done.left:
        print("no dead letters to send back")


def input_of(app: App[Any], name: str) -> Topic[Any, Any]:
    """Find an input, or raise UsageError: not an input of the app."""
    found = app.input_named(name)
    if found is not None:
        return found
    what = "is an output" if name in {each.name for each in app.outputs} else "is not a topic"
    raise _unknown(name, f"{what} of app {app.app_id!r}", "inputs", [t.name for t in app.inputs])


def readable(app: App[Any]) -> dict[str, Topic[Any, Any] | None]:
    """Return the topics of the app that `tail` shows, by name; None for its dead letters."""
    shown = {topic.name: topic for topic in (*app.inputs, *app.outputs)}
    return {**shown, names.dead_letters_topic(app.app_id): None}


def readable_of(app: App[Any], name: str) -> str:
    """Complete the name, "dead-letters" for "<app_id>-dead-letters", or raise UsageError: not a topic of the app, or
    one that has records of snapreplay itself."""
    known = readable(app)
    for each in (name, f"{app.app_id}-{name}"):
        if each in known or (names.BROADCAST not in each and app.declaration(each)):
            return each
        if each in (names.increments_topic(app.app_id), names.snapshots_topic(app.app_id)):
            raise UsageError(
                f"topic {each!r} holds records of snapreplay itself, which `tail` does not print",
                hint="see the commits of a partition: `snapreplay history PARTITION`",
            )
    raise _unknown(name, f"is not a topic of app {app.app_id!r}", "topics", known)


async def facts_of(cluster: Cluster, app: App[Any], name: str) -> TopicFacts:
    """Describe a topic, or raise UsageError: the cluster does not have it."""
    from snapreplay.service.topics.requirements import missing_topic

    found = (await cluster.topics([name])).get(name)
    if found is None and name == names.dead_letters_topic(
        app.app_id
    ):  # it exists only with `errors.policy=dead_letter`
        raise UsageError(f"app {app.app_id!r} has no dead letters: there is no topic {name!r}")
    if found is None:
        raise await missing_topic(cluster, app, name)
    return found


def _unknown(name: str, what: str, kind: str, known: Iterable[str]) -> UsageError:
    listed = list(known)
    near = difflib.get_close_matches(name, listed, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    return UsageError(f"{name!r} {what}", hint=f"{meant}its {kind}: {', '.join(listed)}")
