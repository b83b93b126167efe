"""The demo's names in Kafka, and the app that it runs."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

from examples import flights

PARTITIONS = 4
PREFIX_VARIABLE = "FLIGHTS_PREFIX"
"""Tells `prefixed` how to name its topics."""


@dataclass(frozen=True)
class Names:
    """The demo's names; `prefix` is empty on a broker of our own, where there are no other topics."""

    prefix: str = ""

    @classmethod
    def unique(cls) -> Names:
        """Make names for a cluster that others use too."""
        return cls(f"snapreplay-demo-{uuid.uuid4().hex[:8]}-")

    @property
    def app_id(self) -> str:
        """The app id, which also names the consumer group."""
        return f"{self.prefix}{flights.app.app_id}"

    @property
    def input_topic(self) -> str:
        return f"{self.prefix}{flights.flights.name}"

    @property
    def output_topic(self) -> str:
        return f"{self.prefix}{flights.flight_stats.name}"

    @property
    def app(self) -> str:
        """The app as the command line takes it: the example itself, or the example under other names."""
        return "examples.demo.prefixed" if self.prefix else str(Path(flights.__file__).resolve())

    @property
    def snapshots_topic(self) -> str:
        return f"{self.app_id}-snapshots"

    @property
    def all_topics(self) -> list[str]:
        return [self.input_topic, self.output_topic, f"{self.app_id}-increments", self.snapshots_topic]
