"""The last increment of T-ZengLiang is the one that a full scan finds, whatever comes after it: by the real recovery,
on a real broker."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

import pytest

from snapreplay.service.core.refusals import NotInitialised
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.requirements import ensure_topics
from tests.log_tail.tail import Seeker, Tail, ends
from tests.support import apps
from tests.support.history import History, history
from tests.support.kafka import decided
from tests.support.stage import Stage, until

pytestmark = pytest.mark.kafka


class Shape(NamedTuple):
    """A log as `Tail.build` makes it, and where it ends (no transaction is open)."""

    name: str
    steps: str
    end: int


SHAPES = (
    Shape("one committed transaction of one record", "batch", 2),
    Shape("committed then aborted", "batch, aborted 1 1", 4),
    Shape("three outside any transaction", ", ".join(3 * ["plain_increment"]), 3),
    Shape("one transaction of five records", "batch 4", 6),
    Shape("empty", "", 0),
    Shape("trimmed to the end", "batch 4, trim 6", 6),
    Shape("trimmed into a transaction", "batch 4, trim 2", 6),
    # what makes them the normal case in a crash loop
    Shape("increments and aborted in turn", "batch, aborted 1 1, batch, aborted 1 1", 8),
    Shape("another writer within ours", "batch 1 1", 4),
    Shape("thirty bare markers", "batch, bare 30", 32),
    Shape("everything", 8 * "batch 2, aborted 2 2, plain, " + "bare 8, trim 50", 96),
)
SPARE = 8


@pytest.fixture(scope="module")
async def here(broker: Any, unique: Callable[[str], str]) -> Stage:
    """An app whose topics are there and empty: no genesis. Each test has a partition of its own."""
    app = apps.ledger(unique("tail"))
    stage = Stage(broker.bootstrap_servers, app, len(SHAPES) + SPARE)
    settings, cluster = stage.settings(), stage.cluster
    await ensure_topics(app, settings, cluster, create_io_partitions=stage.partitions)
    return stage


@pytest.fixture(scope="module")
def partitions() -> Iterator[int]:
    return iter(range(len(SHAPES) + SPARE))


@pytest.fixture
async def tail(here: Stage, partitions: Iterator[int]) -> AsyncIterator[Tail]:
    made = Tail(await here.context(next(partitions), timeouts={"claim_grace_ms": 50}))
    yield made
    await made.close()


async def scan(context: Context) -> History:
    servers = ",".join(context.settings.bootstrap_servers)
    return await asyncio.to_thread(history, servers, *context.increments)


async def settled(tail: Tail) -> None:
    """Wait until every transaction there has its marker: a commit is answered before."""
    await decided(KafkaCluster(tail.context.settings), tail.context.increments)


async def hidden_twice(seeker: Seeker, searching: asyncio.Task[None]) -> None:
    """Wait until the claim could not be seen, nor with a new client; and the search goes on."""
    await until(lambda: seeker.hidden >= 2 or searching.done())
    assert not searching.done()
    assert seeker.windows == 0


async def assert_found_is_scanned(seeker: Seeker, context: Context) -> None:
    """Our search and the full scan agree on the last increment before the claim, or on its absence."""
    try:
        offset = (await seeker.seek()).offset
    except NotInitialised:
        offset = None
    told = await scan(context)
    assert seeker.claimed_at in told.claims
    assert offset == told.last_before(seeker.claimed_at)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
async def test_the_last_increment_is_that_of_a_full_scan(tail: Tail, shape: Shape) -> None:
    """For each shape, which is what it claims to be."""
    await tail.build(shape.steps)
    await settled(tail)
    assert await ends(tail.context) == (shape.end, shape.end)
    await assert_found_is_scanned(Seeker(tail.context), tail.context)


@pytest.mark.parametrize(("end", "behind"), [("commit", False), ("abort", True)])
async def test_behind_an_open_transaction_nothing_is_believed(tail: Tail, behind: bool, end: str) -> None:
    """Committed, then somebody's open transaction of three: the claim stays hidden, and the search ends only when the
    transaction has; then with the batches that were committed behind it."""
    await tail.batch()
    await settled(tail)
    opened = await tail.open(3)
    if behind:
        await tail.plain()
    assert await ends(tail.context) == (2, 5 + behind)
    await tail.batch()
    last = await tail.batch(changes=2)
    seeker = Seeker(tail.context)
    searching = asyncio.create_task(assert_found_is_scanned(seeker, tail.context))
    await hidden_twice(seeker, searching)
    await (opened.commit_transaction() if end == "commit" else opened.abort_transaction())
    await searching
    assert (await scan(tail.context)).last_before(seeker.claimed_at) == last


async def test_an_open_transaction_alone_is_no_empty_log(tail: Tail) -> None:
    """Nothing but somebody's open transaction: nobody says "not initialised" before it has ended."""
    opened = await tail.open(2)
    assert await ends(tail.context) == (0, 2)
    seeker = Seeker(tail.context)
    searching = asyncio.create_task(assert_found_is_scanned(seeker, tail.context))
    await hidden_twice(seeker, searching)
    await opened.abort_transaction()
    await searching


async def test_owners_that_died_in_their_first_batch(tail: Tail) -> None:
    """A claim, an open batch, the next fence: five times, by the real recovery, each finding the same increment."""
    first = await tail.batch()
    for _ in range(5):
        found = await Seeker(tail.context).seek()
        assert found.offset == first
        await tail.aborted(1, 1)
    await assert_found_is_scanned(Seeker(tail.context), tail.context)
