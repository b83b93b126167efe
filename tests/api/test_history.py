"""The history of a partition over HTTP; how it is read: tests/service/topics/test_ownerships.py."""

import asyncio

import httpx2
import pytest

from snapreplay.api.asking import FROM_KAFKA_MAX
from snapreplay.service.clock import time_of
from snapreplay.service.control.kafka_reads import PartitionHistory, PastOwnership, PointedSnapshot
from tests.support.deadlines import scaled
from tests.support.fake_control import FakeControl
from tests.support.served import served

PATH = "/api/v1/partitions/0/history"
AT = time_of(1_795_000_000_000)
HISTORY = PartitionHistory(
    0,
    (PastOwnership(9, "p1", "ledger-0", "host-a", AT, 5, AT), PastOwnership(2, "", "", "", None)),
    (PointedSnapshot("s", 4, 3, 8, None, is_kept=True),),
    is_whole=False,
)


class Slow(FakeControl):
    """Its log is read until a test says that it is over."""

    def __init__(self) -> None:
        super().__init__()
        self.over = asyncio.Event()
        self.at_once = self.most_at_once = 0

    async def history(self, partition: int) -> PartitionHistory:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.over.wait()
        self.at_once -= 1
        return HISTORY


@pytest.fixture
def client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(trust_env=False, timeout=scaled(20))


async def test_what_the_log_has_is_the_answer(client: httpx2.AsyncClient) -> None:
    """Null where the log has it no more."""
    control = FakeControl()
    control.histories = HISTORY
    async with served(control) as url, client:
        answer = await client.get(url + PATH)
    assert answer.status_code == 200
    told = answer.json()
    assert [each["owner_epoch"] for each in told["ownerships"]] == [9, 2]
    assert told["ownerships"][1]["claimed_at"] is None
    assert (told["snapshots"][0]["batch_at"], told["is_whole"]) == (None, False)


async def test_a_log_that_cannot_be_read_is_a_problem_with_its_reason(client: httpx2.AsyncClient) -> None:
    """It may be asked again. A partition that does not exist is another problem."""
    control = FakeControl()
    control.histories = None
    async with served(control) as url, client:
        answer = await client.get(url + PATH)
        assert (await client.get(url + "/api/v1/partitions/99/history")).status_code == 404
    assert answer.status_code == 503
    assert answer.json()["type"].endswith("partition-not-readable")
    assert "no broker" in answer.json()["detail"]
    assert "Retry-After" in answer.headers


async def test_few_wait_and_one_is_read_at_a_time(client: httpx2.AsyncClient) -> None:
    """The loop is that of the runners. What is too much is refused at once; reads of the state are answered."""
    control = Slow()
    async with served(control) as url, client:
        waiting = [asyncio.create_task(client.get(url + PATH)) for _ in range(FROM_KAFKA_MAX + 2)]
        done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        refused = done.pop().result()
        assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (503, "too-many-requests")
        assert (await client.get(url + "/api/v1/state/items/ada")).status_code in (404, 503)
        control.over.set()
        codes = sorted([each.result().status_code for each in done] + [(await each).status_code for each in rest])
    assert codes == [200] * FROM_KAFKA_MAX + [503]
    assert control.most_at_once == 1
