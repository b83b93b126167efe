"""The logs of `tests.checker.app` as an owner would have left them, written by hand on a real broker, each partition
with at most one fault.

All partitions have the same story, told in stages, side by side in one transaction per stage; what a fault aborts is
in another one. Records are packed here a third time, so that the checker's reader is not its own witness.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack
import xxhash
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.checker.wire import CHANGES, CHUNK, CLAIM, INCREMENT, MANIFEST
from tests.support.reference import book

STAGES = ("claim", "batch0", "batch1", "batch2", "snapshot2", "batch3", "claim3", "batch4",
          "batch5", "snapshot5", "batch6", "batch7")  # fmt: skip
PER_BATCH = {"payments": 3, "refunds": 2}
EMPTY_BATCHES = (0, 6)
BATCHES = 6
"""That are not empty."""
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
ANSWER_S = 60.0
BEGAN_MS = 1_700_000_000_000
"""Timestamp of the first record of each input; the others follow by a millisecond."""
Body = dict[str, Any]
CLAIMED = {"claim_id": "c", "process_id": "p", "pid": 1}


@dataclass
class Draft:
    """A batch before it is written. `outputs` are (key, value); `increment["changes"]` is made from `changes`."""

    owner: Owner
    changes: list[Body]
    increment: Body
    outputs: list[tuple[str, Body]]


@dataclass(frozen=True)
class Fault:
    """A fault: what goes wrong at one stage, and what happens to the logs afterwards.

    Attributes:
        draft, manifest: change what is to be written; `values` the packed records of the log, or the chunks.
        aborted: which records of the stage are in a transaction that is aborted: "outputs", "log".
        journal: changes what the services of this partition were told.
        after: trims.
    """

    stage: str = ""
    draft: Callable[[Draft], object] = lambda draft: None
    values: Callable[[list[bytes]], list[bytes]] = lambda values: values
    manifest: Callable[[Body], object] = lambda manifest: None
    aborted: frozenset[str] = frozenset()
    journal: Callable[[list[Body]], list[Body]] = lambda lines: lines
    after: Callable[[Forgery, Owner], object] = lambda forgery, owner: None


@dataclass
class Owner:
    """The knowledge of a partition's owner, and what services were told about it."""

    app_id: str
    number: int
    fault: Fault
    epoch: int = -1
    batch: int = -1
    last_offset: int = -1
    accounts: dict[str, Body] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    pointers: list[Body] = field(default_factory=list)
    topic_ids: dict[str, str] = field(default_factory=dict)
    journal: list[Body] = field(default_factory=list)
    offsets: dict[str, int] = field(default_factory=dict)
    """Stage → offset of its last record."""
    manifests: dict[str, Body] = field(default_factory=dict)
    """Stage → manifest of its snapshot."""

    def __post_init__(self) -> None:
        self.positions = {f"{name}-{self.app_id}": 0 for name in PER_BATCH}

    @property
    def entries(self) -> dict[bytes, bytes]:
        return {msgpack.packb(key): msgpack.packb(each) for key, each in self.accounts.items()}

    def next_batch(self) -> Draft:
        """Apply the next records of both inputs, or none."""
        self.batch += 1
        before = dict(self.positions)
        outputs = [] if self.batch in EMPTY_BATCHES else [*self._apply()]
        changed = {msgpack.packb(key): self.entries[msgpack.packb(key)] for key, _ in outputs}
        ranges = [[t, before[t], end, end - before[t]] for t, end in self.positions.items()]
        return Draft(
            self,
            [_changes(self.batch, 0, changed)] if outputs else [],
            self._increment([each for each in ranges if each[3]], outputs),
            outputs,
        )

    def _apply(self) -> Iterator[tuple[str, Body]]:
        for name, count in PER_BATCH.items():
            topic = f"{name}-{self.app_id}"
            for offset in range(self.positions[topic], self.positions[topic] + count):
                key, amount = record(name, offset)
                account = book(self.accounts, key, -amount if name == "refunds" else amount)
                yield key, {"id": f"{topic}-{self.number}-{offset}", **account}
            self.positions[topic] += count

    def _increment(self, ranges: list[list[Any]], outputs: list[tuple[str, Body]]) -> Body:
        topic, count = f"accounts-{self.app_id}", len(outputs)
        return {
            "origin": {"app_id": self.app_id, "app_version": "1", "fingerprint": "by hand"},
            "owner_epoch": self.epoch,
            "batch": self.batch,
            "previous_offset": self.last_offset,
            "ranges": ranges,
            "positions": dict(self.positions),
            "record_count": count,
            "skipped": [],
            "anchors": {},
            "pointers": list(self.pointers),
            "changes": None,
            "outputs": {topic: count} if outputs else {},
            "outputs_xxh64": {topic: sent_hash(topic, outputs)} if outputs else {},
            "stream_time_ms": max(BEGAN_MS + end - 1 if end else -1 for end in self.positions.values()),
            "digest": digest(self.entries),
            "genesis": {"cluster_id": "c", "partition_count": 1, "start_offsets": dict.fromkeys(self.positions, 0)},
            "written_at_ms": self.batch,
            "topic_ids": dict(self.topic_ids),
        }

    def chunks(self, snapshot_id: str) -> list[Body]:
        """Two chunks with half the entries each."""
        entries = list(self.entries.items())
        halves = [dict(entries[::2]), dict(entries[1::2])]
        return [
            {
                "snapshot_id": snapshot_id,
                "sequence": sequence,
                "store": "default",
                "slices": [[sequence, *digest(half)[1:], half]],
            }
            for sequence, half in enumerate(halves)
        ]

    def manifest(self, snapshot_id: str, refs: list[list[int]]) -> Body:
        found = digest(self.entries)
        return {
            "origin": {"app_id": self.app_id, "app_version": "1", "fingerprint": "by hand"},
            "snapshot_id": snapshot_id,
            "owner_epoch": self.epoch,
            "batch": self.batch,
            "increment_offset": self.last_offset,
            "positions": dict(self.positions),
            "chunks": refs,
            "entry_count": found[0],
            "digest": found,
            "entries_digest": found,
        }


