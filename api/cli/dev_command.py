"""The options of `snapreplay dev`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from snapreplay.api.cli.logs import Verbosity, configure
from snapreplay.api.cli.options import AppName, Config, HttpPort, LogLevel, Overrides, settings_from
from snapreplay.api.cli.service_commands import announced_http

Partitions = Annotated[
    int,
    typer.Option(
        "--partitions", min=1, max=1000, help="Partitions of the topics that are created."
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Keep topics and state there. Default: a temporary directory.",
    ),
]
KafkaPort = Annotated[
    int,
    typer.Option(
        "--kafka-port",
        metavar="PORT",
        min=0,
        max=65535,
        help="Port of the local broker. Default: the last one of --data-dir, or a free one.",
    ),
]
Reload = Annotated[
    bool,
    typer.Option(
        "--reload", help="Start the service again, with its state, when its code changes."
    ),
]
OnBroker = Annotated[str | None, typer.Option("--on-broker", hidden=True)]


def dev(
    app: AppName,
    *,
    partitions: Partitions = 4,
    data_dir: DataDir = None,
    kafka_port: KafkaPort = 0,
    reload: Reload = False,
    on_broker: OnBroker = None,
    http_port: HttpPort = None,
    config: Config = None,
    overrides: Overrides = None,
    log_level: LogLevel = Verbosity.INFO,
) -> None:
    """Run an app with a local broker and its topics, until Ctrl-C."""
    from snapreplay.api.cli import dev as local
    from snapreplay.app.load import load_app

    if reload:
        from snapreplay.api.cli.dev import serving

        # What is wrong with the settings no change of the code repairs: it is refused here.
        settings_from(config, overrides, None, http_port)
        options = _options(partitions, http_port, config, overrides, log_level)
        raise typer.Exit(local.run_dev(data_dir, kafka_port, serving(app, options)))
    program = load_app(app)
    settings = settings_from(config, overrides, None, http_port)
    configure(log_level)

    def serve(servers: str) -> int:
        return local.serve_app(program, settings, servers, partitions, announced_http())

    if on_broker is not None:
        local.end_with_parent()
        raise typer.Exit(serve(on_broker))
    raise typer.Exit(local.run_dev(data_dir, kafka_port, serve))


def _options(
    partitions: int,
    http_port: int | None,
    config: Path | None,
    overrides: list[str] | None,
    log_level: Verbosity,
) -> list[str]:
    """Write the options for the process that `--reload` starts again and again."""
    options = ["--partitions", str(partitions), "--log-level", log_level.value]
    options += ["--http-port", str(http_port)] if http_port is not None else []
    options += ["--config", str(config)] if config is not None else []
    return options + [part for each in overrides or () for part in ("--set", each)]
