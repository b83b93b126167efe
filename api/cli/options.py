"""The table of options: what each one is called, of which type it is, what it means, and which setting it gives.

A command's function names its options as the types of its parameters, and gives their defaults. Typer is not imported
here: that takes longer than the recovery of a small state, and `run` has a way past it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from snapreplay.api.cli.logs import LogFormat, Verbosity
from snapreplay.api.cli.output import ExitCode, Format
from snapreplay.errors import UsageError

if TYPE_CHECKING:
    from ssl import SSLContext

    from snapreplay.api.cli.client import Client
    from snapreplay.app.app import App
    from snapreplay.service.config.settings import Settings
    from snapreplay.service.kafka.cluster import KafkaCluster


class Argument(Struct, frozen=True):
    """An argument, by its place."""

    metavar: str
    help: str
    least: int | None = None


class Option(Struct, frozen=True):
    """An option. `names` are separated by blanks, `least` and `most` are the limits of a number, and `setting` is the
    name of the setting that it gives."""

    names: str
    help: str
    metavar: str | None = None
    least: float | None = None
    most: float | None = None
    setting: str = ""


# ---- what is worked on
AppName = Annotated[str, Argument("APP", "module:app, path/to/file.py or path/to/file.py:app. Default attribute: app.")]
AppNames = Annotated[list[str], Argument("APP...", "One app or several, each as module:app or path/to/file.py:app.")]
AppOrId = Annotated[str | None, Argument("[APP]", "module:app or path/to/file.py; or use --app-id.")]
AppIfNamed = Annotated[str | None, Argument("[APP]", "module:app or path/to/file.py. Without it: the cluster alone.")]
AppId = Annotated[str, Argument("APP_ID", "Id of the app, as in App(…).")]
AppIdAlone = Annotated[str | None, Option("--app-id", "Id of the app, in place of its code.", "NAME")]
ProjectName = Annotated[str, Argument("NAME", "Name of the folder, the app id and the module.")]
TopicName = Annotated[str, Argument("TOPIC", "One of the app's topics.")]
PartitionNumber = Annotated[int, Argument("PARTITION", "State partition.", least=0)]
FailedPartition = Annotated[int, Option("--partition -p", "The FAILED partition.", least=0)]
OnlyPartition = Annotated[int | None, Option("--partition -p", "Only this partition.", least=0)]
AnyPartition = Annotated[int | None, Option("--partition -p", "State partition. Default: all.", least=0)]
SomePartitions = Annotated[list[int], Option("--partition -p", "State partition; repeatable.", least=0)]
OnHost = Annotated[str, Option("--host", "All processes of the app on this host. Default: the one at --url.", "NAME")]
OperationId = Annotated[str, Argument("ID", "The id of the operation, as printed.")]
ErrorName = Annotated[str, Argument("NAME", "Name of the error, such as DigestMismatch.")]
StoreName = Annotated[str, Argument("STORE", "Name of a store; `default` if the state is one map.")]
Key = Annotated[str, Argument("KEY", "A str as it is, an int in digits, bytes in base64, a tuple as a JSON array.")]
SavepointName = Annotated[str, Argument("NAME", "Name of the savepoint.")]
PatchFile = Annotated[Path, Argument("FILE", "JSON lines, one for each entry; - for standard input.")]

# ---- settings, and the way to the service
Config = Annotated[Path | None, Option("--config", "Settings file. Default: snapreplay.toml, if it exists.", "FILE")]
Overrides = Annotated[
    list[str] | None, Option("--set", "Any setting, such as kafka.security.protocol=SSL; repeatable.", "NAME=VALUE")
]
BootstrapServers = Annotated[
    str | None, Option("--bootstrap-servers", "The Kafka cluster.", "HOST:PORT,...", setting="kafka.bootstrap.servers")
]
HttpPort = Annotated[
    int | None, Option("--http-port", "Port of the HTTP API; 0 picks a free one.", "PORT", setting="http.port")
]
AskedPort = Annotated[
    int | None,
    Option(
        "--http-port", "Port of the running service. Default: http.port of the settings.", "PORT", least=1, most=65535
    ),
]
TokenFile = Annotated[
    Path | None, Option("--token-file", "Token file of the service. Default: http.token_file of the settings.", "FILE")
]
Url = Annotated[
    str | None, Option("--url", "URL of the running service. Default: http.host and http.port of the settings.", "URL")
]
LogLevel = Annotated[Verbosity, Option("--log-level", "Lowest level of the log on standard error.")]
LogForm = Annotated[LogFormat, Option("--log-format", "Format of the log: text, or JSON, one object per line.")]

# ---- what is printed
Output = Annotated[Format, Option("--output -o", "How to print the result.")]
Lines = Annotated[int, Option("-n --lines", "Number of rows to print, the newest ones.", least=1, most=50)]
SnapshotLines = Annotated[int, Option("-n --lines", "Number of rows to print, the newest ones.", least=1, most=500)]
RecordLines = Annotated[int, Option("-n --lines", "Number of records from each partition.", least=0)]
EntryLines = Annotated[int, Option("-n --lines", "Maximum number of entries; 0: all.", least=0)]
ChangeLines = Annotated[
    int, Option("-n --lines", "With --history: maximum number of changes of each partition.", least=1, most=100)
]
Follow = Annotated[bool, Option("--follow -f", "Also print what is written later, until Ctrl-C.")]
FromStart = Annotated[Literal["earliest"] | None, Option("--from", "Begin at the start of the log.")]
Prefix = Annotated[str | None, Option("--prefix", "Only keys that begin with this; ordered maps only.")]
FromKey = Annotated[str | None, Option("--from", "Begin at this key.", "KEY")]
ToKey = Annotated[str | None, Option("--to", "End before this key.", "KEY")]
Stale = Annotated[bool, Option("--stale", "Also accept answers of warm copies; prints their age.")]
KeyHistory = Annotated[bool, Option("--history", "Print the batches that changed the key, newest first, from the log.")]
Ready = Annotated[bool, Option("--ready", "Ask /readyz instead of /healthz.")]

# ---- how something is done
DryRun = Annotated[bool, Option("--dry-run", "Print what the command would do, and change nothing.")]
Yes = Annotated[bool, Option("--yes -y", "Do not ask for confirmation.")]
YesOfApp = Annotated[str, Option("--yes -y", "The app id again; do not ask for confirmation.", "APP_ID")]
Wait = Annotated[bool, Option("--wait", "Wait until the operation has ended.")]
Reason = Annotated[str, Option("--reason", "Reason; the log keeps it.", "TEXT")]
LineReason = Annotated[str, Option("--reason", "Reason for all lines without one.", "TEXT")]
SavepointReason = Annotated[str, Option("--reason", "Reason; the savepoint keeps it.", "TEXT")]
Finding = Annotated[str, Option("--finding", "Id of the finding, from the hint of the failure.", "ID")]
Undo = Annotated[Path | None, Option("--undo", "Write lines that undo the correction to this file.", "FILE")]

# ---- where an app begins
Init = Annotated[
    bool,
    Option("--init", "First do `topics ensure` and `init`, if the app is new. An app that ran before is not changed."),
]
FirstOffsets = Annotated[
    Literal["earliest", "latest"] | None,
    Option("--from", "With --init: where to begin in the inputs. Default: earliest."),
]
WaitForInit = Annotated[
    bool, Option("--wait/--no-wait", "If the app has no genesis: wait for `init`, or end with exit code 4.")
]
InitFrom = Annotated[
    Literal["earliest", "latest", "positions"] | None,
    Option(
        "--from",
        "Where to begin: earliest (default) or latest. With --state-of the default is positions: those of that app.",
    ),
]
StateOf = Annotated[
    str | None, Option("--state-of", "Begin with the state of another app, after its last committed batch.", "APP_ID")
]
OfSavepoint = Annotated[
    str | None, Option("--savepoint", "With --state-of: begin with this savepoint of that app.", "NAME")
]
StateIsLost = Annotated[
    bool,
    Option(
        "--state-is-lost",
        "Also initialise an app that ran and lost its state. Refused while one of its processes runs.",
    ),
]
CreateInputs = Annotated[
    int | None,
    Option(
        "--partitions --create-inputs", "Also create missing inputs and outputs, with this many partitions.", least=1
    ),
]
ReplaceLost = Annotated[
    bool,
    Option("--replace-lost", "Create the increments or the snapshots topic, empty, although the other one exists."),
]
ResetTo = Annotated[str, Option("--savepoint", "Resume with this savepoint.", "NAME")]
ResetFrom = Annotated[
    str,
    Option(
        "--from",
        "Begin with an empty state: at the start or the end of the inputs, or at a time.",
        "earliest|latest|TIME",
    ),
]
InputFrom = Annotated[
    str,
    Option(
        "--from",
        "Where a new input begins: at its start, at its end, where it was retired, or at a time.",
        "earliest|latest|resume|TIME",
    ),
]
Retire = Annotated[
    list[str] | None,
    Option("--retire", "Retire a topic of a pattern that no longer exists, or that belongs to another app.", "TOPIC"),
]
LeaveRecords = Annotated[bool, Option("--leave-records", "Also retire an input with unprocessed records.")]
DeadLetters = Annotated[bool, Option("--dead-letters", "Delete its dead letters, too.")]
AllSavepoints = Annotated[bool, Option("--savepoints", "Delete all its savepoints, too.")]

# ---- what is proved, and by what
ProofLevel = Annotated[
    Literal["integrity", "changes", "replay"],
    Option("--level", "What to prove. Each level includes the ones before it."),
]
Engine = Annotated[Literal["spark", "python"], Option("--engine", "python: in this process, without Spark and Java.")]

# ---- a broker of its own
NewPartitions = Annotated[int, Option("--partitions", "Number of partitions of new topics.", least=1, most=1000)]
DataDir = Annotated[
    Path | None, Option("--data-dir", "Keep topics and state in this directory. Default: a temporary one.", "DIR")
]
KafkaPort = Annotated[
    int, Option("--kafka-port", "Port of the local broker. Default: a free one.", "PORT", least=0, most=65535)
]


# ---- what is made of them


def settings_from(
    config: Path | None, overrides: list[str] | None, bootstrap_servers: str | None = None, http_port: int | None = None
) -> Settings:
    """Merge command line over environment over file over defaults; an option of its own wins over `--set`.
    Raise UsageError: `--set` without "=", or settings that are wrong."""
    from snapreplay.service.config.settings import load_settings

    given: dict[str, object] = dict(_split(each) for each in overrides or ())
    if bootstrap_servers is not None:
        given[_setting(BootstrapServers)] = bootstrap_servers
    if http_port is not None:
        given[_setting(HttpPort)] = http_port
    return load_settings(given, config)


def _split(override: str) -> tuple[str, str]:
    name, equals, value = override.partition("=")
    if not equals or not name.strip():
        raise UsageError(
            f"--set {override!r} is not NAME=VALUE", hint="write it as in `--set kafka.security.protocol=SSL`"
        )
    return name.strip(), value


def _setting(option: Any) -> str:
    (found,) = option.__metadata__
    return str(found.setting)


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
    from snapreplay.service.control.protocol import address

    if settings.http.port == 0:
        raise UsageError(
            "http.port is 0 in the settings, so the service has picked a free port",
            hint="give what it printed at start: the port with --http-port, or the address with --url",
        )
    return address(settings.http, settings.http.host, settings.http.port).url


class Made:
    """A parameter of a command's function that is made of options. All of them are None unless they are `required`."""

    def __init__(self, make: Callable[..., object], *, required: bool = False, **options: object) -> None:
        default = Parameter.empty if required else None
        self.options = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=option)
            for name, option in options.items()
        ]
        self.make = make


