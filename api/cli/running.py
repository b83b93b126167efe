"""The commands that bring an app into service: topics ensure, init, run.

`run` has a short way past the command tree, because to import the library of the tree takes longer than the recovery
of a small state. What is not plain, also a wrong option and `--help`, is left to the tree."""

from __future__ import annotations

import logging
import os
import sys
import threading
from argparse import ArgumentParser, BooleanOptionalAction
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args, get_origin

from snapreplay.api.cli import options
from snapreplay.api.cli.logs import LogFormat, Verbosity, configure, is_json
from snapreplay.api.cli.options import Argument, Option, carry_out, cluster_of, options_of
from snapreplay.api.cli.output import Format, code_of, hint_of, print_error, print_json
from snapreplay.errors import SnapreplayError, UsageError

if TYPE_CHECKING:
    from snapreplay.api.server import HttpServer
    from snapreplay.app.app import App
    from snapreplay.service.config.settings import Settings
    from snapreplay.service.control.protocol import Address
    from snapreplay.service.decisions.first_start import FirstStart
    from snapreplay.service.kafka.cluster import KafkaCluster

log = logging.getLogger("snapreplay.http")

STANDARD_ERROR = 2
INTERRUPTED = 130
"""The exit code after Ctrl-C, as of every other command."""


def run(
    apps: options.AllLoaded,
    *,
    init: options.Init = False,
    start: options.FirstOffsets = None,
    wait: options.WaitForInit = True,
    settings: options.OfService,
    log_level: options.LogLevel = Verbosity.INFO,
    log_format: options.LogForm = LogFormat.TEXT,
) -> int:
    """Run one app or several against a Kafka cluster until SIGTERM or Ctrl-C. This is what the container runs."""
    begin = first_start(init=init, start=start, wait=wait)
    return run_apps(apps, settings, log_level, log_format, begin)


class _NotPlain(Exception):
    """The command tree has to look at it."""


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _NotPlain(message)


def plain_run(words: Sequence[str]) -> dict[str, Any] | None:
    """Return the values of the options of `run`; None: it is another command, or the tree has to look at it."""
    if words[:1] != ["run"] or "--" in words:
        return None
    parser = _Parser(add_help=False, allow_abbrev=False)
    for each in options_of(run):
        kind, option = each.annotation.__origin__, each.annotation.__metadata__[0]
        if isinstance(option, Argument):
            parser.add_argument(each.name, nargs="+" if get_origin(kind) is list else None)
        else:
            name, *_ = option.names.partition("/")
            parser.add_argument(name, dest=each.name, default=each.default, **_parsed(kind, option))
    try:
        return vars(parser.parse_args(words[1:]))
    except _NotPlain:
        return None


def _parsed(kind: Any, option: Option) -> dict[str, Any]:
    """Return how argparse takes values of this type."""
    if kind is bool:
        return {"action": BooleanOptionalAction if "/" in option.names else "store_true"}
    if NoneType in get_args(kind):
        kind = next(each for each in get_args(kind) if each is not NoneType)
    if get_origin(kind) is Literal:
        return {"choices": get_args(kind)}
    if get_origin(kind) is list:
        return {"action": "append", "type": get_args(kind)[0]}
    return {"type": kind}


def run_plainly(given: Mapping[str, Any]) -> int:
    """Run; return the exit code. A SnapreplayError is printed as the tree does."""
    try:
        return carry_out(run, given)
    except SnapreplayError as error:
        print_error(error.message, hint_of(error))
        return code_of(error)
    except KeyboardInterrupt:  # before there are signals that stop it gracefully
        print("Aborted.", file=sys.stderr)
        return INTERRUPTED


def run_apps(
    apps: Sequence[App[Any]], settings: Settings, log_level: Verbosity, log_format: LogFormat, begin: FirstStart
) -> int:
    configure(log_level, log_format, apps[0].app_id if len(apps) == 1 else "")
    from snapreplay.service.program import run

    return run(apps, settings, http=announced_http(apps), first_start=begin)


