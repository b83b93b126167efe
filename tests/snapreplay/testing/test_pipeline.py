"""A pipeline is the harnesses of its apps: what one sends arrives where another one reads."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapreplay import App, MapState, Out, Record, RecordError, Timer, Topic, UsageError, raw
from snapreplay.app.record import Output, RawRecord
from snapreplay.service.core.partitioners import murmur_positive
from snapreplay.testing import Diverged, ErrorPolicy, Harness, Pipeline, record
from tests.support import apps

payments: Topic[str, int] = Topic("payments")
totals: Topic[str, int] = Topic("totals")
summaries: Topic[str, list[int]] = Topic("summaries")
PERIOD_MS = 10

Ledger = MapState[str, int]
Payment = tuple[str, int, int]


def ledger() -> App[Ledger]:
    """Sends the total of each key, under another key; and a timer's total."""
    app = App("ledger", inputs=[payments], outputs=[totals], state=lambda: MapState(str, int, default=int))

    @app.handler(payments)
    def on_payment(record: Record[str, int], state: Ledger, out: Out) -> None:
        state[record.key] += record.value
        state.schedule(record.key, record.timestamp_ms + PERIOD_MS, timer="later")
        out.send(totals, key=f"of-{state[record.key] % 3}", value=state[record.key])

    @app.timer("later")
    def on_later(timer: Timer[str], state: Ledger, out: Out) -> None:
        out.send(totals, key=timer.key, value=state[timer.key])

    return app


def summary() -> App[Ledger]:
    """Folds in an order that matters."""
    app = App("summary", inputs=[totals], outputs=[summaries], state=lambda: MapState(str, int, default=int))

    @app.handler(totals)
    def on_total(record: Record[str, int], state: Ledger, out: Out) -> None:
        state[record.key] = (state[record.key] * 31 + record.value + record.offset) % 1_000_003
        out.send(summaries, key=record.key, value=[state[record.key], record.timestamp_ms])

    return app


class ByHand:
    """The same by harnesses alone: each output of the first app is fed to the second one, where its key belongs."""

    def __init__(self, partitions: int) -> None:
        self.first = [Harness(ledger(), number) for number in range(partitions)]
        self.second = [Harness(summary(), number) for number in range(partitions)]
        self._taken = [0] * partitions

    def feed(self, number: int, key: str, value: int, at_ms: int) -> None:
        self.first[number].feed(payments, key=key, value=value, timestamp_ms=at_ms)
        self.carry(number)

    def advance_time(self, to_ms: int) -> None:
        for number, each in enumerate(self.first):
            each.advance_time(to_ms)
            self.carry(number)
        for each in self.second:
            each.advance_time(to_ms)

    def carry(self, number: int) -> None:
        for sent in self.first[number].all_outputs[self._taken[number] :]:
            assert sent.key is not None
            to = number if sent.same_key else self.place(sent.key)
            assert sent.timestamp_ms is not None
            self.second[to].feed_batch([RawRecord("totals", to, -1, sent.timestamp_ms, sent.key, sent.value)])
        self._taken[number] = len(self.first[number].all_outputs)

    def place(self, key: bytes) -> int:
        return murmur_positive(key) % len(self.first)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("abcd"), st.integers(1, 9), st.integers(0, 2 * PERIOD_MS), st.booleans()),
        st.integers(0, 2 * PERIOD_MS),  # time passes
        st.sampled_from(["crash", "snapshot"]),
    ),
    max_size=15,
)


@settings(max_examples=50)
@given(STEPS, st.integers(1, 3))
def test_it_is_the_harnesses_of_its_apps_run_by_hand(steps: list[Any], partitions: int) -> None:
    """States and outputs of each partition, with crashes in between."""
    first, second = ledger(), summary()
    pipeline, hand, now_ms = Pipeline(first, second, partitions=partitions), ByHand(partitions), 0
    for number, step in enumerate(steps):
        match step:
            case "crash":
                pipeline.crash(seed=number)
            case int():
                now_ms += step
                pipeline.advance_time(now_ms)
                hand.advance_time(now_ms)
            case (key, value, more_ms, is_hashed):
                now_ms += more_ms
                place = hand.place(key.encode()) if is_hashed else (number % partitions)
                chosen = None if is_hashed else place
                pipeline.feed(payments, key=key, value=value, timestamp_ms=now_ms, partition=chosen)
                hand.feed(place, key, value, now_ms)
            case _:
                pipeline.snapshot()
    for number in range(partitions):
        for app, by_hand in ((first, hand.first), (second, hand.second)):
            harness = pipeline.harness(app, number)
            assert harness.digest == by_hand[number].digest
            assert harness.all_outputs == by_hand[number].all_outputs
    sent = [each for side in (hand.first, hand.second) for one in side for each in one.all_outputs]
    assert sorted(map(str, pipeline.all_outputs)) == sorted(map(str, sent))


