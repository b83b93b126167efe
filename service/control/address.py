"""The address that a service answers HTTP at."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from snapreplay.service.config.groups import HttpSettings

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound


class Address(NamedTuple):
    """A host and a port; for a bound server the real port, even if 0 was asked for."""

    host: str
    port: int

    @property
    def is_any(self) -> bool:
        """Whether it stands for all addresses of this machine."""
        return self.host in _LOOPBACK

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it; of a bound server."""
        return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback

    @property
    def url(self) -> str:
        """The URL for clients on this machine: an any-address becomes loopback."""
        host = _LOOPBACK.get(self.host, self.host)
        return f"{self.scheme}://[{host}]:{self.port}" if ":" in host else f"{self.scheme}://{host}:{self.port}"

    @property
    def scheme(self) -> str:
        return "http"


class TlsAddress(Address):
    """An address that answers by TLS."""

    @property
    def scheme(self) -> str:
        return "https"


def address(settings: HttpSettings, host: str, port: int) -> Address:
    """Return an address of a service with these settings."""
    return (TlsAddress if settings.tls_certificate_file else Address)(host, port)
