"""What an answer to a fetch means, and which fetch is next: tables, and any order of answers."""

import random
import struct

import pytest
from aiokafka.errors import CorruptRecordException, OffsetOutOfRangeError, TopicAuthorizationFailedError

from snapreplay.app.ranges import PositionAnchor
from snapreplay.service.kafka.cursors import ANSWERS_MAX, PAUSE_S, Answered, Cursor, Reading
from snapreplay.service.ports import EpochEnd, TopicPartition
from tests.support.record_batches import ABORT, COMMIT, TRANSACTIONAL, batch, emptied_marker, marker

T = TopicPartition("t", 0)
NOW_S = 100.0


def log(start: int, end: int) -> bytes:
    """Make batches of one record."""
    return b"".join(batch(at, at, [(at, b"k", b"%d" % at)]) for at in range(start, end))


def following(position: int = 0, anchor: PositionAnchor | None = None, **how) -> Cursor:
    cursor = Cursor(T, position, Reading(**how))
    cursor.follow(anchor)
    return cursor


def answered(cursor: Cursor, answer: Answered, now_s: float = NOW_S) -> bool:
    return cursor.answered(cursor.fetch_offset, answer, now_s)


def of_epoch(offset: int, leader_epoch: int) -> Answered:
    return Answered(0, 9, 9, records=batch(offset, offset, [(offset, b"k", b"v")], leader_epoch=leader_epoch))


REFUSED = {
    "no leader": (5, True, False),
    "not the leader": (6, True, False),
    "no replica": (9, True, False),
    "failed disk": (56, True, False),
    "old leader epoch": (74, True, False),
    "new leader epoch": (75, True, False),
    "unknown topic": (3, True, True),
    "unknown topic id": (100, True, True),
    "inconsistent topic id": (103, True, True),
    "offset not available": (78, False, False),
    "unknown error": (-1, False, False),
}
"""Error code, whether the leader is looked up again, whether the topic is missing."""


@pytest.mark.parametrize(("code", "is_stale", "is_missing"), REFUSED.values(), ids=REFUSED)
def test_a_refused_fetch_is_a_disturbance_and_asked_again_after_a_pause(code, is_stale, is_missing):
    """The position stays; an answer that has the topic ends that it is missing."""
    cursor = following(7)
    for count, now_s in ((1, NOW_S), (2, NOW_S + 1)):
        assert answered(cursor, Answered(code), now_s) is is_stale
        assert cursor.disturbances == count
        assert cursor.not_before == now_s + PAUSE_S
    assert cursor.missing_since == (NOW_S if is_missing else None)
    assert (cursor.wants_fetch, cursor.position, cursor.take(9), cursor.end_offset) == (True, 7, [], None)
    answered(cursor, Answered(0, 9, 8))
    assert (cursor.missing_since, cursor.end_offset, cursor.high_watermark) == (None, 8, 9)


@pytest.mark.parametrize(
    ("code", "error"), [(1, OffsetOutOfRangeError), (2, CorruptRecordException), (29, TopicAuthorizationFailedError)]
)
def test_an_error_comes_behind_what_was_fetched_before(code, error):
    """And once for each answer; then the same offset is fetched again."""
    cursor = following()
    answered(cursor, Answered(0, 9, 9, records=log(0, 3)))
    answered(cursor, Answered(code))
    assert not cursor.wants_fetch
    assert [each.offset for each in cursor.take(9)] == [0, 1, 2]
    with pytest.raises(error):
        cursor.take(9)
    assert (cursor.wants_fetch, cursor.fetch_offset, cursor.position, cursor.take(9)) == (True, 3, 3, [])


def test_a_damaged_batch_is_fetched_again_from_its_place_and_counted():
    """What comes before it is taken; what was fetched behind it means nothing; another place counts from one."""
    bad = bytearray(log(2, 3))
    bad[-1] ^= 1
    cursor = following()
    answered(cursor, Answered(0, 9, 9, records=log(0, 2) + bytes(bad) + log(3, 4)))
    ahead = cursor.fetch_offset
    assert [each.offset for each in cursor.take(9)] == [0, 1]
    for attempt in (1, 2):
        with pytest.raises(CorruptRecordException):
            cursor.take(9)
        assert (cursor.attempts, cursor.position, cursor.fetch_offset) == (attempt, 2, 2)
        cursor.answered(ahead, Answered(0, 9, 9, records=log(ahead, 6)), NOW_S)
        assert cursor.take(9) == []
        answered(cursor, Answered(0, 9, 9, records=bytes(bad)))
    cursor = following(4)
    answered(cursor, Answered(0, 9, 9, records=log(4, 5) + struct.pack(">qi4xb", 5, -1, 2)))
    assert not cursor.wants_fetch, "what lies behind a damaged length is not known"
    assert [each.offset for each in cursor.take(9)] == [4]
    with pytest.raises(CorruptRecordException, match="a length of -1 bytes"):
        cursor.take(9)


