"""The dead letters of a LIVE partition, against the limits in the settings."""

from __future__ import annotations

from snapreplay.service.core.flood import FloodGauge, FloodLimits
from snapreplay.service.partition.context import Context
from snapreplay.snapshots.errors import StopError
from snapreplay.snapshots.program.fold import Applied
from snapreplay.snapshots.program.ways import go_on


class DeadLetterFlood(StopError):
    """Too many records were dead-lettered."""


class FloodCheck:
    """Counts from the beginning of an ownership."""

    def __init__(self, context: Context) -> None:
        errors = context.settings.errors
        self._partition = context.partition
        self._gauge = FloodGauge()
        self._limits = FloodLimits(
            errors.dead_letters_in_a_row_max, errors.dead_letters_percent_max, errors.window_records
        )

    def check(self, applied: Applied) -> None:
        """
        Raises:
            DeadLetterFlood: with this committed batch it is too many.
        """
        skipped = len(applied.dead_letters)
        self._gauge = self._gauge.after(applied.record_count, skipped, self._limits)
        flood = self._gauge.flooded(self._limits)
        if flood is not None:
            raise DeadLetterFlood(
                f"partition {self._partition}: {flood}",
                hint="the input is not drained any further; the dead-letter topic's headers say why: deploy a fixed"
                f" handler, then {go_on(self._partition)}",
            )
