"""Records that are legal in Kafka and that no client of Python makes, through a service, its dead letters and every
command that shows or writes records, on a real broker."""

from __future__ import annotations

import json

import pytest

from snapreplay.service.clock import wall_ms
from tests.support.foreign_records import Foreign, batch, produce

pytestmark = pytest.mark.kafka

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


class Foreigner:
    """The desk with another app, and a foreign producer that writes to partition 0 of its input."""

    def __init__(self, desk, broker, program):
        self.desk, self._broker, self._program = desk, broker, program
        self.input = f"{desk.name}-in"
        self.write(poison=13)

    def write(self, poison):
        self.desk.file.write_text(self._program.replace("NAME", self.desk.name).replace("POISON", str(poison)))

    def produce(self, *records):
        return produce(self._broker.bootstrap_servers, self.input, 0, batch(records))


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
        for topic in (here.input, f"{desk.name}-out", "dead-letters", "increments"):
            await desk.type("tail", topic)
    here.write(poison=14)
    async with desk.harness() as harness:
        assert f"sent back to {here.input}-0: 1 record" in (await desk.type("redrive")).stdout
        await harness.caught_up()
        assert {each["value"]: each["headers"] for each in await desk.tail(f"{desk.name}-out")}[13] == shown
