"""The last act: what the flights, the job and the owner do in it."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from examples.demo import feeder, last_act
from examples.demo.data import Row
from examples.demo.failed import DemoFailed
from examples.demo.last_act import Proposal
from tests.support.deadlines import scaled

ROWS = [Row(b"N1", str(number).encode(), 0) for number in range(250)]
PROPOSAL = Proposal(2, "proposed", "mine", 77)
POINTED = {"state": "pointed", "reason": "adopted", "snapshot_id": "mine", "entries": 9, "batch": 4}


def test_the_last_flights_all_arrive_in_order() -> None:
    """Slowly at first, and at once from `finish` on."""
    arrived: list[Row] = []

    def load(rows: Iterator[Row], _told: object) -> int:
        arrived.extend(rows)
        return len(arrived)

    feeding = feeder.Feeder(load, ROWS)
    feeding.start()
    feeding.finish()
    assert arrived == ROWS


def test_nothing_arrives_after_the_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer would create the topics again that were removed."""
    arrived: list[Row] = []
    first = threading.Event()

    def load(rows: Iterator[Row], _told: object) -> int:
        for row in rows:
            arrived.append(row)
            first.set()
        return len(arrived)

    feeding = feeder.Feeder(load, ROWS)
    monkeypatch.setattr(feeder, "CLOSE_S", scaled(30))
    feeding.start()
    assert first.wait(scaled(30))
    feeding.close()
    assert not feeding.thread.is_alive()
    assert 0 < len(arrived) < len(ROWS)


def test_a_refused_flight_is_raised_where_it_is_heard() -> None:
    """Not lost in the thread."""

    def refuse(*_: object) -> int:
        raise DemoFailed("refused")

    feeding = feeder.Feeder(refuse, ROWS)
    feeding.start()
    with pytest.raises(DemoFailed, match="refused"):
        feeding.finish()


@pytest.mark.parametrize(
    "newest",
    [None, *({**POINTED, name: "another"} for name in ("state", "reason", "snapshot_id"))],
    ids=["none", "state", "reason", "id"],
)
def test_only_what_the_owner_points_to_is_adopted(newest: dict[str, Any] | None) -> None:
    """The newest snapshot is another one, or not pointed to, or the owner's own: its answer says why."""
    adopted = last_act.outcome(PROPOSAL, POINTED, "succeeded")
    assert (adopted.snapshot_id, adopted.entries, adopted.batch, adopted.why) == ("mine", 9, 4, "")
    missed = last_act.outcome(PROPOSAL, newest, "failed: digest")
    assert (missed.partition, missed.snapshot_id, missed.why) == (2, "", "failed: digest")


def test_the_report_of_a_compaction() -> None:
    """Only what the demo needs is read; anything else than a report is refused."""
    part = {"partition": 2, "outcome": "not possible", "reason": "why", "batches": 5}
    assert last_act.read_report(json.dumps({"app_id": "a", "partitions": [part]})) == [
        Proposal(2, "not possible", reason="why")
    ]
    with pytest.raises(DemoFailed, match="printed no report"):
        last_act.read_report('{"findings": []}')
