"""An operator who does what a hint says, literally: the words between backquotes, placeholders filled in.

`snapreplay …` is typed into the command line, `kafka-configs.sh …` into Kafka's own class, `--set …` counts from the
next start on, `snapreplay retry` is for a process that runs (else the next start looks), `App("NEW-ID", …)` changes
the app's file, as does `App(…, name=value)`. Ways of a hint are separated by "; or ".
"""

import asyncio
import os
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from snapreplay.api.cli.root import app as commands
from snapreplay.api.server import HttpServer
from snapreplay.app.load import load_app
from snapreplay.errors import NotLive, SnapreplayError
from tests.support import kafka_tools
from tests.support.stage import Stage, processed, until

ROOT = Path(__file__).resolve().parents[2]


def ways(hint: str) -> list[str]:
    """Return what can be done instead of each other, in the order of the hint."""
    return hint.split("; or ")


def way_with(hint: str, words: str) -> str:
    """The one way of a hint in which these words stand."""
    (found,) = [way for way in ways(hint) if words in way]
    return found


class Operator:
    """An operator with an app in a file of the working directory, which `follow` may change, and settings of the
    next start."""

    def __init__(self, here: Stage, folder: Path, source: str) -> None:
        """`source`: an expression that makes the app, with `apps` and `Topic` at hand."""
        self.here = here
        self.settings: dict[str, Any] = {}
        self.said: list[str] = []
        self._http: dict[str, str] = {}
        self._folder = folder
        self._source = source
        self._write()

    def change(self, source: str) -> None:
        """Edit the app by hand."""
        self._source = source
        self._write()

    async def follow(self, way: str) -> None:
        """Do all that stands between backquotes, in this order."""
        did = False
        for typed in re.findall(r"`([^`]+)`", way):
            did = True
            await self._do(typed)
        assert did, f"nothing to be done in: {way}"

    async def type(self, *words: str, code: int | None = 0) -> str:
        """One of our commands; what it printed, standard error included. `code` None: however it ends."""
        result = await asyncio.to_thread(self._invoke, words)
        assert code in (None, result.exit_code), result.output
        self.said.append(result.output)
        return str(result.output)

    def load(self) -> Any:
        """The app as it is in the file now."""
        return load_app("hinted:app")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Any]:
        """A healthy service: LIVE, and it processes what comes."""
        self._forget()
        app = self.load()
        mine = Stage(self.here.bootstrap_servers, app, self.here.partitions, **self.here.tables)
        async with mine.running(app, **self.settings) as service:
            await mine.send([("k1", {"amount": 1})], app.inputs[0].name)
            await mine.all_processed(service)
            yield service

    async def healthy(self) -> None:
        """Check that the app runs, and no more."""
        async with self.running():
            pass

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Any]:
        """A process that runs, in any phase; the command line knows its HTTP address."""
        self._forget()
        addresses: list[Any] = []
        service = self.here.service(self.load(), HttpServer(on_bound=addresses.append), **self.settings)
        await service.start()
        self._http = {"SNAPREPLAY_HTTP__PORT": str(addresses[0].port)}
        try:
            yield service
        finally:
            self._http = {}
            await service.stop()

    async def failure(self) -> str:
        """The hint of partition 0 of a service that is started."""
        self._forget()
        status = await self.here.failure(self.load(), **self.settings)
        return str(status.error.hint)

    async def refused(self) -> str:
        """The hint of a service that is refused at its start, before it joins the group."""
        self._forget()
        async with self.here.started(self.load(), **self.settings) as service:
            with pytest.raises(SnapreplayError) as refused:
                await service.wait_started()
            return refused.value.hint

    async def awaited(self) -> str:
        """The hint of a service that waits for its genesis."""
        self._forget()
        async with self.here.started(self.load(), **self.settings) as service:
            await until(lambda: service.control.facts().waiting_for, "what it waits for")
            with pytest.raises(NotLive) as waits:
                await service.wait_live(0.01)
            return waits.value.hint

    async def _do(self, typed: str) -> None:
        for placeholder, value in {
            "MODULE:APP": "hinted:app",
            "TEXT": "'seen and decided'",
            "HOST:PORT": self.here.bootstrap_servers,
            "--partitions N": "--partitions 1",
        }.items():
            typed = typed.replace(placeholder, value)
        if typed.startswith("App("):
            self._edit_app(typed)
            return
        words = shlex.split(typed)
        if words[0] == "--set":
            self._set(words)
        elif words[0] in kafka_tools.CLASSES:
            command, _, stdin = typed.partition(" <<< ")
            given = "".join(shlex.split(stdin))
            said = await asyncio.to_thread(kafka_tools.run, shlex.split(command), given)
            self.said.append(said)
        elif words[:2] == ["snapreplay", "run"]:
            assert words[2] in ("hinted:app", "APP"), typed
            return  # the follower starts it, and looks what it says
        elif words[:2] == ["snapreplay", "retry"] and not self._http:
            return  # nothing runs: the next start looks again
        else:
            assert words[0] == "snapreplay", typed
            code = None if words[1] == "doctor" else 0  # what it finds is what it is asked for
            await self.type(*words[1:], code=code)

    def _edit_app(self, typed: str) -> None:
        """`App("NEW-ID", …)`: another id, everything else as it is; or one argument changed."""
        if "NEW-ID" in typed:
            new_id = f"{self.load().app_id}-new"
            topic = re.search(r'Topic\("NEW"\)', typed)
            inputs = f", inputs=[Topic('{new_id}-in')]" if topic else ""
            self.change(f"apps.heir({self._source}, {new_id!r}{inputs})")
        else:
            (argument,) = re.findall(r"App\(…, (.+)\)", typed)
            self.change(f"{self._source[:-1]}, {argument})")

    def _set(self, words: list[str]) -> None:
        for name_and_value in words[1::2]:
            name, value = name_and_value.split("=")
            *table, last = name.split(".")
            if table:
                self.settings[table[0]] = {**self.settings.get(table[0], {}), last: value}
            else:
                self.settings[last] = value

    def _invoke(self, words: tuple[str, ...]) -> Any:
        self._forget()
        if words[0] == "run":  # it takes the signals of its process
            command = [sys.executable, "-m", "snapreplay.api.cli", *words]
            env = {**os.environ, "PYTHONPATH": str(ROOT)}
            done = subprocess.run(command, cwd=self._folder, env=env, capture_output=True, text=True, check=False)
            return SimpleNamespace(exit_code=done.returncode, output=done.stdout + done.stderr)
        return CliRunner().invoke(commands, list(words), env=self._http, prog_name="snapreplay")

    def _write(self) -> None:
        (self._folder / "hinted.py").write_text(
            f"from snapreplay import Topic\nfrom tests.support import apps\napp = {self._source}\n"
        )
        self._forget()

    def _forget(self) -> None:
        """Each command is a process of its own for its user."""
        sys.modules.pop("hinted", None)


async def all_of(service: Any, count: int) -> None:
    """Wait until that many records of the input's only partition are committed."""
    await processed(service, {0: count})
