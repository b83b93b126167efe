"""The service as a separate process: started, killed with SIGKILL, started again at once."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from pathlib import Path

from examples.demo.commands import snapreplay, tail
from examples.demo.failed import DemoFailed
from snapreplay.devbroker.free_ports import free_ports
from snapreplay.devbroker.node import KeptProcess

HOST = "127.0.0.1"
INSTANCE_ID, STANDBY_ID = "demo", "demo-standby"
"""The same at every start: a static member that comes back owns its partitions again at once."""

STOP_S = 40.0  # above timeouts.shutdown_ms


class ServiceProcess:
    """One at a time, on one port. A keeper ends it with this process, however this one ends.

    Attributes:
        url: of the HTTP API; the same after every restart.
        log_path: what all of them logged.
    """

    def __init__(
        self, app: str, bootstrap_servers: str, work_dir: Path, settings: Mapping[str, object], instance_id: str
    ) -> None:
        (port,) = free_ports(1)
        self.url = f"http://{HOST}:{port}"
        self.log_path = work_dir / f"{instance_id}.log"
        self._started_at = 0.0
        options = [f"--set={name}={value}" for name, value in settings.items()]
        self._command = [
            *snapreplay("run", app, f"--bootstrap-servers={bootstrap_servers}"),
            *[f"--http-port={port}", f"--set=instance_id={instance_id}", *options],
        ]
        self._kept = KeptProcess(work_dir)

    @property
    def age_s(self) -> float:
        """Seconds since the last start."""
        return time.monotonic() - self._started_at

    def start(self, mode: str = "changes") -> int:
        """Start it, to recover in this mode; returns its process id at once."""
        self._started_at = time.monotonic()
        return self._kept.run([*self._command, f"--set=restore.mode={mode}"], self.log_path)

    def kill(self) -> None:
        """Send SIGKILL and wait for the end.

        Raises:
            DemoFailed: it had ended before, by itself.
        """
        self._expect(self._kept.end(0.0), -signal.SIGKILL)

    def stop(self) -> None:
        """Send SIGTERM and wait for the end.

        Raises:
            DemoFailed: it did not end with exit code 0 within the deadline.
        """
        self._expect(self._kept.end(STOP_S), 0)

    def check_running(self) -> None:
        """Raise DemoFailed, with the end of the log, if it has ended by itself."""
        code = self._kept.exit_code()
        if code is not None:
            self._unexpected(code)

    def close(self) -> None:
        """Kill it if it runs."""
        self._kept.close()

    def _expect(self, code: int | None, wanted: int) -> None:
        if code != wanted:
            self._unexpected(code)

    def _unexpected(self, code: int | None) -> None:
        raise DemoFailed(f"the service ended with exit code {code}; the end of its log:\n{tail(self.log_path)}")
