"""Writes record batches to the partition leaders and ends transactions, with plain requests: one producer id and epoch,
one caller at a time except for `close`.

A request that gets a retriable error, or no answer, is repeated until the caller's deadline. A batch is repeated byte
for byte, so the broker recognises its sequence number.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import zip_longest
from typing import Any, TypeAlias

from aiokafka import errors as kafka
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from snapreplay.errors import described
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.repeats import Repeats
from snapreplay.service.kafka.batching import Batch
from snapreplay.service.kafka.config import retry_pause_s
from snapreplay.service.kafka.connection import CLOSE_S
from snapreplay.service.kafka.log_ends import NO_LEADER
from snapreplay.service.kafka.patience import Patience
from snapreplay.service.kafka.refusals import NotConnected
from snapreplay.service.kafka.requests import COORDINATOR_AWAY, error_codes
from snapreplay.service.kafka.shared import Client, Shared
from snapreplay.service.ports import TopicPartition

log = logging.getLogger(__name__)

MARKERS_PAUSE_S = 0.002
"""Pause before AddPartitionsToTxn is repeated, when the previous transaction's markers are not written yet. The usual
20 ms would limit a producer to 60 transactions/s."""

_ALL_REPLICAS = -1
_CONCURRENT = 51
_SAME_COORDINATOR = {3, 14, _CONCURRENT}
"""The coordinator does not know a topic yet, is loading, or is still ending the previous transaction: the same node is
asked again."""
_AGAIN = COORDINATOR_AWAY | _SAME_COORDINATOR

_SAID = Repeats()

Bytes: TypeAlias = bytes | bytearray
Stored: TypeAlias = int | KafkaError
"""The base offset of a batch, or why it was not stored."""


class BatchesRefused(Exception):
    """The brokers have refused batches for good. The others of the same round were answered, too."""

    def __init__(self, errors: Mapping[TopicPartition, KafkaError]) -> None:
        super().__init__()
        self.errors = errors


class Sink:
    """A producer id with its epoch and sequence numbers, and the client that speaks for it.

    Attributes:
        unanswered: whether a request of a transaction was sent and got no answer.
        trouble: why the last request is being repeated; empty after a good answer.
    """

    def __init__(self, settings: Settings, shared: Shared, transactional_id: str | None = None) -> None:
        """Take the transactional id; None: idempotent only."""
        self.producer_id, self.epoch = -1, -1
        self.unanswered = False
        self.trouble = ""
        self._cause: KafkaError | None = None  # of the trouble
        self._settings = settings
        self._transactional_id = transactional_id
        self._pause_s = retry_pause_s(settings)
        self._shared = shared
        self._client = Client(shared)
        self._coordinator: int | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._ended_at = -math.inf  # of the loop's clock: the last transaction
        self._working = asyncio.Lock()
        self._closed = False

    # ------------------------------------------------------------------------ its life

    async def start(self) -> None:
        """Connect, and get a producer id. With a transactional id this is the fence: the open transaction of an older
        producer is aborted, and it can write nothing more."""
        await self._client.start()
        timeout_ms = self._settings.timeouts.transaction_ms if self._transactional_id else 0
        request = InitProducerIdRequest(self._transactional_id, timeout_ms)
        answer, _ = await self._coordinated(request, watched=False)
        self.producer_id, self.epoch = int(answer.producer_id), int(answer.producer_epoch)

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncIterator[None]:
        """Run the block when no quota mutes the brokers' connections; return all connections afterwards. Time lost to
        quotas does not count.

        Raises:
            TimeoutError: the block has taken longer.
            KafkaError: `close` has ended it.
        """
        async with self._working:
            self._guard()
            try:
                async with self._client.writing(seconds):
                    yield
            except TimeoutError as error:
                if self._closed:
                    raise _closed() from None
                if self.trouble:
                    raise TimeoutError(f"deadline passed; before it: {self.trouble}") from self._cause or error
                raise
        self._client.give_back()

    async def close(self) -> None:
        """End the block that runs, and close the client: nothing is sent afterwards. Bounded, idempotent, never
        raises."""
        if not self._closed:
            self._closed = True
            self._client.end_writing()
            try:
                async with asyncio.timeout(CLOSE_S), self._working:
                    pass
            except TimeoutError:
                pass
            finally:
                await self._client.close()

    # ------------------------------------------------------------------------ what it does

    async def partition_count(self, topic: str) -> int:
        """Return the number of partitions. The topic's leaders are known from then on.

        Raises:
            KafkaError: the topic does not exist, or may not be described.
        """
        client, loop = self._client, asyncio.get_running_loop()
        until = loop.time() + self._settings.request_timeout_ms / 1000
        await client.shared.track([topic])
        while not (partitions := client.cluster.partitions_for_topic(topic)):
            if topic in client.cluster.unauthorized_topics:
                raise kafka.TopicAuthorizationFailedError(topic)
            if loop.time() > until:
                raise kafka.UnknownTopicOrPartitionError(topic)
            await asyncio.sleep(self._pause_s)
            await client.shared.refresh()
        return len(partitions)

    def available(self, topic: str) -> list[int]:
        """Return the partitions of a topic that have a leader, after `partition_count`."""
        return sorted(self._client.cluster.available_partitions_for_topic(topic) or ())

    async def begin(self, targets: Iterable[TopicPartition]) -> None:
        """Begin a transaction with these partitions, after a pause in which the previous one's markers are probably
        written; or add them to the open transaction.

        Raises:
            KafkaError: it is refused for good.
        """
        loop = asyncio.get_running_loop()
        rest_s = self._patience().rest_s(loop.time() - self._ended_at)
        if rest_s:
            await asyncio.sleep(rest_s)
        gap_ms = (loop.time() - self._ended_at) * 1000
        topics: dict[str, list[int]] = {}
        for topic, partition in targets:
            topics.setdefault(topic, []).append(partition)
        _, met = await self._coordinated(AddPartitionsToTxnRequest(*self._who(), list(topics.items())))
        if self._coordinator is not None:
            learned = self._patience().after(refused=_CONCURRENT in met, gap_ms=gap_ms)  # others learn meanwhile
            self._shared.patience[self._coordinator] = learned

    async def end(self, *, commit: bool) -> None:
        """Commit or abort the transaction.

        Raises:
            KafkaError: it is refused for good.
        """
        await self._coordinated(EndTxnRequest(*self._who(), commit))
        self._ended_at = asyncio.get_running_loop().time()

    async def write(self, runs: Mapping[TopicPartition, Sequence[Batch]]) -> dict[TopicPartition, list[int]]:
        """Write these batches, in order per partition. Return the base offset of each; -1 if the broker has stored a
        batch but no longer knows its offset.

        Raises:
            BatchesRefused: at least one is refused for good.
        """
        bases: dict[TopicPartition, list[int]] = {target: [] for target in runs}
        for row in zip_longest(*runs.values()):
            left = {
                target: self._built(target, batch) for target, batch in zip(runs, row, strict=True) if batch is not None
            }
            while left:
                found = await self._round(left)
                refused = {t: each for t, each in found.items() if isinstance(each, KafkaError) and not each.retriable}
                if refused:
                    raise BatchesRefused(refused)
                for target, base in found.items():
                    if isinstance(base, int):
                        bases[target].append(base)
                        del left[target]
                if left:
                    await self._before_another({t: each for t, each in found.items() if isinstance(each, KafkaError)})
        self.trouble = ""
        return bases

    # ------------------------------------------------------------------------ requests

    async def _round(self, batches: Mapping[TopicPartition, Bytes]) -> dict[TopicPartition, Stored]:
        """Send each batch once, those of a leader in one request. Return each one's base offset, or its error."""
        by_leader: dict[int, dict[TopicPartition, Bytes]] = {}
        for target, batch in batches.items():
            by_leader.setdefault(self._client.leader(target), {})[target] = batch
        found: dict[TopicPartition, Stored] = dict.fromkeys(
            by_leader.pop(NO_LEADER, ()), kafka.LeaderNotAvailableError()
        )
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(self._produce(*each)) for each in by_leader.items()]
        for each in asking:
            found |= each.result()
        return {target: found[target] for target in batches}  # in their order

    async def _produce(self, leader: int, batches: Mapping[TopicPartition, Bytes]) -> dict[TopicPartition, Stored]:
        topics: dict[str, list[tuple[int, Any]]] = {}
        for (topic, partition), batch in batches.items():
            topics.setdefault(topic, []).append((partition, batch))
        timeout_ms = self._settings.request_timeout_ms
        request = ProduceRequest(self._transactional_id, _ALL_REPLICAS, timeout_ms, list(topics.items()))
        found: dict[TopicPartition, Stored] = dict.fromkeys(batches, kafka.UnknownError("it was not answered"))
        try:
            answer = await self._send(leader, request, ConnectionGroup.DEFAULT)
        except KafkaError as error:
            return dict.fromkeys(batches, error)
        for topic, partitions in answer.topics:
            for partition, code, offset, *_ in partitions:
                found[TopicPartition(topic, partition)] = _stored(topic, code, offset)
        return found

    async def _before_another(self, errors: Mapping[TopicPartition, KafkaError]) -> None:
        """Wait before the batches with these errors are sent again."""
        trouble = ", ".join(f"{described(error)} ({target})" for target, error in errors.items())
        self._note(trouble, next(iter(errors.values())))
        if any(each.invalid_metadata for each in errors.values()):
            await self._shared.refresh()
        await asyncio.sleep(self._pause_s)

    async def _coordinated(self, request: Any, *, watched: bool = True) -> tuple[Any, set[int]]:
        """Ask the coordinator until it does this; without a transactional id, any broker. Return its answer, and the
        error codes that it gave before.

        Raises:
            KafkaError: it refuses.
        """
        group = ConnectionGroup.DEFAULT if self._transactional_id is None else ConnectionGroup.COORDINATION
        met: set[int] = set()
        while True:
            try:
                if self._coordinator is None:
                    self._coordinator = await self._found()
                answer = await self._send(self._coordinator, request, group, watched=watched)
            except KafkaError as error:
                if not error.retriable:
                    raise
                self._coordinator = None
                self._note(described(error), error, usual=isinstance(error, kafka.GroupCoordinatorNotAvailableError))
                await self._shared.refresh()
                await asyncio.sleep(self._pause_s)
                continue
            codes = error_codes(answer)
            if not codes:
                self.trouble = ""
                return answer, met
            for code, topic in codes.items():
                if code not in _AGAIN:
                    raise _error_of(code, topic, self._transactional_id)
            met |= codes.keys()
            met_now = [for_code(code)() for code in codes]
            self._note(", ".join(map(described, met_now)), met_now[0], usual=True)
            if not codes.keys() <= _SAME_COORDINATOR:
                self._coordinator = None
            # Only the first request of a transaction meets the markers of the one before.
            hurry = codes.keys() == {_CONCURRENT} and isinstance(request, AddPartitionsToTxnRequest)
            await asyncio.sleep(MARKERS_PAUSE_S if hurry else self._pause_s)

    async def _found(self) -> int:
        """Return the node that coordinates the transactional id; without one, any that answers."""
        name = self._transactional_id
        if name is None:
            return await self._client.anybody()
        self._guard()
        return await self._client.coordinator(name, CoordinationType.TRANSACTION)

    async def _send(self, node: int, request: Any, group: int, *, watched: bool = True) -> Any:
        self._guard()
        try:
            return await self._client.send(node, request, group=group)
        except (NotConnected, kafka.IncompatibleBrokerVersion):
            raise  # nothing was sent
        except BaseException:
            self.unanswered |= watched
            raise

    def _note(self, trouble: str, cause: KafkaError, *, usual: bool = False) -> None:
        """Note why a request is sent again; in the log, too, unless this is `usual`, as what coordinators answer is."""
        self.trouble, self._cause = trouble, cause
        said = None if usual else _SAID.met(trouble, time.monotonic())
        if said is not None:
            name = self._transactional_id or "without a transactional id"
            log.warning("producer %s asks again: %s%s", name, trouble, said.more(time.monotonic()))

    def _guard(self) -> None:
        """Nothing is sent after `close`, also where a cancellation was lost."""
        if self._closed:
            raise _closed()

    def _built(self, target: TopicPartition, batch: Batch) -> Bytes:
        sequence = self._sequences.get(target, 0)
        self._sequences[target] = sequence + batch.record_count
        return batch.built(self.producer_id, self.epoch, sequence)

    def _patience(self) -> Patience:
        known = None if self._coordinator is None else self._shared.patience.get(self._coordinator)
        return known or Patience()

    def _who(self) -> tuple[str, int, int]:
        return self._transactional_id or "", self.producer_id, self.epoch


def _stored(topic: str, code: int, offset: int) -> Stored:
    """Return the base offset of a batch; -1 for a duplicate too old for the broker to know its offset."""
    return int(offset) if code in (0, kafka.DuplicateSequenceNumber.errno) else _error_of(code, topic)


def _error_of(code: int, topic: str, transactional_id: str | None = None) -> KafkaError:
    """Return the error with this code, with the name of what may not be used."""
    made = for_code(code)
    named = {kafka.TransactionalIdAuthorizationFailed: transactional_id, kafka.TopicAuthorizationFailedError: topic}
    error: KafkaError = made(named[made]) if named.get(made) else made()
    return error


def _closed() -> KafkaError:
    return KafkaError("this producer was discarded")
