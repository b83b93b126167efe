"""Dead letters go back once, wherever a redrive dies; and as HTTP shows them: what became of each, and how much of it
is shown."""

import asyncio

import msgspec
import pytest

from snapreplay.app.failure import PREFIX, dead_letter, timer_dead_letter
from snapreplay.app.names import dead_letters_topic
from snapreplay.app.record import InputRecord, Output, RawRecord
from snapreplay.app.timer import Timer
from snapreplay.errors import RecordError
from snapreplay.service import dead_letters as module
from snapreplay.service.clock import wall_ms
from snapreplay.service.control.kafka_reads import VALUE_CHARACTERS_MAX
from snapreplay.service.dead_letters import (
    LEFT_SHOWN_MAX,
    REDRIVEN_HEADER,
    DeadLetters,
    NotesShifted,
    _left,
    _letters,
    redrive,
)
from snapreplay.service.kafka.feeding import KafkaFeeder
from snapreplay.service.ports import NewTopic, TopicPartition
from snapreplay.service.topics.reading import reading
from tests.support import apps
from tests.support.kafka import decided
from tests.support.stage import Stage
from tests.support.tampering import trim

WHY = RecordError("why")


def stored(output: Output, offset: int) -> InputRecord:
    """Return the record that this output is in the dead-letters topic."""
    return RawRecord("ledger-dead-letters", 0, offset, 1_000, output.key, output.value, output.headers)


def letter(offset: int, value: bytes = b"v", headers: tuple[tuple[str, bytes], ...] = ()) -> InputRecord:
    record = RawRecord("payments", 0, offset, 1_000, b"k", value, headers)
    return stored(dead_letter("ledger", "1", record, WHY, 10_000_000), offset)


def note(offset: int, until: int, left: str = "") -> InputRecord:
    value = f"dead letters below offset {until} were sent back{left}".encode()
    return RawRecord("ledger-dead-letters", 0, offset, 1_000, None, value, ((REDRIVEN_HEADER, b"%d" % until),))


def became(*records: InputRecord) -> dict[int, tuple[str, str]]:
    return {each.offset: (each.state, each.passed_over) for each in _letters(records)}


def test_what_lies_below_a_note_was_sent_back_and_what_lies_at_it_is_open() -> None:
    """The note names the next dead letter."""
    assert became(letter(0), letter(1), note(2, 1)) == {0: ("sent_back", ""), 1: ("open", "")}


def test_what_a_redrive_passed_over_was_not_sent_back() -> None:
    """Each note says it of its own part; a later one does not repeat it."""
    timer = stored(timer_dead_letter("1", Timer("ledger", 0, "remind", "default", "ada", 7), WHY), 3)
    left = ", except 0 (record gone), 1 (no such input)"
    passed_over = {0: ("passed_over", "record gone"), 1: ("passed_over", "no such input")}
    before = (letter(0), letter(1), note(2, 2, left), timer)
    assert became(*before) == {**passed_over, 3: ("open", "")}
    assert became(*before, note(4, 4, ", except 3 (timer)")) == {**passed_over, 3: ("passed_over", "timer")}


def test_no_more_of_a_record_is_shown_than_there_is_room_for() -> None:
    """Its value is cut between two characters, and headers are left out with their number."""
    headers = tuple((f"h{n}", b"x" * VALUE_CHARACTERS_MAX) for n in range(3))
    long, fits = _letters(
        [letter(0, "ü".encode() * (VALUE_CHARACTERS_MAX + 1), headers), letter(1, headers=headers[:0])]
    )
    assert (long.value, long.value_is_cut) == ("ü" * VALUE_CHARACTERS_MAX, True)
    assert (long.headers, long.headers_left_out) == ({}, 3)
    assert (fits.value, fits.value_is_cut, fits.headers_left_out) == ("v", False, 0)
    (exact,) = _letters([letter(0, "😀".encode() * VALUE_CHARACTERS_MAX, (("h", b"x"),))])
    assert (len(exact.value or ""), exact.value_is_cut, exact.headers) == (VALUE_CHARACTERS_MAX, False, {"h": "x"})


