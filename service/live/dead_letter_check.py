"""The dead letters of a LIVE partition, against the limits in the settings."""

from __future__ import annotations

from snapreplay.app.batch import Applied
from snapreplay.app.ways import go_on
from snapreplay.errors import StopError
from snapreplay.service.core.dead_letter_limit import DeadLetterGauge, DeadLetterLimits
from snapreplay.service.runtime.context import Context


class DeadLetterLimitReached(StopError):
    """An end of processing because too many records were dead-lettered."""


class DeadLetterCheck:
    """Counts from the beginning of an ownership."""

    def __init__(self, context: Context) -> None:
        errors = context.settings.errors
        self._partition = context.partition
        self._gauge = DeadLetterGauge()
        self._limits = DeadLetterLimits(
            errors.dead_letters_consecutive_max,
            errors.dead_letters_percent_max,
            errors.window_records,
        )

    def check(self, applied: Applied) -> None:
        """Raise DeadLetterLimitReached if with this committed batch it is too many."""
        skipped = len(applied.dead_letters)
        self._gauge = self._gauge.after(applied.record_count, skipped, self._limits)
        flood = self._gauge.flooded(self._limits)
        if flood is not None:
            raise DeadLetterLimitReached(
                f"partition {self._partition}: {flood}",
                hint="see the headers in the dead-letter topic for the reason, deploy a fixed handler, then"
                f" {go_on(self._partition)}. Until then no more input is drained",
            )
