"""A clock that is a day ahead, on the real broker: named with both times, and set right it is no trouble any more."""

import asyncio
import re
import time
from datetime import datetime

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from snapreplay.app import names
from snapreplay.service.core.kafka_errors import ClockRefused, RefusedRecord
from snapreplay.service.kafka.producer import SKEW_MS_MIN, clock_compared
from snapreplay.service.ports import LogRecord
from tests.support import apps
from tests.support.stage import Stage, until

DAY_S = 86_400
HOUR_MS = 3_600_000
AFTER_MAX = ("message.timestamp.after.max.ms", str(HOUR_MS))  # Kafka's default since 4.0


class Clock:
    """This process's wall clock; the event loop's is another one."""

    def __init__(self, monkeypatch):
        self.ahead_s = 0
        seconds, nanoseconds = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: seconds() + self.ahead_s)
        monkeypatch.setattr(time, "time_ns", lambda: nanoseconds() + self.ahead_s * 10**9)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


async def limited(here: Stage) -> Stage:
    """Set Kafka 4's limit on the increments: brokers before it take any time."""
    entry = ConfigEntry(*AFTER_MAX, incremental_operation=AlterConfigOpType.SET)
    log = names.increments_topic(here.app.app_id)
    resource = ConfigResource(ConfigResource.Type.TOPIC, log, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": here.bootstrap_servers})
    for future in admin.incremental_alter_configs([resource]).values():
        await asyncio.to_thread(future.result, 20)
    return here


@pytest.mark.kafka
async def test_a_claim_is_refused_by_the_clock_s_name_and_succeeds_when_it_is_set_right(stage, unique, clock):
    """A LIVE partition whose increments are refused recovers until the clock is right: its claim is refused with both
    times, it is not FAILED, nothing is skipped, and then it goes on by itself."""
    here = await limited(await stage(apps.ledger(unique("jump"))))
    async with here.running() as service:
        await here.feed(20)
        await here.assert_exactly_once(service)
        clock.ahead_s = DAY_S
        await here.feed(20)
        await until(lambda: service.restore_status()[0].phase == "claiming")
        await until(lambda: (e := service.restore_status()[0].error) and e.kind == "ClockRefused")
        error = service.restore_status()[0].error
        (ahead,) = re.findall(r"the clock of this machine is (\d+) s ahead of the brokers'", error.message)
        assert DAY_S - 60 < int(ahead) <= DAY_S, "without what passed until the coordinator was asked"
        told = re.findall(r"\S+Z", error.message)
        ours, brokers = (datetime.fromisoformat(each) for each in told)
        assert DAY_S - 60 < (ours - brokers).total_seconds() <= DAY_S
        assert "timedatectl" in error.hint
        assert error.hint.endswith("; no restart is needed")
        clock.ahead_s = 0
        await here.assert_exactly_once(service)
        assert service.restore_status()[0].skipped_total == 0


@pytest.mark.kafka
async def test_a_record_s_own_timestamp_is_not_the_clock_s_fault(cluster, new_topic, unique, clock):
    """With a clock that is right the topic's limit is named; with a wrong one, the clock."""
    topic = await new_topic(**dict([AFTER_MAX]))
    producer = await cluster.fence(unique("app"))
    clock.ahead_s = DAY_S
    with pytest.raises(ClockRefused):
        await producer.commit(0, (), [LogRecord(topic, b"i")])
    small = await new_topic(**{"message.timestamp.before.max.ms": "0"})
    clock.ahead_s = -1
    producer = await cluster.fence(unique("app"))
    with pytest.raises(RefusedRecord, match="InvalidTimestamp") as refused:
        await producer.commit(0, (), [LogRecord(small, b"i")])
    assert "message.timestamp.before.max.ms" in refused.value.hint


@pytest.mark.parametrize(
    ("began_ms", "brokers_ms", "asked_ms", "skew_ms"),
    [
        (0, SKEW_MS_MIN + 50, 100, None),
        (0, SKEW_MS_MIN + 100, 100, -SKEW_MS_MIN),
        (SKEW_MS_MIN - 1, 0, SKEW_MS_MIN, None),
        (10**12, -1, 10**12 + 5, None),
        (SKEW_MS_MIN, 0, SKEW_MS_MIN + 5, SKEW_MS_MIN),
    ],
)
def test_clocks_are_compared_by_what_lies_outside_of_our_interval(began_ms, brokers_ms, asked_ms, skew_ms):
    """A slow answer is no skew, nor is none; ahead is positive."""
    found = clock_compared(began_ms, brokers_ms, asked_ms)
    assert (found.facts["skew_ms"] if found else None) == skew_ms