class Forgery:
    """An app with a partition per fault. `tell()` writes everything; then `journal` is what services were told."""

    stages: tuple[str, ...] = STAGES
    inputs, owner = tuple(PER_BATCH), Owner

    def __init__(self, bootstrap_servers: str, app_id: str, faults: Sequence[Fault]) -> None:
        self.app_id = app_id
        self.owners = [self.owner(app_id, number, fault) for number, fault in enumerate(faults)]
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        # `flush` does not wait for the linger time: one batch per partition and stage.
        common = {"bootstrap.servers": bootstrap_servers, "linger.ms": 1000, "log_level": 0}
        self._common = common
        self._producer = Producer(common | {"transactional.id": f"{app_id}-forger"})
        self._plain = Producer(common | {"enable.idempotence": True})
        topics = [self.topic(n) for n in ("increments", "snapshots", *self.inputs, "accounts")]
        made = self._admin.create_topics([NewTopic(n, len(faults), 1, config=KEPT) for n in topics])
        for each in made.values():
            each.result(ANSWER_S)
        self._producer.init_transactions(ANSWER_S)

    @property
    def journal(self) -> list[Body]:
        return [line for owner in self.owners for line in owner.fault.journal(owner.journal)]

    def tell(self) -> None:
        for name, count in PER_BATCH.items():
            self._feed(name, count * BATCHES)
        for stage in self.stages:
            tell = self._snapshot if stage.startswith("snapshot") else self._transactions
            tell(stage)
        for owner in self.owners:
            owner.fault.after(self, owner)

    def topic(self, name: str) -> str:
        own = name in ("increments", "snapshots")
        return f"{self.app_id}-{name}" if own else f"{name}-{self.app_id}"

    def leave_open(self, owner: Owner) -> None:
        """Somebody else's transaction, with a record and no end. The broker aborts it after a minute."""
        somebody = Producer(self._common | {"transactional.id": f"{self.app_id}-somebody"})
        somebody.init_transactions(ANSWER_S)
        somebody.begin_transaction()
        somebody.produce(self.topic("increments"), b"open", partition=owner.number)
        assert somebody.flush(ANSWER_S) == 0

    def trim(self, owner: Owner, name: str, before_offset: int) -> None:
        before = TopicPartition(self.topic(name), owner.number, before_offset)
        self._admin.delete_records([before])[before].result(ANSWER_S)

    def _feed(self, name: str, count: int) -> None:
        for owner in self.owners:
            for offset in range(count):
                key, amount = record(name, offset)
                value = json.dumps({"amount": amount})
                self._plain.produce(self.topic(name), value, key, partition=owner.number, timestamp=BEGAN_MS + offset)
        assert self._plain.flush(ANSWER_S) == 0

    def _transactions(self, stage: str) -> None:
        """Write the transactions; what is aborted goes first: what is committed is then seen behind it."""
        drafts = {owner.number: self._packed(stage, owner) for owner in self.owners}
        some_aborted = any(_at(owner, stage).aborted for owner in self.owners)
        for commit in (False, True) if some_aborted else (True,):
            self._producer.begin_transaction()
            offsets: dict[int, list[int]] = {number: [] for number in drafts}
            for owner in self.owners:
                aborted = _at(owner, stage).aborted
                values, outputs = drafts[owner.number]
                if ("log" not in aborted) is commit:
                    self._append(self._producer, "increments", owner, values, offsets)
                if ("outputs" not in aborted) is commit:
                    self._send(owner, outputs)
            assert self._producer.flush(ANSWER_S) == 0
            end = self._producer.commit_transaction if commit else self._producer.abort_transaction
            end(ANSWER_S)
            for owner in self.owners:
                if offsets[owner.number]:
                    values, _ = drafts[owner.number]
                    self._written(stage, owner, values[-1], offsets[owner.number][-1], commit)

    def _packed(self, stage: str, owner: Owner) -> tuple[list[bytes], list[tuple[str, Body]]]:
        fault = _at(owner, stage)
        if stage.startswith("claim"):
            return fault.values([pack(CLAIM, CLAIMED | {"app_id": self.app_id})]), []
        draft = owner.next_batch()
        fault.draft(draft)
        values = [pack(CHANGES, each) for each in draft.changes]
        if draft.outputs and draft.changes:
            draft.increment["changes"] = {
                "record_count": len(values),
                "entry_count": sum(len(store) for each in draft.changes for store in each["stores"].values()),
                "crc32": zlib.crc32(b"".join(values)),
            }
        return fault.values([*values, pack(INCREMENT, draft.increment)]), draft.outputs

    def _written(self, stage: str, owner: Owner, value: bytes, offset: int, commit: bool) -> None:
        owner.offsets[stage] = offset
        line = {"kind": "commit", "partition": owner.number, "crc32": zlib.crc32(value)}
        line |= {"result": "committed" if commit else "doubt", "offset": offset if commit else None}
        line["written_at"] = offset
        found = "{}:{:016x}:{:016x}".format(*digest(owner.entries))
        if commit and not stage.startswith("claim"):
            copied = {"kind": "copy", "partition": owner.number, "batch": owner.batch, "digest": found}
            owner.journal.append(copied)
        owner.journal.append(line)
        if not stage.startswith("claim"):
            owner.last_offset = offset
            return
        owner.epoch = offset
        if owner.batch >= 0:
            owner.journal.append(
                {
                    "kind": "restore",
                    "partition": owner.number,
                    "owner_epoch": offset,
                    "batch": owner.batch,
                    "offset": owner.last_offset,
                    "digest": found,
                }
            )

    def _snapshot(self, stage: str) -> None:
        """Chunks, then the manifest with their offsets; the next batch points to it."""
        offsets: dict[int, list[int]] = {owner.number: [] for owner in self.owners}
        packed = {o.number: [pack(CHUNK, c) for c in o.chunks(stage)] for o in self.owners}
        for owner in self.owners:
            values = _at(owner, stage).values(packed[owner.number])
            self._append(self._plain, "snapshots", owner, values, offsets)
        assert self._plain.flush(ANSWER_S) == 0
        for owner in self.owners:
            refs = [
                [offset, sequence, len(value), zlib.crc32(value)]
                for sequence, (offset, value) in enumerate(
                    zip(offsets[owner.number], packed[owner.number], strict=False)
                )
            ]
            manifest = owner.manifests[stage] = owner.manifest(stage, refs)
            _at(owner, stage).manifest(manifest)
            self._append(self._plain, "snapshots", owner, [pack(MANIFEST, manifest)], offsets)
        assert self._plain.flush(ANSWER_S) == 0
        for owner in self.owners:
            written = offsets[owner.number]
            owner.offsets[stage] = written[-1]
            pointer = {
                "snapshot_id": stage,
                "manifest_offset": written[-1],
                "first_chunk_offset": written[0],
                "batch": owner.batch,
                "increment_offset": owner.last_offset,
                "digest": digest(owner.entries),
            }
            owner.pointers = [pointer, *owner.pointers]

    def _append(
        self, producer: Producer, kind: str, owner: Owner, values: Sequence[bytes], offsets: Mapping[int, list[int]]
    ) -> None:
        noted = _noted(offsets[owner.number])
        for value in values:
            producer.produce(self.topic(kind), value, partition=owner.number, on_delivery=noted)

    def _send(self, owner: Owner, outputs: Sequence[tuple[str, Body]]) -> None:
        for key, value in outputs:
            target = self.topic("accounts")
            self._producer.produce(target, json.dumps(value), key, partition=owner.number)


