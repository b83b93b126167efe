"""The meaning of the watch over the cluster's topics for one partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from snapreplay.service.core.topic_changes import TopicChange, changes
from snapreplay.service.runtime.context import Context

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
        """Compare `found` with `recorded`, topic → id of the newest committed increment; tell of what differs."""
        inputs = changes(self._inputs, recorded, found)
        if inputs:
            self._inputs_changed(inputs)
        own = changes(self._own, recorded, found)
        if own == self._before and own != self._told:
            self._told = own
            self._own_topics_changed(own)
        self._before = own
