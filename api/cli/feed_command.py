"""`snapreplay feed`: JSON lines into an input topic, all of them or none."""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snapreplay.api.cli.options import (
    DEVELOP,
    AppName,
    BootstrapServers,
    Config,
    Output,
    Overrides,
    settings_from,
)
from snapreplay.api.cli.output import Format, note, print_json
from snapreplay.counted import counted

if TYPE_CHECKING:
    from snapreplay.app.app import App
    from snapreplay.app.topic import Topic
    from snapreplay.service.config.settings import Settings
    from snapreplay.service.ports import TopicPartition

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="One of the app's topics.")]


def register(app: typer.Typer) -> None:
    app.command("feed", rich_help_panel=DEVELOP)(feed)


def feed(
    app: AppName,
    topic: TopicName,
    *,
    bootstrap_servers: BootstrapServers = None,
    config: Config = None,
    overrides: Overrides = None,
    output: Output = Format.TABLE,
) -> None:
    """Write JSON lines from standard input to an input topic, all of them or none.

    A line is {"key": …, "value": …, "timestamp_ms": …, "headers": {…}, "partition": …}; only value is required. The
    codecs of the topic encode key and value."""
    import asyncio

    from snapreplay.api.cli.topics_of import input_of
    from snapreplay.app.load import load_app

    program = load_app(app)
    target = input_of(program, topic)
    settings = settings_from(config, overrides, bootstrap_servers)
    if sys.stdin.isatty():
        note("reading JSON lines until Ctrl-D")
    places = asyncio.run(_feed(program, settings, target, sys.stdin.buffer.readlines()))
    _print(target.name, places, output)


async def _feed(
    app: App[Any], settings: Settings, topic: Topic[Any, Any], lines: list[bytes]
) -> list[tuple[TopicPartition, int]]:
    import uuid

    from snapreplay.api.cli.json_records import records_of
    from snapreplay.api.cli.topics_of import facts_of
    from snapreplay.app.out import DEFAULT_LIMIT_BYTES
    from snapreplay.service.kafka.cluster import KafkaCluster
    from snapreplay.service.kafka.feeding import KafkaFeeder

    facts = await facts_of(KafkaCluster(settings), app, topic.name)
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


def _print(topic: str, places: list[tuple[TopicPartition, int]], output: Format) -> None:
    offsets: dict[int, list[int]] = defaultdict(list)
    for place, offset in places:
        offsets[place.partition].append(offset)
    ranges = {number: (min(some), max(some) + 1) for number, some in sorted(offsets.items())}
    if output is Format.JSON:
        partitions = [
            {"partition": number, "from_offset": first, "to_offset": end}
            for number, (first, end) in ranges.items()
        ]
        print_json({"topic": topic, "records": len(places), "partitions": partitions})
        return
    listed = ", ".join(
        f"partition {number} from offset {first} to {end}"
        for number, (first, end) in ranges.items()
    )
    print(f"fed {counted(len(places), 'record')} to {topic}" + (f": {listed}" if listed else ""))