def cluster_of(settings: Settings) -> KafkaCluster:
    from snapreplay.service.kafka.cluster import KafkaCluster

    return KafkaCluster(settings)


def _app(app: str | None) -> App[Any] | None:
    from snapreplay.app.load import load_app

    return None if app is None else load_app(app)


def load_apps(apps: list[str]) -> list[App[Any]]:
    """Load the apps of a command.

    Raises:
        UsageError: one cannot be loaded, two have the same id, or their folders share a module name.
    """
    from snapreplay.app.app import check_apps
    from snapreplay.app.load import check_together, load_app

    check_together(apps)
    loaded = [load_app(each) for each in apps]
    check_apps(loaded)
    return loaded


def _client(url: str | None, http_port: int | None, config: Path | None, token_file: Path | None) -> Client:
    from snapreplay.api.cli.client import Client
    from snapreplay.api.credentials import authorization

    asked = service_url(url, http_port, config)
    named = token_file or settings_from(config, None).http.token_file
    token = _token_in(Path(named)) if named else ""
    return Client(asked, authorization(token) if token else None, _context(asked, config))


def _token_in(path: Path) -> str:
    from snapreplay.api.credentials import sent, tokens_in

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
    from snapreplay.api.credentials import TlsFiles

    if not url.startswith("https:"):
        return None
    files = TlsFiles.of(settings_from(config, None).http)
    return files.client()() if files.ca or files.certificate else None


