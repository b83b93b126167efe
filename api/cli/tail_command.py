"""`snapreplay tail`: the committed records of one of the app's topics, readable."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from snapreplay.api.cli.exits import ExitCode
from snapreplay.api.cli.feed_command import TopicName
from snapreplay.api.cli.options import (
    DEVELOP,
    AppName,
    BootstrapServers,
    Config,
    Output,
    Overrides,
    settings_from,
)
from snapreplay.api.cli.output import Format, print_json

if TYPE_CHECKING:
    from snapreplay.app.app import App
    from snapreplay.app.record import InputRecord
    from snapreplay.service.config.settings import Settings
    from snapreplay.service.ports import Reader, TopicPartition

Records = AsyncGenerator[Iterable["InputRecord"], None]
POLL_RECORDS = 500
POLL_MS = 200


def register(app: typer.Typer) -> None:
    app.command("tail", rich_help_panel=DEVELOP)(tail)


def tail(
    app: AppName,
    topic: TopicName,
    *,
    count: Annotated[
        int, typer.Option("-n", "--lines", min=0, help="Number of records from each partition.")
    ] = 10,
    start: Annotated[
        Literal["earliest"] | None,
        typer.Option("--from", help="Begin at the start of the log."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Also print what is written later, until Ctrl-C.")
    ] = False,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Only this partition.")
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    config: Config = None,
    overrides: Overrides = None,
    output: Output = Format.TABLE,
) -> None:
    """Print the last committed records of a topic of the app, decoded.

    TOPIC is an input, an output, or one of increments, snapshots and dead-letters."""
    import asyncio

    from snapreplay.api.cli.topics_of import readable_of
    from snapreplay.app.load import load_app

    program = load_app(app)
    name = readable_of(program, topic)
    settings = settings_from(config, overrides, bootstrap_servers)
    records = _records(program, settings, name, partition, None if start else count, follow=follow)
    try:
        asyncio.run(_print(program, records, output))
    except BrokenPipeError as error:  # `| head` has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(ExitCode.OK) from error


async def _print(app: App[Any], records: Records, output: Format) -> None:
    from snapreplay.api.cli.shown_records import Shower

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
    app: App[Any],
    settings: Settings,
    name: str,
    partition: int | None,
    count: int | None,
    *,
    follow: bool,
) -> Records:
    """`count` None: all."""
    from snapreplay.api.cli.topics_of import facts_of
    from snapreplay.errors import UsageError
    from snapreplay.service.kafka.cluster import KafkaCluster
    from snapreplay.service.ports import TopicPartition
    from snapreplay.service.topics.newest import newest
    from snapreplay.service.topics.reading import reading

    cluster = KafkaCluster(settings)
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
