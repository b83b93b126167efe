"""A clock that is a day ahead, on the real broker: the trouble is named, and ends when the clock is right."""

import asyncio
import time

import pytest
from aiokafka.errors import InvalidTimestampError
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from snapreplay.app import names
from snapreplay.app.record import Output
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import ClockRefused, RefusedRecord
from snapreplay.service.kafka.batching import Batches, TopicShape
from snapreplay.service.kafka.producer import KafkaProducer
from snapreplay.service.kafka.sink import BatchesRefused
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


async def test_a_claim_is_refused_by_the_clock_s_name_and_succeeds_when_it_is_set_right(stage, unique, clock):
    """A LIVE partition whose increments are refused recovers until the clock is right: its claim is refused by
    name, it is not FAILED, nothing is skipped, and then it resumes by itself."""
    here = await limited(await stage(apps.ledger(unique("jump"))))
    async with here.running() as service:
        await here.feed(20)
        await here.assert_exactly_once(service)
        clock.ahead_s = DAY_S
        await here.feed(20)
        await until(lambda: service.restore_status()[0].phase == "claiming")
        await until(lambda: (e := service.restore_status()[0].error) and e.kind == "ClockRefused")
        error = service.restore_status()[0].error
        assert names.increments_topic(here.app.app_id) in error.message
        assert error.hint.endswith("; no restart is needed")
        clock.ahead_s = 0
        await here.assert_exactly_once(service)
        assert service.restore_status()[0].skipped_total == 0


TIMED, UNTIMED, LOG = "a-timed", "b-untimed", "log"


async def no_limits(_topics: object) -> dict[str, int]:
    return {}


@pytest.mark.parametrize(
    ("refused", "to_blame"),
    [({TIMED}, None), ({UNTIMED}, UNTIMED), ({LOG}, LOG), ({TIMED, LOG}, LOG), ({TIMED, UNTIMED}, UNTIMED)],
    ids=lambda it: "+".join(sorted(it)) if isinstance(it, set) else str(it),
)
async def test_a_record_s_own_timestamp_is_not_the_clock_s_fault(refused, to_blame, monkeypatch):
    """The clock is to blame if a topic is among the refused in which all records have its time; else the app is."""
    producer = KafkaProducer(Settings(kafka={"bootstrap.servers": "127.0.0.1:1"}), "app", no_limits)

    async def begin(_targets):
        pass

    async def write(runs):
        raise BatchesRefused({target: InvalidTimestampError() for target in runs if target.topic in refused})

    monkeypatch.setattr(producer._sink, "begin", begin)
    monkeypatch.setattr(producer._sink, "write", write)
    outputs = [Output(TIMED, None, b"o", None, False, 5), Output(UNTIMED, None, b"o", None, False, None)]
    batches = Batches(dict.fromkeys((TIMED, UNTIMED, LOG), TopicShape(1, 2000, 2000)), 0)
    batches.add_outputs(outputs, LOG, 0)
    batches.add_records([LogRecord(LOG, b"i")], 0)
    with pytest.raises(ClockRefused if to_blame else RefusedRecord) as caught:
        await producer._send(batches, outputs)
    await producer.discard()
    assert caught.value.facts["topic"] == (to_blame or TIMED)
    assert f"--topic {to_blame or TIMED} " in caught.value.hint
    assert "message.timestamp.before.max.ms" in caught.value.hint
    assert ("timedatectl" in caught.value.hint) == bool(to_blame)
