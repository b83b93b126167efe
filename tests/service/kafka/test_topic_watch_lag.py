"""Topic ids when brokers disagree. Without a broker."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from snapreplay.service.kafka.admin import told_ids


def client(*told: str | None) -> Any:
    """Broker 0 is asked first; each names this id of the topic, or none."""

    async def send(node: int, _: object) -> Any:
        topic_id = told[node]
        return SimpleNamespace(topics=[(0 if topic_id else 3, "log", topic_id or "")])

    async def ready(_: int) -> bool:
        return True

    nodes = [SimpleNamespace(nodeId=node) for node in range(len(told))]
    inner = SimpleNamespace(ready=ready, send=send, cluster=SimpleNamespace(brokers=lambda: nodes))
    return SimpleNamespace(_client=inner, _send_request_to_node=send)


@pytest.mark.parametrize(
    ("before", "told", "found"),
    [
        ("", ("old", "new", "new"), "old"),
        ("new", ("old", "new", "new"), "new"),
        ("old", ("new", "new", "old"), "new"),
        ("old", ("new",), "new"),
        ("new", ("old", "new"), "new"),
        ("old", (None, "old", "old"), "old"),
    ],
)
async def test_one_broker_that_lags_does_not_change_an_id(before, told, found, monkeypatch):
    """Most of them do; who names none is asked for by the others."""
    monkeypatch.setattr(random, "sample", lambda nodes, _: nodes)
    known = {"log": before} if before else {}
    assert (await told_ids(client(*told), ["log"], known)).ids == {"log": found}
