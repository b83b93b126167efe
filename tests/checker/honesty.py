"""The honesty of services: what they were told of their commits, against what is visible; what recoveries and
warm copies found, against the whole log.

Read from the journals of `tests.checker.outcomes`; kept per partition in arrays, 16 bytes a commit.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.checker import wire
from tests.checker.reading import Bounds, Record
from tests.checker.verdict import Check, Verdict


class Restored(NamedTuple):
    """The last increment that a recovery found, and the digest of the state it made."""

    owner_epoch: int
    offset: int
    batch: int
    digest: str


@dataclass
class Told:
    """The reports on one partition.

    Attributes:
        committed: (offset, crc32) pairs, one behind the other, by offset once `sort` was called.
        refused: crc32 of what was reported never to be committed.
        restores: owner epoch → what its recovery found.
        copies: batch → the digests of the warm copies that had it.
    """

    committed: array[int] = field(default_factory=lambda: array("q"))
    refused: set[int] = field(default_factory=set)
    restores: dict[int, Restored] = field(default_factory=dict)
    copies: dict[int, set[str]] = field(default_factory=dict)

    def commits(self) -> Iterator[tuple[int, int]]:
        """(offset, crc32), ascending."""
        pairs = self.committed
        order = sorted(range(0, len(pairs), 2), key=pairs.__getitem__)
        return ((pairs[index], pairs[index + 1]) for index in order)


def read_journals(outcomes: Path | None, verdict: Verdict) -> dict[int, Told]:
    """Read the journals, by partition. A torn last line (a process was killed while it wrote) is counted, not
    judged."""
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
    if fields["kind"] == "copy":
        told.copies.setdefault(fields["batch"], set()).add(fields["digest"])
        return
    verdict.counts[f"commits reported {fields['result']}"] += 1
    if fields["result"] == "committed":
        told.committed.extend((fields["offset"], fields["crc32"]))
    elif fields["result"] == "refused":
        told.refused.add(fields["crc32"])


class Honesty:
    """One partition. `visit` every record of T-ZengLiang in order, `claimed` at every committed claim, `increased` at
    every committed increment, then `end`."""

    def __init__(self, told: Told, where: str, bounds: Bounds, verdict: Verdict) -> None:
        self._refused = told.refused
        self._restores = dict(told.restores)
        self._copies = told.copies
        self._recorded: dict[int, set[str]] = {}
        self._where = where
        self._bounds = bounds
        self._verdict = verdict
        self._commits: Iterator[tuple[int, int]] = told.commits()
        self._next = next(self._commits, None)

    def visit(self, record: Record) -> None:
        self._missing_below(record.offset)
        value = record.value or b""
        if self._next is not None and self._next[0] == record.offset:
            self._verdict.counts["reported commits checked"] += 1
            if not record.committed:
                self._add(record.offset, "reported committed, but it is aborted")
            elif zlib.crc32(value) != self._next[1]:
                self._add(record.offset, "reported committed, but another record is there")
            self._next = next(self._commits, None)
        if self._refused and record.committed and zlib.crc32(value) in self._refused:
            self._add(record.offset, "reported refused, but it is visible")

    def claimed(self, epoch: int, last_offset: int, last: wire.Increment | None) -> None:
        """`last`: the newest increment before this claim, by a scan of everything."""
        told = self._restores.pop(epoch, None)
        if told is None:
            return
        if last is None:
            self._verdict.counts["restores not checked, trimmed"] += 1
            return
        self._verdict.counts["restores checked"] += 1
        scanned = Restored(epoch, last_offset, last.batch, str(last.digest))
        if told != scanned:
            self._state(epoch, f"a restore found {told}, the log says {scanned}")

    def increased(self, found: wire.Increment) -> None:
        """Note a batch of which copies were told, also one that leads nowhere: a copy may have followed it before the
        log was made again, or cut."""
        if found.batch in self._copies:
            self._recorded.setdefault(found.batch, set()).add(str(found.digest))

    def end(self, last: wire.Increment | None) -> None:
        """`last`: the newest increment of all."""
        self._missing_below(self._bounds.high)
        for batch, digests in sorted(self._copies.items()):
            self._judge_copies(batch, digests, last)
        for epoch, told in self._restores.items():
            if epoch < self._bounds.start:
                self._verdict.counts["restores not checked, trimmed"] += 1
            elif epoch < self._bounds.high:
                self._state(epoch, f"{told} was restored under a claim that is not there")

    def _judge_copies(self, batch: int, digests: set[str], last: wire.Increment | None) -> None:
        recorded = self._recorded.get(batch)
        if recorded is None and (last is None or batch < last.batch):
            self._verdict.counts["copies not checked, trimmed"] += len(digests)
            return
        self._verdict.counts["copies checked"] += len(digests)
        for digest in digests - (recorded or set()):
            said = f"has {', '.join(sorted(recorded))}" if recorded else "has no such batch"
            what = f"a warm copy had digest {digest} after batch {batch}, the log {said}"
            self._verdict.add(Check.STATE, self._where, what)

    def _missing_below(self, end: int) -> None:
        while self._next is not None and self._next[0] < end:
            if self._next[0] < self._bounds.start:
                self._verdict.counts["reported commits not checked, trimmed"] += 1
            else:
                self._add(self._next[0], "reported committed, but nothing is there")
            self._next = next(self._commits, None)

    def _add(self, offset: int, what: str) -> None:
        self._verdict.add(Check.OUTCOMES, f"{self._where}-{offset}", what)

    def _state(self, epoch: int, what: str) -> None:
        self._verdict.add(Check.STATE, f"{self._where}-{epoch}", what)