def record(name: str, offset: int) -> tuple[str, int]:
    """Key and amount of an input record."""
    return f"k{offset % 4}", 10 * offset + len(name)


def pack(kind: int, body: Body) -> bytes:
    """docs/FORMAT.md "Envelope", uncompressed."""
    described = bytes((1, kind, 0, 0))
    packed: bytes = msgpack.packb(body)
    checksum = zlib.crc32(described + packed)
    return b"SNRP" + described + checksum.to_bytes(4, "big") + packed


def digest(entries: Mapping[bytes, bytes]) -> list[int]:
    """docs/FORMAT.md "Digest"."""
    hashed = xxhash.xxh64_intdigest
    a = sum(hashed(v, hashed(k, 42)) for k, v in entries.items())
    b = sum(hashed(k, hashed(v, 42)) for k, v in entries.items())
    return [len(entries), a % 2**64, b % 2**64]


def sent_hash(topic: str, outputs: Sequence[tuple[str, Body]]) -> int:
    """docs/FORMAT.md "Outputs"."""
    packed = [
        msgpack.packb([topic, key.encode(), json.dumps(value).encode(), None, True, None, []]) for key, value in outputs
    ]
    return xxhash.xxh64_intdigest(b"".join(packed))


def _changes(batch: int, part: int, entries: Mapping[bytes, bytes | None]) -> Body:
    return {"batch": batch, "part": part, "stores": {"default": dict(entries)}}


def _at(owner: Owner, stage: str) -> Fault:
    return owner.fault if owner.fault.stage == stage else Fault()


def _noted(offsets: list[int]) -> Callable[[Any, Any], None]:
    def note(error: Any, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    return note
