"""Ways out that several hints name, each worded in one place. Pure."""

from __future__ import annotations

from typing import Any

from snapreplay.app.app import App
from snapreplay.app.load import name_in_main, name_of

MODULE = "MODULE:APP"
"""Stands for the app where nobody knows how it was named on the command line."""


def app_name(app: App[Any]) -> str:
    """Name the app as a command takes it."""
    return name_of(app) or name_in_main(app) or MODULE


def new_app(options: str = "") -> str:
    """Say how to begin with another app id, with topics and a state of its own; `options` are those of `init`."""
    return f'`App("NEW-ID", …)`, `snapreplay topics ensure {MODULE}`, `snapreplay init {MODULE}{options}`'


def ensure(app: str = MODULE) -> str:
    """Name the command that creates missing topics."""
    return f"`snapreplay topics ensure {app}`"


def go_on(partition: int) -> str:
    """Say what follows once the cause of a FAILED partition is gone: it looks again."""
    return f"restart the process that has partition {partition}"


def look_again(partition: int) -> str:
    """Name the command that looks again without a restart, where neither code nor settings changed."""
    return f"`snapreplay retry --partition {partition}`"
