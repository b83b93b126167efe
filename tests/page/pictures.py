"""Takes the pictures of the page that the documents show, from a real run of examples/fraud.py: three processes, one of
them killed, then a record that no handler can read. `python -m tests.page.pictures` takes about five minutes."""

import asyncio
import contextlib
import random
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from zlib import crc32

import msgspec
from playwright.async_api import Browser, Error, Page, async_playwright

from snapreplay.app.record import Output
from snapreplay.devbroker.broker import LocalBroker
from snapreplay.devbroker.free_ports import free_ports
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.feeding import KafkaFeeder

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
PARTITIONS, CARDS = 6, 4000
WORK_SECONDS = 90
HEALTHY = ".band.good"
"""A busy machine has doubts for a moment: a picture waits until they are over."""
COUNTRIES = ("DE", "FR", "NL", "PL", "SE")


class Processes:
    """The processes of the app, by name."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self.ports = dict(zip(("fraud-0", "fraud-1", "fraud-2"), free_ports(3), strict=True))
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, *command: str) -> list[str]:
        return [sys.executable, "-m", "snapreplay.api.cli", *command, "--bootstrap-servers", self._servers]

    def once(self, *command: str) -> None:
        subprocess.run(self.run(*command), check=True, cwd=ROOT / "examples")

    def start(self, *options: str) -> None:
        """Start those that do not run."""
        more = ("snapshot.every_seconds=20", "group.session_timeout_ms=6000", *options)
        for name, port in self.ports.items():
            if name not in self.running:
                command = self.run("run", "fraud:app", "--http-port", str(port), "--set", f"instance_id={name}")
                settings = [word for each in more for word in ("--set", each)]
                quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
                self.running[name] = subprocess.Popen([*command, *settings], cwd=ROOT / "examples", **quiet)  # type: ignore[call-overload]  # two of its names

    def kill(self, *names: str) -> None:
        for name in names or tuple(self.running):
            process = self.running.pop(name)
            process.kill()
            process.wait()


class Feed:
    """Payments and a few events of random cards, until the block ends."""

    def __init__(self, servers: str) -> None:
        self._feeder = KafkaFeeder(Settings(kafka={"bootstrap.servers": servers}), "pictures")
        self._has_ended = False
        self._next: list[Output] = []

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self._feeder.start()
        task = asyncio.create_task(self._feed())
        try:
            yield
        finally:
            self._has_ended = True
            await task
            await self._feeder.close()

    def send(self, topic: str, card: str, value: bytes) -> None:
        """Send it with the next ones: the feeder has one transaction at a time."""
        self._next.append(record(topic, card, value))

    async def _feed(self) -> None:
        rng, number = random.Random(7), 0
        while not self._has_ended:
            some, self._next = self._next, []
            for _ in range(20):
                card, number = f"card-{rng.randrange(CARDS):04}", number + 1
                payment = {"payment_id": f"p{number}", "amount_cents": rng.randrange(500, 60_000)}
                payment["country"] = rng.choice(COUNTRIES)
                some.append(record("card-payments", card, msgspec.json.encode(payment)))
                if rng.random() < 0.2:
                    event = {"type": "limit-changed", "limit_cents": rng.randrange(20_000, 200_000)}
                    some.append(record("account-events", card, msgspec.json.encode(event)))
            await self._feeder.feed(some)
            await asyncio.sleep(0.1)


def record(topic: str, card: str, value: bytes) -> Output:
    key = card.encode()
    return Output(topic, key, value, crc32(key) % PARTITIONS, False, int(time.time() * 1000), ())


async def look(browser: Browser, url: str, width: int = 1280, theme: str = "light") -> Page:
    """Open the page, once its process listens."""
    context = await browser.new_context(viewport={"width": width, "height": 900}, timezone_id="UTC", locale="en-GB")
    page = await context.new_page()
    await page.emulate_media(color_scheme="dark" if theme == "dark" else "light", reduced_motion="reduce")
    page.set_default_timeout(120_000)
    while True:
        with contextlib.suppress(Error):  # the process does not listen yet
            await page.goto(url)
            return page
        await asyncio.sleep(1)


async def shot(page: Page, name: str, height: int | None = None, *, healthy: bool = True) -> None:
    """Take a picture, as high as the content up to `height`; again if the app was not healthy at its end."""
    theme = "dark" if await page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") else "light"
    size = page.viewport_size or {"width": 1280, "height": 900}
    good = page.locator(HEALTHY if healthy else "main")
    while True:
        await good.wait_for()
        content = await page.evaluate("document.querySelector('footer').offsetTop - 16")
        await page.set_viewport_size({"width": size["width"], "height": min(content, height or content)})
        await page.screenshot(path=PICTURES / f"page-{name}-{theme}-{size['width']}.png")
        if await good.count():
            break
    await page.set_viewport_size(size)


async def top_of(page: Page, heading: str) -> int:
    """Return where a section begins, so that a picture ends before it."""
    return int(await page.get_by_role("heading", level=2, name=heading).evaluate("each => each.offsetTop")) - 12


async def take(browser: Browser, processes: Processes, feed: Feed) -> None:
    url = f"http://127.0.0.1:{processes.ports['fraud-0']}/"
    page, phone = await look(browser, url), await look(browser, url, 360, "dark")
    for each in (page, phone):
        await each.get_by_role("heading", level=1, name="Healthy").wait_for()
    await page.wait_for_timeout(WORK_SECONDS * 1000)
    await shot(page, "overview")
    await shot(phone, "overview", height=900)
    await page.evaluate("() => { location.hash = 'state'; }")
    browse = page.get_by_role("form", name="Browse")
    await browse.get_by_label("Store").select_option("window")
    await browse.get_by_role("button", name="Browse").click()
    await page.get_by_role("region", name="Entries: table").wait_for()
    await shot(page, "state", height=620)

    await page.evaluate("() => { location.hash = 'overview'; }")
    processes.kill("fraud-1")
    await page.locator(f"main:has({HEALTHY}) .restore.good").nth(1).wait_for()
    await shot(page, "restore", height=await top_of(page, "Topology"))
    processes.start()
    moved = page.get_by_role("list", name="Partitions of fraud-1").get_by_role("link").first
    number = (await moved.get_attribute("href") or "").rpartition("/")[2]
    await page.evaluate("(number) => { location.hash = `history/${number}`; }", number)
    await page.locator(".timeline rect.past").first.wait_for()
    await page.emulate_media(color_scheme="dark")
    await shot(page, "history")
    await page.emulate_media(color_scheme="light")

    feed.send("card-payments", "card-0042", b'{"payment_id": "p-42", "amount": "12,50"}')
    await page.get_by_text("is down").first.wait_for()
    await page.evaluate("() => { location.hash = 'overview'; }")
    await page.get_by_role("article", name="is down").wait_for()
    await shot(page, "failed", height=await top_of(page, "Processes"), healthy=False)

    processes.kill()
    processes.once("topics", "ensure", "fraud:app", "--set", "errors.policy=dead_letter")
    processes.start("errors.policy=dead_letter", "standby.replicas=1")
    page = await look(browser, f"{url}#dead-letters")
    letter = page.get_by_role("article")
    await letter.get_by_text("Record", exact=True).click()
    await page.locator(HEALTHY).wait_for()
    await shot(page, "dead-letters", height=520)

    await page.evaluate("() => { location.hash = 'overview'; }")
    await page.locator(f"main:has({HEALTHY}) .cell.copy", has_text="warm").nth(PARTITIONS - 1).wait_for()
    processes.kill("fraud-1")
    await page.locator(f"main:has({HEALTHY}) .restore.good").nth(1).wait_for()
    await shot(page, "takeover", height=await top_of(page, "Topology"))


async def main() -> None:
    with LocalBroker() as broker:
        processes, feed = Processes(broker.bootstrap_servers), Feed(broker.bootstrap_servers)
        processes.once("topics", "ensure", "fraud:app", "--partitions", str(PARTITIONS))
        processes.once("init", "fraud:app")
        processes.start()
        try:
            async with feed.running(), async_playwright() as playwright:
                path = shutil.which("chromium") or shutil.which("chromium-browser")
                browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
                await take(browser, processes, feed)
        finally:
            processes.kill()


if __name__ == "__main__":
    asyncio.run(main())
