"""The address where the HTTP API is bound. Not in the server's module, so that a client needs no uvicorn."""

from __future__ import annotations

from typing import NamedTuple


class Address(NamedTuple):
    """A host and a port; for a bound server the real port, even if 0 was asked for."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The URL for clients on this machine: an any-address becomes loopback."""
        loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
        host = loopback.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"
