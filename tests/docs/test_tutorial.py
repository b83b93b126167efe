"""docs/tutorial.md and README.md, command by command, as their reader types them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from snapreplay.devbroker.free_ports import free_ports
from tests.docs.test_pages import README, program_of_the_readme
from tests.support.deadlines import within
from tests.support.kafka import until_async
from tests.support.stage import until

pytestmark = [pytest.mark.kafka, pytest.mark.whole]

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
RIGHT, WRONG = "account.payments += 1\n", "account.payments += 1 / 0\n"


class Reader:
    """Types blocks of the page into a shell, in one folder, with ports that are free."""

    def __init__(self, folder: Path) -> None:
        self.folder, (kafka, http) = folder, free_ports(2)
        self.kafka_port = str(kafka)
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SNAPREPLAY_HTTP__PORT": str(http),
            "SNAPREPLAY_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{kafka}",
        }

    async def typed(self, block: str) -> str:
        process = await self.started(block, asyncio.subprocess.PIPE)
        said, _ = await process.communicate()
        return said.decode()

    async def started(self, block: str, output: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *("bash", "-uc", block.replace("9092", self.kafka_port)),
            cwd=self.folder,
            env=self.environment,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def shown(self, block: str, wanted: str) -> None:
        """Type a block, and its last command until it shows this, which the page has, too."""
        assert wanted in PAGE.read_text(encoding="utf-8")
        await self.typed(block)
        await until_async(lambda: self.typed(block.splitlines()[-1]), lambda said: wanted in said)

    @asynccontextmanager
    async def developing(self, block: str, end: signal.Signals) -> AsyncIterator[Path]:
        """Leave this running as in a first terminal; yield its log."""
        log = self.folder / f"{end.name}.log"
        with log.open("wb") as file:
            process = await self.started(f"exec {block}", file.fileno())
        try:
            await until(lambda: log.read_text().count(" LIVE at ") >= 4)
            yield log
        finally:
            process.send_signal(end)
            await process.wait()


async def test_the_tutorial_leads_where_it_says(tmp_path: Path) -> None:
    """An app, a kill -9, a mistake: each command shows what the page shows below it. The tests of the project are those
    of tests/api/cli/test_new_command.py."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    _, make, develop, feed_5, _, feed_2, feed_1, tail = blocks
    reader = Reader(tmp_path)
    async with within(120):
        await reader.typed(make.replace("python -m pytest", ""))
        reader.folder /= "my-ledger"
        app = reader.folder / "my_ledger.py"
        async with reader.developing(develop, signal.SIGKILL):
            await reader.shown(feed_5, '"balance": 5, "payments": 1')
        async with reader.developing(develop, signal.SIGINT) as log:
            await reader.shown(feed_2, '"balance": 7, "payments": 2')
            app.write_text(app.read_text().replace(RIGHT, WRONG))
            await until(lambda: log.read_text().count(" LIVE at ") >= 8)
            await reader.shown(feed_1, "raised ZeroDivisionError: division by zero at my_ledger.py:31")
            app.write_text(app.read_text().replace(WRONG, RIGHT))
            await reader.shown(tail, '"balance": 8, "payments": 3')


async def test_the_readme_leads_where_it_says(tmp_path: Path) -> None:
    """Its program runs as it stands, on a real broker, and survives a kill."""
    text = README.read_text(encoding="utf-8")
    develop, feed = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[1:]
    reader = Reader(tmp_path)
    (tmp_path / "ledger.py").write_text(program_of_the_readme())
    async with within(120):
        async with reader.developing(develop, signal.SIGKILL):
            await reader.typed(feed)
            await until_async(lambda: reader.typed(feed.splitlines()[-1]), lambda said: "ada → 5" in said)
        async with reader.developing(develop, signal.SIGINT):
            await reader.typed(feed)
            await until_async(lambda: reader.typed(feed.splitlines()[-1]), lambda said: "ada → 10" in said)
