"""Free TCP ports on the loopback address."""

import random
import socket
from pathlib import Path

from snapreplay.devbroker.properties import HOST

_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_CEILING = 32_768
_LOWEST = 15_000
_TRIES = 200


def free_ports(count: int) -> list[int]:
    """`count` distinct ports that nothing listens on now. Another program may still be quicker.

    They lie below the range from which the system takes the ports of outgoing connections. A client
    that reconnects for ever to a port *inside* that range, while the broker is away, sooner or
    later gets this very port as its own end, is connected to itself, and the broker that comes back
    finds its port taken. Raises OSError when no port can be found.
    """
    ceiling = _first_outgoing_port()
    chosen: list[int] = []
    for _ in range(_TRIES):
        # 0 lets the system choose, where its range leaves nothing below it.
        port = _bound(random.randrange(_LOWEST, ceiling) if ceiling > _LOWEST else 0)
        if port and port not in chosen:
            chosen.append(port)
        if len(chosen) == count:
            return chosen
    raise OSError(f"no {count} free ports on {HOST}")


def is_free(port: int) -> bool:
    """Whether the broker could listen on this port now."""
    return bool(_bound(port))


def _bound(port: int) -> int:
    """Bind the port for a moment (0: any) and return it; 0 if it is taken."""
    with socket.socket() as probe:
        # As the JVM does: connections of a former broker that still linger are no obstacle.
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
