"""The dead letters as HTTP shows them: what became of each, and how much of it is shown."""

from snapreplay.app.failure import dead_letter, timer_dead_letter
from snapreplay.app.record import InputRecord, Output, RawRecord
from snapreplay.app.timer import Timer
from snapreplay.errors import RecordError
from snapreplay.service.control.kafka_reads import VALUE_CHARACTERS_MAX
from snapreplay.service.dead_letters import LEFT_SHOWN_MAX, REDRIVEN_HEADER, _left, _letters

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
