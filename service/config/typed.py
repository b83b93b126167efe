"""The options that a command in a hint needs to come to the same cluster and the same service as this process. Pure.

Hints are made where the cause is known, and name the command alone. Whoever shows one adds these options: a command
that is typed as it was printed would otherwise go to the cluster of the shell that it is typed in.
"""

from __future__ import annotations

import re
import shlex

from snapreplay.service.config.kafka_properties import PROPERTIES
from snapreplay.service.config.settings import Settings
from snapreplay.service.config.sources import DEFAULT_FILE

OF_CLUSTER = (
    *("accept", "audit", "compact", "delete", "doctor", "feed", "init", "inputs", "patch", "redrive"),
    *("reset", "run", "savepoint", "tail", "topics", "upgrade"),
)
"""The commands that connect to the cluster."""
LOCAL = ("dev", "explain", "new", "version")
"""The commands that need neither. All others ask a running service."""

_HAS_SOME = r"(?![^`]* --(?:config|bootstrap-servers|url|http-port|help)\b)"
_COMMAND = re.compile(rf"(?<=`)snapreplay ([a-z-]+)(?= |`){_HAS_SOME}[^`]*(?=`)")
_LOGIN = ("security.", "sasl.", "ssl.")


def addressed(text: str, settings: Settings, *, with_port: bool = False) -> str:
    """Return a text, a hint for example, with the options in each command that is quoted in it and has none.

    Args:
        with_port: also in commands that ask the service. Without, whoever shows the text knows where it is.
    """
    if "`snapreplay " not in text:
        return text
    options = dict.fromkeys(OF_CLUSTER, _to_cluster(settings)) | dict.fromkeys(LOCAL, "")
    to_service = _to_service(settings) if with_port else ""
    return _COMMAND.sub(lambda found: found[0] + options.get(found[1], to_service), text)


def _to_cluster(settings: Settings) -> str:
    """Return the options, with a blank in front of each. A file that was named has all that is in it. What the
    environment gives to log in is expected where a command is typed: without it, the cluster refuses by name."""
    origins, options = settings.origins, _file(settings)
    for name, value in settings.kafka.items():
        origin = origins.get(f"kafka.{name}", "")
        if origin.startswith("in ") or not (settings.was_given("kafka") and (origin or not origins)):
            continue
        if name == "bootstrap.servers":
            options += f" --bootstrap-servers {shlex.quote(str(value))}"
        elif name.startswith(_LOGIN) and not origin.endswith(" in the environment"):
            shown = "SECRET" if PROPERTIES[name].secret else str(value)
            options += f" --set {shlex.quote(f'kafka.{name}={shown}')}"
    return options


def _to_service(settings: Settings) -> str:
    """Return the option for the port, unless the service picks a free one, or finds it where a command finds it."""
    origin, port = settings.origins.get("http.port", ""), settings.http.port
    if port and settings.http.was_given("port") and not origin.startswith("in "):
        return f" --http-port {port}"
    return _file(settings)


def _file(settings: Settings) -> str:
    files = (each.removeprefix("in ") for each in settings.origins.values() if each.startswith("in "))
    named = next(files, DEFAULT_FILE)
    return "" if named == DEFAULT_FILE else f" --config {shlex.quote(named)}"
