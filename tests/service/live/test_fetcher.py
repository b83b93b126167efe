"""Tests of what is read for one batch, and how far the reader is."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from snapreplay import App, MapState, Topic
from snapreplay.app.codecs import utf8
from snapreplay.app.ranges import PositionAnchor
from snapreplay.app.record import RawRecord
from snapreplay.service.control.status import InputStatus
from snapreplay.service.decisions.init import init_with_state
from snapreplay.service.live.fetcher import Ends, Fetcher
from snapreplay.service.ports import TopicPartition
from tests.support.stage import until

LEFT, RIGHT = TopicPartition("left", 0), TopicPartition("right", 0)


class Reader:
    """Gives what is in `waiting`, and after it what is in `late`, to who lingers."""

    is_silent = False

    def __init__(self, waiting: int, late: int = 0) -> None:
        self.waiting, self.late = waiting, late
        self.asked: list[tuple[int, int]] = []
        self.polled: list[Any] = []
        self.at = 0
        self.right_end: int | None = 9

    async def poll(self, records_max: int, timeout_ms: int, only: Any = None) -> dict[TopicPartition, Any]:
        self.asked.append((records_max, timeout_ms))
        self.polled.append(only)
        if not self.waiting:
            self.waiting, self.late = self.late, 0
        count = min(records_max, self.waiting)
        first, self.at, self.waiting = self.at, self.at + count, self.waiting - count
        return {LEFT: [RawRecord("left", 0, n, n, None, b"") for n in range(first, self.at)]}

    def position(self, partition: TopicPartition) -> int:
        return self.at if partition == LEFT else 9

    def end_offset(self, partition: TopicPartition) -> int | None:
        return self.at + self.waiting if partition == LEFT else self.right_end

    async def follow(self, positions: Any, anchors: Any) -> None:
        """Nothing that is looked at here depends on it."""

    async def end_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        return {}

    def high_watermark(self, partition: TopicPartition) -> int | None:
        return self.at + 5 if partition == LEFT else None


async def opened(reader: Reader, linger_ms: int = 0, told: list[str] | None = None, input_wait_ms: int = 0) -> Fetcher:
    context: Any = SimpleNamespace(
        partition=0,
        input_names=("left", "right"),
        settings=SimpleNamespace(batch=SimpleNamespace(linger_ms=linger_ms, input_wait_ms=input_wait_ms)),
    )
    guard: Any = SimpleNamespace(open=lambda _: _given(reader))
    last = SimpleNamespace(begun_input=None, positions={"left": 0, "right": 0})
    chain = SimpleNamespace(last=last)
    fetcher = Fetcher(
        context, context.input_names, piece_records=3, waiting_for=(list[str]() if told is None else told).append
    )
    assert fetcher.beyond({"left": 0}) == {}
    await fetcher.open(guard, chain)  # type: ignore[arg-type]  # it is not looked at
    return fetcher


async def _given(reader: Reader) -> Reader:
    return reader


async def nothing_to_wait_for(_: float) -> bool:
    return False


@pytest.mark.parametrize(
    ("waiting", "asked", "count"), [(100, [(3, 50), (3, 0), (1, 0)], 7), (4, [(3, 50), (3, 0)], 4), (0, [(3, 50)], 0)]
)
async def test_a_batch_is_polled_in_pieces_and_full_all_the_same(
    waiting: int, asked: list[tuple[int, int]], count: int
) -> None:
    """Other tasks have turns between the pieces; only for the first one is anything waited for."""
    reader = Reader(waiting)
    fetcher = await opened(reader)
    assert [each.offset for each in await fetcher.next_batch(7, 50, nothing_to_wait_for)] == list(range(count))
    assert reader.asked == asked


@pytest.mark.parametrize(("waiting", "count"), [(4, 7), (0, 0), (100, 7)])
async def test_it_lingers_only_for_what_is_not_there_yet(waiting: int, count: int) -> None:
    """After the first records, when the inputs are read to their ends; and for no more than fits."""
    reader = Reader(waiting, late=100 if waiting == 4 else 0)
    fetcher = await opened(reader, linger_ms=20)
    assert len(await fetcher.next_batch(7, 50, nothing_to_wait_for)) == count
    assert any(timeout_ms == 20 for _, timeout_ms in reader.asked) == (waiting == 4)


@pytest.mark.parametrize(("linger_ms", "asked_ms"), [(0, 1), (20, 20)])
async def test_a_batch_grows_while_it_could_not_be_committed_anyway(linger_ms: int, asked_ms: int) -> None:
    """What came meanwhile is fetched, and once more from the broker, even without a linger time."""
    reader, told = Reader(4), []

    async def rest(before_seconds: float) -> bool:
        told.append(before_seconds)
        reader.late = 1
        return True

    fetcher = await opened(reader, linger_ms=linger_ms)
    assert len(await fetcher.next_batch(9, 50, rest)) == 5
    assert told == [asked_ms / 1000]
    assert reader.asked == [(3, 50), (3, 0), (3, 0), (3, asked_ms)]


async def test_records_wait_for_an_input_that_is_behind_and_are_not_fetched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the input that is behind is polled meanwhile; nothing has been passed, no input is quiet. After ten seconds
    the status names it, until it is not waited for any more."""
    reader, told = Reader(4), list[str]()
    fetcher = await opened(reader, told=told)
    reader.right_end = 12
    assert await fetcher.next_batch(7, 50, nothing_to_wait_for) == ()
    assert await fetcher.next_batch(7, 50, nothing_to_wait_for) == ()
    assert reader.polled == [None, None, [RIGHT]]
    assert fetcher.beyond({"left": 0, "right": 9}) == {}
    monkeypatch.setattr(fetcher, "_blocked_since", 0.0)
    monkeypatch.setattr("snapreplay.service.live.fetcher._now", lambda: 11.0)
    for _ in range(2):
        assert await fetcher.next_batch(7, 50, nothing_to_wait_for) == ()
    (what,) = told
    assert "wait for input right, which is read up to offset 9 of 12" in what
    reader.right_end = 9
    assert not fetcher.is_quiet()
    assert [each.offset for each in await fetcher.next_batch(3, 50, nothing_to_wait_for)] == [0, 1, 2]
    assert [each.offset for each in await fetcher.next_batch(3, 50, nothing_to_wait_for)] == [3]
    assert fetcher.is_quiet()
    assert told == [what, ""]


