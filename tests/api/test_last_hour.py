"""The last hour: what is remembered of the app, and how what several processes saw is put together."""

from dataclasses import dataclass, field

import msgspec
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.api.app import create_app
from snapreplay.api.fleet_views import Held
from snapreplay.api.last_hour import EVERY_SECONDS, PATH, ROWS, LastHourRecorder, Ring, Row, of_the_app
from snapreplay.service.control.status import CommitTimes, InputStatus, PartitionStatus
from snapreplay.service.core.phase import Phase
from snapreplay.service.live.live_report import CommitClock
from tests.support.fake_control import LIVE, NOW, FakeControl, Local, alone

NOTHING = (None,) * 6
SLOTS = st.integers(0, 3 * ROWS)
VALUES = st.none() | st.integers(0, 1000).map(float)
FILLED = st.lists(st.tuples(SLOTS, st.integers(1, 9), VALUES), max_size=3 * ROWS)
START = 1_795_000_000


@given(FILLED, SLOTS)
def test_a_ring_has_the_newest_rows_in_order_and_no_other(filled: list[tuple[int, int, float | None]], newest: int):
    """In any order, as by a clock that was set: a slot that was not filled, or lies outside of the
    hour, is not there, and one that was filled has what was put last of all that share its place."""
    ring, places = Ring(), {}
    for slot, partitions, value in filled:
        row = Row(partitions, 0, value, *NOTHING[1:])
        ring.put(slot, row)
        places[slot % ROWS] = (slot, row)
    rows = ring.rows(newest)
    assert list(rows) == sorted(rows)
    assert rows == {slot: row for slot, row in places.values() if newest - ROWS < slot <= newest}


def told(process_id: str = "a", **changes: object) -> Held:
    """Partition 0, as a process that can be asked says it."""
    process = alone([LIVE]).says[0].process
    status = msgspec.structs.replace(LIVE, **{"inputs": (InputStatus("payments", 5, 9),), **changes})
    return Held(0, msgspec.structs.replace(process, process_id=process_id), status)


@dataclass
class Hour:
    """The memory of a process that is shown one thing after the other, ten seconds apart."""

    hour: LastHourRecorder = field(default_factory=LastHourRecorder)
    at: float = START

    def sees(self, *found: Held) -> Row | None:
        """Look, and return the row of the app."""
        self.hour.look(found, self.at)
        slot, self.at = round(self.at / EVERY_SECONDS), self.at + EVERY_SECONDS
        return self.hour.rows(None, slot).get(slot)


def commits(*seconds: float, now: float = 0.0) -> CommitTimes:
    clock = CommitClock()
    for each in seconds:
        clock.committed(each, now)
    return clock.times


def test_a_row_is_what_has_happened_since_the_one_before():
    """The first one has no such time: what the totals hold may be of days."""
    hour = Hour()
    first = hour.sees(told(records_total=1_000_000, commits=commits(9.0)))
    assert first == Row(1, 1, None, None, None, 50_000, None, 4)
    second = hour.sees(told(records_total=1_000_050, commits=commits(9.0, 0.25, 0.75)))
    assert second == Row(1, 1, 5.0, 0.5, 9.0, 50_000, None, 4)
    assert hour.sees(told(records_total=1_000_050, commits=commits(9.0, 0.25, 0.75))) == Row(
        1, 1, 0.0, None, None, 50_000, None, 4
    )


def test_a_new_owner_counts_from_its_beginning_and_was_not_live_all_the_time():
    """Nothing of what it has processed is lost between the two, and nothing of the old owner's is counted again."""
    hour = Hour()
    hour.sees(told("a", records_total=10))
    assert hour.sees(told("a", records_total=20)) == Row(1, 1, 1.0, None, None, 50_000, None, 4)
    assert hour.sees() is None
    moved = hour.sees(told("b", owner_epoch=140, records_total=40, commits=commits(0.5)))
    assert moved == Row(1, 0, 2.0, 0.5, 0.5, 50_000, None, 4)
    again = hour.sees(told("b", owner_epoch=150, records_total=20))
    assert again is not None
    assert (again.live, again.records_per_second) == (0, 2.0)


def test_what_began_anew_and_is_further_already_has_no_negative_times():
    """A partition went to another process and came back within ten seconds. It has more commits than before, in less
    time."""
    hour = Hour()
    hour.sees(told(commits=commits(9.0)))
    again = hour.sees(told(owner_epoch=140, commits=commits(0.5, 0.25)))
    assert again is not None
    assert again.commit_seconds == 0.375


def test_a_partition_that_the_app_does_not_have_costs_nothing():
    """A peer names what it likes. Only the own status says how many there are."""
    own = alone([LIVE]).says[0]
    assert own.document is not None
    strange = [msgspec.structs.replace(LIVE, partition=number) for number in (-1, 1, 6, 10**9)]
    peer = own._replace(
        process=msgspec.structs.replace(own.process, process_id="b", state="reachable"),
        document=msgspec.structs.replace(own.document, partitions=tuple(strange)),
    )
    assert [each.partition for each in of_the_app([own, peer])] == [*range(6)]


