"""`ports.Producer` and `ports.Appender` in memory.

A transaction is filled in steps (a partition joins it, a batch is appended), then ended; faults between any two:

    deadline      some steps are applied, then our deadline passes
    late          the same, and the other steps arrive after it
    unanswered    a request was repeated: all went well, but the producer must be renewed
    late_copy     the same at the end, and the first copy arrives later, perhaps within another transaction
    fenced        refused without a successor: a stale coordinator, or a timeout

An output that ends in `program.BULKY` is refused by its topic, always: everything before it is in the transaction.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from snapreplay.app.record import Output
from snapreplay.service.core.kafka_errors import CommitInDoubt, RefusedRecord, Unreachable
from snapreplay.service.core.lineage import Lineage
from snapreplay.service.core.partitioners import murmur_positive
from snapreplay.service.core.retained import Ending
from snapreplay.service.ports import LogRecord, TopicPartition
from tests.simulation.broker import Concurrent, Fence, InvalidTxnState, UnknownTopic, Writable, fenced, now
from tests.simulation.network import Link
from tests.simulation.program import AGAIN, ANSWERS, BULKY, OUTPUT

REQUEST_SECONDS = 0.2
BULKY_END = BULKY.encode()
Step = Callable[[], object]
UNCLEAN = (Unreachable, InvalidTxnState)


class SimProducer:
    """A simulated `ports.Producer`. Its start was the fence, which gave it its epoch."""

    def __init__(self, link: Link, transactional_id: str, fence: Fence, commit_s: float) -> None:
        self.link, self._broker = link, link.network.broker
        self._id, self._epoch, self._commit_s = transactional_id, fence.epoch, commit_s
        self._fence = fence.number
        self._unanswered = False
        self._discarded = False
        self._began = 0.0
        self._ending = Ending(asked=False)

    @property
    def lineage(self) -> Lineage:
        return Lineage(1, self._epoch)

    @property
    def ending(self) -> Ending:
        return self._ending

    @property
    def needs_renewal(self) -> bool:
        return self._unanswered or self._discarded

    async def commit(self, partition: int, outputs: Sequence[Output], records: Sequence[LogRecord]) -> tuple[int, ...]:
        self._ending = Ending(asked=False)
        if self._discarded:
            self.link.network.misused(f"producer {self._id} was used after its end")
        if self.needs_renewal:
            raise self._doubt(Unreachable("it must be renewed"))
        self._began = now()
        offsets: list[int] = []
        self._output: tuple[str, int, int] | None = None
        try:
            await self._fill(self._steps(partition, outputs, records, offsets))
            self._in_time()
            self._ending = Ending(asked=True, output=self._output)
            await self._end()
        except UNCLEAN as error:
            raise self._doubt(error) from error
        except BaseException:
            self._discarded = True
            raise
        self.link.network.trace(self.link.owner.name, f"committed {self._id} {offsets}")
        return tuple(offsets)

    async def discard(self) -> None:
        self._discarded = True

    def _steps(
        self, partition: int, outputs: Sequence[Output], records: Sequence[LogRecord], offsets: list[int]
    ) -> list[Step]:
        """Return the steps per target partition: join, append. The order of the targets is anybody's guess."""
        batches: dict[TopicPartition, list[Writable]] = {}
        for output in outputs:
            count = self._broker.partition_counts[output.topic]
            chosen = partition % count if output.partition is None else output.partition
            if output.topic == AGAIN:
                chosen = murmur_positive(output.key or b"") % count
            batches.setdefault(TopicPartition(output.topic, chosen), []).append(output)
        for record in records:
            batches.setdefault(TopicPartition(record.topic, partition), []).append(record)
        own = TopicPartition(records[-1].topic, partition)
        targets = list(batches)
        self.link.rng.shuffle(targets)
        steps: list[Step] = []
        for target in targets:
            steps.append(partial(self._broker.add_partition, self._id, self._epoch, target))
            steps.append(partial(self._append, target, batches[target], target == own, offsets))
        return [partial(self._happens, each) for each in steps]

    def _happens(self, effect: Step) -> None:
        effect()
        if self._broker.fences(self._id) != self._fence:
            self._broker.torn.add(self._id)

    def _append(self, target: TopicPartition, batch: list[Writable], own: bool, offsets: list[int]) -> None:
        bulky = any((record.value or b"").endswith(BULKY_END) for record in batch)
        if bulky and target.topic == OUTPUT:
            raise RefusedRecord(f"a record for {target.topic} is too large", topic=target.topic, error="too large")
        first = self._broker.produce(self._id, self._epoch, target, batch)
        if own:
            offsets[:] = range(first, first + len(batch))
        else:
            self._output = (*target, first)

    async def _fill(self, steps: list[Step]) -> None:
        fault = self.link.draw("fill")
        if fault is None:
            await self._insist(partial(_all, steps))
            return
        done = self.link.rng.randrange(len(steps) + 1)
        await self._insist(partial(_all, steps[:done]))
        match fault:
            case "deadline" | "late":
                if fault == "late":
                    delay = self._commit_s + self.link.network.pause(5.0)
                    self.link.send(delay, partial(_all, steps[done:]))
                await self._until_deadline()
            case "unanswered":
                await asyncio.sleep(REQUEST_SECONDS)
                self._unanswered = True
                await self._insist(partial(_all, steps[done:]))
            case "fenced":
                raise fenced(self._id)
            case "crash_between":
                await self.link.crash()
                await self._insist(partial(_all, steps[done:]))
            case _:
                await self.link.stall()
                await self._insist(partial(_all, steps[done:]))

    async def _insist(self, effect: Step) -> None:
        """Ask again while the coordinator is busy with the last transaction."""
        while True:
            try:
                await self.link.rpc(effect)
            except (Concurrent, UnknownTopic):
                self._in_time()
                await asyncio.sleep(0.005)
            else:
                return

    async def _end(self) -> None:
        broker, network = self._broker, self.link.network
        end = partial(broker.end_transaction, self._id, self._epoch, commit=True)
        effect = partial(self._happens, end)
        fault = self.link.draw("end")
        if fault in ("unanswered", "late_copy"):
            if fault == "late_copy":
                self.link.send(REQUEST_SECONDS + network.pause(5.0), effect)
            await asyncio.sleep(REQUEST_SECONDS)
            self._unanswered, fault = True, None
        left = max(0.0, self._began + self._commit_s - now())
        await self.link.perform(fault, effect, left)

    async def _until_deadline(self) -> None:
        await asyncio.sleep(max(0.0, self._began + self._commit_s - now()))
        raise Unreachable("the deadline of the transaction has passed")

    def _in_time(self) -> None:
        """Look at the deadline or not: after a stall the answer and the deadline are both there; either may be
        looked at first."""
        if now() - self._began > self._commit_s and self.link.rng.random() < 0.5:
            raise Unreachable("the deadline of the transaction has passed")

    def _doubt(self, error: Exception) -> CommitInDoubt:
        self._discarded = True
        return CommitInDoubt(f"the transaction of {self._id} did not end with OK: {error!r}", transactional_id=self._id)


class SimAppender:
    def __init__(self, link: Link, deadline_s: float) -> None:
        self.link, self._deadline_s = link, deadline_s

    async def append(self, record: LogRecord, partition: int) -> int:
        logs, target = self.link.network.broker.logs, TopicPartition(record.topic, partition)
        if target not in logs:
            await asyncio.sleep(self._deadline_s)
            raise Unreachable(f"no answer about {target}")
        written_at_ms = int(now() * 1000) if record.timestamp_ms is None else record.timestamp_ms
        log = logs[target]  # of the connection: what arrives late is lost with its topic
        effect = partial(log.append, record.key, record.value, record.headers, written_at_ms, None)
        fault = self.link.draw("append")
        if fault == "refused" and record.topic == ANSWERS:
            fault = "lost"  # then it would get the time of writing, which is years after that of the inputs here
        if fault == "refused":
            raise RefusedRecord("a record is refused", topic=record.topic, error="simulated")
        return await self.link.perform(fault, effect, self._deadline_s)

    async def close(self) -> None:
        """Nothing to close."""


def _all(steps: list[Step]) -> None:
    """Do all steps; what was done is not done again when the next step must be asked for again."""
    while steps:
        steps[0]()
        del steps[0]
