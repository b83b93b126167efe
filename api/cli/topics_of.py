"""The topics that a person names on the command line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from snapreplay.app import names
from snapreplay.errors import UsageError

if TYPE_CHECKING:
    from snapreplay.app.app import App
    from snapreplay.app.topic import Topic
    from snapreplay.service.ports import Cluster, TopicFacts


def input_of(app: App[Any], name: str) -> Topic[Any, Any]:
    """
    Raises:
        UsageError: not an input of the app.
    """
    for topic in app.inputs:
        if topic.name == name:
            return topic
    what = "is an output" if name in {each.name for each in app.outputs} else "is no topic"
    raise _unknown(name, f"{what} of app {app.app_id!r}", "inputs", [t.name for t in app.inputs])


def readable(app: App[Any]) -> dict[str, Topic[Any, Any] | None]:
    """Every topic that belongs to the app, by name; None for its own ones."""
    own = (
        names.increments_topic(app.app_id),
        names.snapshots_topic(app.app_id),
        names.dead_letters_topic(app.app_id),
    )
    return {topic.name: topic for topic in (*app.inputs, *app.outputs)} | dict.fromkeys(own)


def readable_of(app: App[Any], name: str) -> str:
    """The whole name: "increments" stands for "<app_id>-increments".

    Raises:
        UsageError: not a topic of the app.
    """
    known = readable(app)
    for each in (name, f"{app.app_id}-{name}"):
        if each in known:
            return each
    raise _unknown(name, f"is no topic of app {app.app_id!r}", "topics", known)


async def facts_of(cluster: Cluster, app: App[Any], name: str) -> TopicFacts:
    """
    Raises:
        UsageError: the cluster does not have it.
    """
    from snapreplay.service.topics.requirements import missing_topic

    found = (await cluster.topics([name])).get(name)
    if found is None and name == names.dead_letters_topic(
        app.app_id
    ):  # it exists only with `errors.policy=dead_letter`
        raise UsageError(f"app {app.app_id!r} has no dead letters: there is no topic {name!r}")
    if found is None:
        raise await missing_topic(cluster, app, name)
    return found


def _unknown(name: str, what: str, kind: str, known: Iterable[str]) -> UsageError:
    listed = list(known)
    near = difflib.get_close_matches(name, listed, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    return UsageError(f"{name!r} {what}", hint=f"{meant}its {kind}: {', '.join(listed)}")