def test_each_app_that_reads_a_topic_gets_its_records() -> None:
    """Also a topic that the pipeline itself is fed."""
    first, second = ledger(), summary()
    watcher = App("watcher", inputs=[payments, totals], state=lambda: MapState(str, int, default=int))
    for topic in (payments, totals):
        watcher.handler(topic)(lambda record, state, out: state.update({record.topic: state[record.topic] + 1}))
    pipeline = Pipeline(first, watcher, second)
    for n in range(3):
        pipeline.feed(payments, key="ada", value=n)
    assert pipeline.harness(watcher).state == {"payments": 3, "totals": 3}
    assert [sent.value for sent in pipeline.outputs(totals)] == [0, 1, 3]
    assert [sent.timestamp_ms for sent in pipeline.outputs(summaries)] == [1, 2, 3]


def test_internal_topics_and_calls_reach_their_partition() -> None:
    """A record under another key goes to the partition of that key."""
    app = apps.rekeyed("shop")
    pipeline = Pipeline(app, partitions=4)
    for n in range(30):
        pipeline.feed(app.inputs[0], key=f"o{n}", value={"amount": n})
    whole = Harness(app)
    whole.feed_batch([record(app.inputs[0], key=f"o{n}", value={"amount": n}) for n in range(30)])
    found = [pipeline.harness(app, number).state for number in range(4)]
    assert sum(len(each) > 0 for each in found) > 1
    assert {key: value for each in found for key, value in each.items()} == dict(whole.state.items())


def test_calls_of_each_app_are_answered() -> None:
    app = apps.priced("priced", apps.price_sometimes)
    (call,) = app.calls.values()
    pipeline = Pipeline(app, summary(), calls={call: lambda made: 7})
    pipeline.feed(app.inputs[0], key="ada", value={"amount": 1})
    assert not pipeline.harness(app).pending(call)
    assert pipeline.harness(app).state["ada"]["sum"] == 7
    with pytest.raises(UsageError, match=r"is not a call of summary \(use their calls: they have none"):
        Pipeline(summary(), calls={call: lambda made: 7})


def test_dead_letters_are_records_of_their_topic() -> None:
    letters: Topic[Any, Any] = Topic("ledger-dead-letters", value=raw)
    reader = App("reader", inputs=[letters], state=lambda: MapState(str, int, default=int))

    @reader.handler(letters)
    def on_letter(record: Record[Any, Any], state: Ledger, out: Out) -> None:
        state["letters"] += 1

    pipeline = Pipeline(ledger(), reader, policy=ErrorPolicy.DEAD_LETTER)
    pipeline.feed_raw(payments, b"ada", b"no json")
    assert pipeline.harness(reader).state == {"letters": 1}


def test_what_waits_behind_a_record_that_fails_is_handled_by_the_next_call() -> None:
    """As in a service, where the other partitions continue."""
    first, second = ledger(), summary()
    picky = App("picky", inputs=[totals], state=lambda: MapState(str, int, default=int))

    @picky.handler(totals)
    def on_total(record: Record[str, int], state: Ledger, out: Out) -> None:
        if record.value == 1:
            raise ValueError("one")
        state[record.key] = record.value

    pipeline = Pipeline(first, picky, second)
    with pytest.raises(RecordError, match="one"):
        pipeline.feed(payments, key="ada", value=1)
    pipeline.feed(payments, key="ada", value=1)
    assert [sent.key for sent in pipeline.outputs(summaries)] == ["of-1", "of-2"]


