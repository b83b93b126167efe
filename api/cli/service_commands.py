"""Commands that bring an app into service: topics ensure, init, run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from snapreplay.api.cli.logs import Level, configure
from snapreplay.api.cli.options import (
    RUN,
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
from snapreplay.errors import UsageError

if TYPE_CHECKING:
    from snapreplay.api.server import HttpServer
    from snapreplay.service.decisions.first_start import FirstStart


def register(app: typer.Typer) -> None:
    topics = typer.Typer(
        help="`topics ensure`: create or check the topics of an app.", no_args_is_help=True
    )
    topics.command("ensure")(topics_ensure)
    app.add_typer(topics, name="topics", rich_help_panel=RUN)
    app.command("init", rich_help_panel=RUN)(init)
    app.command("run", rich_help_panel=RUN)(run)


def run(
    app: AppName,
    *,
    init: Annotated[
        bool,
        typer.Option(
            "--init",
            help="Begin a new app as `topics ensure` and `init` do, then run it. An app that ran before is left alone.",
        ),
    ] = False,
    start: Annotated[
        Literal["earliest", "latest"] | None,
        typer.Option(
            "--from", help="With --init: where to begin in the inputs. Default: earliest."
        ),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--no-wait",
            help="If the app has no genesis: wait for `init`, or end with exit code 4.",
        ),
    ] = True,
    bootstrap_servers: BootstrapServers = None,
    http_port: HttpPort = None,
    config: Config = None,
    overrides: Overrides = None,
    log_level: LogLevel = Level.INFO,
) -> None:
    """Run an app against a Kafka cluster until SIGTERM or Ctrl-C. This is what the container runs."""
    from snapreplay.app.load import load_app

    first_start = _first_start(init=init, start=start, wait=wait)
    program = load_app(app)
    settings = settings_from(config, overrides, bootstrap_servers, http_port)
    # After the app was loaded: a wrong name is answered before the Kafka client is imported.
    from snapreplay.service.program import run as run_service

    configure(log_level)
    raise typer.Exit(run_service(program, settings, http=announced_http(), first_start=first_start))


def _first_start(
    *, init: bool, start: Literal["earliest", "latest"] | None, wait: bool
) -> FirstStart:
    if start is not None and not init:
        raise UsageError(
            f"--from {start} says where a new app begins, but without --init `run` begins none",
            hint="add `--init`; an app that has begun goes on where it stands",
        )
    if init:
        return start or "earliest"
    return "wait" if wait else "refuse"


def announced_http() -> HttpServer:
    """Prints its URL when it is bound."""
    from snapreplay.api.server import HttpServer

    return HttpServer(
        on_bound=lambda address: note(
            f"HTTP API: {address.url}  (/restore-status, /metrics, /openapi.json)"
        )
    )


StateOf = Annotated[
    str | None,
    typer.Option(
        "--state-of",
        metavar="APP_ID",
        help="Begin with the state of another app of this cluster, after its last committed batch.",
    ),
]
StateIsLost = Annotated[
    bool,
    typer.Option(
        "--state-is-lost",
        help="Also initialise an app that has run and lost its state. Refused while a process is a member of its"
        " group.",
    ),
]


def init(
    app: AppName,
    *,
    start: Annotated[
        Literal["earliest", "latest", "positions"] | None,
        typer.Option(
            "--from",
            help="Where to begin in the inputs: earliest (default) or latest. With --state-of also positions (then the"
            " default): the next records of that app.",
        ),
    ] = None,
    state_of: StateOf = None,
    state_is_lost: StateIsLost = False,
    bootstrap_servers: BootstrapServers = None,
    config: Config = None,
    overrides: Overrides = None,
    output: Output = Format.TABLE,
) -> None:
    """Write the genesis of a new app, once for each partition: empty, or with the state of another app."""
    import asyncio

    from snapreplay.app.load import load_app
    from snapreplay.service.decisions.init import init_app, init_with_state
    from snapreplay.service.kafka.cluster import KafkaCluster

    program = load_app(app)
    settings = settings_from(config, overrides, bootstrap_servers)
    cluster = KafkaCluster(settings)
    if state_of is not None:
        done = init_with_state(
            program, settings, cluster, state_of, start or "positions", state_is_lost=state_is_lost
        )
    elif start == "positions":
        raise UsageError(
            "--from positions needs an app whose positions to take",
            hint="name the app whose state is taken over with `--state-of APP_ID`",
        )
    else:
        done = init_app(
            program, settings, cluster, start or "earliest", state_is_lost=state_is_lost
        )
    _print_lines(asyncio.run(done), output)


def topics_ensure(
    app: AppName,
    *,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "--create-inputs",
            min=1,
            help="Also create missing inputs and outputs, with this number of partitions.",
        ),
    ] = None,
    replace_lost: Annotated[
        bool,
        typer.Option(
            "--replace-lost",
            help="Create the increments or the snapshots topic, empty, although the other one exists.",
        ),
    ] = False,
    bootstrap_servers: BootstrapServers = None,
    config: Config = None,
    overrides: Overrides = None,
    output: Output = Format.TABLE,
) -> None:
    """Create the app's own topics if all of them are absent, otherwise check them."""
    import asyncio

    from snapreplay.app.load import load_app
    from snapreplay.service.kafka.cluster import KafkaCluster
    from snapreplay.service.topics.requirements import ensure_topics

    program = load_app(app)
    settings = settings_from(config, overrides, bootstrap_servers)
    done = ensure_topics(
        program,
        settings,
        KafkaCluster(settings),
        create_io_partitions=partitions,
        replace_lost=replace_lost,
    )
    _print_lines(asyncio.run(done), output)


def _print_lines(lines: list[str], output: Format) -> None:
    if output is Format.JSON:
        print_json({"done": lines})
    else:
        print("\n".join(lines))
