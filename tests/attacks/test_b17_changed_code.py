"""B17: killed, started again with other code that nobody announced: the replay computes something else, and nothing
proves what a state that is no map should be."""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snapreplay.service.live.pipeline import Live
from tests.support import apps, reference
from tests.support.accepting import accepted
from tests.support.files import app_in, changed, program_in
from tests.support.stage import processed, snapshot, until

pytestmark = pytest.mark.kafka

EXAMPLE = (Path(__file__).parents[2] / "examples/order_book.py").read_text()
CROSSES = 'price <= new.price if new.side == "buy" else price >= new.price'
STRICTER = ("price <= ", "price < ")

Files = dict[str, str]


def book(name: str) -> Files:
    """The order book of the examples, under names of its own; a version that nobody raises."""
    text = EXAMPLE
    for topic in ("orders", "trades"):
        text = text.replace(f'Topic("{topic}"', f'Topic("{topic}-{name}"')
    return changed({"shop.py": text}, "shop.py", 'App("order-book"', f'App("{name}", version="1"')


def book_with_helper(name: str) -> Files:
    """The same; the rule stands in a module of its own."""
    files = changed(book(name), "shop.py", CROSSES, "rules.crosses(new.side, price, new.price)")
    files = changed(files, "shop.py", "import msgspec\n", "import msgspec\nimport rules\n")
    rule = CROSSES.replace("new.side", "side").replace("new.price", "limit")
    return files | {"rules.py": f"def crosses(side, price, limit):\n    return {rule}\n"}


def counting(name: str) -> Files:
    """A map: how many orders of a symbol were at 100 or better."""
    return {
        "rules.py": "def crosses(price):\n    return price <= 100\n",
        "shop.py": f"""
from snapreplay import App, MapState, Topic
from rules import crosses
orders, trades = Topic("orders-{name}"), Topic("trades-{name}")
app = App("{name}", inputs=[orders], outputs=[trades], state=lambda: MapState(str, int, default=int), version="1")

@app.handler(orders)
def on_order(record, state, out):
    if crosses(record.value["price"]):
        state[record.key] += 1
        out.send(trades, key=record.key, value=state[record.key])
""",
    }


NUMBERS = itertools.count()


def order(side: str, price: int) -> tuple[str, Any]:
    """Of one piece."""
    new = {"type": "new", "order_id": f"o{next(NUMBERS)}", "side": side}
    return "ACME", {**new, "price": price, "quantity": 1}


SOLD = [order("sell", 100), order("sell", 100), order("buy", 100)]
RESTING = [order("sell", price) for price in (100, 101, 102)]
CANCEL = [("ACME", {"type": "cancel", "order_id": RESTING[1][1]["order_id"]})]


@pytest.fixture
def deploy(tmp_path: Path) -> Callable[[Files], Any]:
    """Each deployment in a folder of its own."""
    numbers = itertools.count()
    return lambda files: app_in(tmp_path / f"deployed_{next(numbers)}", files)


async def killed(monkeypatch: Any, here: Any, *batches: Any) -> None:
    """It processed these; what it leaves is the log of a process that was killed."""

    async def nothing(live: Live) -> None:
        """A killed process leaves nothing."""

    with monkeypatch.context() as patch:
        patch.setattr(Live, "leave_digest", nothing)
        async with here.running() as service:
            for batch in batches:
                await here.send(batch)
                await here.all_processed(service)


@pytest.mark.parametrize(
    ("files", "name", "tables"),
    [
        pytest.param(book, "shop.py", {}, id="the state's class"),
        pytest.param(book_with_helper, "rules.py", {}, id="a helper module"),
        pytest.param(
            counting, "rules.py", {"changelog": {"enabled": False}}, id="a map, its helper module"
        ),
    ],
)
async def test_b17_a_stricter_rule_is_named_before_live(
    stage, unique, deploy, monkeypatch, files, name, tables
):
    """FAILED with the first batch, its output topic, both fingerprints and both versions, which are not the same
    though both were given as "1"; the old code, stopped after a snapshot, leaves nothing to replay."""
    before = files(unique("rule"))
    here = await stage(deploy(before), **tables)
    await killed(monkeypatch, here, SOLD)
    after = deploy(changed(before, name, *STRICTER))
    assert after.version.startswith("1+code:")
    status = await here.failure(after)
    topic = here.app.outputs[0].name
    assert status.error.kind == "CodeChanged"
    assert f"batch 1 (increment at offset 6): its outputs to {topic} have fingerprint " in (
        status.error.message
    )
    assert f"app version {here.app.version}, this is {after.version}" in status.error.message
    assert "start the version that processed it and stop it" in status.error.hint
    async with here.running() as service:
        await snapshot(service)
    async with here.running(after) as service:
        assert service.restore_status()[0].restore.records_replayed == 0


async def test_b17_what_the_new_code_makes_of_it_can_be_accepted(
    stage, unique, deploy, monkeypatch
):
    """As printed: then it is LIVE, and the order that had been sold rests in the book again."""
    before = book(unique("rule"))
    here = await stage(deploy(before))
    await killed(monkeypatch, here, SOLD)
    after = deploy(changed(before, "shop.py", *STRICTER))
    status = await here.failure(after)
    proposal, _ = await accepted(here, status.error.hint, after)
    assert "what app version" in proposal.plan[0]
    async with here.running(after) as service:
        await here.all_processed(service)
        assert len(dict(service._supervisor.runners[0].store.view.snapshot())) == 1 + 3
    assert len((await here.read(here.app.outputs[0].name))[0]) == 1