def test_the_answers_about_operations_name_the_first_few_that_were_passed_over() -> None:
    """All of them are counted."""
    assert _left([]) == ""
    said = _left([f"letters-0-{n}: {'why ' * 1000}" for n in range(5000)])
    assert "5,000 skipped: letters-0-0: why" in said
    assert f"and {5000 - LEFT_SHOWN_MAX:,} more" in said
    assert len(said) < 2000


SENT_MS = wall_ms()
"""A broker deletes records of long ago while a test looks at them."""


class Letters:
    """An app with dead letters of its input, made by hand: no service runs."""

    def __init__(self, here):
        self.here, self.app = here, here.app
        self.input = here.app.inputs[0].name
        self.topic = dead_letters_topic(here.app.app_id)

    async def feed(self, *outputs, transactional_id=None):
        feeder = KafkaFeeder(self.here.settings(), transactional_id)
        await feeder.start()
        try:
            for each in outputs:
                await feeder.feed([each])
        finally:
            await feeder.close()

    def letter(self, record, partition, limit_bytes=1_000_000):
        return in_partition(dead_letter(self.app.app_id, "1", record, RecordError("why"), limit_bytes), partition)

    async def add(self, count, first=0, transactional_id=None):
        records = [
            RawRecord(self.input, n % 2, n, SENT_MS + n, b"k", b"%d" % n, (("h", b"x"),))
            for n in range(first, first + count)
        ]
        made = (self.letter(each, each.partition) for each in records)
        await self.feed(*made, transactional_id=transactional_id)

    async def sent(self):
        """Values, times and headers of the input's committed records, per partition."""
        found = []
        for number in range(2):
            source = TopicPartition(self.input, number)
            await decided(self.here.cluster, source)
            reader = await self.here.cluster.reader()
            try:
                slices = [s async for s in reader.read(source, *await reader.bounds(source))]
            finally:
                await reader.close()
            found.append([(int(r.value), r.timestamp, r.headers) for s in slices for r in s])
        return found


def in_partition(letter, partition):
    return msgspec.structs.replace(letter, partition=partition)


def expected(count):
    return [[(n, SENT_MS + n, (("h", b"x"),)) for n in range(p, count, 2)] for p in range(2)]


@pytest.fixture
async def letters(broker, unique):
    here = Stage(broker.bootstrap_servers, apps.ledger(unique("redriven")), 2)
    await here.prepare()
    found = Letters(here)
    await here.cluster.create_topics([NewTopic(found.topic, 2)])
    return found


class Killed(BaseException):
    """The process is gone: nothing is aborted or flushed."""


@pytest.mark.parametrize("before_commit", [True, pytest.param(False, marks=pytest.mark.whole)], ids=["before", "after"])
@pytest.mark.parametrize("at", [1, *(pytest.param(each, marks=pytest.mark.whole) for each in (0, 3))])
async def test_each_goes_back_once_wherever_a_redrive_dies(letters, monkeypatch, at, before_commit):
    """Six transactions; it dies in one of them, with everything sent, before or after the commit. The next one
    continues where the last commit ended; a third one has nothing to do. What is new is sent then."""
    monkeypatch.setattr(module, "BATCH_RECORDS", 4)
    await letters.add(20)
    settings = letters.here.settings()
    with monkeypatch.context() as patch:
        die(patch, at, before_commit=before_commit)
        with pytest.raises(Killed):
            await redrive(letters.app, settings)
    await redrive(letters.app, settings)
    assert await letters.sent() == expected(20)
    assert (await redrive(letters.app, settings)).sent == {}
    await letters.add(4, first=20)
    planned = await redrive(letters.app, settings, dry_run=True)
    assert (await redrive(letters.app, settings)) == planned
    assert sum(planned.sent.values()) == 4
    assert await letters.sent() == expected(24)


