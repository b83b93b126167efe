"""The probe transaction."""

import asyncio
import socket
import time
from typing import Protocol

import pytest

from snapreplay.service.kafka import probe
from snapreplay.service.kafka.probe import ProbeFailed, commit_probe
from tests.support.deadlines import scaled
from tests.support.wire import Proxy, once

FIND_COORDINATOR = 10


class Broker(Protocol):
    """A broker as the probe needs it."""

    @property
    def bootstrap_servers(self) -> str: ...


async def test_without_a_listener_it_tries_until_the_deadline() -> None:
    """A refused connection is not the end: the broker may be coming."""
    started = time.monotonic()
    with pytest.raises(ProbeFailed, match=r"committed no transaction in 2\.0 s") as caught:
        await commit_probe("127.0.0.1:9", 2.0)  # long enough for one attempt, however busy the machine is
    assert "nobody answers at 127.0.0.1:9 (Connection refused)" in str(caught.value)
    assert 2.0 <= time.monotonic() - started < scaled(15)


async def test_a_listener_that_says_nothing_does_not_hold_it() -> None:
    """A port that is open and mute ends at the deadline, and no task stays behind."""
    before = asyncio.all_tasks()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(ProbeFailed, match="no answer"):
            await commit_probe(address, 0.5)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() <= before


async def test_an_attempt_that_ends_in_the_fence_is_followed_by_another(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy coordinator that does not answer in time is no failure: the probe asks again."""
    monkeypatch.setattr(probe, "_ATTEMPT_S", scaled(2))
    proxy = Proxy(broker.bootstrap_servers)
    proxy.fault = once(FIND_COORDINATOR, "mute")
    async with proxy.through():
        await commit_probe(broker.bootstrap_servers, 30.0)
    assert proxy.seen[FIND_COORDINATOR] >= 2
