"""The savepoints of an app by the names of topics, and the way to begin again with one when the app's own topics are
lost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.app.ways import app_name, begin_with_savepoint
from snapreplay.errors import SnapreplayError
from snapreplay.service.ports import Cluster


async def apps_in(cluster: Cluster) -> str:
    """List the ids of the apps that have increments in this cluster; "none" if there is none."""
    suffix = names.increments_topic("")
    found = (each for each in await cluster.topic_names() if each.endswith(suffix) and names.SAVEPOINT not in each)
    return ", ".join(sorted(each.removesuffix(suffix) for each in found)) or "none"


async def names_of(app_id: str, cluster: Cluster) -> list[str]:
    """Return the names of all savepoints of an app, sorted, complete or not."""
    return names_in(app_id, await cluster.topic_names())


def names_in(app_id: str, topics: Iterable[str]) -> list[str]:
    """Return the same for a cluster with these topics."""
    marks = names.own_pair(names.savepoint_id(app_id, "*"))
    found = set[str]()
    for topic in topics:
        for mark in marks:
            first, last = mark.split("*")
            if topic.startswith(first) and topic.endswith(last) and len(topic) > len(mark) - 1:
                found.add(topic.removeprefix(first).removesuffix(last))
    return sorted(found)


async def with_savepoints(
    error: SnapreplayError, app: App[Any], cluster: Cluster, *, own_are_gone: bool = False
) -> None:
    """Add the way back to a savepoint to the hint of an error about own topics that are lost, or lost what they held:
    the names of the savepoints, and the commands. Without savepoints the hint stays as it is.

    Args:
        own_are_gone: neither the increments nor the snapshots topic exists.

    Raises:
        Unreachable, AccessError: the topics cannot be listed.
    """
    found = await names_of(app.app_id, cluster)
    if found:
        error.hint += f"; or {begin_with_savepoint(app_name(app), app.app_id, found, own_are_gone=own_are_gone)}"
