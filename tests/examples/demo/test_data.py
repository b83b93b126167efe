"""The real table, as records."""

import json
import zipfile
from datetime import UTC, datetime

import pytest

from examples.demo import data
from examples.demo.failed import DemoFailed

WITHOUT_AIRCRAFT = 67
"""Among the first 20,000 flights."""


def test_first_flight() -> None:
    """Numbers are numbers, the key is the tail number, the time is the scheduled hour of 2013."""
    (row,) = data.rows(1)
    assert row.key == b"N14228"
    flight = json.loads(row.value)
    assert (flight["carrier"], flight["distance"], flight["arr_delay"]) == ("UA", 1400, 11)
    assert datetime.fromtimestamp(row.timestamp_ms / 1000, UTC) == datetime(2013, 1, 1, 10, tzinfo=UTC)


def test_whole_table() -> None:
    """All rows are there; cancelled flights without an aircraft count per carrier."""
    with zipfile.ZipFile(data.data_file()) as archive, archive.open("flights.csv") as table:
        assert sum(1 for _ in table) == 1 + data.ROWS
    without_aircraft = [row for row in data.rows(20_000) if row.key.startswith(b"none-")]
    assert len(without_aircraft) == WITHOUT_AIRCRAFT
    assert json.loads(without_aircraft[0].value)["tailnum"] is None
    assert {row.key.decode()[5:] for row in without_aircraft} <= {
        json.loads(row.value)["carrier"] for row in without_aircraft
    }


def test_package_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package the remedy is named."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DemoFailed, match="make setup"):
        data.data_file()
