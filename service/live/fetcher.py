"""The reading of a LIVE partition: the next records of its inputs, and how far its reader has come.

Records are fetched by topic id. But a log may keep its id and lose or change records: a leader that was cut, a disk
that was restored from a backup. A broken connection, a standstill or a broker's answer is then a doubt. A batch that
was fetched before a doubt is committed only after a comparison that covers it. Everything else that was fetched is
read again from the committed positions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple, TypeVar

from snapreplay.app.ranges import PositionAnchor
from snapreplay.app.record import InputRecord
from snapreplay.service.control.status import InputStatus
from snapreplay.service.core.arrivals import Arrivals, Place
from snapreplay.service.core.chain import Chain, ReadPosition, committed_positions
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.ports import Reader, TopicPartition
from snapreplay.service.recovery.input_identity import compare_while_live
from snapreplay.service.runtime.context import Context

LATE_SECONDS = 10.0  # after which an input that is waited for is named
REFETCH_MS = 1  # of a fetch to the broker, for what came after the one before

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
        self._reported = ""
        self._stood_still = ""
        self._standstills = 0
        self._known = (0, 0)
        self._has_doubtful = False
        self._go_on: set[str] = set()  # by the last comparison

    async def open(self, chain: Chain) -> Reader:
        """Return the reader of the inputs, by id, at the committed positions that the recovery has checked."""
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
        self._reported = reason

    def stood_still(self, seconds: float) -> None:
        self._stood_still = f"the event loop did not run for {seconds:.1f} s"
        self._standstills += 1

    def has_news(self) -> bool:
        """Say whether something unusual has happened since this was asked last: the ends that are known may be old."""
        self._context.pulse.look()
        before = self._known
        if self._reader is not None:
            self._known = (self._standstills, self._reader.disturbances)
        return self._known != before

    @property
    def is_reported(self) -> bool:
        """Whether the cluster reported another topic for an input: nothing more may come of it."""
        return bool(self._reported) or (self._reader is not None and bool(self._reader.doubt))

    @property
    def distrusts_fetched(self) -> bool:
        """Whether what was fetched and is not applied must be read again."""
        return self._has_doubtful or bool(self.reason)

    def read_again(self) -> None:
        """Note that what was fetched before the last comparison was thrown away."""
        self._has_doubtful = False

    def anchors(self, chain: Chain) -> dict[str, PositionAnchor]:
        """Return what lies below the committed positions of the inputs that were compared last, to fetch with: the
        leader may not be the broker that was compared."""
        return {name: anchor for name, anchor in chain.expected_anchors.items() if name in self._go_on}

    @property
    def reason(self) -> str:
        """The reason why the inputs must be compared before the next commit; empty: they need not be."""
        self._context.pulse.look()
        reason = self._reported or self._stood_still
        if self._reader is not None and self._reader.disturbances != self._disturbances:
            return reason or self._reader.doubt or "a connection broke, or a fetch was refused"
        return reason

    async def check(self, chain: Chain, batch: Mapping[str, ReadPosition] = NO_BATCH) -> None:
        """Compare what is committed, and `batch`, the next one, until there is no reason any more. Other fetched
        records stay in doubt until `read_again`.

        Raises:
            InputDoubtful, InputMissing, Unreachable: recover; nothing of the batch was committed.
        """
        while reason := self.reason:
            log.info(
                "partition %d: %s: its inputs are compared before the next commit", self._context.partition, reason
            )
            self._has_doubtful = True
            self._reported = self._stood_still = ""
            if self._reader is not None:
                self._disturbances = self._reader.disturbances
            read = (*committed_positions(chain).items(), *batch.items())
            self._go_on = await compare_while_live(self._context, chain.expected_ids, read)


class Fetcher:
    """Reads nothing before `open`."""

    def __init__(
        self, context: Context, inputs: Iterable[str], piece_records: int, waiting_for: Callable[[str], None]
    ) -> None:
        """Take `piece_records`, unpacked in one go, and `waiting_for`, which gets a sentence about the input that the
        others wait for, or ""."""
        self._waiting_for, self._waits_for = waiting_for, ""
        self._piece_records = piece_records
        self._linger_ms = context.settings.batch.linger_ms
        self._partitions = {name: TopicPartition(name, context.partition) for name in inputs}
        self._arrivals = Arrivals(self._partitions, context.settings.batch.input_wait_ms)
        self._opened_ends: Mapping[TopicPartition, int] = {}
        self._blocked_since: float | None = None
        self._reader: Reader | None = None
        # Where the other inputs resume, after the record whose turn has begun.
        self._later: dict[TopicPartition, int] = {}
        self._anchors_later: dict[TopicPartition, PositionAnchor] = {}
        self._seen_ends: Mapping[str, Ends] = {}

    async def open(self, guard: InputGuard, chain: Chain) -> None:
        """Open the reader, or raise Unreachable."""
        self._reader = await guard.open(chain)
        await self._ask_ends()
        if self._begun_input(chain) is not None:
            await self._follow(self._reader, chain, chain.expected_anchors)

    async def read_again(self, chain: Chain, anchors: Mapping[str, PositionAnchor]) -> None:
        """Drop what was fetched, and read from the committed positions. `anchors`: the leader is asked about them."""
        self._seen_ends = {}  # of a log that may have been cut
        self._arrivals.clear()
        if self._reader is not None:
            await self._ask_ends()
            await self._follow(self._reader, chain, anchors)

    async def _ask_ends(self) -> None:
        """Ask where the inputs end: a broker answers the fetch of a quiet one late, and the others would wait."""
        self._opened_ends = {}
        if self._reader is not None and len(self._partitions) > 1:
            with suppress(Unreachable):
                self._opened_ends = await self._reader.end_offsets(self._partitions.values())

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
        self._say("")
        if self._reader is not None:
            await self._reader.close()

    async def next_batch(self, records_max: int, timeout_ms: int, rest: Rest) -> Sequence[InputRecord]:
        """Return records in the order to apply, after a rest and a linger. A record whose turn has begun is alone."""
        if self._later:
            return await self._begun(timeout_ms)
        arrivals, awaited = self._arrivals, self._awaited()
        is_blocked = not arrivals or bool(arrivals.blocked_by(awaited))
        await self._fetch(records_max, self._wait_ms(timeout_ms) if is_blocked else 0)
        awaited = self._awaited()
        room = records_max - len(arrivals)
        if not self._is_blocked(awaited) and room > 0 and self._caught_up():
            await self._more(room, rest)
            awaited = self._awaited()
        return arrivals.take(records_max, awaited)

    async def _more(self, records_max: int, rest: Rest) -> None:
        has_rested = await rest(max(self._linger_ms, REFETCH_MS) / 1000)
        linger_ms = max(self._linger_ms, REFETCH_MS) if has_rested else self._linger_ms
        # The client fetches again when what it has was taken: this poll takes it, the next one waits for the broker.
        fetched_count = await self._fetch(records_max, 0, of_all=True) if has_rested else 0
        if linger_ms:
            await self._fetch(records_max - fetched_count, linger_ms, of_all=True)

    def _awaited(self) -> list[str]:
        if len(self._partitions) == 1 or self._reader is None:
            return []
        return self._arrivals.awaited({name: self._place(name) for name in self._partitions}, _now())

    def _place(self, name: str) -> Place:
        partition, reader = self._partitions[name], self._reader
        position = reader.position(partition) if reader is not None else 0
        end_offset = reader.end_offset(partition) if reader is not None else None
        return Place(position, self._opened_ends.get(partition) if end_offset is None else end_offset)

    def _wait_ms(self, timeout_ms: int) -> int:
        """Return how long to wait for records: until an input that is read to its end is waited for no longer."""
        arrivals, now_s = self._arrivals, _now()
        left_s = [arrivals.wait_left_s(name, now_s) for name in arrivals.empty] if arrivals else []
        return min([timeout_ms, *(1 + int(1000 * each) for each in left_s if each > 0)])

    def _is_blocked(self, awaited: Sequence[str]) -> bool:
        """Say whether nothing may be processed yet. An input that others wait for is named after a while."""
        blocking = self._arrivals.blocked_by(awaited) if self._arrivals else []
        if not blocking:
            self._blocked_since = None
            self._say("")
            return not self._arrivals
        if self._blocked_since is None:
            self._blocked_since = _now()
        elif _now() > self._blocked_since + LATE_SECONDS and not self._waits_for:
            behind = ((name, place) for name in blocking if not (place := self._place(name)).is_at_end)
            for name, (position, end_offset) in islice(behind, 1):  # a quiet one is waited for as it is set
                self._say(
                    f"fetched records wait for input {name}, which is read up to offset {position} of"
                    f" {'an unknown end' if end_offset is None else end_offset}: they may be later than its next"
                    " record; batch.input_wait_ms=-1 does not wait"
                )
        return True

    def _say(self, what: str) -> None:
        if what != self._waits_for:
            self._waits_for = what
            self._waiting_for(what)

    async def _begun(self, timeout_ms: int) -> Sequence[InputRecord]:
        """Return the record in whose turn the last owner ended a batch: its timers have fired already."""
        await self._fetch(1, timeout_ms, of_all=True)
        fetched = self._arrivals.take(1, ())
        (begun,) = self._partitions.values() - self._later.keys()
        if self._reader is not None and (fetched or self._is_read(self._reader, begun)):
            position = self._reader.position(begun)
            below = self._reader.anchor_below(begun, position)
            anchors = self._anchors_later if below is None else {**self._anchors_later, begun: below}
            await self._reader.follow({**self._later, begun: position}, anchors)
            self._later = {}
        return fetched

    def wake(self) -> None:
        """Let `next_batch` return at once, perhaps with nothing: something else is to be done."""
        if self._reader is not None:
            self._reader.wake()

    def anchors_below(self, positions: Mapping[str, int]) -> dict[str, PositionAnchor]:
        """Return what lies directly below these positions, as far as known."""
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
        read = [name for name in positions if not self._arrivals.has(name)]
        reached = {name: reader.position(self._partitions[name]) for name in read}
        return {name: at for name, at in reached.items() if at > positions[name]}

    def status(self, positions: Mapping[str, int], *, is_paused: bool) -> tuple[InputStatus, ...]:
        """Return each input as it is committed up to `positions`. An end is unknown while its broker is silent, but of
        a paused partition, which fetches nothing."""
        return tuple(InputStatus(name, at, *self._ends(name, is_paused=is_paused)) for name, at in positions.items())

    def saw_ends(self, ends: Mapping[str, Ends]) -> None:
        """Show these ends where they are larger than those of the last fetch: slow handlers may have delayed it, and a
        paused partition fetches nothing."""
        self._seen_ends = ends

    def _ends(self, name: str, *, is_paused: bool) -> Ends:
        place, seen = self._partitions[name], self._seen_ends.get(name, Ends())
        if self._reader is None or place in self._later or self._reader.is_silent:
            return seen if is_paused else Ends()
        fetched = Ends(self._reader.end_offset(place), self._reader.high_watermark(place))
        both = zip(fetched, seen, strict=True)
        return Ends(*(max((each for each in ends if each is not None), default=None) for ends in both))

    def are_read(self, positions: Mapping[str, int]) -> bool:
        """Say whether the inputs end at `positions` as far as the reader has fetched. False where an end is unknown."""
        reader, places = self._reader, self._placed(positions)
        if reader is None or reader.is_silent or not self._later.keys().isdisjoint(places):
            return False
        ends = {place: reader.end_offset(place) for place in places}
        return all((end := ends[place]) is not None and at >= end for place, at in places.items())

    def is_quiet(self) -> bool:
        """Say whether each input is read up to its end. False where an end is unknown."""
        reader = self._reader
        if reader is None or self._later or self._arrivals or reader.is_silent:
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

    async def _fetch(self, records_max: int, timeout_ms: int, *, of_all: bool = False) -> int:
        """Poll in pieces until one is not full, and return how many records came. A fetch is at most 1 MiB per input.
        Inputs with records here are polled only `of_all`: theirs would pile up while another input is waited for."""
        arrivals, count = self._arrivals, 0
        polled = None if of_all or not arrivals else [self._partitions[name] for name in arrivals.empty]
        while self._reader is not None and count < records_max and polled != []:
            asked = min(records_max - count, self._piece_records)
            fetched = await self._reader.poll(asked, 0 if count else timeout_ms, polled)
            await asyncio.sleep(0)
            for run in filter(None, fetched.values()):
                arrivals.add(run)
            come = sum(map(len, fetched.values()))
            count += come
            if come < asked:
                break
        return count


def _now() -> float:
    return asyncio.get_running_loop().time()
