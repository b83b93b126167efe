"""The limits of brokers that the connections of this process meet: quotas, and numbers of connections.

A client over a quota gets its answer at once, with a throttle time for which the broker then mutes the connection
(KIP-219). aiokafka 0.14.0 ignores it: its next request gets no answer before its deadline, and a transaction is in
doubt although nothing is wrong. A broker that has as many connections as it may closes each new one without an answer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from typing import Any, NamedTuple
from weakref import WeakSet

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
            f" {self.address} reads nothing for {self.seconds:.1f} s (raise {which}: `snapreplay doctor` shows the"
            " quotas; or send less)"
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

CLOSED_MIN, CLOSED_SECONDS = 3, 10.0
"""A broker that is stopped may close a new connection, too, but not so many."""
TOO_MANY_HINT = (
    "raise max.connections.per.ip, or max.connections, on every broker: a process needs about ten connections for each"
    " of its partitions"
)


class ClosedConnections:
    """The new connections that brokers have closed without an answer, although others to the same address are open.
    Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # a WeakSet must not change while it is walked through
        self._open: dict[str, WeakSet[Any]] = {}
        self._closed: deque[tuple[float, str]] = deque(maxlen=1000)
        self._said = Repeats()

    def accepted(self, address: str, connection: Any) -> None:
        with self._lock:
            self._open.setdefault(address, WeakSet()).add(connection)

    def closed(self, address: str) -> None:
        with self._lock:
            others = list(self._open.get(address, ()))
        if not any(each.connected() for each in others):
            return  # it may speak another protocol, or be no broker
        now = time.monotonic()
        self._closed.append((now, address))
        said = self._said.met(address, now) if self.problem else None
        if said is not None:
            log.warning("%s%s", self, said.more(now))

    @property
    def problem(self) -> str:
        """The broker that closed most of them in the last `CLOSED_SECONDS`; empty: too few were."""
        since = time.monotonic() - CLOSED_SECONDS
        found = Counter(address for at, address in list(self._closed) if at > since)
        address, count = found.most_common(1)[0] if found else ("", 0)
        if count < CLOSED_MIN:
            return ""
        return (
            f"the broker at {address} closes new connections without an answer while others are open: it has as many as"
            " max.connections.per.ip or max.connections allows"
        )

    def __str__(self) -> str:
        return f"{self.problem} ({TOO_MANY_HINT})" if self.problem else ""


CLOSED = ClosedConnections()


def wait_of(answer: Any) -> float:
    """Return for how many seconds the broker reads nothing more of this connection."""
    return float(getattr(answer, "throttle_time_ms", 0) or 0) / 1000
