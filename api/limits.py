"""The bounds on what clients of HTTP can take of the process: connections, files, memory, time."""

from __future__ import annotations

import resource

CONNECTIONS_MAX = 128
EXCHANGE_SECONDS = 10.0
"""For a request with its response, read by the client; also for a TLS handshake."""
UNREAD_BYTES = 16 * 1024
KERNEL_BYTES = 64 * 1024
"""Of a response that nobody reads. Without it the kernel takes 2.5 MB for each connection (measured)."""


def files_max() -> int:
    """Return how many files the process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def connections_max() -> int:
    """Return how many connections of one sort may be open: requests of clients, streams to them, or to peers."""
    return max(1, min(CONNECTIONS_MAX, files_max() // 8))


def accepted_at_once() -> int:
    """Return how many connections are accepted in one turn of the loop. A request is answered before as many newer ones
    have come as push it out."""
    return max(1, connections_max() // 16)


def files_are_short(newest: int) -> bool:
    """Say whether the process has nearly as many files open as it may, by the number of the newest one, because the
    kernel gives the lowest that is free. The last quarter is for Kafka."""
    return newest >= files_max() * 3 // 4