def test_apps_that_feed_each_other_for_ever_are_stopped() -> None:
    def echo(name: str, source: Topic[str, int], target: Topic[str, int]) -> App[Ledger]:
        app = App(name, inputs=[source], outputs=[target], state=lambda: MapState(str, int))

        @app.handler(source)
        def on_record(record: Record[str, int], state: Ledger, out: Out) -> None:
            out.send(target, key=record.key, value=record.value)

        return app

    pipeline = Pipeline(echo("there", payments, totals), echo("back", totals, payments))
    with pytest.raises(UsageError, match="there, back would feed each other endlessly"):
        pipeline.feed(payments, key="ada", value=1)


def test_a_replay_that_differs_is_named() -> None:
    seen: list[int] = []
    app = App("moody", inputs=[totals], state=lambda: MapState(str, int))

    @app.handler(totals)
    def on_total(record: Record[str, int], state: Ledger, out: Out) -> None:
        seen.append(1)
        state[record.key] = len(seen)

    pipeline = Pipeline(ledger(), app)
    pipeline.feed(payments, key="ada", value=1)
    with pytest.raises(Diverged, match="replay of totals"):
        pipeline.crash()


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (Pipeline, "no app"),
        (lambda: Pipeline(ledger(), ledger()), "two of the apps have the id 'ledger'"),
        (lambda: Pipeline(ledger(), partitions=0), "partitions=0 is not a number"),
        (lambda: Pipeline(ledger()).feed(totals, key="a", value=1), "totals is not an input of ledger"),
        (lambda: Pipeline(ledger()).feed(payments, key="a", value=1, partition=1), "no partition 1: each topic has 1"),
        (lambda: Pipeline(ledger()).outputs(payments), "payments is not an output of ledger"),
        (lambda: Pipeline(ledger()).harness(summary()), "is not an app of this pipeline"),
    ],
)
def test_what_is_wrong_is_named(use: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        use()
    assert caught.value.hint


def test_an_output_names_its_partition() -> None:
    """One that the topic does not have is refused."""
    app = App("placing", inputs=[payments], outputs=[totals], state=lambda: MapState(str, int))

    @app.handler(payments)
    def on_payment(record: Record[str, int], state: Ledger, out: Out) -> None:
        out.send(totals, key=record.key, value=record.value, partition=record.value)

    second = summary()
    pipeline = Pipeline(app, second, partitions=2)
    pipeline.feed(payments, key="ada", value=1)
    assert not pipeline.harness(second, 0).records
    assert [each.topic for each in pipeline.harness(second, 1).records] == ["totals"]
    with pytest.raises(UsageError, match="placing: output to totals: there is no partition 5: each topic has 2"):
        pipeline.feed(payments, key="ada", value=5)
    assert isinstance(pipeline.all_outputs[0], Output)
    alone = Pipeline(app)
    alone.feed(payments, key="ada", value=7)  # how many partitions a topic has that no app reads, it does not know
    assert [each.partition for each in alone.all_outputs] == [7]


@pytest.mark.parametrize(("fails", "error"), [(False, UsageError), (True, RecordError)])
def test_an_output_that_is_refused_holds_up_no_other_one(fails: bool, error: type[Exception]) -> None:
    """And hides no error of the app."""
    app = App("placing", inputs=[payments], outputs=[totals], state=lambda: MapState(str, int))

    @app.handler(payments)
    def on_payment(record: Record[str, int], state: Ledger, out: Out) -> None:
        for number in range(2):
            state.schedule(f"{record.key}{number}", PERIOD_MS + number, timer="later")

    @app.timer("later")
    def on_later(timer: Timer[str], state: Ledger, out: Out) -> None:
        if timer.key == "ada0":
            for partition in (0, 7, 1):
                out.send(totals, key="ada", value=partition, partition=partition)
        elif fails:
            raise ValueError("the second timer")

    second = summary()
    pipeline = Pipeline(app, second, partitions=2)
    pipeline.feed(payments, key="ada", value=1, partition=0, timestamp_ms=1)
    with pytest.raises(
        error, match="the second timer" if fails else "placing: output to totals: there is no partition 7"
    ):
        pipeline.advance_time(2 * PERIOD_MS)
    assert [sent.value for sent in pipeline.outputs(totals)] == [0, 7, 1]
    pipeline.feed(payments, key="bob", value=1, partition=1)
    assert [len(pipeline.harness(second, number).records) for number in range(2)] == [1, 1]
