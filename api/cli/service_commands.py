"""Commands around the service itself: run, dev, init, topics ensure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from snapreplay.api.cli.logs import Level, configure
from snapreplay.api.cli.options import (
    AppName,
    BootstrapServers,
    Config,
    HttpPort,
    LogLevel,
    Output,
    Overrides,
    settings_from,
)
from snapreplay.api.cli.output import Format, note, print_json

if TYPE_CHECKING:
    from snapreplay.api.server import HttpServer


def register(app: typer.Typer) -> None:
    app.command("run")(run)
    app.command("dev")(dev)
    app.command("init")(init)
    topics = typer.Typer(help="The topics of an app.", no_args_is_help=True)
    topics.command("ensure")(topics_ensure)
    app.add_typer(topics, name="topics")


def run(
    app: AppName,
    *,
    bootstrap_servers: BootstrapServers = None,
    http_port: HttpPort = None,
    config: Config = None,
    overrides: Overrides = None,
    log_level: LogLevel = Level.INFO,
) -> None:
    """Run an app against a Kafka cluster until SIGTERM or Ctrl-C: what the container runs."""
    from snapreplay.snapshots.program.load import load_app

    program = load_app(app)
    settings = settings_from(config, overrides, bootstrap_servers, http_port)
    # After the app was loaded: a wrong name is answered before the Kafka client is imported.
    from snapreplay.service.embed import run as run_service

    configure(log_level)
    raise typer.Exit(run_service(program, settings, http=_http()))


def _http() -> HttpServer:
    from snapreplay.api.server import HttpServer

    return HttpServer(
        on_bound=lambda address: note(
            f"HTTP API: {address.url}  (/restore-status, /metrics, /openapi.json)"
        )
    )


def dev(
    app: AppName,
    *,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, max=1000, help="Of the input topics it creates.")
    ] = 4,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", metavar="DIR", help="Keep the topics there; default: forget."),
    ] = None,
    http_port: HttpPort = None,
    config: Config = None,
    overrides: Overrides = None,
    log_level: LogLevel = Level.INFO,
) -> None:
    """Local broker, topics, service and HTTP API in one, until Ctrl-C: to write one's own app."""
    from snapreplay.api.cli.dev import run_dev
    from snapreplay.snapshots.program.load import load_app

    program = load_app(app)
    settings = settings_from(config, overrides, None, http_port)
    configure(log_level)
    raise typer.Exit(run_dev(program, settings, partitions, data_dir, _http()))


def init(
    app: AppName,
    *,
    start: Annotated[
        Literal["earliest", "latest"],
        typer.Option("--from", help="Where to begin in the input topics."),
    ] = "earliest",
    bootstrap_servers: BootstrapServers = None,
    config: Config = None,
    overrides: Overrides = None,
    output: Output = Format.TABLE,
) -> None:
    """Write the genesis of a new app: batch 0 of each partition, once."""
    import asyncio

    from snapreplay.service.genesis import init_app
    from snapreplay.service.kafka.cluster import KafkaCluster
    from snapreplay.snapshots.program.load import load_app

    program = load_app(app)
    settings = settings_from(config, overrides, bootstrap_servers)
    done = init_app(program, settings, KafkaCluster(settings), start)
    _print_lines(asyncio.run(done), output)


def topics_ensure(
    app: AppName,
    *,
    bootstrap_servers: BootstrapServers = None,
    config: Config = None,
    overrides: Overrides = None,
    output: Output = Format.TABLE,
) -> None:
    """Create the app's own topics if all of them are absent, check them otherwise."""
    import asyncio

    from snapreplay.service.kafka.cluster import KafkaCluster
    from snapreplay.service.topics import ensure_topics
    from snapreplay.snapshots.program.load import load_app

    program = load_app(app)
    settings = settings_from(config, overrides, bootstrap_servers)
    _print_lines(asyncio.run(ensure_topics(program, settings, KafkaCluster(settings))), output)


def _print_lines(lines: list[str], output: Format) -> None:
    if output is Format.JSON:
        print_json({"done": lines})
    else:
        print("\n".join(lines))