async def test_b17_killed_by_sigkill(stage, unique, deploy, children, tmp_path):
    """A process of its own, as an operator runs and kills it."""
    before = book_with_helper(unique("rule"))
    here = await stage(deploy(before))
    folder = tmp_path / "deployed_0"
    child = children.start("", here.app.app_id, program=program_in(folder))
    await asyncio.to_thread(child.wait_live)
    await here.send(SOLD)
    await until(lambda: child.processed() == len(SOLD), "the input")
    child.kill()
    (folder / "rules.py").write_text(changed(before, "rules.py", *STRICTER)["rules.py"])
    again = children.start("", here.app.app_id, program=program_in(folder))
    await asyncio.to_thread(again.wait_http)
    await until(lambda: " FAILED: CodeChanged: batch 1 " in again.log, "FAILED")
    assert again.partitions()[0]["error"]["kind"] == "CodeChanged"
    assert "LIVE" not in again.log


IGNORED = (
    "if order_id in self._orders:\n            self._remove",
    "if not order_id:\n            self._remove",
)


@pytest.mark.parametrize(
    ("every", "told"),
    [
        (1, "batch 2 (increment at offset 8) by replay: digest "),
        (0, "batch 1 (increment at offset 6): no digest of the state follows"),
    ],
)
async def test_b17_what_sends_nothing_is_caught_by_the_digest_or_not_believed(
    stage, unique, deploy, monkeypatch, every, told
):
    """An order that is cancelled sends nothing, and stays in the book by the new code: a digest after each batch names
    the first that differs; without any, changed code is not believed."""
    before = book(unique("rule"))
    here = await stage(deploy(before), snapshot={"digest_every_batches": every})
    await killed(monkeypatch, here, RESTING, CANCEL)
    status = await here.failure(deploy(changed(before, "shop.py", *IGNORED)))
    assert status.error.kind == "CodeChanged"
    assert status.error.message.startswith(told)


async def test_b17_a_refactoring_is_proven_by_the_digest(stage, unique, deploy, monkeypatch):
    """Other code that does the same goes LIVE, where a digest follows the last batch."""
    before = book(unique("rule"))
    here = await stage(deploy(before), snapshot={"digest_every_batches": 1})
    await killed(monkeypatch, here, RESTING, CANCEL, SOLD[2:])
    after = deploy(changed(before, "shop.py", "if left:", "if left > 0:"))
    assert after.version != here.app.version
    async with here.running(after) as service:
        restore = service.restore_status()[0].restore
        assert (restore.mode, restore.records_replayed) == ("replay", 5)
        assert (restore.proof.equal, restore.proof.batches_compared) == (True, 3)


async def test_b17_a_graceful_end_leaves_a_digest(stage, unique, deploy):
    """Without a last snapshot, as when a partition moves: the next owner's code is proven by it."""
    before = book(unique("rule"))
    here = await stage(deploy(before), snapshot={"digest_every_batches": 0})
    async with here.running() as service:
        await here.send([*RESTING, *CANCEL])
        await here.all_processed(service)
    refactored = changed(before, "shop.py", "if left:", "if left > 0:")
    async with here.running(deploy(refactored)) as service:
        restore = service.restore_status()[0].restore
        assert (restore.records_replayed, restore.proof.equal) == (4, True)
    ignoring = deploy(changed(before, "shop.py", *IGNORED))
    status = await here.failure(ignoring)
    assert status.error.kind == "CodeChanged"
    assert "by replay: digest " in status.error.message


async def test_b17_other_outputs_with_the_same_state_go_on(stage, unique):
    """A hotfix of what is sent: the state is the committed one, by its digest; what was sent stays."""
    here = await stage(apps.ledger(unique("sent")), changelog={"enabled": False})
    async with here.running() as service:
        await here.feed(10)
        await here.all_processed(service)
    wordy = apps.ledger(here.app.app_id, sends={"currency": "EUR"})
    assert wordy.version != here.app.version
    async with here.running(wordy) as service:
        restore = service.restore_status()[0].restore
        assert (restore.records_replayed, restore.proof.equal) == (10, True)
        assert reference.as_plain(service.view(0)) == reference.booked(range(10), range(0))


async def test_b17_what_no_version_covers_is_found_by_its_outputs(stage, unique):
    """The same version, as when an installed package changed: FAILED as not the same, not as changed code."""
    here = await stage(apps.ledger(unique("unseen")), changelog={"enabled": False})
    async with here.running() as service:
        await here.feed(10)
        await processed(service, {0: 10})
    unseen = apps.unseen(apps.ledger(here.app.app_id, sends={"currency": "EUR"}), here.app.version)
    status = await here.failure(unseen)
    assert status.error.kind == "OutputsDiffer"
    assert f"app version {here.app.version} then and now" in status.error.message
    assert "not deterministic" in status.error.message
    await accepted(here, status.error.hint, unseen)
    async with here.running(unseen) as service:
        assert reference.as_plain(service.view(0)) == reference.booked(range(10), range(0))
