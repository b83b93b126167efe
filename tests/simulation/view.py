"""The views that a process shows of its state, judged when the log is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.simulation.history import History, Violation


@dataclass(frozen=True)
class View:
    """A view that a process showed as the committed state, and as of which batch; `stored`: the same with its
    timers, encoded, as a job finds it in the log."""

    name: str
    number: int
    batch: int | None
    entries: dict[str, dict[str, str]]
    stored: dict[str, dict[bytes, bytes]]

    def check(self, story: History) -> None:
        batch = -1 if self.batch is None else self.batch
        expected = story.states.get(batch), story.stored.get(batch)
        left = ((each, stored) for batch_left, each, stored in story.left if batch_left == batch)
        if (self.entries, self.stored) not in (expected, *left):
            raise Violation(
                f"{self.name} partition {self.number}: the state after batch {self.batch} is"
                f" {self.entries}, {self.stored}, not {expected}"
            )


def stored_in(store: Any) -> dict[str, dict[bytes, bytes]]:
    """Return committed entries by store; stores without entries are left out."""
    found: dict[str, dict[bytes, bytes]] = {}
    for name, each in store.maps.items():
        lookup = each.shards.committed_value
        found[name] = {key: lookup(key) or b"" for key in each.shards.committed_keys()}
    return {name: entries for name, entries in found.items() if entries}
