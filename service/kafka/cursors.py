"""One partition that is read: which fetch to ask next, and what an answer means. Pure.

Fetched records wait here until they are taken. At most one untouched answer waits, so that fetching and processing
overlap. An answer for another offset than the wanted one is ignored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from aiokafka.errors import CorruptRecordException, KafkaError, OffsetOutOfRangeError, TopicAuthorizationFailedError

from snapreplay.app.ranges import PositionAnchor
from snapreplay.app.record import RawRecord
from snapreplay.service.kafka.records import FetchedBatches, Records, batches_in
from snapreplay.service.ports import EpochEnd, TopicPartition

PAUSE_S = 0.1
"""After a fetch that was refused, or whose answer is of no use."""
ANSWERS_MAX = 2
"""Of which one is being taken."""

_OUT_OF_RANGE, _CORRUPT, _FORBIDDEN = 1, 2, 29
_MISSING = frozenset({3, 100, 103})
"""UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID."""
_MOVED = frozenset({5, 6, 9, 56, 74, 75})
"""No leader, not the leader, no replica, a failed disk, an old or a new leader epoch: the leader is another one."""


class Answered(NamedTuple):
    """The answer to a fetch for one partition."""

    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    aborted: Sequence[tuple[int, int]] = ()
    preferred_replica: int = -1
    records: bytes = b""
    diverging: EpochEnd | None = None


class Reading(NamedTuple):
    """How all partitions of a reader are read."""

    read_committed: bool = True
    checks_crcs: bool = True
    replica_s: float = 30.0
    """For so long a preferred replica is asked (KIP-392)."""


class Cursor:
    """A partition that is read from a position.

    Attributes:
        partition, topic_id: the log; "" fetches by name.
        fetch_offset: the next offset to fetch.
        end_offset: where the log ends for this reader, by the last answer; None: not known yet.
        high_watermark: the same for a reader of uncommitted records.
        disturbances: how often a fetch was refused, or a leader epoch changed unasked.
        doubt: why what was read may not be in the log any more, as its broker said; empty: it did not.
        batches: what was fetched since it is followed; None: it is only read.
        missing_since: when a broker first said that there is no such topic; None after an answer that has it.
        cut_since: since when every answer has ended inside of its first record batch; None: the last did not.
        is_unanswered: whether its last fetch has failed.
        not_before: no fetch before this time.
        attempts: how often in a row the batch at `position` was damaged.
        stop_offset: nothing is fetched from here on; None: everything is wanted.
    """

    def __init__(self, partition: TopicPartition, position: int, how: Reading, topic_id: str = "") -> None:
        self.partition, self.topic_id = partition, topic_id
        self.fetch_offset = position
        self.end_offset: int | None = None
        self.high_watermark: int | None = None
        self.disturbances = 0
        self.doubt = ""
        self.batches: FetchedBatches | None = None
        self.missing_since: float | None = None
        self.cut_since: float | None = None
        self.is_unanswered = False
        self.not_before = 0.0
        self.attempts = 0
        self.stop_offset: int | None = None
        self._how = how
        self._damaged_at: int | None = None
        self._answers: deque[Records] = deque()
        self._error: Exception | None = None
        self._replica: tuple[int, float] | None = None

    @property
    def position(self) -> int:
        """The next offset that `take` would return; passes markers."""
        return self._answers[0].position if self._answers else self.fetch_offset

    @property
    def has_something(self) -> bool:
        """Whether `take` would return records, pass markers or raise."""
        return not self.doubt and (bool(self._answers) or self._error is not None)

    @property
    def is_at_stop(self) -> bool:
        """Whether it reads up to an offset only, and has met the end of the log."""
        return self.stop_offset is not None and self.end_offset is not None and self.fetch_offset >= self.end_offset

    @property
    def is_held_back(self) -> bool:
        """Whether it waits until something is taken."""
        return len(self._answers) >= ANSWERS_MAX

    @property
    def wants_fetch(self) -> bool:
        """Whether the next fetch should ask for it, once `not_before` is over."""
        ends = self._error is not None or self.doubt or (self._answers and self._answers[-1].damage)
        is_enough = self.stop_offset is not None and self.fetch_offset >= self.stop_offset
        return not (ends or is_enough or self.is_held_back)

    @property
    def wants_leader(self) -> bool:
        """Whether only the leader should answer: the batch here was damaged, and its own copy may be intact."""
        return self._damaged_at == self.fetch_offset

    @property
    def epoch_below(self) -> int:
        """The leader epoch of what was read before `fetch_offset`; -1: not known."""
        below = self.batches.below(self.fetch_offset) if self.batches is not None else None
        return -1 if below is None else below.leader_epoch

    @property
    def is_quiet(self) -> bool:
        """Whether it follows a log and has read it to the end, with nothing waiting, failed or in doubt."""
        is_at_end = self.end_offset is not None and self.fetch_offset >= self.end_offset
        is_odd = self._answers or self.is_unanswered or self.cut_since or self.missing_since or self.wants_leader
        return is_at_end and self.batches is not None and self.wants_fetch and not is_odd

    def is_news(self, answer: Answered) -> bool:
        """Say whether an answer says more than the last one did."""
        end_offset = answer.last_stable_offset if self._how.read_committed else answer.high_watermark
        is_moved = (end_offset, answer.high_watermark) != (self.end_offset, self.high_watermark)
        is_moved = is_moved and self.end_offset is not None
        is_other = answer.error_code or answer.diverging is not None or answer.preferred_replica >= 0
        return bool(is_moved or is_other or answer.records)

    def is_whole(self, answer: Answered) -> bool:
        """Say whether a fetch without tight limits would tell no more: the log ends here, or a whole batch came."""
        if answer.error_code or answer.diverging is not None or answer.preferred_replica >= 0:
            return False
        end_offset = answer.last_stable_offset if self._how.read_committed else answer.high_watermark
        return next(batches_in(answer.records), None) is not None if answer.records else self.fetch_offset >= end_offset

    def follow(self, anchor: PositionAnchor | None) -> None:
        """Remember what is fetched from here on: each fetch names what lies below it."""
        self.batches = FetchedBatches(self.fetch_offset, anchor)

    def replica(self, now_s: float) -> int | None:
        """Return the broker that the leader prefers for this client (KIP-392); None: the leader itself."""
        if self._replica is not None and self._replica[1] <= now_s:
            self._replica = None
        return self._replica[0] if self._replica is not None else None

    def failed(self, now_s: float, pause_s: float) -> None:
        """Note a fetch without an answer."""
        self.is_unanswered, self._replica = True, None
        self.pause(now_s, pause_s)

    def pause(self, now_s: float, pause_s: float = PAUSE_S) -> None:
        self.not_before = now_s + pause_s

    def answered(self, asked_offset: int, answer: Answered, now_s: float) -> bool:
        """Take the answer to a fetch from `asked_offset`. Return whether the leader is to be looked up again."""
        self.is_unanswered = False
        if asked_offset != self.fetch_offset or not self.wants_fetch:
            return False
        if answer.error_code:
            return self._refused(answer.error_code, now_s)
        self.missing_since = None
        self.high_watermark = answer.high_watermark
        self.end_offset = answer.last_stable_offset if self._how.read_committed else answer.high_watermark
        if answer.diverging is not None:
            epoch, end_offset = answer.diverging
            self.doubt_because(f"the log of {self.partition} has leader epoch {epoch} up to offset {end_offset} only")
        elif answer.preferred_replica >= 0:
            self._replica = answer.preferred_replica, now_s + self._how.replica_s
        elif answer.records:
            self._fetched(answer, now_s)
        return False

    def _fetched(self, answer: Answered, now_s: float) -> None:
        how = self._how
        records = Records(
            self.partition,
            answer.records,
            answer.aborted,
            self.fetch_offset,
            read_committed=how.read_committed,
            checks_crcs=how.checks_crcs,
        )
        if not records.heads and not records.damage:  # Kafka's own brokers send at least one whole batch
            if self.cut_since is None:
                self.cut_since = now_s
                self.disturbances += 1
            self.pause(now_s)
            return
        self.cut_since = None
        if records.next_offset <= self.fetch_offset and not records.damage:
            records.damage = f"an answer that ends before offset {self.fetch_offset}"
        if self.batches is not None and self.batches.add(records.heads):
            self.disturbances += 1
        self._answers.append(records)
        self.fetch_offset = records.next_offset

    def _refused(self, code: int, now_s: float) -> bool:
        self.disturbances += 1
        if code == _OUT_OF_RANGE and self._replica is not None:  # a follower may lag: the leader knows
            self._replica = None
            return False
        self._replica = None
        if code == _OUT_OF_RANGE:
            self._error = OffsetOutOfRangeError(self.partition)
        elif code == _CORRUPT:
            self._error = CorruptRecordException("the broker cannot read it")
        elif code == _FORBIDDEN:
            self._error = TopicAuthorizationFailedError(self.partition.topic)
        else:
            self.pause(now_s)
            if code in _MISSING:
                self.missing(now_s)
            else:
                self.missing_since = None
            return code in _MISSING or code in _MOVED
        return False

    def missing(self, now_s: float) -> None:
        """Note that a broker does not know the topic."""
        if self.missing_since is None:
            self.missing_since = now_s

    def fail(self, error: Exception) -> None:
        """Raise this error behind what was fetched."""
        self._error = error

    def doubt_because(self, why: str) -> None:
        """Note that this log is not the one that was read. Counted once."""
        if not self.doubt:
            self.doubt = why
            self.disturbances += 1

    def refused_inside(self) -> None:
        """Note that an offset within the log was refused: the broker does not know the epoch of what was read."""
        if self.batches is not None and self.batches.latest_epoch >= 0:
            self.doubt_because(f"the log of {self.partition} does not know leader epoch {self.batches.latest_epoch}")

    def take(self, count: int) -> list[RawRecord]:
        """Return the next records; with a doubt none.

        Raises:
            CorruptRecordException: the batch at the position is damaged; `attempts` says how often it was. What lies
                there is fetched again.
            KafkaError: another error of the last fetch. The next fetch begins at the position.
        """
        taken: list[RawRecord] = []
        while self._answers and len(taken) < count and not self.doubt:
            first = self._answers[0]
            try:
                some = first.take(count - len(taken))
            except KafkaError as error:
                if taken:
                    break
                self._restart(error)
                raise
            taken += some
            if not first.is_over:
                if not some:
                    break
                continue
            self._answers.popleft()
        if not taken and not self._answers and self._error is not None:
            failed, self._error = self._error, None
            self._restart(failed)
            raise failed
        return taken

    def _restart(self, error: Exception) -> None:
        at = self.position
        if isinstance(error, CorruptRecordException):
            self.attempts = self.attempts + 1 if self._damaged_at == at else 1
            self._damaged_at, self._replica = at, None
            if self.batches is not None:
                self.batches.forget_from(at)
        self._answers.clear()
        self.fetch_offset = at
