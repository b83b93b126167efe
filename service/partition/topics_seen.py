"""What the watch over the cluster's topics means for one partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from snapreplay.errors import SnapreplayError
from snapreplay.service.core.topic_changes import TopicChange, changes
from snapreplay.service.recovery.custody import lost
from snapreplay.service.runtime.context import Context
from snapreplay.snapshots.format.records import Increment

TopicChanges = tuple[TopicChange, ...]


class TopicsSeen:
    """One per runner. Compares what is seen with the ids that the chain records.

    Changes of inputs are reported each time, since looking again costs little. Changes of own topics are reported when
    two looks in a row agree: a broker that lags behind the controllers may not know a new topic yet.
    """

    def __init__(
        self,
        context: Context,
        inputs_changed: Callable[[TopicChanges], None],
        own_topics_changed: Callable[[TopicChanges], None],
    ) -> None:
        self._inputs = context.input_names
        self._own = (context.increments.topic, context.snapshots.topic)
        self._inputs_changed = inputs_changed
        self._own_topics_changed = own_topics_changed
        self._told: TopicChanges = ()
        self._before: TopicChanges = ()

    def seen(self, recorded: Mapping[str, str], found: Mapping[str, str]) -> None:
        """`recorded`: topic → id, of the newest committed increment."""
        inputs = changes(self._inputs, recorded, found)
        if inputs:
            self._inputs_changed(inputs)
        own = changes(self._own, recorded, found)
        if own == self._before and own != self._told:
            self._told = own
            self._own_topics_changed(own)
        self._before = own


class Owner(Protocol):
    """A LIVE partition."""

    @property
    def last(self) -> Increment: ...

    @property
    def snapshots(self) -> Scheduler: ...

    def lose(self, error: SnapreplayError) -> None: ...


class Scheduler(Protocol):
    """Of its snapshots."""

    def topic_changed(self, change: TopicChange | None) -> None: ...


def tell(owner: Owner, context: Context, changed: TopicChanges) -> None:
    """What a change of own topics means: without the increments topic nothing can be committed; the other can wait."""
    by_topic = {each.topic: each for each in changed}
    increments = by_topic.get(context.increments.topic)
    if increments is not None:
        owner.lose(lost(context, increments, owner.last))
    owner.snapshots.topic_changed(by_topic.get(context.snapshots.topic))
