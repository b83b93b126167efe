"""Free TCP ports on the loopback address."""

import random
import socket
import time
from collections.abc import Callable
from pathlib import Path

from snapreplay.devbroker.properties import HOST

_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_CEILING = 32_768
_LOWEST = 15_000
_TRIES = 200
PATIENCE_S = 3.0
"""With the broker before: when its owner was killed, its keeper ends it, but a moment later."""


def free_ports(count: int) -> list[int]:
    """Return `count` distinct ports that nothing listens on now. Another program may still be quicker.

    They lie below the range from which the system takes the ports of outgoing connections. While a broker is down, a
    client that keeps reconnecting to a port *inside* that range sooner or later gets the same port as its own end and
    is connected to itself. The broker then finds its port taken. Raises OSError if no port can be found.
    """
    ceiling = _first_outgoing_port()
    chosen: list[int] = []
    for _ in range(_TRIES):
        # 0 lets the system choose, if its range leaves no port below.
        port = _bound(random.randrange(_LOWEST, ceiling) if ceiling > _LOWEST else 0)
        if port and port not in chosen:
            chosen.append(port)
        if len(chosen) == count:
            return chosen
    raise OSError(f"no {count} free ports on {HOST}")


def is_free(port: int) -> bool:
    """Say whether the broker could listen on this port now."""
    return bool(_bound(port))


def is_free_soon(port: int) -> bool:
    """Say whether the broker can listen on this port, now or within `PATIENCE_S`."""
    return patiently(lambda: is_free(port))


def patiently(holds: Callable[[], bool]) -> bool:
    """Say whether this holds, now or within `PATIENCE_S`."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := holds()) and time.monotonic() < deadline:
        time.sleep(0.02)  # the end of a broker sends no event
    return found


def _bound(port: int) -> int:
    """Bind the port for a moment (0: any) and return it; 0 if it is taken."""
    with socket.socket() as probe:
        # As the JVM does: lingering connections of a former broker are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return 0
        return int(probe.getsockname()[1])


def _first_outgoing_port() -> int:
    try:
        return int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_CEILING
