"""Exactly one right output for each input record, in the order of processing.

The outputs of a state partition are merged with what the input says they must be; only a few are looked ahead at, so
nothing grows with the log.
"""

import json
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgpack
import xxhash

from tests.checker.ledger import Expected
from tests.checker.reading import Record
from tests.checker.verdict import Check, Verdict

AHEAD = 64
EARLY_MAX = 10_000


class Output(NamedTuple):
    """`input_offset` of `topic` is the record it says it is of; of a timer, the number of the release."""

    offset: int
    topic: str
    input_offset: int
    key: str
    n: int
    sum: int
    value: bytes


class Outputs:
    """One partition of the output topic. `expect` each record in order, then `finish`."""

    def __init__(self, topic: str, partition: int, records: Iterator[Record], verdict: Verdict) -> None:
        """`records`: all up to the high watermark, committed or not."""
        self._topic = topic
        self._where = f"{topic}-{partition}"
        self._partition = partition
        self._verdict = verdict
        self._next: dict[str, int] = {}
        self._records = self._committed(records)
        self._ahead: deque[Output] = deque()
        self._early: dict[tuple[str, int], Output] = {}
        self._sent = xxhash.xxh64()
        self.trimmed = False
        """The log does not begin at 0, and nothing was found yet: what is missing was trimmed, perhaps."""

    def begin(self, next_offsets: dict[str, int]) -> None:
        """Input topic → first offset that is to be handled; before anything else."""
        self._next = dict(next_offsets)

    def skip(self, topic: str, offset: int) -> None:
        """This input record has no output."""
        self._next[topic] = offset + 1

    def pass_over(self) -> int:
        """Drop the outputs of records before `begin`'s offsets unjudged; how many. They come first."""
        count = 0
        while self._fill(1) and self._handled(self._ahead[0]):
            self._ahead.popleft()
            count += 1
        return count

    def head(self) -> Output | None:
        """The next one of a record that was not handled yet; seconds of those that were are violations."""
        while self._fill(1):
            head = self._ahead[0]
            if not self._handled(head):
                return head
            what = f"one more output of {_of(head)}, which was handled before, or does not exist"
            self._add(Check.EXACTLY_ONCE, head, what)
            self._ahead.popleft()
        return None

    def head_of_input(self, releases: str) -> Output | None:
        """The next one of a record, behind those of timers that fire before it."""
        if self.head() is None:
            return None
        count = 1
        while (found := self._ahead[count - 1]).topic == releases:
            count += 1
            self._fill(count)
            if len(self._ahead) < count:
                return None
        return found

    def begin_batch(self) -> None:
        """`sent_xxh64` begins again."""
        self._sent = xxhash.xxh64()

    @property
    def sent_xxh64(self) -> int:
        """docs/FORMAT.md "Outputs", of those found since `begin_batch`: the app keeps the key, and says nothing else
        about partition, time and headers."""
        return self._sent.intdigest()

    def expect(self, expected: Expected) -> bool:
        """Say whether the output of this record was found; it counts as handled from here on."""
        found = self._find(expected)
        self._next[expected.topic] = expected.offset + 1
        if found is None:
            return False
        sent: list[Any] = [self._topic, found.key.encode(), found.value, None, True, None, []]
        self._sent.update(msgpack.packb(sent))
        if (found.key, found.n, found.sum) != (expected.key, expected.n, expected.sum):
            what = f"output {found}, the fold of the input says {expected}"
            self._add(Check.EXACTLY_ONCE, found, what)
        return True

    def finish(self) -> None:
        """Finish: what is left belongs to no committed increment."""
        while (head := self.head()) is not None:
            self._ahead.popleft()
            self._early[head.topic, head.input_offset] = head
            self._shrink(0)
        self._shrink(0)

    def _find(self, expected: Expected) -> Output | None:
        place = expected.topic, expected.offset
        early = self._early.pop(place, None)
        if early is not None:
            return early
        head = self.head()
        if head is None or (head.topic, head.input_offset) != place:
            self._fill(AHEAD)
            position = self._position(place)
            if position is None:
                self._lost(expected)
                return None
            self._put_early(position)
        self.trimmed = False
        return self._ahead.popleft()

    def _handled(self, output: Output) -> bool:
        return output.input_offset < self._next[output.topic]

    def _position(self, place: tuple[str, int]) -> int | None:
        for index, output in enumerate(self._ahead):
            if (output.topic, output.input_offset) == place:
                return index
        return None

    def _put_early(self, count: int) -> None:
        for _ in range(count):
            output = self._ahead.popleft()
            if self._handled(output):
                self._add(Check.EXACTLY_ONCE, output, f"one more output of {_of(output)}")
                continue
            self._add(Check.ORDER, output, f"out of order: {_of(output)} comes too early")
            self._early[output.topic, output.input_offset] = output
        self._shrink(EARLY_MAX)

    def _shrink(self, most: int) -> None:
        while len(self._early) > most:
            output = self._early.pop(next(iter(self._early)))
            what = f"visible output of {_of(output)}, which no committed increment covers"
            self._add(Check.ATOMICITY, output, what)

    def _lost(self, expected: Expected) -> None:
        if self.trimmed:
            self._verdict.counts["outputs trimmed"] += 1
            return
        where = f"{expected.topic}-{self._partition}-{expected.offset}"
        what = f"this input record is covered, and has no output in {self._where}"
        self._verdict.add(Check.EXACTLY_ONCE, where, what)

    def _fill(self, count: int) -> bool:
        while len(self._ahead) < count:
            output = next(self._records, None)
            if output is None:
                break
            self._ahead.append(output)
        return bool(self._ahead)

    def _committed(self, records: Iterator[Record]) -> Iterator[Output]:
        for record in records:
            if not record.committed:
                self._verdict.counts["aborted outputs"] += 1
                continue
            self._verdict.counts["output records"] += 1
            try:
                output = self._output(record)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                what = f"no output of this app: {error!r}"
                self._verdict.add(Check.EXACTLY_ONCE, f"{self._where}-{record.offset}", what)
                continue
            yield output

    def _output(self, record: Record) -> Output:
        """
        Raises:
            ValueError, KeyError, TypeError, AttributeError: the app does not write this here.
        """
        value = json.loads(record.value or b"")
        topic, partition, input_offset = value["id"].rsplit("-", 2)
        if topic not in self._next or int(partition) != self._partition:
            raise ValueError(f"{value['id']} is no input record of this partition")
        key = (record.key or b"").decode()
        return Output(record.offset, topic, int(input_offset), key, value["n"], value["sum"], record.value or b"")

    def _add(self, check: Check, output: Output, what: str) -> None:
        self._verdict.add(check, f"{self._where}-{output.offset}", what)


def _of(output: Output) -> str:
    return f"input record {output.topic} offset {output.input_offset}"
