"""Where the HTTP API is bound. Apart from the server, so that a client needs no uvicorn."""

from __future__ import annotations

from typing import NamedTuple


class Address(NamedTuple):
    """A host and a port; of a bound server the real port, also when 0 was asked for."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """To be used from this machine: an any-address becomes loopback."""
        loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
        host = loopback.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"
