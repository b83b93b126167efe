"""Ways out that several hints name, each worded in one place. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snapreplay.app.app import App
from snapreplay.app.load import name_in_main, name_of
from snapreplay.counted import some

MODULE = "MODULE:APP"
"""Stands for the app where it is not known how it was named on the command line."""


def app_name(app: App[Any]) -> str:
    """Name the app as a command takes it."""
    return name_of(app) or name_in_main(app) or MODULE


def new_app(options: str = "") -> str:
    """Say how to begin with another app id, with topics and a state of its own; `options` are those of `init`."""
    return f'`App("NEW-ID", …)`, `snapreplay topics ensure {MODULE}`, `snapreplay init {MODULE}{options}`'


def ensure(app: str = MODULE) -> str:
    """Name the command that creates missing topics."""
    return f"`snapreplay topics ensure {app}`"


def begin_with_savepoint(app: str, app_id: str, savepoints: Sequence[str], *, own_are_gone: bool) -> str:
    """Say how an app whose own topics are lost begins again with one of its savepoints, under the same app id.

    Args:
        own_are_gone: neither of the two topics exists, so there is nothing to delete and no process runs.
    """
    chosen = savepoints[0] if len(savepoints) == 1 else "NAME"
    first = "" if own_are_gone else f"stop all processes of the app, `snapreplay delete {app_id}`, "
    return (
        f"begin again with a savepoint of the app ({some(savepoints)}): {first}`snapreplay topics ensure {app}`,"
        f" `snapreplay init {app} --state-of {app_id} --savepoint {chosen} --state-is-lost`"
    )


def go_on(partition: int) -> str:
    """Say what follows once the cause of a FAILED partition is gone: it looks again."""
    return f"restart the process that has partition {partition}"


def look_again(partition: int) -> str:
    """Name the command that looks again without a restart, where neither code nor settings changed."""
    return f"`snapreplay retry --partition {partition}`"


def keys_moved_hint(app_id: str, old_count: int) -> str:
    """Say what to do about another partition count than `old_count`: the one thing that no operator can accept."""
    return (
        "keys have moved between partitions and no state can follow them, so this cannot be accepted. Take the state"
        f' to a new input with the old count: `App("NEW-ID", inputs=[Topic("NEW")], …)`, `snapreplay topics ensure'
        f" {MODULE} --partitions {old_count}`, copy the unprocessed records into it, `snapreplay init {MODULE}"
        f" --state-of {app_id} --from earliest`; or process the input again under a new app id: {new_app()}"
    )


def own_topic_grown_hint(app_id: str) -> str:
    """Return the hint for an own topic that got more partitions than the inputs have.

    No key has moved, but Kafka removes no partition.
    """
    return (
        "no key has moved, but Kafka cannot remove partitions from a topic. Copy the state to a new app id, which"
        f" has topics of its own: {new_app(f' --state-of {app_id} --from positions')}"
    )


def beyond_an_older_disk(app_id: str) -> str:
    """Return what leads on when coordinators have forgotten what the topics hold."""
    return (
        "__transaction_state comes from an older disk: restore it together with the topics; or copy the state"
        f" to a new app id: {new_app(f' --state-of {app_id} --from positions')}"
    )
