"""What services were told and what they said they found, read from the journals of `tests.checker.outcomes`.

Kept per partition in arrays, 16 bytes a commit.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.checker.verdict import Verdict


class Restored(NamedTuple):
    """The last increment that a recovery found, and the digest of the state it made."""

    owner_epoch: int
    offset: int
    batch: int
    digest: str | None


@dataclass
class Told:
    """Of one partition.

    Attributes:
        committed: (offset, crc32) pairs, one behind the other, by offset once `sort` was called.
        refused: crc32 of what was reported never to be committed.
        restores: owner epoch → what its recovery found.
    """

    committed: array[int] = field(default_factory=lambda: array("q"))
    refused: set[int] = field(default_factory=set)
    restores: dict[int, Restored] = field(default_factory=dict)

    def commits(self) -> Iterator[tuple[int, int]]:
        """(offset, crc32), ascending."""
        pairs = self.committed
        order = sorted(range(0, len(pairs), 2), key=pairs.__getitem__)
        return ((pairs[index], pairs[index + 1]) for index in order)


def read(outcomes: Path | None, verdict: Verdict) -> dict[int, Told]:
    """By partition. A torn last line (a process was killed while it wrote) is counted, not judged."""
    told: dict[int, Told] = {}
    for path in _files(outcomes):
        with path.open("rb") as lines:
            for line in lines:
                try:
                    fields = json.loads(line)
                except ValueError:
                    verdict.counts["torn journal lines"] += 1
                    continue
                _take(told.setdefault(fields["partition"], Told()), fields, verdict)
    return told


def _files(outcomes: Path | None) -> list[Path]:
    if outcomes is None:
        return []
    if outcomes.is_dir():
        return sorted(outcomes.glob("*.jsonl"))
    if not outcomes.exists():
        raise FileNotFoundError(f"no journal of outcomes at {outcomes}")
    return [outcomes]


def _take(told: Told, fields: Any, verdict: Verdict) -> None:
    if fields["kind"] == "restore":
        epoch = fields["owner_epoch"]
        told.restores[epoch] = Restored(epoch, fields["offset"], fields["batch"], fields["digest"])
        verdict.counts["restores reported"] += 1
        return
    verdict.counts[f"commits reported {fields['result']}"] += 1
    if fields["result"] == "committed":
        told.committed.extend((fields["offset"], fields["crc32"]))
    elif fields["result"] == "refused":
        told.refused.add(fields["crc32"])
