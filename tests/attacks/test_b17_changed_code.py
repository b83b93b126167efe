"""B17: killed, started again with other code that nobody announced: the replay computes something else, and nothing
proves what a state that is no map should be."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snapreplay.service.live import pace
from snapreplay.service.live.pipeline import Live
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from tests.support.files import app_in, changed
from tests.support.stage import snapshot

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
    new = {"type": "new", "order_id": f"o{next(NUMBERS)}", "side": side}
    return "ACME", {**new, "price": price, "quantity": 1}


SOLD = [order("sell", 100), order("sell", 100), order("buy", 100)]
RESTING = [order("sell", price) for price in (100, 101, 102)]
CANCEL = [("ACME", {"type": "cancel", "order_id": RESTING[1][1]["order_id"]})]


@pytest.fixture
def deploy(tmp_path: Path) -> Callable[[Files], Any]:
    numbers = itertools.count()
    return lambda files: app_in(tmp_path / f"deployed_{next(numbers)}", files)


async def killed(monkeypatch: Any, here: Any, *batches: Any) -> None:
    """It processed these; what it leaves is the log of a process that was killed."""

    async def nothing(live: Live) -> None:
        """A killed process leaves nothing."""

    with monkeypatch.context() as patch:
        patch.setattr(Live, "finish", nothing)
        patch.setattr(pace, "PART_OF_TIME", math.inf)  # hashing that a busy machine made slow puts off the next digest
        async with here.running() as service:
            for batch in batches:
                await here.send(batch)
                await here.all_processed(service)


async def place_of(here: Any, batch: int) -> str:
    """Name a batch as an error does; a recovery that began anew has left one more claim before it."""
    (records,) = await here.read(here.increments)
    offsets = [each.offset for each in records if kind_of(each.value or b"") is RecordKind.INCREMENT]
    return f"batch {batch} (increment at offset {offsets[batch]}): "


@pytest.mark.parametrize(
    ("files", "name", "tables"),
    [
        pytest.param(book, "shop.py", {}, id="the state's class", marks=pytest.mark.whole),
        pytest.param(book_with_helper, "rules.py", {}, id="a helper module"),
        pytest.param(counting, "rules.py", {"changelog": {"enabled": False}}, id="a map, its helper module"),
    ],
)
async def test_b17_a_stricter_rule_is_named_before_live(stage, unique, deploy, monkeypatch, files, name, tables):
    """FAILED with the first batch, its output topic, both fingerprints and both versions, which are not the same
    though both were given as "1"; the old code, stopped after a snapshot, leaves nothing to replay."""
    before = files(unique("rule"))
    here = await stage(deploy(before), **tables)
    await killed(monkeypatch, here, SOLD)
    after = deploy(changed(before, name, *STRICTER))
    assert after.version.startswith("1+code:")
    status = await here.failure(after)
    topic = here.output
    assert status.error.kind == "CodeChanged"
    assert f"{await place_of(here, 1)}its outputs to {topic} have fingerprint " in status.error.message
    assert f"app version {here.app.version}, this is {after.version}" in status.error.message
    assert "start the version that processed it and stop it" in status.error.hint
    async with here.running() as service:
        await snapshot(service)
    async with here.running(after) as service:
        assert service.restore_status()[0].restore.records_replayed == 0


IGNORED = ("if order_id in self._orders:\n            self._remove", "if not order_id:\n            self._remove")


@pytest.mark.parametrize(("every", "batch", "told"), [(1, 2, "digest "), (0, 1, "no digest of the state follows")])
async def test_b17_what_sends_nothing_is_caught_by_the_digest_or_not_believed(
    stage, unique, deploy, monkeypatch, every, batch, told
):
    """An order that is cancelled sends nothing, and stays in the book by the new code: a digest after each batch names
    the first that differs; without any, changed code is not believed."""
    before = book(unique("rule"))
    here = await stage(deploy(before), snapshot={"digest_every_batches": every})
    await killed(monkeypatch, here, RESTING, CANCEL)
    status = await here.failure(deploy(changed(before, "shop.py", *IGNORED)))
    assert status.error.kind == "CodeChanged"
    assert status.error.message.startswith(await place_of(here, batch) + told)


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
    assert " by replay, but " in status.error.message
