"""The address of this machine that a broker would see: others may reach us there, too."""

from __future__ import annotations

import asyncio
import socket

from aiokafka.conn import collect_hosts

from snapreplay.service.config.settings import Settings
from snapreplay.service.control.address import Address


async def advertised_url(settings: Settings, bound: Address | None) -> str:
    """Return the URL by which other processes reach the HTTP API of this one; empty: there is none. `bound`: where it
    listens."""
    url = settings.http.advertised_url
    if bound is None:
        return ""
    if url or not bound.is_any:
        return url or bound.url
    family = socket.AF_INET6 if ":" in bound.host else socket.AF_INET
    host = await asyncio.to_thread(local_host, settings.bootstrap_servers, family)
    return type(bound)(host, bound.port).url if host else ""


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
