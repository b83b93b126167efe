"""The address of this machine that a broker would see: others may reach us there, too."""

from __future__ import annotations

import socket

from aiokafka.conn import collect_hosts


def local_host(bootstrap_servers: list[str], family: socket.AddressFamily) -> str:
    """Return the local address of this family on the way to the first broker that has one; empty: none has. Nothing
    is sent; names are resolved, which may take time."""
    for host, port, _ in collect_hosts(bootstrap_servers):
        try:
            for *_, address in socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM):
                with socket.socket(family, socket.SOCK_DGRAM) as towards:
                    towards.connect(address)
                    return str(towards.getsockname()[0])
        except OSError:
            continue
    return ""
