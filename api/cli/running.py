"""The short way of `snapreplay run`, past the command tree: to import its library takes longer than the recovery of a
small state. Whatever is not plain here, also a wrong option and `--help`, is left to the tree."""

from __future__ import annotations

import logging
import os
import sys
import threading
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from snapreplay.api.cli.logs import LogFormat, Verbosity, configure, is_json
from snapreplay.errors import SnapreplayError, UsageError

if TYPE_CHECKING:
    from snapreplay.api.server import HttpServer
    from snapreplay.app.app import App
    from snapreplay.service.config.settings import Settings
    from snapreplay.service.control.address import Address
    from snapreplay.service.decisions.first_start import FirstStart

log = logging.getLogger("snapreplay.http")

STANDARD_ERROR = 2
INTERRUPTED = 130
"""The exit code after Ctrl-C, as of every other command."""


class _NotPlain(Exception):
    """The command tree has to look at it."""


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _NotPlain(message)


def plain_run(arguments: Sequence[str]) -> Namespace | None:
    """Return what `run` is called with; None: it is another command, or the tree has to look at it."""
    if arguments[:1] != ["run"] or "--" in arguments:
        return None
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("app")
    parser.add_argument("--init", action="store_true")
    parser.add_argument("--from", dest="start", choices=["earliest", "latest"])
    parser.add_argument("--wait", action=BooleanOptionalAction, default=True)
    parser.add_argument("--bootstrap-servers")
    parser.add_argument("--http-port", type=int)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--set", dest="overrides", action="append")
    parser.add_argument("--log-level", type=Verbosity, default=Verbosity.INFO)
    parser.add_argument("--log-format", type=LogFormat, default=LogFormat.TEXT)
    try:
        return parser.parse_args(arguments[1:])
    except _NotPlain:
        return None


def run_plainly(given: Namespace) -> int:
    """Run; return the exit code. An error of ours is printed as the tree does."""
    try:
        from snapreplay.app.load import load_app

        app = load_app(given.app)
        settings = settings_from(given.config, given.overrides, given.bootstrap_servers, given.http_port)
        log = (given.log_level, given.log_format)
        begin = first_start(init=given.init, start=given.start, wait=given.wait)
        try:
            return run_app(app, settings, *log, begin)
        except SnapreplayError as error:
            from snapreplay.service.config.typed import addressed

            error.hint = addressed(error.hint, settings)
            raise
    except SnapreplayError as error:
        from snapreplay.api.cli.exits import code_of, hint_of
        from snapreplay.api.cli.output import print_error

        print_error(error.message, hint_of(error))
        return code_of(error)
    except KeyboardInterrupt:  # before there are signals that stop it gracefully
        print("Aborted.", file=sys.stderr)
        return INTERRUPTED


def run_app(app: App[Any], settings: Settings, log_level: Verbosity, log_format: LogFormat, begin: FirstStart) -> int:
    from snapreplay.service.config.typed import addressed

    configure(log_level, log_format, app.app_id, partial(addressed, settings=settings, with_port=True))
    from snapreplay.service.program import run

    return run(app, settings, http=announced_http(), first_start=begin)


def settings_from(
    config: Path | None, overrides: list[str] | None, bootstrap_servers: str | None = None, http_port: int | None = None
) -> Settings:
    """Merge command line over environment over file over defaults; an option of its own wins over `--set`.
    Raise UsageError: `--set` without "=", or settings that are wrong."""
    from snapreplay.service.config.settings import load_settings

    given: dict[str, object] = dict(_split(each) for each in overrides or ())
    if bootstrap_servers is not None:
        given["kafka.bootstrap.servers"] = bootstrap_servers
    if http_port is not None:
        given["http.port"] = http_port
    return load_settings(given, config)


def _split(override: str) -> tuple[str, str]:
    name, equals, value = override.partition("=")
    if not equals or not name.strip():
        raise UsageError(
            f"--set {override!r} is not NAME=VALUE", hint="write it as in `--set kafka.security.protocol=SSL`"
        )
    return name.strip(), value


def first_start(*, init: bool, start: Literal["earliest", "latest"] | None, wait: bool) -> FirstStart:
    if start is not None and not init:
        raise UsageError(
            f"--from {start} says where a new app begins, but without --init `run` begins none",
            hint="add `--init`; an app that has begun goes on where it stands",
        )
    if init:
        return start or "earliest"
    return "wait" if wait else "refuse"


def announced_http() -> HttpServer:
    """Print its URL when it is bound."""
    from snapreplay.api.server import HttpServer

    return HttpServer(on_bound=_announce)


def _announce(address: Address) -> None:
    """Announce the address in a thread: whoever reads standard error may have stopped, and the service does not
    wait for that. Not by `sys.stderr`: its lock, held by a thread that waits, would end the interpreter with a
    crash."""
    line = f"HTTP API: {address.url}  (/restore-status, /metrics, /openapi.json)\n"
    if is_json():
        log.info("%s", line.rstrip())
        return
    written = threading.Thread(target=_written, args=(line.encode(),), daemon=True)
    written.start()


def _written(line: bytes) -> None:
    with suppress(OSError):
        os.write(STANDARD_ERROR, line)
