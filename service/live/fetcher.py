"""The reading of a LIVE partition: the next records of its inputs, and how far its reader has come.

Nothing is committed while an input may be another log than before. Records are fetched by topic id, so none of another
topic is ever applied. But a log may keep its id and lose or change its records: a leader that was cut, a broker whose
disk was restored from a backup. Something unusual always precedes that, or a broker says it in the answer to the next
fetch. This is a doubt. It ends in two steps:

- A batch that was fetched before is committed only after a comparison that covers it.
- Whatever else was fetched before is thrown away and read again, from the committed positions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from snapreplay.app.ranges import PositionAnchor, interleave
from snapreplay.app.record import InputRecord
from snapreplay.service.control.status import InputStatus
from snapreplay.service.core.chain import Chain, ReadPosition, committed_positions
from snapreplay.service.ports import Reader, TopicPartition
from snapreplay.service.recovery.input_identity import compare_while_live
from snapreplay.service.runtime.context import Context

REFETCH_MS = 1  # of a fetch to the broker, for what came after the one before

Run = Sequence[InputRecord]
Rest = Callable[[float], Awaitable[bool]]
"""Waits until so many seconds before a batch could be committed, and returns whether it has waited."""
_T = TypeVar("_T")

log = logging.getLogger("snapreplay.partition")


class Ends(NamedTuple):
    """The ends of an input as far as they are known."""

    last_stable_offset: int | None = None
    high_watermark: int | None = None


NO_BATCH: Mapping[str, ReadPosition] = {}


class InputGuard:
    """Collects what was unusual in one LIVE partition; `check` compares."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reader: Reader | None = None
        self._disturbances = 0
        self._told = ""
        self._stood_still = ""
        self._standstills = 0
        self._known = (0, 0)
        self._has_doubtful = False
        self._go_on: set[str] = set()  # by the last comparison

    async def open(self, chain: Chain) -> Reader:
        """Return the reader of the inputs, which the recovery has checked. It reads by id: a topic that takes an
        input's name meanwhile is never read.

        Raises:
            Unreachable.
        """
        positions, ids = chain.last.positions, chain.expected_ids
        reader = await self._context.cluster.reader(
            patient=True, topic_ids={name: ids.get(name, "") for name in positions}
        )
        self._reader = reader
        number = self._context.partition
        anchors = chain.expected_anchors
        await reader.follow(
            {TopicPartition(name, number): at for name, at in positions.items()},
            {TopicPartition(name, number): below for name, below in anchors.items()},
        )
        self._disturbances = reader.disturbances
        self._known = (self._standstills, reader.disturbances)
        self._go_on = set(anchors)  # the recovery has compared them
        return reader

    def tell(self, reason: str) -> None:
        """Compare at once, even with nothing to commit: the cluster reports another topic id, or no topic."""
        self._told = reason

    def stood_still(self, seconds: float) -> None:
        self._stood_still = f"the process stood still for {seconds:.1f} s"
        self._standstills += 1

    def has_news(self) -> bool:
        """Say whether something unusual has happened since this was asked last: the ends that are known may be old."""
        self._context.pulse.look()
        before = self._known
        if self._reader is not None:
            self._known = (self._standstills, self._reader.disturbances)
        return self._known != before

    @property
    def is_told(self) -> bool:
        """Whether somebody said that an input is another one: nothing more may come of it."""
        return bool(self._told) or (self._reader is not None and bool(self._reader.doubt))

    @property
    def distrusts_fetched(self) -> bool:
        """Whether what was fetched and is not applied must be read again."""
        return self._has_doubtful or bool(self.reason)

    def read_again(self) -> None:
        """Note that what was fetched before the last comparison was thrown away."""
        self._has_doubtful = False

    def anchors(self, chain: Chain) -> dict[str, PositionAnchor]:
        """Return what lies below the committed positions of the inputs that were compared last, to fetch with. The
        leader may not be the broker that was compared: it says so again, until it is."""
        return {name: anchor for name, anchor in chain.expected_anchors.items() if name in self._go_on}

    @property
    def reason(self) -> str:
        """The reason why the inputs must be compared before the next commit; empty: they need not be."""
        self._context.pulse.look()
        told = self._told or self._stood_still
        if self._reader is not None and self._reader.disturbances != self._disturbances:
            return told or self._reader.doubt or "a connection broke, or a fetch was refused"
        return told

    async def check(self, chain: Chain, batch: Mapping[str, ReadPosition] = NO_BATCH) -> None:
        """Compare, if there is a reason, until there is none: what is committed, and `batch`, which is to be committed
        next. What was fetched and is in neither stays in doubt, until `read_again`.

        Raises:
            InputDoubtful, InputMissing, Unreachable: recover; nothing of the batch was committed.
        """
        while reason := self.reason:
            log.info(
                "partition %d: %s: its inputs are compared before the next commit", self._context.partition, reason
            )
            self._has_doubtful = True
            self._told = self._stood_still = ""
            if self._reader is not None:
                self._disturbances = self._reader.disturbances
            read = (*committed_positions(chain).items(), *batch.items())
            self._go_on = await compare_while_live(self._context, chain.expected_ids, read)


