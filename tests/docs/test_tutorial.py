"""docs/tutorial.md and README.md, command by command, as their reader types them."""

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

# Another environment than that of the tests: tests/deploy/wheel.sh.
BIN = os.environ.get("SNAPREPLAY_TEST_BIN", Path(sys.executable).parent)
PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
RIGHT, WRONG = "item.stock -= order.pieces\n", "item.stock -= order.pieces / 0\n"


class Reader:
    """Types blocks of the page into a shell, in one folder, with ports that are free."""

    def __init__(self, folder: Path) -> None:
        self.folder, (kafka, http) = folder, free_ports(2)
        self.kafka_port = str(kafka)
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
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
        log = self.folder / f"{len(list(self.folder.glob('*.log')))}.log"
        with log.open("wb") as file:
            process = await self.started(f"exec {block}", file.fileno())
        try:
            await until(lambda: log.read_text().count(" LIVE at ") >= 4)
            yield log
        finally:
            process.send_signal(end)
            await process.wait()


async def test_the_tutorial_leads_where_it_says(tmp_path: Path) -> None:
    """A shop: a kill -9, a mistake, an upgrade of stored values. Each command shows what the page shows below it."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = {
        kind: re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        for kind in ("python", "sh", "diff")
    }
    _, test, develop, order, _, pay, order_again, look, dry_run, develop_2, pay_again = blocks["sh"]
    reader, app = Reader(tmp_path), tmp_path / "shop.py"
    app.write_text(blocks["python"][0])
    (tmp_path / "test_shop.py").write_text(blocks["python"][1])
    async with within(240):
        assert "2 passed" in await reader.typed(test)
        async with reader.developing(develop, signal.SIGKILL):
            await reader.shown(order, '"value": {"stock": 8, "reserved": {"o1": 2}}')
        async with reader.developing(develop, signal.SIGINT) as log:
            assert "partition 2 LIVE at batch 3" in text
            assert re.search("partition 2 LIVE at batch [1-9]", log.read_text())  # one for each record, or for both
            await reader.shown(pay, 'tea → {"id": "o1", "pieces": 2}')
            assert (await reader.typed(pay.splitlines()[-1])).count("tea →") == 1
        app.write_text(app.read_text().replace(RIGHT, WRONG))
        async with reader.developing(develop, signal.SIGINT):
            await reader.shown(order_again, "raised ZeroDivisionError: division by zero at shop.py:39")
        app.write_text(app.read_text().replace(WRONG, RIGHT))
        async with reader.developing(develop, signal.SIGINT):
            await reader.shown(look, '"value": {"stock": 5, "reserved": {"o2": 3}}')
            (tmp_path / "version_2.diff").write_text(blocks["diff"][0])
            patched = await reader.typed("patch --output shop_2.py shop.py version_2.diff")
            assert (tmp_path / "shop_2.py").exists(), patched
            assert "succeeded" in await reader.typed(f"{dry_run.strip()} && echo succeeded")
        async with reader.developing(develop_2, signal.SIGINT):
            await reader.shown(pay_again, '"value": {"stock": 5, "reserved": {}, "sold": 3}')


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
