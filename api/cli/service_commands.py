"""Commands that bring an app into service: topics ensure, init, run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from snapreplay.api.cli.logs import LogFormat, Verbosity
from snapreplay.api.cli.options import Loaded, LogForm, LogLevel, OfCluster, OfService, Output
from snapreplay.api.cli.output import Format, print_json
from snapreplay.api.cli.running import first_start, run_app
from snapreplay.errors import UsageError

if TYPE_CHECKING:
    from snapreplay.service.config.settings import Settings
    from snapreplay.service.kafka.cluster import KafkaCluster


def run(
    app: Loaded,
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
        typer.Option("--from", help="With --init: where to begin in the inputs. Default: earliest."),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option("--wait/--no-wait", help="If the app has no genesis: wait for `init`, or end with exit code 4."),
    ] = True,
    settings: OfService,
    log_level: LogLevel = Verbosity.INFO,
    log_format: LogForm = LogFormat.TEXT,
) -> None:
    """Run an app against a Kafka cluster until SIGTERM or Ctrl-C. This is what the container runs."""
    begin = first_start(init=init, start=start, wait=wait)
    raise typer.Exit(run_app(app, settings, log_level, log_format, begin))


StateOf = Annotated[
    str | None,
    typer.Option(
        "--state-of",
        metavar="APP_ID",
        help="Begin with the state of another app of this cluster, after its last committed batch.",
    ),
]
OfSavepoint = Annotated[
    str | None,
    typer.Option("--savepoint", metavar="NAME", help="With --state-of: begin with this savepoint of that app."),
]
StateIsLost = Annotated[
    bool,
    typer.Option(
        "--state-is-lost",
        help="Also initialise an app that has run and lost its state. Refused while a process is a member of its"
        " group.",
    ),
]


async def init(
    app: Loaded,
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
    savepoint: OfSavepoint = None,
    state_is_lost: StateIsLost = False,
    settings: OfCluster,
    output: Output = Format.TABLE,
) -> None:
    """Write the genesis of a new app, once for each partition: empty, or with the state of another app."""
    from snapreplay.service.decisions.init import init_app, init_with_state
    from snapreplay.service.kafka.cluster import KafkaCluster

    cluster = KafkaCluster(settings)
    if savepoint is not None:
        state_of = await _savepoint_id(state_of, savepoint, settings, cluster)
    if state_of is not None:
        done = init_with_state(app, settings, cluster, state_of, start or "positions", state_is_lost=state_is_lost)
    elif start == "positions":
        raise UsageError(
            "--from positions needs an app whose positions to take",
            hint="name the app whose state is taken over with `--state-of APP_ID`",
        )
    else:
        done = init_app(app, settings, cluster, start or "earliest", state_is_lost=state_is_lost)
    _print_lines(await done, output)


async def _savepoint_id(app_id: str | None, name: str, settings: Settings, cluster: KafkaCluster) -> str:
    from snapreplay.app.names import savepoint_id
    from snapreplay.service.decisions.savepoints import usable

    if app_id is None:
        raise UsageError(
            f"--savepoint {name} needs the app that it is of", hint=f"`--state-of APP_ID --savepoint {name}`"
        )
    await usable(app_id, name, settings, cluster)
    return savepoint_id(app_id, name)


async def ensure(
    app: Loaded,
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
            "--replace-lost", help="Create the increments or the snapshots topic, empty, although the other one exists."
        ),
    ] = False,
    settings: OfCluster,
    output: Output = Format.TABLE,
) -> None:
    """Create the app's own topics if all of them are absent, otherwise check them."""
    from snapreplay.service.kafka.cluster import KafkaCluster
    from snapreplay.service.topics.requirements import ensure_topics

    done = await ensure_topics(
        app, settings, KafkaCluster(settings), create_io_partitions=partitions, replace_lost=replace_lost
    )
    _print_lines(done, output)


def _print_lines(lines: list[str], output: Format) -> None:
    if output is Format.JSON:
        print_json({"done": lines})
    else:
        print("\n".join(lines))
