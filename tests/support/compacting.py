"""A compaction without Spark: a client of topics in memory that can be killed."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count

from snapreplay.app.record import InputRecord
from snapreplay.service.core.kafka_errors import OffsetTrimmed
from snapreplay.snapshots.format.records import Increment, Manifest
from snapreplay.snapshots.jobs import compaction
from snapreplay.snapshots.jobs.fixed_logs import freeze
from snapreplay.snapshots.proof.partition import audit_partition
from snapreplay.snapshots.proof.records import Moment, judge
from snapreplay.snapshots.proof.report import Level
from snapreplay.snapshots.proof.state import entries_of
from tests.support.audited_log import STAGES, Story
from tests.support.audited_topics import MemoryLogs, MemoryTopics

BEHIND = [stage for stage in STAGES if stage != "snapshot4"]
"""The newest snapshot is of batch 2, the last batch is 5."""
BY = "compact@test/1"


class Killed(BaseException):
    """The process is gone: nothing after this line happened."""


class Steps:
    """Counts what the job does with Kafka, and lets something happen at a step."""

    def __init__(self, at: int | None = None, then: Callable[[], None] | None = None) -> None:
        self.count = 0
        self._at = at
        self._then = then or _kill

    def __call__(self) -> None:
        self.count += 1
        if self.count == self._at:
            self._then()


def _kill() -> None:
    raise Killed


class MemoryClient:
    """`compaction.LogClient`. Each call is two steps: before it, and after it had its effect."""

    def __init__(self, opened: "Topics") -> None:
        self._topics, self._step, self._opened = opened.topics, opened.step, opened

    def partition_count(self, topic: str) -> int:
        self._step()
        return sum(name == topic for name, _ in self._topics.places())

    def bounds(self, topic: str, partition: int, *, committed: bool) -> tuple[int, int]:
        self._step()
        return self._topics.bounds(topic, partition)

    def read(
        self, topic: str, partition: int, start_offset: int, end_offset: int, *, committed: bool
    ) -> Iterator[Sequence[InputRecord]]:
        self._step()
        start = self._topics.bounds(topic, partition)[0]
        if start_offset < start:
            raise OffsetTrimmed(f"{topic}-{partition} begins at {start}, not at {start_offset}")
        for records in self._topics.read(topic, partition, start_offset, end_offset):
            yield records
            self._step()

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        self._step()
        self._opened.asked += 1
        if self._opened.asked == 2:  # the chunks are written and the manifest is not
            self._opened.meanwhile()
        return {name: self._opened.ids.get(name, f"id of {name}") for name in topics}

    def append(self, topic: str, partition: int, value: bytes, headers: Sequence[tuple[str, bytes]]) -> int:
        assert headers
        self._step()
        offset = self._topics.append(topic, {partition: [value]})[partition][0]
        self._step()
        return offset


class Topics:
    """Opens clients; `ids`: topic → id, where it is another one. `meanwhile` is called before the task looks again."""

    def __init__(
        self,
        topics: MemoryTopics,
        step: Callable[[], None] | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        self.topics = topics
        self.step: Callable[[], None] = step or Steps()
        self.meanwhile = meanwhile
        self.ids: dict[str, str] = {}
        self.asked = 0

    @contextmanager
    def open(self) -> Iterator[MemoryClient]:
        yield MemoryClient(self)


def told(faults=None, partitions=1, stages=BEHIND):
    story = Story(MemoryTopics(), "ledger", partitions)
    story.tell(faults or {}, stages)
    return story


def compacted(story, topics=None, times=1):
    """The results by partition; each task runs `times` times, as where Spark speculates: the last one counts."""
    topics, found = topics or Topics(story.topics), {}
    with topics.open() as client:
        for moment in freeze(client, story.app_id):
            for _ in range(times):
                found[moment.partition] = compaction.compacted(story.app_id, BY, lambda: 7, client, moment)
    return found


def now(story, number=0):
    log, snapshots = (story.topics.bounds(topic, number) for topic in (story.log, story.snaps))
    return Moment(number, *log, *snapshots)


def logs_of(story, number=0):
    return MemoryLogs(story.topics, story.app_id, number)


def proposals(story, number=0):
    """Offset → manifest, of those that a job wrote."""
    found = {}
    moment = now(story, number)
    for records in logs_of(story, number).snapshots(moment.snapshots_start, moment.snapshots_end):
        for record in records:
            entry = judge(record).entry
            if isinstance(entry, Manifest) and entry.proposed_by is not None:
                found[record.offset] = entry
    return found


def increments(story, number=0):
    moment = now(story, number)
    records = [r for part in logs_of(story, number).increments(moment.log_start, moment.log_end) for r in part]
    entries = {record.offset: judge(record).entry for record in records}
    return {offset: e for offset, e in entries.items() if isinstance(e, Increment)}


def assert_good(story, number=0):
    """Each proposal is of a batch of the log, as its increment says, and holds exactly the state after it."""
    known = increments(story, number)
    for manifest in proposals(story, number).values():
        of = known[manifest.increment_offset]
        told_by = (of.batch, of.owner_epoch, of.positions, of.digest, of.stream_time_ms, of.genesis)
        assert told_by == (
            manifest.batch,
            manifest.owner_epoch,
            manifest.positions,
            manifest.digest,
            manifest.stream_time_ms,
            manifest.genesis,
        )
        assert (of.origin, of.topic_ids) == (manifest.origin, manifest.topic_ids)
        assert (manifest.proposed_by, manifest.created_at_ms) == (BY, 7)
        assert entries_of(logs_of(story, number), manifest).digest == of.digest


def audited(story, number=0, level=Level.CHANGES):
    return audit_partition(story.app_id, now(story, number), logs_of(story, number), level)


class Busy:
    """An owner that processes, takes snapshots and trims while the job runs; and the job is killed at some step."""

    def __init__(self, drawn):
        self.drawn = drawn
        self.story = told(stages=BEHIND[: drawn.randint(2, len(BEHIND))])
        self.names = count(6)
        self.acts = drawn.choice([0.02, 0.1, 0.3])
        self.kills = drawn.choice([0, 0.01, 0.05])

    def step(self):
        if self.drawn.random() < self.acts:
            self.drawn.choice([self.process, self.process, self.take_snapshot, self.trim])()
        if self.drawn.random() < self.kills:
            raise Killed

    def process(self):
        self.story.tell({}, [f"batch{next(self.names)}"])

    def take_snapshot(self):
        self.story.tell({}, [f"snapshot{next(self.names)}", "batch5"])

    def trim(self):
        moment = now(self.story)
        for pointer in self.story.partitions[0].pointers[1:2]:
            if pointer.first_chunk_offset >= moment.snapshots_start:
                self.story.trim(0, pointer.increment_offset, pointer.first_chunk_offset)


def assert_true(story):
    """Each proposal, as far as the logs still hold it."""
    moment, known = now(story), increments(story)
    for offset, manifest in proposals(story).items():
        chunks = [ref.offset for ref in manifest.chunks]
        assert max(chunks, default=-1) < offset
        if min(chunks, default=offset) >= moment.snapshots_start:
            assert entries_of(logs_of(story), manifest).digest == manifest.digest
        if manifest.increment_offset >= moment.log_start:
            assert known[manifest.increment_offset].batch == manifest.batch
            assert known[manifest.increment_offset].digest == manifest.digest


def history(seed):
    """Some jobs beside a busy owner. Returns how many proposals there are."""
    drawn = random.Random(seed)
    busy = Busy(drawn)
    for _ in range(drawn.randint(1, 3)):
        with suppress(Killed):
            compacted(busy.story, Topics(busy.story.topics, busy.step), drawn.choice([1, 2]))
        assert audited(busy.story).findings == []
        assert_true(busy.story)
    return len(proposals(busy.story))


def owner_snapshots(story):
    """The owner takes one, and points to it."""
    story.tell({}, ["snapshot6", "batch5"])
