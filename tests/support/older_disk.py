"""A broker whose disk, or a part of it, is exchanged for an older one."""

import os
import shutil
import signal
from pathlib import Path

from snapreplay.devbroker.broker import LocalBroker
from tests.support.deadlines import scaled


class OlderDisk:
    """A broker and its data in a folder. Partitions are named as their directories are: by a pattern, "orders-*"."""

    def __init__(self, folder: Path) -> None:
        self._data, self._older = folder / "data", folder / "older"
        self.broker = LocalBroker(data_dir=self._data, deadline_s=scaled(60))

    def keep(self, partitions: str) -> None:
        """Copy them as a snapshot of the volume does: all files at one moment."""
        os.kill(self.broker.pid, signal.SIGSTOP)
        try:
            for each in self._data.rglob(partitions):
                shutil.copytree(each, self._older / each.name)
        finally:
            os.kill(self.broker.pid, signal.SIGCONT)

    def put_back(self, partitions: str) -> None:
        """Start the broker again with the copies, and without what was not there then."""
        self.broker.kill()
        for each in list(self._data.rglob(partitions)):
            shutil.rmtree(each)
            if (self._older / each.name).exists():
                shutil.copytree(self._older / each.name, each)
        self.broker.restart()
