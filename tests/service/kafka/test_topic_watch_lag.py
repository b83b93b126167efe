"""Topic ids when brokers disagree. Without a broker."""

import random
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import RequestTimedOutError

from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.admin import ask_for_topics
from snapreplay.service.kafka.shared import Client, Shared


def client(*told: str | None) -> Any:
    """Broker 0 is asked first; each names this id of the topic, or none, or is silent."""

    async def send(node: int, _: object) -> Any:
        topic_id = told[node]
        if topic_id == "silent":
            raise RequestTimedOutError
        return SimpleNamespace(topics=[(0 if topic_id else 3, "log", topic_id or "", False, [], -1, {})])

    async def connected(*_: int) -> None:
        """Be there, all of them."""

    nodes = [SimpleNamespace(nodeId=node, host="h", port=node) for node in range(len(told))]
    made: Any = Client(Shared(Settings()))
    made.send, made._connected, made.shared.cluster = send, connected, SimpleNamespace(brokers=lambda: nodes)
    return made


@pytest.mark.parametrize(
    ("before", "told", "found"),
    [
        ("", ("old", "new", "new"), "old"),
        ("new", ("old", "new", "new"), "new"),
        ("old", ("new", "new", "old"), "new"),
        ("old", ("new",), "new"),
        ("new", ("old", "new"), "new"),
        ("old", (None, "old", "old"), "old"),
        ("old", ("silent", "old"), "old"),
        ("old", ("silent", "new", "silent", "new"), "new"),
    ],
)
async def test_one_broker_that_lags_does_not_change_an_id(before, told, found, monkeypatch):
    """Most of them do; for one that names none, or is silent, the others are asked."""
    monkeypatch.setattr(random, "sample", lambda nodes, _: nodes)
    known = {"log": before} if before else {}
    assert (await ask_for_topics(client(*told), ["log"], known)).ids == {"log": found}


async def test_no_answer_from_any_broker_is_an_error() -> None:
    """It is not taken for a topic that does not exist, nor for wrong addresses."""
    with pytest.raises(RequestTimedOutError):
        await ask_for_topics(client("silent", "silent"), ["log"], {})
