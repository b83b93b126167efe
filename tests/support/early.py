"""A process that does not import a module before a test lets it: the HTTP process answers probes only, for as long as
its application is held, and a service has not started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_GATE = """
import pathlib, sys, time

class Gate:
    def find_spec(name, path=None, target=None):
        here = pathlib.Path(__file__).parent
        if name == "MODULE":
            (here / "part").write_text(" ".join(sys.modules))
            (here / "part").rename(here / "imported")
            while not (here / "opened").exists():
                time.sleep(0.01)

sys.meta_path.insert(0, Gate)
"""


class Gate:
    """Holds the import of a module in every process that is started from now on."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, module: str = "snapreplay.api.application"
    ) -> None:
        (folder / "sitecustomize.py").write_text(_GATE.replace("MODULE", module))
        self._folder = folder
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH")))))

    def open(self) -> None:
        """Let the import go on."""
        (self._folder / "opened").touch()

    @property
    def imported(self) -> list[str]:
        """Return what the process has imported before; empty: it has not come so far."""
        told = self._folder / "imported"
        return told.read_text().split() if told.exists() else []
