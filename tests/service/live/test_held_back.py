"""The logs that a transaction holds back, from one look to the next."""

import logging
from types import SimpleNamespace
from typing import Any

from snapreplay.service.clock import time_of
from snapreplay.service.control.status import BlockedTopic, OpenTransactionStatus
from snapreplay.service.core.inspected import OpenTransaction
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.live.recoverability_monitor import HeldBack
from snapreplay.service.ports import Bounds, TopicPartition

LOG = TopicPartition("payments", 3)


class Cluster:
    """Answers what it is told to, and counts the questions."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.asked = 0

    async def open_transaction(self, partition: TopicPartition) -> Any:
        assert partition == LOG
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def held_back(*answers: Any) -> tuple[HeldBack, Cluster]:
    cluster = Cluster()
    cluster.answers = [*answers]
    context: Any = SimpleNamespace(cluster=cluster)
    return HeldBack(context), cluster


async def looked(watch, found):
    """Return what a look finds, and which transactions these are."""
    watch.look(found)
    return await watch.named()


def bounds(stable: int, end: int) -> dict[TopicPartition, tuple[Bounds, Bounds]]:
    return {LOG: (Bounds(0, stable), Bounds(0, end))}


async def test_a_transaction_is_named_at_the_second_look_and_asked_for_once() -> None:
    """Most end before. As long as the stable offset stands it is the same one; another one is asked for again."""
    first = OpenTransaction(9, 1, 5, "writer", 1_000, 60_000, 2_000)
    watch, cluster = held_back(first, None)
    assert await looked(watch, bounds(5, 9)) == ()
    shown = OpenTransactionStatus(9, 1, 5, "writer", time_of(1_000), 60.0, time_of(2_000))
    assert await looked(watch, bounds(5, 9)) == (BlockedTopic("payments", 5, 4, shown),)
    assert await looked(watch, bounds(5, 11)) == (BlockedTopic("payments", 5, 6, shown),)
    assert cluster.asked == 1
    assert await looked(watch, bounds(11, 12)) == ()
    assert await looked(watch, bounds(11, 12)) == (BlockedTopic("payments", 11, 1),)
    assert await looked(watch, bounds(12, 12)) == ()
    assert cluster.asked == 2


async def test_who_cannot_be_asked_is_asked_again(caplog) -> None:
    """The log is held back all the same, and a hanging transaction has neither an id nor a start."""
    caplog.set_level(logging.INFO)
    hanging = OpenTransaction(9, 1, 5, last_record_at_ms=-1)
    watch, _ = held_back(Unreachable("no broker"), hanging)
    await looked(watch, bounds(5, 9))
    assert await looked(watch, bounds(5, 9)) == (BlockedTopic("payments", 5, 4),)
    assert "cannot ask which transaction holds back payments-3: no broker" in caplog.text
    (blocked,) = await looked(watch, bounds(5, 9))
    assert blocked.held_by == OpenTransactionStatus(9, 1, 5)