def test_what_was_damaged_leaves_no_anchor():
    """The head is known before its checksum is: fetched again, the batch is what it is."""
    data, damaged = log(0, 4), bytearray(log(0, 4))
    at = 2 * (len(data) // 4)
    damaged[at + 17] ^= 1  # the checksum itself
    damaged[at + 12] ^= 1  # the leader epoch
    known: list[object] = []
    for answers in ([bytes(damaged), data[at:]], [data]):
        cursor = following(0, PositionAnchor(0, 1))
        for number, records in enumerate(answers):
            answered(cursor, Answered(0, 9, 9, records=records))
            cursor.take(9)
            if len(answers) - number > 1:
                with pytest.raises(CorruptRecordException):
                    cursor.take(9)
        assert cursor.batches is not None
        known.append([cursor.batches.below(offset) for offset in range(1, 5)])
        known.append([cursor.epoch_below, cursor.batches.latest_epoch])
    assert known[:2] == known[2:]


def test_an_answer_without_progress_is_damaged():
    """Else it would be fetched for ever."""
    cursor = following(5)
    answered(cursor, Answered(0, 9, 9, records=log(0, 5)))
    with pytest.raises(CorruptRecordException, match="ends before offset 5"):
        cursor.take(9)
    assert cursor.position == 5


def test_an_answer_that_is_cut_moves_nothing():
    """Its first batch is not whole. Since when is known until one is; once a disturbance."""
    cursor = following()
    for now_s in (NOW_S, NOW_S + 1):
        answered(cursor, Answered(0, 9, 9, records=log(0, 1)[:30]), now_s)
        assert (cursor.cut_since, cursor.position, cursor.disturbances) == (NOW_S, 0, 1)
        assert cursor.not_before == now_s + PAUSE_S
    answered(cursor, Answered(0, 9, 9, records=log(0, 2)[:-30]))
    assert cursor.cut_since is None
    assert [each.offset for each in cursor.take(9)] == [0]


@pytest.mark.parametrize(
    ("epochs", "disturbances"), [((3, 3, 4), 0), ((4, 3), 1), ((2,), 1)], ids=["rises", "falls", "falls at once"]
)
def test_a_leader_epoch_that_falls_is_a_disturbance(epochs, disturbances):
    cursor = following(0, PositionAnchor(3, 1))
    for offset, epoch in enumerate(epochs):
        answered(cursor, of_epoch(offset, epoch))
        cursor.take(1)
    assert cursor.disturbances == disturbances


def test_a_fetch_names_the_leader_epoch_of_what_was_read_before():
    """As far as it is known. A cursor that follows nothing names none."""
    assert following(7).epoch_below == Cursor(T, 7, Reading()).epoch_below == -1
    cursor = following(0, PositionAnchor(6, 1))
    assert cursor.epoch_below == 6
    answered(cursor, of_epoch(0, 8))
    assert cursor.epoch_below == 8


def test_a_marker_that_the_cleaner_has_emptied_ends_no_aborted_transaction():
    """The one behind it does."""
    aborted = {"attributes": TRANSACTIONAL, "producer_id": 1}
    data = batch(0, 0, [(0, b"k", b"a")], **aborted) + emptied_marker(1, producer_id=1)
    data += batch(2, 2, [(2, b"k", b"a")], **aborted) + marker(3, ABORT, producer_id=1) + log(4, 5)
    cursor = following()
    answered(cursor, Answered(0, 5, 5, [(1, 0)], records=data))
    assert [each.offset for each in cursor.take(9)] == [4]
    plain = following(read_committed=False)
    answered(plain, Answered(0, 5, 5, [(1, 0)], records=data))
    assert [each.offset for each in plain.take(9)] == [0, 2, 4]


def test_a_doubt_is_counted_once_and_nothing_more_comes():
    """Of a log that went another way, and of one that does not know the epoch of what was read."""
    diverged = following(7)
    answered(diverged, Answered(0, 9, 9, records=log(7, 8)))
    for _ in range(3):
        answered(diverged, Answered(0, 9, 9, diverging=EpochEnd(2, 520)))
    assert "t-0 has leader epoch 2 up to offset 520 only" in diverged.doubt
    unknown = following(7, PositionAnchor(6, 1))
    unknown.refused_inside()
    assert "does not know leader epoch 6" in unknown.doubt
    without = following(7)
    without.refused_inside()
    assert not without.doubt
    for cursor in (diverged, unknown):
        assert (cursor.disturbances, cursor.take(9), cursor.wants_fetch) == (1, [], False)


def test_a_replica_is_asked_until_it_refuses_fails_or_its_time_is_over():
    """KIP-392. Out of range at a follower means only that it lags."""
    for end in ("time", "refused", "failed", "damaged"):
        cursor = following()
        answered(cursor, Answered(0, 9, 9, preferred_replica=3))
        assert cursor.replica(NOW_S + 29) == 3
        match end:
            case "time":
                later_s = NOW_S + 30
            case "refused":
                later_s = NOW_S
                answered(cursor, Answered(1))
                assert cursor.wants_fetch
            case "damaged":
                later_s = NOW_S
                answered(cursor, Answered(0, 9, 9, records=log(0, 1)[:-1] + b"?"))
                with pytest.raises(CorruptRecordException):
                    cursor.take(9)
                assert cursor.wants_leader
            case _:
                later_s = NOW_S
                cursor.failed(NOW_S, 0.1)
                assert cursor.is_unanswered
        assert cursor.replica(later_s) is None
        answered(cursor, Answered(0, 9, 9))
        assert not cursor.is_unanswered


def test_it_is_held_back_while_an_untouched_answer_waits():
    """And fetches nothing behind the end of what is wanted."""
    cursor = following()
    for number in range(ANSWERS_MAX):
        assert cursor.wants_fetch
        answered(cursor, Answered(0, 9, 9, records=log(3 * number, 3 * number + 3)))
    assert cursor.is_held_back
    assert not cursor.wants_fetch
    cursor.take(4)
    assert cursor.wants_fetch
    cursor.stop_offset = 6
    assert not cursor.wants_fetch


@pytest.mark.parametrize("seed", range(60))
def test_every_record_is_taken_once_in_order_with_any_answers(seed):
    """Answers of any size, late, doubled, cut, damaged and refused ones, markers in between; polls of any size."""
    chance = random.Random(seed)
    parts, committed, offset = [], list[int](), 0
    for _ in range(chance.randrange(5, 40)):
        count = chance.randrange(1, 4)
        kept = [(at, b"k", b"v") for at in range(offset, offset + count)]
        parts.append((offset, batch(offset, offset + count - 1, kept, attributes=TRANSACTIONAL, producer_id=1)))
        committed += range(offset, offset + count)
        parts.append((offset + count, marker(offset + count, COMMIT, producer_id=1)))
        offset += count + 1
    cursor, taken, asked = following(), list[int](), list[int]()
    while cursor.position < offset:
        before = cursor.position
        if cursor.wants_fetch:
            asked.append(cursor.fetch_offset)
        if asked:
            place = asked[-1] if chance.random() < 0.8 else chance.choice(asked)
            served = [data for at, data in parts if at + 2 > place][: chance.randrange(1, 6)]
            data = bytearray(b"".join(served))
            code = chance.choice((0, 0, 0, 0, 6, 2))
            match chance.randrange(6):
                case 0:
                    del data[chance.randrange(len(data) + 1) :]
                case 1 if served:  # where a checksum covers it
                    number = chance.randrange(len(served))
                    at = sum(map(len, served[:number])) + chance.randrange(16, len(served[number]))
                    data[at] ^= 1 << chance.randrange(8)
            cursor.answered(place, Answered(code, offset, offset, records=bytes(data)), NOW_S)
        try:
            taken += [each.offset for each in cursor.take(chance.randrange(1, 5))]
        except CorruptRecordException:
            assert cursor.fetch_offset == cursor.position
        assert cursor.position >= before
    assert taken == committed