async def test_a_quiet_input_is_waited_for_as_it_is_set_and_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, told = Reader(4), list[str]()
    fetcher = await opened(reader, told=told, input_wait_ms=3_600_000)
    for _ in range(3):
        assert await fetcher.next_batch(7, 50, nothing_to_wait_for) == ()
        monkeypatch.setattr(fetcher, "_blocked_since", 0.0)
    assert told == []


async def test_what_the_reader_has_passed_is_reported() -> None:
    """Where it is further on than what was processed."""
    reader = Reader(2)
    fetcher = await opened(reader)
    await fetcher.next_batch(7, 50, nothing_to_wait_for)
    assert fetcher.beyond({"left": 2, "right": 7}) == {"right": 9}


@pytest.mark.parametrize(
    ("is_silent", "is_paused", "left", "right"),
    [
        (False, False, Ends(5, 7), Ends(9, 9)),
        (False, True, Ends(5, 7), Ends(9, 9)),
        (True, False, Ends(), Ends()),
        (True, True, Ends(5, 6), Ends(9, 9)),
    ],
)
async def test_the_ends_that_the_monitor_saw_are_not_shown_for_those_of_a_silent_broker(
    is_silent: bool, is_paused: bool, left: Ends, right: Ends
) -> None:
    """But of a paused partition, which fetches nothing. They are forgotten when the inputs are read again: the log may
    be shorter by then."""
    reader = Reader(2)
    fetcher = await opened(reader)
    await fetcher.next_batch(7, 50, nothing_to_wait_for)
    reader.right_end, reader.is_silent = None, is_silent
    positions, unseen = {"left": 1, "right": 7}, Ends() if is_silent else Ends(2, 7)
    assert fetcher.status(positions, is_paused=is_paused) == (InputStatus("left", 1, *unseen), InputStatus("right", 7))
    fetcher.saw_ends({"left": Ends(5, 6), "right": Ends(9, 9)})
    assert fetcher.status(positions, is_paused=is_paused) == (
        InputStatus("left", 1, *left),
        InputStatus("right", 7, *right),
    )
    chain: Any = SimpleNamespace(last=SimpleNamespace(begun_input=None, positions=positions))
    await fetcher.read_again(chain, {})
    assert fetcher.status(positions, is_paused=is_paused)[0] == InputStatus("left", 1, *unseen)


@pytest.mark.parametrize(
    ("positions", "right_end", "is_silent", "are_read"),
    [
        ({"left": 2}, 9, False, True),
        ({"left": 1}, 9, False, False),
        ({"left": 2}, 9, True, False),
        ({"right": 9}, None, False, False),
        ({"left": 2, "right": 9}, 9, False, True),
        ({"left": 2, "right": 8}, 9, False, False),
    ],
)
async def test_inputs_are_read_at_an_end_that_is_known(
    positions: dict[str, int], right_end: int | None, is_silent: bool, are_read: bool
) -> None:
    """By the reader: answers of calls may be in the log that the monitor has not seen."""
    reader = Reader(2)
    fetcher = await opened(reader)
    await fetcher.next_batch(7, 50, nothing_to_wait_for)
    reader.right_end, reader.is_silent = right_end, is_silent
    fetcher.saw_ends({"left": Ends(2, 2), "right": Ends(9, 9)})
    assert fetcher.are_read(positions) == are_read


