"""The number of connections that the process for HTTP may have open, so that it never runs out of files."""

from __future__ import annotations

import resource

CONNECTIONS_MAX = 128
FILES_RESERVED = 48


def connections_max() -> int:
    """Return how many connections of one sort may be open: requests of others, streams to others, or to peers."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(1, min(CONNECTIONS_MAX, (files - FILES_RESERVED) // 3))