def first_start(*, init: bool, start: Literal["earliest", "latest"] | None, wait: bool) -> FirstStart:
    if start is not None and not init:
        raise UsageError(
            f"--from {start} says where a new app begins, but `run` initialises an app only with --init",
            hint="add `--init`; an app that has begun resumes where it stopped",
        )
    if init:
        return start or "earliest"
    return "wait" if wait else "refuse"


def announced_http(apps: Sequence[App[Any]]) -> HttpServer:
    """Print its URL when it is bound."""
    from snapreplay.api.server import APPS, HttpServer

    paths = ["/restore-status", "/metrics", "/openapi.json"]
    if len(apps) > 1:
        paths = [*(f"{APPS}{each.app_id}/" for each in apps), "/metrics"]
    return HttpServer(on_bound=partial(_announce, paths))


def _announce(paths: Sequence[str], address: Address) -> None:
    """Announce the address in a thread: the reader of standard error may have stopped, and the service does not
    wait for that. Not by `sys.stderr`: its lock, held by a thread that waits, would end the interpreter with a
    crash."""
    line = f"HTTP API: {address.url}  ({', '.join(paths)})\n"
    if is_json():
        log.info("%s", line.rstrip())
        return
    written = threading.Thread(target=_written, args=(line.encode(),), daemon=True)
    written.start()


def _written(line: bytes) -> None:
    with suppress(OSError):
        os.write(STANDARD_ERROR, line)


async def init(
    apps: options.AllLoaded,
    *,
    start: options.InitFrom = None,
    state_of: options.StateOf = None,
    savepoint: options.OfSavepoint = None,
    state_is_lost: options.StateIsLost = False,
    settings: options.OfCluster,
    output: options.Output = Format.TABLE,
) -> None:
    """Write the genesis of new apps, once for each partition: empty, or with the state of another app."""
    from snapreplay.service.decisions.init import init_app, init_with_state

    cluster = cluster_of(settings)
    if savepoint is not None:
        state_of = await _savepoint_id(state_of, savepoint, cluster)
    if state_of is not None:
        if len(apps) > 1:
            raise UsageError(
                f"--state-of {state_of} initialises one app, but {len(apps)} are named", hint="run `init` for each app"
            )
        done = init_with_state(apps[0], settings, cluster, state_of, start or "positions", state_is_lost=state_is_lost)
    elif start == "positions":
        raise UsageError(
            "--from positions needs an app whose positions to take",
            hint="name the app whose state is taken over with `--state-of APP_ID`",
        )
    else:
        begin = start or "earliest"
        done = of_each(apps, lambda app: init_app(app, settings, cluster, begin, state_is_lost=state_is_lost))
    _print_lines(await done, output)


async def of_each(apps: Sequence[App[Any]], done: Callable[[App[Any]], Awaitable[list[str]]]) -> list[str]:
    """Do this for one app after the other, and return all lines; of several apps each line names its app."""
    return [f"{app.app_id}: {line}" if len(apps) > 1 else line for app in apps for line in await done(app)]


async def _savepoint_id(app_id: str | None, name: str, cluster: KafkaCluster) -> str:
    from snapreplay.app.names import savepoint_id
    from snapreplay.service.decisions.savepoints import usable

    if app_id is None:
        raise UsageError(
            f"--savepoint {name} needs the app that it is of", hint=f"`--state-of APP_ID --savepoint {name}`"
        )
    await usable(app_id, name, cluster)
    return savepoint_id(app_id, name)


async def ensure(
    apps: options.AllLoaded,
    *,
    partitions: options.CreateInputs = None,
    replace_lost: options.ReplaceLost = False,
    settings: options.OfCluster,
    output: options.Output = Format.TABLE,
) -> None:
    """Create each app's own topics if none of them exists, otherwise check them."""
    from snapreplay.service.topics.requirements import ensure_topics

    cluster = cluster_of(settings)
    done = of_each(
        apps,
        lambda app: ensure_topics(app, settings, cluster, create_io_partitions=partitions, replace_lost=replace_lost),
    )
    _print_lines(await done, output)


def _print_lines(lines: list[str], output: Format) -> None:
    if output is Format.JSON:
        print_json({"done": lines})
    else:
        print("\n".join(lines))
