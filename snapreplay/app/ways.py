"""Ways out that several hints name, each worded in one place. Pure."""

from __future__ import annotations

from typing import Any

from snapreplay.app.app import App
from snapreplay.app.load import name_in_main, name_of

MODULE = "MODULE:APP"
"""Stands for the app where nobody knows how it was named on the command line."""


def app_name(app: App[Any]) -> str:
    """As a command takes it."""
    return name_of(app) or name_in_main(app) or MODULE


def new_app(options: str = "") -> str:
    """Another app id, with topics and a state of its own; `options` are those of `init`."""
    return f'`App("NEW-ID", …)`, `snapreplay topics ensure {MODULE}`, `snapreplay init {MODULE}{options}`'


def ensure(app: str = MODULE) -> str:
    """Creates topics that are missing."""
    return f"`snapreplay topics ensure {app}`"


def alter(topic: str, config: str, servers: str = "HOST:PORT") -> str:
    """Kafka's own command that sets `name=value` on a topic."""
    return f"kafka-configs.sh --bootstrap-server {servers} --alter --topic {topic} --add-config {config}"


def go_on(partition: int) -> str:
    """What follows once the cause of a FAILED partition is gone: it looks again."""
    return f"restart the process that has partition {partition}"


def look_again(partition: int) -> str:
    """The same without a restart, where neither code nor settings changed."""
    return f"`snapreplay retry --partition {partition}`"