_CLUSTER = {"bootstrap_servers": BootstrapServers}
_SETTINGS = {"config": Config, "overrides": Overrides}

Loaded = Annotated["App[Any]", Made(_app, required=True, app=AppName)]
AllLoaded = Annotated["list[App[Any]]", Made(load_apps, required=True, apps=AppNames)]
LoadedIfNamed = Annotated["App[Any] | None", Made(_app, app=AppIfNamed)]
OfCluster = Annotated["Settings", Made(settings_from, **_CLUSTER, **_SETTINGS)]
OfService = Annotated["Settings", Made(settings_from, **_CLUSTER, http_port=HttpPort, **_SETTINGS)]
Probed = Annotated["Client", Made(_prober, url=Url, http_port=AskedPort, config=Config)]
Running = Annotated["Client", Made(_client, url=Url, http_port=AskedPort, config=Config, token_file=TokenFile)]


def options_of(function: Callable[..., object]) -> list[Parameter]:
    """Return what a command is called with: its parameters, and the options of those that are `Made`."""
    taken: list[Parameter] = []
    for each in _parameters(function):
        made = _made(each)
        taken += made.options if made else [each.replace(kind=Parameter.KEYWORD_ONLY)]
    return taken


def carry_out(function: Callable[..., Any], given: Mapping[str, Any]) -> int:
    """Call a command's function with the values of its options, and return the exit code. A coroutine is run.

    The app is loaded before the function imports the Kafka client: a wrong name is answered at once.
    """
    arguments = dict(given)
    for each in _parameters(function):
        if made := _made(each):
            arguments[each.name] = made.make(**{option.name: arguments.pop(option.name) for option in made.options})
    done = function(**arguments)
    if isinstance(done, Coroutine):
        done = asyncio.run(done)
    return ExitCode.OK if done is None else int(done)


def _parameters(function: Callable[..., object]) -> Iterable[Parameter]:
    return inspect.signature(function, eval_str=True).parameters.values()


def _made(parameter: Parameter) -> Made | None:
    (found,) = parameter.annotation.__metadata__
    return found if isinstance(found, Made) else None