class Fetcher:
    """Reads nothing before `open`."""

    def __init__(self, context: Context, inputs: Iterable[str], piece_records: int) -> None:
        """Take `piece_records`: unpacked in one go."""
        self._piece_records = piece_records
        self._linger_ms = context.settings.batch.linger_ms
        self._partitions = {name: TopicPartition(name, context.partition) for name in inputs}
        self._reader: Reader | None = None
        # Where the other inputs go on, after the record whose turn has begun.
        self._later: dict[TopicPartition, int] = {}
        self._anchors_later: dict[TopicPartition, PositionAnchor] = {}
        self._heard_ends: Mapping[str, Ends] = {}
        self._seen_ends: Mapping[str, Ends] = {}

    async def open(self, guard: InputGuard, chain: Chain) -> None:
        """Open the reader, or raise Unreachable."""
        self._reader = await guard.open(chain)
        if self._begun_input(chain) is not None:
            await self._follow(self._reader, chain, chain.expected_anchors)

    async def read_again(self, chain: Chain, anchors: Mapping[str, PositionAnchor]) -> None:
        """Throw away what was fetched, and go on at the committed positions, which were just compared. `anchors`: what
        the leader is asked about again."""
        self._seen_ends = {}  # of a log that may have been cut
        if self._reader is not None:
            await self._follow(self._reader, chain, anchors)

    async def _follow(self, reader: Reader, chain: Chain, anchors: Mapping[str, PositionAnchor]) -> None:
        """Follow a record whose turn has begun alone, everything else later."""
        now, begun = dict(chain.last.positions), self._begun_input(chain)
        later: dict[str, int] = {}
        if begun is not None:
            later, now = now, {begun: now.pop(begun)}
        self._later = self._placed(later)
        self._anchors_later = self._placed({name: anchor for name, anchor in anchors.items() if name in later})
        here = {name: anchor for name, anchor in anchors.items() if name in now}
        await reader.follow(self._placed(now), self._placed(here))

    @staticmethod
    def _begun_input(chain: Chain) -> str | None:
        return chain.last.begun_input if len(chain.last.positions) > 1 else None

    def _placed(self, named: Mapping[str, _T]) -> dict[TopicPartition, _T]:
        return {self._partitions[name]: value for name, value in named.items()}

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()

    async def next_batch(self, records_max: int, timeout_ms: int, rest: Rest) -> Sequence[InputRecord]:
        """Return what has arrived, in the order to apply; after the first records it rests and lingers for more. A
        record whose turn has begun comes first, alone."""
        if self._later:
            return await self._begun(timeout_ms)
        fetched = await self._fetch(records_max, timeout_ms)
        room = records_max - sum(map(len, fetched))
        if fetched and room and self._caught_up():
            fetched += await self._more(room, rest)
        return interleave(fetched)

    async def _more(self, records_max: int, rest: Rest) -> list[Run]:
        has_rested = await rest(max(self._linger_ms, REFETCH_MS) / 1000)
        linger_ms = max(self._linger_ms, REFETCH_MS) if has_rested else self._linger_ms
        # The client fetches again when what it has was taken: this poll takes it, the next one waits for the broker.
        fetched = await self._fetch(records_max, 0) if has_rested else []
        return fetched + (await self._fetch(records_max - sum(map(len, fetched)), linger_ms) if linger_ms else [])

    async def _begun(self, timeout_ms: int) -> Sequence[InputRecord]:
        """Return the record in whose turn the last owner ended a batch. Another record first would meet timers that
        fired too early."""
        fetched = await self._fetch(1, timeout_ms)
        (begun,) = self._partitions.values() - self._later.keys()
        if self._reader is not None and (fetched or self._is_read(self._reader, begun)):
            position = self._reader.position(begun)
            below = self._reader.anchor_below(begun, position)
            anchors = self._anchors_later if below is None else {**self._anchors_later, begun: below}
            await self._reader.follow({**self._later, begun: position}, anchors)
            self._later = {}
        return fetched[0] if fetched else []

    def wake(self) -> None:
        """Let `next_batch` return at once, perhaps with nothing: something else is to be done."""
        if self._reader is not None:
            self._reader.wake()

    def anchors_below(self, positions: Mapping[str, int]) -> dict[str, PositionAnchor]:
        """Return what lies directly below positions that this has led to, as far as known. Earlier ones are not
        asked for any more."""
        reader, found = self._reader, dict[str, PositionAnchor]()
        for name, at in positions.items():
            place = self._partitions[name]
            anchor = reader.anchor_below(place, at) if reader and place not in self._later else None
            if anchor is not None:
                found[name] = anchor
        return found

    def beyond(self, positions: Mapping[str, int]) -> dict[str, int]:
        """Return input → position of the reader, where it is beyond `positions`: there is no record in between."""
        reader = self._reader
        if reader is None or self._later:
            return {}
        reached = {name: reader.position(self._partitions[name]) for name in positions}
        return {name: at for name, at in reached.items() if at > positions[name]}

    def status(self, positions: Mapping[str, int]) -> tuple[InputStatus, ...]:
        """Return each input as it is committed up to `positions`."""
        return tuple(InputStatus(name, position, *self._ends(name)) for name, position in positions.items())

    def heard_ends(self, ends: Mapping[str, Ends]) -> None:
        """Show these ends of inputs while nothing is fetched. An empty mapping falls back to the ends of fetches."""
        self._heard_ends = ends

    def saw_ends(self, ends: Mapping[str, Ends]) -> None:
        """Show these ends where they are larger than those of the last fetch, which slow handlers may have delayed."""
        self._seen_ends = ends

    def _ends(self, name: str) -> Ends:
        if name in self._heard_ends:
            return self._heard_ends[name]
        place = self._partitions[name]
        if self._reader is None or place in self._later or self._reader.is_silent:
            return Ends()
        fetched = Ends(self._reader.end_offset(place), self._reader.high_watermark(place))
        both = zip(fetched, self._seen_ends.get(name, Ends()), strict=True)
        return Ends(*(max((each for each in ends if each is not None), default=None) for ends in both))

    def is_quiet(self) -> bool:
        """Say whether each input is read up to its end. False where an end is unknown."""
        reader = self._reader
        if reader is None or self._later or reader.is_silent:
            return False
        return all(self._is_read(reader, each) for each in self._partitions.values())

    @staticmethod
    def _is_read(reader: Reader, partition: TopicPartition) -> bool:
        end_offset = reader.end_offset(partition)
        return end_offset is not None and reader.position(partition) >= end_offset

    def _caught_up(self) -> bool:
        """Say whether all fetched records were taken: only then can waiting fill the batch."""
        reader = self._reader
        return reader is not None and all(
            reader.position(each) >= (reader.end_offset(each) or 0) for each in self._partitions.values()
        )

    async def _fetch(self, room: int, timeout_ms: int) -> list[Run]:
        """Return what fits, polled in pieces: the first that is not full is the last one. A fetch is at most 1 MiB
        per input, so a full piece of small records holds little, and bytes are bounded."""
        runs: list[Run] = []
        while self._reader is not None and room > 0:
            asked = min(room, self._piece_records)
            fetched = await self._reader.poll(asked, 0 if runs else timeout_ms)
            await asyncio.sleep(0)
            runs += filter(None, fetched.values())
            count = sum(map(len, fetched.values()))
            if count < asked:
                break
            room -= count
        return runs