def test_a_timer_that_comes_too_early_makes_no_row_of_a_moment():
    """It comes again at once. What happens in between belongs to the next row."""
    hour = Hour()
    hour.sees(told(records_total=10))
    hour.at -= 0.001
    row = hour.sees(told(records_total=110))
    hour.hour.look([told(records_total=111)], hour.at - EVERY_SECONDS + 0.001)
    assert row is not None
    assert hour.hour.rows(None, START // EVERY_SECONDS + 1)[START // EVERY_SECONDS + 1] == row
    hour.at += 0.001
    again = hour.sees(told(records_total=120))
    assert again is not None
    assert again.records_per_second == pytest.approx(1.0, rel=0.01)


def test_what_a_partition_was_before_it_is_live_is_not_known():
    """Its state and its lag are those of before. That nothing is processed is known."""
    hour = Hour()
    hour.sees(told(records_total=10))
    loading = hour.sees(told(phase=Phase.LOADING, records_total=10))
    assert loading == Row(1, 0, 0.0, *NOTHING[1:])


@pytest.mark.parametrize("state", [{"state": "unreachable"}, {"state": "dead"}, {"age_seconds": 11.0}])
def test_what_a_silent_process_said_last_is_no_row(state: dict[str, object]):
    """A gap is a gap: what it does now is not known."""
    process = msgspec.structs.replace(alone([LIVE]).says[0].process, **state)
    assert Hour().sees(Held(0, process, LIVE), Held(1, None, None)) is None


def test_the_app_is_the_sum_of_its_partitions_and_the_longest_of_its_times():
    """The mean of commits is that of all commits, not of the partitions."""
    hour, other = Hour(), PartitionStatus(1, Phase.LIVE)
    hour.sees(told(), Held(1, told().process, other))
    row = hour.sees(
        told(records_total=500, commits=commits(0.25)),
        Held(
            1,
            told().process,
            msgspec.structs.replace(other, records_total=60, state_bytes=7, commits=commits(1.0, 1.0, 1.0)),
        ),
    )
    assert row == Row(2, 2, 8.0, 0.8125, 1.0, 50_007, None, 4)
    newest = round(hour.at / EVERY_SECONDS)
    assert [each.records_per_second for each in hour.hour.rows(1, newest).values()] == [None, 6.0]
    assert hour.hour.rows(2, newest) == {}


def test_the_longest_commit_is_forgotten_after_a_while():
    """It is the longest of the window that runs, and of the one before."""
    clock = CommitClock()
    found = []
    for now, seconds in ((0, 3.0), (9, 1.0), (10, 0.5), (19, 0.25), (20, 0.125)):
        clock.committed(seconds, now)
        found.append(clock.times.longest_seconds)
    assert found == [3.0, 3.0, 3.0, 3.0, 0.5]
    assert (clock.times.total, clock.times.seconds_total) == (5, 4.875)
    clock.committed(2.0, 25)
    clock.committed(0.5, 4000)  # nothing was committed for an hour
    assert clock.times.longest_seconds == 0.5


def test_totals_of_commits_go_on_in_the_next_ownership():
    """As those of records do, and the longest begins again."""
    clock = CommitClock(CommitTimes(5, 2.5, 1.0))
    clock.committed(0.25, 7)
    assert clock.times == CommitTimes(6, 2.75, 0.25)


# ---- over HTTP


def served_hour(*ages: int) -> TestClient:
    """HTTP in this process, which has rows of partition 0 that are so many slots old."""
    hour, newest = LastHourRecorder(), round(NOW.timestamp() / EVERY_SECONDS)
    for age in sorted(ages, reverse=True):
        hour.look([told(records_total=10 * (500 - age))], (newest - age) * EVERY_SECONDS)
    return TestClient(create_app(Local(FakeControl()), hour=hour, now=lambda: NOW))


def test_an_answer_is_of_the_hour_before_now():
    """What is older is gone. A partition without a report has no row."""
    client = served_hour(400, 359, 2, 0)
    whole = client.get(PATH).json()
    assert (whole["partition"], whole["every_seconds"]) == (None, 10)
    assert len(whole["lag"]) == ROWS
    assert whole["records_per_second"][:1] + whole["records_per_second"][-3:] == [1.0, 1.0, None, 1.0]
    assert whole["partitions"][-3:] == [1, 0, 1]
    one = client.get(PATH, params={"partition": 0}).json()
    assert (one["partition"], one["records_per_second"]) == (0, whole["records_per_second"])
    nothing = client.get(PATH, params={"partition": 5}).json()
    assert (nothing["first_at"], nothing["live"]) == (None, [])


def test_a_partition_that_does_not_exist_is_a_problem():
    """It says how many there are."""
    answer = served_hour(1).get(PATH, params={"partition": 6})
    assert (answer.status_code, answer.json()["partition_count"]) == (404, 6)
