"""Apps that break the one rule: state and outputs are a function of the record sequence alone.

In a module of their own, so that a process with another PYTHONHASHSEED can import them.
"""

import random
import time
from typing import Any

from snapreplay import App, MapState, Out, Record, Topic

words, answers = Topic("words"), Topic("answers")

State = MapState[str, dict[str, Any]]
In = Record[str, Any]


def make(app_id: str) -> App[State]:
    return App(app_id, inputs=[words], outputs=[answers], state=lambda: MapState(str, dict, default=lambda: {"n": 0}))


clock = make("clock")


@clock.handler(words)
def keeps_the_time(record: In, state: State, out: Out) -> None:
    if record.offset >= 3:
        state[record.key]["n"] = time.perf_counter_ns()


dice = make("dice")


@dice.handler(words)
def throws_dice(record: In, state: State, out: Out) -> None:
    if record.offset >= 3:
        out.send(answers, key=record.key, value=random.random())


seeded = make("seeded")


@seeded.handler(words)
def throws_seeded_dice(record: In, state: State, out: Out) -> None:
    """The way out: nothing diverges here."""
    out.send(answers, key=record.key, value=record.random.random())


hashed = make("hashed")


@hashed.handler(words)
def hashes(record: In, state: State, out: Out) -> None:
    if record.offset >= 3:
        state[record.key]["n"] = hash(record.key) % 1000


set_order = make("set-order")


@set_order.handler(words)
def joins_a_set(record: In, state: State, out: Out) -> None:
    if record.offset >= 3:
        out.send(answers, key=record.key, value="".join({f"{record.key}{n}" for n in range(9)}))


counter = make("counter")
COUNT = 0


@counter.handler(words)
def counts_outside(record: In, state: State, out: Out) -> None:
    global COUNT  # noqa: PLW0603 - what this app is about
    COUNT += 1
    if record.offset >= 3:
        out.send(answers, key=record.key, value=COUNT)


captured = make("captured")
CACHE: dict[str, dict[str, Any]] = {}


@captured.handler(words)
def keeps_an_object(record: In, state: State, out: Out) -> None:
    """Right in batches of one: within a batch, the first record's object is the state's own."""
    if record.offset % 3 == 0:
        CACHE["last"] = state[record.key]
    elif record.offset % 3 == 1:
        CACHE["last"]["n"] += 1


begun = make("begun")
KEYS: list[str] = []


@begun.handler(words)
def keeps_the_keys_since_the_first_record(record: In, state: State, out: Out) -> None:
    """Right in every process that begins with the first record, not in one that begins with a snapshot."""
    if record.offset == 0:
        KEYS.clear()
    KEYS.append(record.key)
    out.send(answers, key=record.key, value=len(KEYS))


reply = make("reply")
REPLY: dict[str, Any] = {}


@reply.handler(words)
def reuses_a_reply(record: In, state: State, out: Out) -> None:
    """One reply object for all records: what an earlier record put in leaks into later outputs."""
    REPLY[record.key] = record.offset
    out.send(answers, key=record.key, value=REPLY)


shared = make("shared")
HELD: list[dict[str, Any]] = []


@shared.handler(words)
def sets_a_timer(record: In, state: State, out: Out) -> None:
    if record.offset < 9:
        state.schedule(record.key, 10, timer="ring")


@shared.timer("ring")
def keeps_the_object_of_another(timer: Any, state: State, out: Out) -> None:
    """Right as long as timers that are due together are in one batch."""
    if HELD:
        HELD[0]["n"] += 1
    HELD[:] = [state[timer.key]]
