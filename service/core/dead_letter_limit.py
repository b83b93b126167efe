"""The limit at which dead letters are a flood: a bad deploy must not drain the whole input into the dead-letter
topic. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class DeadLetterLimits:
    """The most that is still no flood: skipped records without an applied one between them, and per cent of a
    window of records."""

    in_a_row: int
    percent: float
    window_records: int


@dataclass(frozen=True)
class DeadLetterGauge:
    """Counts since the window began; a window ends when it is full and is judged only then."""

    in_a_row: int = 0
    window_skipped: int = 0
    window_records: int = 0

    def after(self, applied: int, skipped: int, limits: DeadLetterLimits) -> DeadLetterGauge:
        """Return the gauge after a batch. The order inside a batch is not known: a batch with any applied record
        ends a row, so `in_a_row` counts whole batches of failures only."""
        begun = (
            self if self.window_records < limits.window_records else DeadLetterGauge(self.in_a_row)
        )
        return replace(
            begun,
            in_a_row=0 if applied else begun.in_a_row + skipped,
            window_skipped=begun.window_skipped + skipped,
            window_records=begun.window_records + applied + skipped,
        )

    def flooded(self, limits: DeadLetterLimits) -> str | None:
        """Return which limit was passed, as a clause; None: none."""
        if self.in_a_row > limits.in_a_row:
            return f"{self.in_a_row} records in a row were dead-lettered"
        if self.window_records >= limits.window_records:
            percent = 100.0 * self.window_skipped / self.window_records
            if percent > limits.percent:
                return (
                    f"{percent:.0f} % of the last {self.window_records} records were dead-lettered"
                )
        return None
