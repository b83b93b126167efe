"""Options that mean the same in every command, and the settings made from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from snapreplay.api.cli.logs import Level
from snapreplay.api.cli.output import Format
from snapreplay.errors import UsageError

if TYPE_CHECKING:
    from snapreplay.service.config.settings import Settings

DEVELOP = "Develop an app"
RUN = "Run an app on a cluster"
OPERATE = "Operate a running app"
SPARK = "Prove and compact with Spark"
"""Panels of `snapreplay --help`, in the order in which a user needs them."""

AppName = Annotated[
    str,
    typer.Argument(
        metavar="APP",
        help="module:app, path/to/file.py or path/to/file.py:app. Default attribute: app.",
    ),
]
AppOrId = Annotated[
    str | None,
    typer.Argument(metavar="[APP]", help="module:app or path/to/file.py; or use --app-id."),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="Settings file. Default: snapreplay.toml, if it exists."
    ),
]
BootstrapServers = Annotated[
    str | None,
    typer.Option("--bootstrap-servers", metavar="HOST:PORT,...", help="The Kafka cluster."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any setting, such as kafka.security.protocol=SSL; repeatable.",
    ),
]
HttpPort = Annotated[
    int | None,
    typer.Option("--http-port", metavar="PORT", help="Port of the HTTP API; 0 picks a free one."),
]
LogLevel = Annotated[
    Level, typer.Option("--log-level", help="The lowest level in the log on standard error.")
]
Output = Annotated[Format, typer.Option("--output", "-o", help="How to print the result.")]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="URL of the running service. Default: http.host and http.port of the settings.",
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


def settings_from(
    config: Path | None,
    overrides: list[str] | None,
    bootstrap_servers: str | None = None,
    http_port: int | None = None,
) -> Settings:
    """Merge command line over environment over file over defaults; an option of its own wins over `--set`.

    Raises:
        UsageError: `--set` without "=", or settings that are wrong.
    """
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
            f"--set {override!r} is not NAME=VALUE",
            hint="write it as in `--set kafka.security.protocol=SSL`",
        )
    return name.strip(), value


def app_id_of(command: str, app: str | None, app_id: str | None) -> str:
    """Return the app id of a job that takes an app or an app id.

    Raises:
        UsageError: both or neither are given, or the app cannot be loaded.
    """
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
    """Return the URL of a running service, without a trailing slash.

    Raises:
        UsageError: it is not an http(s) URL, both URL and port are given, or the settings leave the port open.
    """
    if url is None:
        return _url_of(settings_from(config, None, http_port=http_port))
    if http_port is not None:
        raise UsageError(
            f"--url {url} and --http-port {http_port} both say where the service is",
            hint="give only one of them",
        )
    if not url.startswith(("http://", "https://")):
        raise UsageError(
            f"--url {url!r} is not a URL", hint="write it as in `--url http://127.0.0.1:8080`"
        )
    return url.rstrip("/")


def _url_of(settings: Settings) -> str:
    from snapreplay.api.address import Address

    if settings.http.port == 0:
        raise UsageError(
            "http.port is 0 in the settings, so the service has picked a free port",
            hint="give what it printed at start: the port with --http-port, or the address with --url",
        )
    return Address(settings.http.host, settings.http.port).url
