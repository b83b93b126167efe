"""The quotas of brokers that the connections of this process meet.

A client over a quota gets its answer at once, with a throttle time for which the broker then mutes the connection
(KIP-219). aiokafka 0.14.0 ignores it: its next request gets no answer before its deadline, and a transaction is in
doubt although nothing is wrong.
"""

from __future__ import annotations

import logging
import time
from typing import Any, NamedTuple

from snapreplay.service.control.counters import THROTTLED_SECONDS
from snapreplay.service.core.repeats import Repeats

log = logging.getLogger(__name__)

SHOWN_SECONDS = 30.0
"""How long a wait is still shown after its end: over a quota, the next one follows soon."""
_MUTATIONS = ("CreateTopics", "CreatePartitions", "DeleteTopics")
_QUOTAS = {
    "Produce": "producer_byte_rate",
    "Fetch": "consumer_byte_rate",
    **dict.fromkeys(_MUTATIONS, "controller_mutation_rate"),
}
_OTHERS = "request_percentage"


class ThrottledWait(NamedTuple):
    """A wait that a broker has imposed; `until` is of the monotonic clock."""

    request: str
    address: str
    client_id: str
    seconds: float
    until: float

    def __str__(self) -> str:
        quota = _QUOTAS.get(self.request)
        which = f"{quota} or {_OTHERS}" if quota else _OTHERS
        return (
            f"throttled by a quota: after the last {self.request} request of client id {self.client_id!r} the broker at"
            f" {self.address} reads nothing for {self.seconds:.1f} s (raise {which}: `kafka-configs.sh --describe"
            " --entity-type users` and `clients` show the quotas; or send less)"
        )


class Throttling:
    """The newest wait of each kind of request in this process, for status and log. Any thread."""

    def __init__(self) -> None:
        self._waits: dict[str, ThrottledWait] = {}
        self._said = Repeats()

    def note(self, wait: ThrottledWait) -> None:
        self._waits[wait.request] = wait
        THROTTLED_SECONDS.labels(wait.request).inc(wait.seconds)
        said = self._said.met((wait.request, wait.address), time.monotonic())
        if said is not None:
            log.warning("%s%s", wait, said.more(time.monotonic()))

    def __str__(self) -> str:
        """Return the longest of the waits that are not long over; empty: nothing is throttled."""
        now = time.monotonic()
        recent = [each for each in list(self._waits.values()) if now < each.until + SHOWN_SECONDS]
        return str(max(recent, key=lambda each: each.seconds)) if recent else ""


THROTTLING = Throttling()


def wait_of(answer: Any) -> float:
    """Return for how many seconds the broker reads nothing more of this connection."""
    return float(getattr(answer, "throttle_time_ms", 0) or 0) / 1000