def die(patch, at, *, before_commit):
    """Die in transaction number `at`: no abort reaches the broker, the connections are cut."""
    feed, send = KafkaFeeder.feed, KafkaFeeder._send
    calls: list[int] = []

    async def sending(self, outputs):
        places = await send(self, outputs)
        if before_commit and len(calls) > at:
            raise Killed
        return places

    async def feeding(self, outputs):
        calls.append(len(outputs))
        places = await feed(self, outputs)
        if len(calls) > at:
            raise Killed
        return places

    async def silent(self):
        await self._sink.close()

    patch.setattr(KafkaFeeder, "_send", sending)
    patch.setattr(KafkaFeeder, "feed", feeding)
    patch.setattr(KafkaFeeder, "_give_up", silent)
    patch.setattr(KafkaFeeder, "close", silent)


async def test_what_another_redrive_sends_before_it_is_fenced_is_not_sent_again(letters, monkeypatch):
    """Its notes are looked for after the fence, not before."""
    await letters.add(6)
    settings, start = letters.here.settings(), KafkaFeeder.start
    others = [redrive(letters.app, settings)]

    async def starting(self):
        if others:
            await others.pop()
        await start(self)

    monkeypatch.setattr(KafkaFeeder, "start", starting)
    assert (await redrive(letters.app, settings)).sent == {}
    assert await letters.sent() == expected(6)


def without_value(letters, number, offset, value=bytes(5000)):
    """The dead letter of a record that is too large for it."""
    letter = letters.letter(RawRecord(letters.input, number, offset, SENT_MS, b"k", value), 0, 3000)
    assert letter.value is None
    return letter


@pytest.mark.parametrize("change", ["value", pytest.param("time", marks=pytest.mark.whole)])
async def test_another_record_at_the_offset_of_a_dead_letter_is_never_sent(letters, change):
    """The input was made again. It is refused by name; what comes before it goes back, and nothing behind it is marked
    as done. What the hint says helps."""
    settings, servers = letters.here.settings(), letters.here.bootstrap_servers
    value = bytes(5000) if change == "time" else b"other"
    time = SENT_MS if change == "value" else SENT_MS + 1
    await letters.feed(Output(letters.input, b"k", value, 1, False, time))
    await letters.add(1)
    await letters.feed(without_value(letters, 1, 0))
    await letters.add(1, first=2)
    with pytest.raises(module.OtherRecord):
        await redrive(letters.app, settings)
    with pytest.raises(module.OtherRecord, match=f"{letters.input}-1-0 holds another") as refused:
        await redrive(letters.app, settings)
    assert len((await letters.here.read(letters.input))[1]) == 1
    assert await redriven(letters) == [0]
    end = int(refused.value.hint.split("up to offset ")[1].split(",")[0])
    await asyncio.to_thread(trim, servers, letters.topic, 0, end)
    await redrive(letters.app, settings)
    assert await redriven(letters) == [0, 2]


async def redriven(letters):
    return [int(record.value) for record in (await letters.here.read(letters.input))[0]]


async def test_what_did_not_fit_comes_from_the_input_or_is_named(letters):
    """A dead letter without its value: the record itself is sent again while the input has it, else it is left, with
    its name and the reason. So is what no input of the app has sent."""
    number = 1
    elsewhere = tuple((PREFIX + n, b"5") for n in ("topic", "partition", "offset", "timestamp_ms"))
    await letters.feed(
        Output(letters.input, b"k", bytes(5000), number, False, SENT_MS),
        *(without_value(letters, number, offset) for offset in (0, 99)),
        Output(letters.topic, b"k", b"v", 0, False, None, elsewhere),
        Output(letters.topic, b"k", b"v", 0, False, None),
    )
    done = await redrive(letters.app, letters.here.settings())
    assert done.sent == {TopicPartition(letters.input, number): 1}
    gone, foreign, unmarked = done.left
    assert f"{letters.input}-{number}-99 is gone" in gone
    assert "5-5 is not an input partition" in foreign
    assert "does not say where it comes from" in unmarked
    found = (await letters.here.read(letters.input))[number]
    assert [each.value for each in found][-1] == found[0].value
    shown = (await DeadLetters(letters.app, letters.here.settings(), letters.here.cluster).read()).items
    assert {each.passed_over for each in shown} == {"", "record gone", "no such input", "no origin"}


