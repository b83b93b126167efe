"""Options that mean the same in every command, and what is made of them: app, settings, client."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from snapreplay.api.cli.logs import LogFormat, Verbosity
from snapreplay.api.cli.output import Format
from snapreplay.api.cli.running import settings_from
from snapreplay.errors import SnapreplayError, UsageError

if TYPE_CHECKING:
    from ssl import SSLContext

    from snapreplay.api.cli.client import Client
    from snapreplay.app.app import App
    from snapreplay.service.config.settings import Settings

AppName = Annotated[
    str,
    typer.Argument(metavar="APP", help="module:app, path/to/file.py or path/to/file.py:app. Default attribute: app."),
]
AppOrId = Annotated[str | None, typer.Argument(metavar="[APP]", help="module:app or path/to/file.py; or use --app-id.")]
AppIfNamed = Annotated[
    str | None,
    typer.Argument(metavar="[APP]", help="module:app or path/to/file.py. Without it, only the cluster is examined."),
]
Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings file. Default: snapreplay.toml, if it exists.")
]
BootstrapServers = Annotated[
    str | None, typer.Option("--bootstrap-servers", metavar="HOST:PORT,...", help="The Kafka cluster.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting, such as kafka.security.protocol=SSL; repeatable."),
]
HttpPort = Annotated[
    int | None, typer.Option("--http-port", metavar="PORT", help="Port of the HTTP API; 0 picks a free one.")
]
LogLevel = Annotated[Verbosity, typer.Option("--log-level", help="The lowest level in the log on standard error.")]
LogForm = Annotated[
    LogFormat, typer.Option("--log-format", help="The form of the log: text, or JSON, one object a line.")
]
Output = Annotated[Format, typer.Option("--output", "-o", help="How to print the result.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done; write nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before it is done.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; the log keeps it.")]
Url = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="URL of the running service. Default: http.host and http.port of the settings."
    ),
]
AskedPort = Annotated[
    int | None,
    typer.Option(
        "--http-port",
        metavar="PORT",
        min=1,
        max=65535,
        help="Port of the running service, instead of http.port of the settings.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file", metavar="FILE", help="File with the service's token. Default: http.token_file of the settings."
    ),
]
Master = Annotated[str | None, typer.Option("--master", metavar="URL", help="Spark cluster. Default: this process.")]


def app_id_of(command: str, app: str | None, app_id: str | None) -> str:
    """Return the app id of a job that takes an app or an app id, or raise UsageError: both or neither are given, or the
    app cannot be loaded."""
    if (app is None) == (app_id is None):
        raise UsageError(
            f"{command} needs either an app or an app id",
            hint=f"run `snapreplay {command} module:app` or `snapreplay {command} --app-id NAME`",
        )
    if app_id is not None:
        return app_id
    from snapreplay.app.load import load_app

    return load_app(str(app)).app_id


def service_url(url: str | None, http_port: int | None, config: Path | None) -> str:
    """Return the URL of a running service, without a trailing slash, or raise UsageError: it is not an http(s) URL,
    both URL and port are given, or the settings leave the port open."""
    if url is None:
        return _url_of(settings_from(config, None, http_port=http_port))
    if http_port is not None:
        raise UsageError(
            f"--url {url} and --http-port {http_port} both say where the service is", hint="give only one of them"
        )
    wrong = _wrong_with(url)
    if wrong:
        raise UsageError(f"--url {url!r} {wrong}", hint="write it as in `--url http://127.0.0.1:8080`")
    return url.rstrip("/")


def _wrong_with(url: str) -> str:
    """Say why nothing can be asked there; empty if it can."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"is not a URL: {error}"
    if parts.scheme not in {"http", "https"}:
        return "is not a URL that begins with http:// or https://"
    if not parts.hostname:
        return "names no host"
    if port == 0:
        return "has port 0, which no service listens on"
    if parts.query or parts.fragment:
        return "has something behind the address"
    return ""


def _url_of(settings: Settings) -> str:
    from snapreplay.service.control.address import address

    if settings.http.port == 0:
        raise UsageError(
            "http.port is 0 in the settings, so the service has picked a free port",
            hint="give what it printed at start: the port with --http-port, or the address with --url",
        )
    return address(settings.http, settings.http.host, settings.http.port).url


