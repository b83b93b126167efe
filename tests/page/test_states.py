"""The page while its process says nothing, refuses, tells no events or has nothing to show, in a real browser."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime

import msgspec
import pytest
from playwright.async_api import Browser, Page, Route, expect

from snapreplay.service.clock import wall_time
from snapreplay.service.control.protocol import Topology, TopologyInput
from snapreplay.service.control.status import CallStatus, InputStatus, RecoveryStatus
from tests.page.looking import looked_at, opened, says, tab
from tests.support.fake_control import FAILED, LIVE, FakeControl
from tests.support.served import served

ANSWERS = re.compile(r"/(api/v1|restore-status|readyz)(?!/events)")
"""What the page asks every two seconds, without the stream."""


def healthy() -> FakeControl:
    """Make a process whose only partition is live."""
    control = FakeControl([msgspec.structs.replace(LIVE, recoverable=True)])
    control.service_facts = msgspec.structs.replace(control.service_facts, partition_count=1)
    return control


class Held:
    """Answers that are on their way until `release`. `await of(page)` makes one, before the page is opened.

    Attributes:
        has_one: the page waits for one; it asks nothing more until it has it.
    """

    def __init__(self) -> None:
        self._released = asyncio.Event()
        self.has_one = asyncio.Event()

    @classmethod
    async def of(cls, page: Page) -> Held:
        """Let the page never give up: on a busy machine its 8 s, which no clock of a test stops, would end before it
        was looked at. After `clock.install`, if there is one."""
        await page.add_init_script("AbortSignal.timeout = () => new AbortController().signal")
        return cls()

    async def hold(self, route: Route) -> None:
        self.has_one.set()
        await self._released.wait()
        await route.continue_()

    def release(self) -> None:
        self._released.set()


async def test_it_says_that_it_is_loading(page: Page) -> None:
    """Before the first answer nothing is claimed, neither good nor bad."""
    held = await Held.of(page)
    async with served(healthy()) as url:
        await page.route(ANSWERS, held.hold)
        await page.goto(url)
        await says(page, re.compile("Loading"))
        await expect(page.locator("main")).to_contain_text("Asking the process.")
        await expect(page.get_by_role("navigation")).to_have_count(0)
        await looked_at(page)
        held.release()
        await says(page, re.compile("Healthy"))


async def test_an_answer_that_does_not_come_is_reported_and_its_last_one_greyed(page: Page) -> None:
    """It says how old its knowledge is, and its buttons are off until an answer comes."""
    await page.clock.install()
    held = await Held.of(page)
    async with opened(page, healthy()):
        await says(page, re.compile("Healthy"))
        await page.route(ANSWERS, held.hold)
        await page.clock.run_for(7_000)
        await says(page, re.compile("No new answer"))
        await expect(page.locator(".band")).to_contain_text(re.compile(r"The last one is \d+(\.\d)? s old"))
        await expect(page.locator(".band")).to_contain_text("Not known from here. What was committed is in Kafka.")
        await expect(page.get_by_role("button", name="Drain host-a")).to_be_disabled()
        await looked_at(page)
        held.release()
        await page.clock.run_for(2_000)
        await says(page, re.compile("Healthy"))
        await expect(page.get_by_role("button", name="Drain host-a")).to_be_enabled()


async def test_a_refusal_is_shown_with_its_reason(page: Page) -> None:
    """An error of the process, with what to do about it: a command is copied with the address, and a setting is no
    command. The page asks on, and is as new as ever afterwards."""
    problem = {"type": "about:blank", "title": "Internal Server Error", "status": 500, "detail": "it broke"}
    ways = (
        "read the log, then `snapreplay doctor`",
        "`snapreplay lag`",
        "`App('new', …)`",
        "`--set restore.mode=replay`",
    )
    problem["hint"] = "; or ".join(ways)

    async def refuse(route: Route) -> None:
        await route.fulfill(status=500, body=json.dumps(problem), content_type="application/problem+json")

    async with opened(page, healthy()) as url:
        await says(page, re.compile("Healthy"))
        await page.route("**/restore-status*", refuse)
        await says(page, re.compile("The process refuses to answer"))
        await expect(page.locator(".band")).to_contain_text("It broke.")
        await expect(page.locator(".band").get_by_role("button", name="Copy: snapreplay doctor")).to_be_visible()
        await expect(page.get_by_role("button", name=f"Copy: snapreplay lag --url {url}")).to_be_visible()
        await expect(page.locator(".band li").last).to_contain_text("in its settings file")
        await expect(page.locator(".band li").get_by_role("button")).to_have_count(2)
        await expect(page.locator(".top")).to_contain_text("This page: ✕ refused, as of")
        await expect(page.get_by_role("button", name="Drain host-a")).to_be_disabled()
        await looked_at(page)
        await page.reload()
        await says(page, re.compile("The process refuses to answer"))
        await expect(page.locator(".band").get_by_role("button", name="Copy: snapreplay doctor")).to_be_visible()
        await expect(page.locator(".band")).not_to_contain_text("All below")
        await page.unroute("**/restore-status*")
        await says(page, re.compile("Healthy"))


async def test_a_network_that_is_down_is_reported(page: Page) -> None:
    """No answer at all, before and after the first one."""
    async with served(healthy()) as url:
        await page.route(ANSWERS, lambda route: route.abort())
        await page.goto(url)
        await says(page, re.compile("The process cannot be reached"))
        await looked_at(page)
        await page.unroute(ANSWERS)
        await says(page, re.compile("Healthy"))


async def test_half_an_answer_is_none(page: Page) -> None:
    """One that was cut on its way, with a success in its head, is not taken for a process without partitions."""

    async def cut(route: Route) -> None:
        await route.fulfill(status=200, body='{"partitions": [', content_type="application/json")

    async with opened(page, healthy()):
        await says(page, re.compile("Healthy"))
        await page.route("**/restore-status*", cut)
        await says(page, re.compile("The process cannot be reached"))
        await expect(page.locator(".band")).to_contain_text("Everything below is as of then")
        await page.unroute("**/restore-status*")
        await says(page, re.compile("Healthy"))


@pytest.mark.parametrize("status", [None, 503], ids=["blocked", "refused"])
async def test_without_the_stream_of_events_it_asks_on(page: Page, status: int | None) -> None:
    """A proxy may let no stream through. What changes is seen all the same, by the question every two seconds."""
    tried: list[str] = []

    async def cut(route: Route) -> None:
        tried.append(route.request.url)
        await (route.abort() if status is None else route.fulfill(status=status))

    control = healthy()
    async with served(control) as url:
        await page.route("**/api/v1/events", cut)
        await page.goto(url)
        await says(page, re.compile("Healthy"))
        control.statuses[0] = msgspec.structs.replace(FAILED, partition=0)
        await says(page, re.compile("Partition 0 is down"))
        control.statuses[0] = msgspec.structs.replace(LIVE, recoverable=True)
        await says(page, re.compile("Healthy"))
    assert tried


async def test_where_there_is_nothing_it_says_so(page: Page) -> None:
    """A process without partitions, snapshots, operations and peers has no empty tables."""
    control = FakeControl([])
    control.service_facts = msgspec.structs.replace(control.service_facts, partition_count=None)
    async with opened(page, control):
        await expect(page.locator(".band")).to_contain_text("The app's topics have not been seen yet.")
        for name, said in {
            "Partitions": "No process has a partition.",
            "State": "No partition has stores that can be read.",
            "Snapshots": "None was written or used since host-a started.",
            "Operations": "None since the process started.",
        }.items():
            await tab(page, name)
            await expect(page.get_by_role("region", name=name, exact=True).locator(".empty")).to_have_text(said)
            await expect(page.locator("table")).to_have_count(0)
        await looked_at(page)


async def test_the_zone_of_the_times_is_said_once(browser: Browser) -> None:
    """The head of the page names it; each time has itself in UTC, for machines and for who points at it."""
    async with served(healthy()) as url:
        for zone, said in {
            "Asia/Kolkata": "UTC+5:30 (Asia/Calcutta)",
            "America/Phoenix": "UTC−7 (America/Phoenix)",
            "UTC": "UTC",
        }.items():
            async with await browser.new_context(timezone_id=zone, locale="en-GB") as context:
                page = await context.new_page()
                await page.goto(url)
                await says(page, re.compile("Healthy"))
                await expect(page.locator(".zone")).to_have_text(f"· times in {said}")
                await tab(page, "Partitions")
                times = await page.locator("time").evaluate_all("them => them.map(it => [it.dateTime, it.title])")
                assert times
                for machine, title in times:
                    assert title == f"{datetime.fromisoformat(machine).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


async def test_a_partition_that_waits_for_a_schema_needs_attention(page: Page) -> None:
    """It is live, and processes nothing: the card has the words of the wait."""
    control = healthy()
    live = control.statuses[0]
    why = "waiting for schema 7 of the schema registry http://registry:8081: it answers 503"
    restore = msgspec.structs.replace(live.restore or RecoveryStatus(), waiting_for=why)
    control.statuses[0] = msgspec.structs.replace(live, restore=restore)
    async with opened(page, control):
        await says(page, re.compile("Partition 0 waits and processes nothing"))
        await expect(page.locator("main")).to_contain_text("W" + why[1:])


async def test_the_topology_shows_lag_and_pending_calls_and_a_card_the_open_circuit(page: Page) -> None:
    """The topics of a pattern count together, and are not those of another one; what fails has its reason."""
    control = healthy()
    names = {"payments": "on_payment", "rate.*": "on_rate", "order-.*": "on_order"}
    inputs = tuple(TopologyInput(topic, handler) for topic, handler in names.items())
    topology = Topology(inputs, ("balances",), calls=("carrier",))
    control.service_facts = msgspec.structs.replace(control.service_facts, topology=topology)
    call = CallStatus("carrier", 3, 12, circuit_open=True, last_error="TimeoutError", oldest_at=wall_time())
    control.statuses[0] = msgspec.structs.replace(control.statuses[0], calls=(call,))
    async with opened(page, control):
        await says(page, "! Call carrier fails in partition 0")
        await expect(page.get_by_role("article", name="Call carrier fails")).to_contain_text("TimeoutError")
        nodes = page.locator(".node")
        await expect(nodes).to_contain_text(
            [
                re.compile(r"payments\s.*20 lag"),
                re.compile(r"rate\.\*\s.*2 lag"),
                re.compile(r"order-\.\*\s.*– lag"),
                "on_payment",
                "on_rate",
                "on_order",
                re.compile(r"carts.*items.*call carrier\s+3 pending.*circuit open", re.DOTALL),
                "balances",
                "dead letters",
            ]
        )
        await looked_at(page)
        first, *others = control.statuses[0].inputs
        handled = msgspec.structs.replace(first, handled_total=100, handler_seconds_total=0.25)
        control.statuses[0] = msgspec.structs.replace(control.statuses[0], inputs=(handled, *others))
        await expect(nodes.nth(3)).to_contain_text(re.compile(r"on_payment\s+2.5 ms per record"))
        await expect(nodes.nth(4)).to_contain_text("offsets/s")


async def test_the_partitions_of_a_broadcast_table_count_together(page: Page) -> None:
    control = healthy()
    topology = Topology((TopologyInput("payments", "on_payment"), TopologyInput("rates", "")), ())
    control.service_facts = msgspec.structs.replace(control.service_facts, topology=topology)
    parts = tuple(InputStatus(f"rates/{number}", 5, 7, 7) for number in range(3))
    first = control.statuses[0].inputs[0]
    control.statuses[0] = msgspec.structs.replace(control.statuses[0], inputs=(first, *parts))
    async with opened(page, control):
        await expect(page.locator(".node").nth(1)).to_contain_text(re.compile(r"rates\s.*6 lag"))


async def test_the_topology_knows_no_lag_while_a_partition_is_down_and_shows_which_pattern_fails(page: Page) -> None:
    """What it had read when it failed is old; the topic of its record belongs to one of two patterns."""
    control = healthy()
    inputs = tuple(TopologyInput(topic, f"on_{topic[:4]}") for topic in ("payments", "rate.*", "order-.*"))
    control.service_facts = msgspec.structs.replace(
        control.service_facts, topology=Topology(inputs, ()), partition_count=2
    )
    assert FAILED.error is not None
    error = msgspec.structs.replace(FAILED.error, record_id="order-eu-1-7")
    control.statuses[1] = msgspec.structs.replace(FAILED, partition=1, error=error)
    async with opened(page, control):
        nodes = page.locator(".node")
        await expect(nodes).to_contain_text(
            [
                *(re.compile(rf"{name}.*– lag", re.DOTALL) for name in ("payments", "rate", "order")),
                re.compile("on_paym.*no failure", re.DOTALL),
                re.compile("on_rate.*no failure", re.DOTALL),
                re.compile("on_orde.*1 failure", re.DOTALL),
            ]
        )
        await expect(nodes.locator("[title]").first).to_have_attribute("title", "without partition 1, which is down")


async def test_a_page_that_is_opened_at_a_partition_shows_it(page: Page) -> None:
    """It has the focus, below the many others."""
    control = FakeControl([msgspec.structs.replace(LIVE, partition=number) for number in range(120)])
    control.service_facts = msgspec.structs.replace(control.service_facts, partition_count=120)
    async with served(control) as url:
        await page.goto(f"{url}#partitions/117")
        await expect(page.locator("#partition-117").get_by_role("button").first).to_be_focused()
        await expect(page.locator("#partition-117")).to_be_in_viewport()