@pytest.mark.parametrize(
    ("ends", "is_quiet"), [((0, 9), True), ((1, 9), False), ((0, 10), False), ((0, None), False), ((None, 9), False)]
)
async def test_input_is_quiet_when_all_of_it_was_read(
    ends: tuple[int | None, int | None], is_quiet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each input up to an end that is known: else a record may be there that comes before what is due."""
    reader = Reader(0)
    fetcher = await opened(reader)
    known = dict(zip((LEFT, RIGHT), ends, strict=True))
    monkeypatch.setattr(reader, "end_offset", known.get)
    assert fetcher.is_quiet() == is_quiet
    reader.is_silent = True
    assert not fetcher.is_quiet()


def alarms(name: str = "alarms") -> App[Any]:
    left, right, told = (Topic(name, value=utf8) for name in ("left", "right", "told"))
    app: App[Any] = App(name, inputs=[left, right], outputs=[told], state=lambda: MapState(str, int))

    def on_record(record: Any, state: Any, out: Any) -> None:
        if record.value:
            state.schedule(record.key, int(record.value), timer="ring")
        out.send(told, key=record.key, value=f"{record.topic} at {state.stream_time_ms}")

    app.handlers |= {left: on_record, right: on_record}

    @app.timer("ring")
    def ring(timer: Any, state: Any, out: Any) -> None:
        out.send(told, key=timer.key, value="ring")

    return app


def has_rung(bench: Any, count: int) -> bool:
    """Say whether a timer has rung after so many batches."""
    return any(each.fired_count for each in bench.batches()[count:])


async def prepare(bench: Any) -> None:
    """A record of one input makes more timers due than a batch has room for."""
    await bench.prepare(alarms(), batch={"records_max": 5, "linger_ms": 0})
    left = bench.log("left")
    for number in range(40):
        left.append(b"k%02d" % number, b"50", (), 1, None)
    left.append(b"late", b"", (), 1000, None)


async def begin_turn(bench: Any) -> None:
    """The owner stops between two batches of the record's turn. Then the other input has an earlier record."""
    await prepare(bench)
    for _ in range(2):
        count = len(bench.batches())
        async with bench.live():
            await until(partial(has_rung, bench, count), "rings")
        assert bench.batches()[-1].begun_input == "left"
    bench.log("right").append(b"early", b"", (), 10, None)


async def end_turn(bench: Any, one: Any) -> None:
    """It comes first all the same: the other one would see timers fired that are due only later."""
    await one.position(41)
    await until(lambda: bench.batches()[-1].positions["right"] == 1, "the early one")
    assert bench.batches()[-1].begun_input is None
    told = [each.value.decode() for each in bench.log("told").committed()]
    assert told == ["left at 1"] * 40 + ["ring"] * 40 + ["left at 1000", "right at 1000"]


async def test_a_record_that_full_batches_left_over_is_read_again_after_a_doubt(bench: Any) -> None:
    """It lies in front of what is fetched again, and would be applied twice."""
    await prepare(bench)
    async with bench.live() as one:
        await until(partial(has_rung, bench, 0), "rings")
        one.live.doubt_inputs("somebody has a doubt")
        await one.position(41)
    told = [each.value.decode() for each in bench.log("told").committed()]
    assert told == ["left at 1"] * 40 + ["ring"] * 40 + ["left at 1000"]


@pytest.mark.parametrize("mode", ["changes", "replay"])
async def test_a_record_whose_turn_has_begun_comes_first(bench: Any, mode: str) -> None:
    """Also of the next owner."""
    await begin_turn(bench)
    async with bench.live(restore={"mode": mode}) as one:
        await end_turn(bench, one)
        assert one.status.restore.proof.equal


async def test_it_comes_first_also_of_an_app_that_takes_the_state_over(bench: Any) -> None:
    """Where that one continues at the same positions."""
    await begin_turn(bench)
    heir = bench.beside(alarms("heir"))
    await init_with_state(heir.app, heir.settings(), heir.cluster, "alarms", "positions")
    async with heir.live() as one:
        await end_turn(heir, one)


async def test_what_is_read_again_begins_at_the_committed_positions():
    """With the anchors that were found; a record whose turn has begun comes alone again."""
    reader: Any = Reader(4)
    followed: list[Any] = []

    async def follow(positions: Any, anchors: Any) -> None:
        followed.append((positions, anchors))

    reader.follow = follow
    fetcher = await opened(reader)
    last = SimpleNamespace(begun_input=None, positions={"left": 3, "right": 5})
    chain: Any = SimpleNamespace(last=last)
    anchors = {"left": PositionAnchor(2, 2)}
    await fetcher.read_again(chain, anchors)
    last.begun_input = "right"
    await fetcher.read_again(chain, anchors)
    assert followed == [({LEFT: 3, RIGHT: 5}, {LEFT: PositionAnchor(2, 2)}), ({RIGHT: 5}, {})]