async def test_the_dead_letters_of_an_app_that_reads_dead_letters(letters):
    """Its records may have a note's header, and the reasons of the app before: they are dead letters like any other,
    and go back with all the headers that they had."""
    settings, theirs = (letters.here.settings(), ((REDRIVEN_HEADER, b"99"), (f"{PREFIX}topic", b"of-theirs")))
    keyed = enumerate((None, b"k"))
    records = [RawRecord(letters.input, 0, offset, SENT_MS, key, b"%d" % offset, theirs) for offset, key in keyed]
    await letters.feed(*(letters.letter(each, 0) for each in records))
    await redrive(letters.app, settings)
    assert (await redrive(letters.app, settings)).sent == {}
    assert (await letters.sent())[0] == [(n, SENT_MS, theirs) for n in range(2)]


async def test_the_dead_letter_of_a_timer_is_named(letters):
    """It is no record of an input."""
    error, timer = RecordError("why"), Timer(letters.app.app_id, 0, "remind", "default", "ada", 7)
    await letters.feed(in_partition(timer_dead_letter("1", timer, error), 0))
    (left,) = (await redrive(letters.app, letters.here.settings())).left
    assert "timer remind of default['ada'] at 7" in left


async def test_dead_letters_that_were_copied_with_other_offsets_are_refused_by_name(letters):
    """As a tool copies a topic, without its markers: a note names an offset that lies behind it, and new dead letters
    lie below that. What the hint deletes was sent back before; what is new is sent then."""
    await letters.add(20, transactional_id=f"{letters.app.app_id}-0")
    settings, cluster = letters.here.settings(), letters.here.cluster
    for number in range(2):
        await decided(cluster, TopicPartition(letters.topic, number))
    await redrive(letters.app, settings)
    copies = []
    for number in range(2):
        source = TopicPartition(letters.topic, number)
        await decided(cluster, source)
        async with reading(cluster) as reader:
            copies += [each async for some in reader.read(source, *await reader.bounds(source)) for each in some]
    await cluster.delete_topics([letters.topic])
    await cluster.create_topics([NewTopic(letters.topic, 2)])
    await letters.feed(
        *(Output(each.topic, each.key, each.value, each.partition, False, None, tuple(each.headers)) for each in copies)
    )
    await letters.add(8, first=20)
    with pytest.raises(
        NotesShifted, match=f"{letters.topic}-0 offset 10 says that dead letters below offset 19"
    ) as told:
        await redrive(letters.app, settings)
    assert f"removes {letters.topic}-0 up to offset 11" in told.value.hint
    for number in range(2):
        trim(letters.here.bootstrap_servers, letters.topic, number, 11)
    await redrive(letters.app, settings)
    assert await letters.sent() == expected(28)


async def test_the_newest_are_listed_with_their_reason_and_whether_they_were_sent_back(letters):
    """A timer has no record. The input and the headers of the record are shown, the note of the redrive is not."""
    await letters.add(4)
    await redrive(letters.app, letters.here.settings())
    await letters.add(2, first=4)
    timer = Timer(letters.app.app_id, 1, "leave", "cards", "k", 7)
    await letters.feed(in_partition(timer_dead_letter("1", timer, RecordError("late")), 1))
    found = await DeadLetters(letters.app, letters.here.settings(), letters.here.cluster).read()
    assert found.topic == letters.topic
    shown = {each.value: each for each in found.items if not each.timer}
    assert {value: each.state for value, each in shown.items()} == {
        str(n): "sent_back" if n < 4 else "open" for n in range(6)
    }
    five = shown["5"]
    assert (five.topic, five.input_partition, five.input_offset) == (letters.input, 1, 5)
    assert (five.key, five.headers, five.message) == ("k", {"h": "x"}, "why")
    (late,) = (each for each in found.items if each.timer)
    assert (late.timer, late.value, late.state, late.message) == ("leave", None, "open", "late")


async def test_an_app_without_a_topic_for_them_has_none(letters):
    """Nothing is asked of a topic that is not there."""
    here = letters.here
    found = await DeadLetters(apps.ledger("another"), here.settings(), here.cluster).read()
    assert (found.topic, found.items) == (None, ())