class Made:
    """Says of which options an argument of a command's function is made. All of them are None unless they are
    `required`."""

    def __init__(self, make: Callable[..., object], *, required: bool = False, **options: object) -> None:
        default = Parameter.empty if required else None
        self.options = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=option)
            for name, option in options.items()
        ]
        self.make = make


def _app(app: str | None) -> App[Any] | None:
    from snapreplay.app.load import load_app

    return None if app is None else load_app(app)


def _client(url: str | None, http_port: int | None, config: Path | None, token_file: Path | None) -> Client:
    from snapreplay.api.cli.client import Client
    from snapreplay.api.tokens import authorization

    asked = service_url(url, http_port, config)
    named = token_file or settings_from(config, None).http.token_file
    token = _token_in(Path(named)) if named else ""
    is_given = (url, http_port, config) != (None, None, None)
    return Client(asked, authorization(token) if token else None, _context(asked, config), is_given=is_given)


def _token_in(path: Path) -> str:
    from snapreplay.api.tokens import sent, tokens_in

    hint = "name a file with a token of the service: `--token-file FILE`"
    try:
        token = sent(tokens_in(path))
    except UsageError as error:
        error.hint = hint  # a new token, as for a service that is to be started, would not be known there
        raise
    if not token:
        raise UsageError(f"{path} holds only hashes of tokens", hint=hint)
    return token


def _prober(url: str | None, http_port: int | None, config: Path | None) -> Client:
    from snapreplay.api.cli.client import Client

    asked = service_url(url, http_port, config)
    return Client(asked, context=_context(asked, config))  # a probe needs no token


def _context(url: str, config: Path | None) -> SSLContext | None:
    """Make what https takes of the settings; None: nothing."""
    from snapreplay.api.tls import TlsFiles

    if not url.startswith("https:"):
        return None
    files = TlsFiles.of(settings_from(config, None).http)
    return files.client()() if files.ca or files.certificate else None


_CLUSTER = {"bootstrap_servers": BootstrapServers}
_SETTINGS = {"config": Config, "overrides": Overrides}

Loaded = Annotated["App[Any]", Made(_app, required=True, app=AppName)]
LoadedIfNamed = Annotated["App[Any] | None", Made(_app, app=AppIfNamed)]
OfCluster = Annotated["Settings", Made(settings_from, **_CLUSTER, **_SETTINGS)]
OfService = Annotated["Settings", Made(settings_from, **_CLUSTER, http_port=HttpPort, **_SETTINGS)]
Probed = Annotated["Client", Made(_prober, url=Url, http_port=AskedPort, config=Config)]
Running = Annotated["Client", Made(_client, url=Url, http_port=AskedPort, config=Config, token_file=TokenFile)]


def _with_address(error: SnapreplayError, given: Iterable[object]) -> None:
    """Give the commands in the hint the options with which this command reached its cluster."""
    from snapreplay.service.config.settings import Settings
    from snapreplay.service.config.typed import addressed

    for settings in given:
        if isinstance(settings, Settings):
            error.hint = addressed(error.hint, settings)


def as_typed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command's function as typer calls it: with options in place of what is made of them. A coroutine is
    run.

    The app is loaded before the function imports the Kafka client: a wrong name is answered at once.
    """
    made: dict[str, Made] = {}
    taken: list[Parameter] = []
    for each in inspect.signature(function, eval_str=True).parameters.values():
        match getattr(each.annotation, "__metadata__", ()):
            case (Made() as recipe,):
                made[each.name] = recipe
                taken += recipe.options
            case _:
                taken.append(each.replace(kind=Parameter.KEYWORD_ONLY))

    def call(**given: Any) -> None:
        for name, recipe in made.items():
            given[name] = recipe.make(**{each.name: given.pop(each.name) for each in recipe.options})
        try:
            done = function(**given)
            if isinstance(done, Coroutine):
                asyncio.run(done)
        except SnapreplayError as error:
            _with_address(error, given.values())
            raise

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    call.__annotations__ = {each.name: each.annotation for each in taken}
    call.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]  # a function has none for mypy; typer reads it
    return call
