"""Records that are legal in Kafka and that no client of Python makes, through a service, its dead letters and every
command that shows or writes records, on a real broker."""

import json

import pytest

from snapreplay.service.clock import wall_ms
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import NewTopic
from tests.support.foreign_records import Foreign, batch, produce
from tests.support.stage import settings_for

PASSING_ON = """
from snapreplay import App, MapState, Topic

read, sent = Topic("NAME-in"), Topic("NAME-out")
app = App("NAME", inputs=[read], outputs=[sent], state=lambda: MapState(str, int, default=int))


@app.handler(read)
def pass_on(record, state, out):
    state[record.key] += 1
    if record.value == POISON:
        raise ValueError("poison")
    out.send(sent, key=record.key, value=record.value, headers=record.headers)
"""

DUNNING = """
from snapreplay import App, MapState, Topic

read, sent = Topic("NAME-in"), Topic("NAME-out")
app = App("NAME", inputs=[read], outputs=[sent], state=lambda: MapState(str, int))


@app.handler(read)
def on_bill(record, state, out):
    if record.value == POISON:
        raise ValueError("poison")
    state[record.key] = record.value
    out.send(sent, key=record.key, value=record.value, timestamp_ms=record.timestamp_ms)
"""
WITH_REMINDERS = """
    state.schedule(record.key, record.timestamp_ms + 60_000, timer="remind")


@app.timer("remind")
def on_remind(timer, state, out):
    out.send(sent, key=timer.key, value="reminded", timestamp_ms=timer.at_ms)
    state.schedule(timer.key, timer.at_ms + 60_000, timer="remind")
"""
ANY_TIME = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
"""Of an input: brokers before Kafka 4.0 take any timestamp, too."""


class Foreigner:
    """The desk with another app, and a foreign producer that writes to partition 0 of its input."""

    def __init__(self, desk, broker, program):
        self.desk, self._broker, self._program = desk, broker, program
        self.input = f"{desk.name}-in"
        self.write(poison=13)

    def write(self, poison):
        self.desk.file.write_text(self._program.replace("NAME", self.desk.name).replace("POISON", str(poison)))

    async def topic_for_any_time(self):
        """Make the input, which the harness would make with the broker's default."""
        cluster = KafkaCluster(settings_for(self._broker.bootstrap_servers))
        await cluster.create_topics([NewTopic(self.input, 2, 1, ANY_TIME)])

    def produce(self, *records):
        return produce(self._broker.bootstrap_servers, self.input, 0, batch(records))


@pytest.mark.whole
async def test_headers_that_python_clients_do_not_make_pass_through_everything(desk, broker):
    """A null value and a name that is not UTF-8: read, passed on, dead-lettered, shown, sent back and fed."""
    here, now_ms = Foreigner(desk, broker, PASSING_ON), wall_ms()
    headers = [(b"trace", None), (b"\xff\xfe", b"x")]
    shown = {"trace": None, "\\xff\\xfe": "x"}
    async with desk.harness() as harness:
        here.produce(Foreign(now_ms, b"before", b"1"), Foreign(now_ms, b"a", b"2", headers))
        here.produce(Foreign(now_ms, b"bad", b"13", headers), Foreign(now_ms, b"behind", b"3"))
        line = json.dumps({"key": "fed", "value": 4, "headers": {"trace": None}, "partition": 0})
        await desk.type("feed", here.input, stdin=line)
        await harness.caught_up()
        assert [(each["value"], each["headers"]) for each in await desk.tail(here.input)] == [
            (1, {}),
            (2, shown),
            (13, shown),
            (3, {}),
            (4, {"trace": None}),
        ]
        passed_on = {each["value"]: each["headers"] for each in await desk.tail(f"{desk.name}-out")}
        assert passed_on == {1: {}, 2: shown, 3: {}, 4: {"trace": None}}
        (letter,) = await desk.tail("dead-letters")
        assert (letter["key"], letter["headers"]) == ("bad", shown)
        for topic in (here.input, f"{desk.name}-out", "dead-letters"):
            await desk.type("tail", topic)
    here.write(poison=14)
    async with desk.harness() as harness:
        assert f"sent back to {here.input}-0: 1 record" in (await desk.type("redrive")).stdout
        await harness.caught_up()
        assert {each["value"]: each["headers"] for each in await desk.tail(f"{desk.name}-out")}[13] == shown


@pytest.mark.whole
async def test_records_without_a_time_and_of_another_time_stop_no_command(desk, broker):
    """A timestamp of -1 is stream time: passed on, a timer set. One in microseconds is a dead letter that says so; no
    timer fires for its 55,000 years, and the record behind it is processed. A record without a time comes back from the
    dead letters without one."""
    here, now_ms = Foreigner(desk, broker, DUNNING + WITH_REMINDERS), wall_ms()
    await here.topic_for_any_time()
    far_ms = now_ms * 1000
    async with desk.harness() as harness:
        here.produce(Foreign(now_ms, b"ada", b"1"))
        here.produce(Foreign(-1, b"bob", b"2"), Foreign(-1, b"bad", b"13"))
        here.produce(Foreign(far_ms, b"far", b"3"), Foreign(now_ms + 60_000, b"cy", b"4"))
        fed = [
            {"key": "fed", "value": 5, "timestamp_ms": -1, "partition": 0},
            {"key": "eve", "value": 6, "partition": 0},
        ]
        await desk.type("feed", here.input, stdin="\n".join(map(json.dumps, fed)))
        await harness.caught_up()
        times = [each["timestamp_ms"] for each in await desk.tail(here.input)]
        assert times[:6] == [now_ms, -1, -1, far_ms, now_ms + 60_000, -1]
        assert times[6] >= now_ms
        passed_on = [(each["value"], each["timestamp_ms"]) for each in await desk.tail(f"{desk.name}-out")]
        assert passed_on[:4] == [(1, now_ms), (2, now_ms), ("reminded", now_ms + 60_000), ("reminded", now_ms + 60_000)]
        assert [value for value, _ in passed_on[4:] if value != "reminded"] == [4, 5, 6]
        letters = {each["key"]: each["dead_letter"] for each in await desk.tail("dead-letters")}
        assert set(letters) == {"bad", "far"}
        assert f"{here.input}-0-3: the timestamp {far_ms} lies 5" in letters["far"]["message"]
        assert "looks like microseconds since the epoch (20" in letters["far"]["message"]
        for topic in (here.input, f"{desk.name}-out", "dead-letters"):
            shown = (await desk.type("tail", topic)).stdout
            assert ("no timestamp" in shown) is (topic == here.input)
    here.write(poison=14)
    async with desk.harness() as harness:
        assert f"sent back to {here.input}-0: 2 records" in (await desk.type("redrive")).stdout
        await harness.caught_up()
        assert [each["timestamp_ms"] for each in await desk.tail(here.input)][7:] == [-1, far_ms]
        assert 13 in [each["value"] for each in await desk.tail(f"{desk.name}-out")]
        assert len(await desk.tail("dead-letters")) == 4  # two, a note, and that which came back
