"""One worker of `run --processes N`: an ordinary `run`, with a name, a port and a mark in the log of its own.

Its parent starts it as `python -m snapreplay.api.cli.worker FACTS run APP …`; it ends with its parent.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from snapreplay.service.runtime.child_process import end_with

if TYPE_CHECKING:
    from snapreplay.api.server import Shared
    from snapreplay.service.config.groups import HttpSettings
    from snapreplay.service.config.settings import Settings


class Worker(NamedTuple):
    """The facts that a worker is told by its parent. `probes_ports`: that of all, then one for each; none: probes have
    no port of their own. `log_lock` is an open file; who holds it may write a line."""

    parent: int
    number: int
    restarts: int
    instance_id: str
    ports: list[int]
    app_port: int
    probes_ports: list[int]
    log_lock: int

    def encoded(self) -> str:
        return json.dumps(self)

    def settings(self, given: Settings) -> Settings:
        """Return the settings of this one."""
        port = self.ports[self.number]
        url = given.http.advertised_url
        if url:
            parts = urlsplit(url)
            host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
            advertised = parts.port or (443 if parts.scheme == "https" else 80)
            url = parts._replace(netloc=f"{host}:{advertised + port - self.app_port}").geturl()
        probes_port = self.probes_ports[1 + self.number] if self.probes_ports else 0
        http = given.http.replaced(port=port, advertised_url=url, probes_port=probes_port)
        return given.replaced(instance_id=self.instance_id, http=http)

    def shared(self, http: HttpSettings) -> Shared:
        """Return what it shares with the others, which have the same settings of HTTP, but for the port."""
        from snapreplay.api.server import Shared
        from snapreplay.service.control.address import address

        urls = [(number, address(http, http.host, port).url) for number, port in enumerate(self.ports)]
        app_probes_port = self.probes_ports[0] if self.probes_ports else 0
        return Shared(self.app_port, app_probes_port, tuple(each for each in urls if each[0] != self.number))


def main() -> None:
    from snapreplay.api.cli import main as as_typed
    from snapreplay.api.cli import running

    running.this_worker = Worker(*json.loads(sys.argv.pop(1)))
    # Gracefully: nobody else stops it then.
    end_with(running.this_worker.parent, signal.SIGTERM)
    as_typed()


if __name__ == "__main__":
    main()
