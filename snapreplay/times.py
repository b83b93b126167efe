"""Times in milliseconds since the epoch, as Kafka's records have them, and what is wrong with some. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

NO_TIMESTAMP = -1
"""The timestamp of a record that has none (Kafka's RecordBatch.NO_TIMESTAMP). Brokers also take other negative ones."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FAR_AHEAD_MS = 3_652 * 86_400_000
"""Ten years."""
_YEAR_2015_MS, _YEAR_2050_MS = 1_420_070_400_000, 2_524_608_000_000
_YEARS_2001_TO_2050_S = range(1_000_000_000, _YEAR_2050_MS // 1000)
_UNITS = (("microseconds", 1_000), ("nanoseconds", 1_000_000))


def is_far_ahead(timestamp_ms: int, stream_time_ms: int, most_ms: int | None = None) -> bool:
    """Say whether a timestamp lies more than `most_ms` after stream time. The first record may have any time.

    None: ten years; while stream time lies before 2015 (no record yet, old data, a test), any time up to 2050.

    No clock is asked, so that a replay decides the same.
    """
    if most_ms is not None and stream_time_ms >= 0 and timestamp_ms - stream_time_ms > most_ms:
        return True
    if timestamp_ms - stream_time_ms <= FAR_AHEAD_MS:
        return False
    return stream_time_ms >= _YEAR_2015_MS or timestamp_ms > _YEAR_2050_MS


def suspected_unit(number: float) -> str:
    """Say what a time in milliseconds seems to be instead: "seconds since the epoch (2026-11-28T04:00:00Z)"; empty:
    nothing is suspected."""
    if int(number) in _YEARS_2001_TO_2050_S:
        return f"seconds since the epoch ({time_text(int(number) * 1000)})"
    for name, per_ms in _UNITS:
        if int(number) // per_ms // 1000 in _YEARS_2001_TO_2050_S:
            return f"{name} since the epoch ({time_text(int(number) // per_ms)})"
    return ""


def time_text(at_ms: int, timespec: str = "seconds") -> str:
    """Show a time. Kafka takes years beyond 9999, and records without a time."""
    if at_ms < 0:
        return "no timestamp" if at_ms == NO_TIMESTAMP else f"{at_ms} ms"
    try:
        return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec=timespec).replace("+00:00", "Z")
    except OverflowError:
        return f"{at_ms} ms"
