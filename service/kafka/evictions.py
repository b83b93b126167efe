"""Notices a second process with our instance id, by what the group's coordinator calls us."""

from __future__ import annotations

import time
from collections import deque

from snapreplay.service.config.settings import Settings

EVICTIONS_SUSPECT = 3


class Evictions:
    """The times at which the coordinator threw us out.

    Two processes with one instance id throw each other out with every heartbeat, for ever, and no call fails
    (measured): each of them gets a new member id each time, which a rebalance never gives. Dynamic members cannot.
    """

    def __init__(self, settings: Settings) -> None:
        self._is_static = bool(settings.instance_id)
        self._window_seconds = max(10.0, 10 * settings.group.heartbeat_interval_ms / 1000)
        self._times: deque[float] = deque(maxlen=EVICTIONS_SUSPECT)
        self._member_id = ""

    @property
    def suspects_duplicate(self) -> bool:
        """Whether another process seems to run with our instance id."""
        full = len(self._times) == EVICTIONS_SUSPECT
        return full and time.monotonic() - self._times[0] < self._window_seconds

    def seen(self, member_id: str) -> bool:
        """Note the member id of an assignment; say whether it makes another process suspected that was not."""
        known = self.suspects_duplicate
        if self._is_static and self._member_id not in ("", member_id):
            self._times.append(time.monotonic())
        self._member_id = member_id
        return self.suspects_duplicate and not known

    def forget(self) -> None:
        """Begin anew."""
        self._member_id = ""
        self._times.clear()
