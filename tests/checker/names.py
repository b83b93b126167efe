"""The topics of an app."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Names:
    """The names of topics, by what they are for."""

    app_id: str
    inputs: tuple[str, ...]
    output: str
    partitions: int

    @property
    def increments(self) -> str:
        return f"{self.app_id}-increments"

    @property
    def snapshots(self) -> str:
        return f"{self.app_id}-snapshots"

    @property
    def releases(self) -> str:
        """No topic: what the outputs of timers say they are of."""
        return f"releases-{self.app_id}"

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.inputs, self.output, self.increments, self.snapshots)
