"""Runs several apps without a broker: what one sends to a topic that another one reads arrives there. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from snapreplay.app.app import App, check_apps
from snapreplay.app.batch import ErrorPolicy
from snapreplay.app.harness import ROUNDS_MAX, Answers, Harness
from snapreplay.app.made_record import UNSET, UNSET_MS, Sent, check_topic, record, record_raw, sent_to
from snapreplay.app.record import Output, RawRecord
from snapreplay.app.topic import Topic
from snapreplay.counted import counted, some
from snapreplay.errors import UsageError
from snapreplay.service.core.partitioners import murmur_positive
from snapreplay.times import NO_TIMESTAMP

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")

Place = tuple[str, int]
"""App id and partition."""


class Pipeline:
    """Several apps in memory, each with the same number of partitions. A record that one app sends is handled by each
    app that reads the topic, in the order sent. A method returns when no record is left to handle. Dead letters are
    passed on, too."""

    def __init__(
        self, *apps: App[Any], partitions: int = 1, policy: ErrorPolicy = ErrorPolicy.FAIL, calls: Answers | None = None
    ) -> None:
        """Begin with empty states.

        Args:
            apps: an app before those that it sends to; `advance_time` advances them in this order.
            partitions: of every topic.
            policy: of all apps, as `errors.policy`.
            calls: what answers the calls of all apps, as for a `Harness`.

        Raises:
            UsageError: as `Harness`; two apps have the same id, or a call is not one of the apps'.
        """
        check_apps(apps)
        if type(partitions) is not int or partitions < 1:
            raise UsageError(f"partitions={partitions!r} is not a number of partitions", hint="pass an int from 1 on")
        self._apps = {each.app_id: each for each in apps}
        self._partitions = partitions
        answers = calls or {}
        if strange := [each for each in answers if not any(each in app.calls.values() for app in apps)]:
            known = some([name for app in apps for name in app.calls]) or "they have none"
            raise UsageError(f"{strange[0]!r} is not a call of {some(self._apps)}", hint=f"use their calls: {known}")
        self._harnesses: dict[Place, Harness[Any]] = {
            (app.app_id, number): Harness(
                app,
                number,
                policy=policy,
                feeds_internal=False,
                calls={call: answer for call, answer in answers.items() if call in app.calls.values()},
            )
            for app in apps
            for number in range(partitions)
        }
        self._seen: dict[Place, tuple[int, int]] = dict.fromkeys(self._harnesses, (0, 0))
        self._sent: list[Output] = []
        self._waiting: deque[tuple[int, Place, RawRecord]] = deque()
        self._clock_ms = 0

    def harness(self, app: App[S], partition: int = 0) -> Harness[S]:
        """Return the harness of a partition: its state, views and dead letters. Only this harness handles records
        that are fed to it directly.

        Raises:
            UsageError: there is no such app or partition.
        """
        if self._apps.get(getattr(app, "app_id", "")) is not app:
            raise UsageError(f"{app!r} is not an app of this pipeline", hint=f"it has {some(self._apps)}")
        return self._harnesses[app.app_id, self._checked(partition)]

    @property
    def all_outputs(self) -> list[Output]:
        """The encoded outputs and dead letters of all apps, in the order sent."""
        return list(self._sent)

    def outputs(self, topic: Topic[K, V]) -> list[Sent[K, V]]:
        """Return what was sent to this topic so far, by all apps and partitions, in order. Raises UsageError: it is not
        an output of an app."""
        check_topic(topic)
        known = {each.name for app in self._apps.values() for each in app.outputs}
        if topic.name not in known:
            hint = f"use one of the outputs: {some(sorted(known)) or 'there are none'}"
            raise UsageError(f"{topic.name} is not an output of {some(self._apps)}", hint=hint)
        return sent_to(topic, self._sent)

    def feed(
        self,
        topic: Topic[K, V],
        *,
        key: K | None = None,
        value: V | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None:
        """Write one record, and handle it and the records that follow from it.

        Args:
            partition: by default chosen by Kafka's hash of the key; 0 without a key.
            timestamp_ms: by default 1 ms later than the record written before it.

        Raises:
            UsageError: no app reads the topic, or its codec does not encode this key or value.
            As `Harness.feed_batch`. The next call handles the records behind a failing one.
        """
        self._write(record(topic, key=key, value=value, timestamp_ms=timestamp_ms, headers=headers), partition)

    def feed_raw(
        self,
        topic: Topic[Any, Any],
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None:
        """Write one record as `feed` does, with key and value as bytes, which need not decode."""
        self._write(record_raw(topic, key, value, timestamp_ms=timestamp_ms, headers=headers), partition)

    def advance_time(self, to_ms: int) -> None:
        """Move stream time of all apps up to `to_ms` without a record, one app after the other.

        Raises:
            As `Harness.advance_time`.
        """
        self._clock_ms = max(self._clock_ms, to_ms)
        for place in self._harnesses:
            with self._delivering(0, place) as harness:
                harness.advance_time(to_ms)
            self._until_quiet()

    def snapshot(self) -> None:
        """Take a full snapshot of each partition, from which the next `crash` restores."""
        for each in self._harnesses.values():
            each.snapshot()

    def crash(self, *, seed: int = 0) -> None:
        """Discard and restore the state of each partition, as `Harness.crash` does.

        Raises:
            Diverged: as `Harness.crash`.
        """
        for each in self._harnesses.values():
            each.crash(seed=seed)

    def _write(self, one: RawRecord, partition: int | None) -> None:
        if not any(app.input_named(one.topic) for app in self._apps.values()):
            inputs = dict.fromkeys(each.name for app in self._apps.values() for each in app.inputs)
            raise UsageError(
                f"{one.topic} is not an input of {some(self._apps)}", hint=f"use one of the inputs: {some(inputs)}"
            )
        if partition is None:
            partition = 0 if one.key is None else murmur_positive(one.key) % self._partitions
        at_ms = self._clock_ms + 1 if one.timestamp == UNSET_MS else one.timestamp
        if at_ms > NO_TIMESTAMP:
            self._clock_ms = at_ms
        placed = msgspec.structs.replace(one, partition=partition, timestamp=at_ms)
        self._deliver(0, placed)
        self._until_quiet()

    def _checked(self, partition: int) -> int:
        if type(partition) is not int or not 0 <= partition < self._partitions:
            raise UsageError(
                f"there is no partition {partition!r}: each topic has {counted(self._partitions, 'partition')}",
                hint="pass one that there is, or `Pipeline(…, partitions=…)` with more",
            )
        return partition

    def _deliver(self, depth: int, one: RawRecord) -> None:
        """Let the record wait for each app that reads its topic; of a broadcast table in all partitions."""
        for app_id, app in self._apps.items():
            name = app.input_of(one.topic, one.partition)
            if name != one.topic:
                self._checked(one.partition)
                placed = msgspec.structs.replace(one, topic=name)
                self._waiting.extend((depth, (app_id, each), placed) for each in range(self._partitions))
            elif app.declaration(name) is not None:
                self._waiting.append((depth, (app_id, self._checked(one.partition)), one))

    def _until_quiet(self) -> None:
        while self._waiting:
            depth, place, one = self._waiting.popleft()
            if depth > ROUNDS_MAX:
                self._waiting.clear()
                raise UsageError(
                    f"after {ROUNDS_MAX:,} rounds, records of {one.topic} still lead to new ones: {some(self._apps)}"
                    " would feed each other endlessly",
                    hint="end the loop in a handler: a record that is done sends no other one",
                )
            with self._delivering(depth, place) as harness:
                harness.feed_batch([one])

    @contextmanager
    def _delivering(self, depth: int, place: Place) -> Iterator[Harness[Any]]:
        """Provide the harness, and deliver what it sends in the block, also before it fails. UsageError: an output
        names a partition that its topic does not have; the other outputs are delivered."""
        harness = self._harnesses[place]
        refused: list[UsageError] = []
        try:
            yield harness
        finally:
            outputs, letters = harness.all_outputs, harness.dead_letters
            outputs_seen, letters_seen = self._seen[place]
            self._seen[place] = len(outputs), len(letters)
            for each in (*outputs[outputs_seen:], *letters[letters_seen:]):
                self._sent.append(each)
                try:
                    self._deliver(depth + 1, self._written(each, place[1]))
                except UsageError as error:
                    said = f"{place[0]}: output to {each.topic}: {error.message}"
                    refused.append(UsageError(said, hint=error.hint))
        if refused:  # an error of the block itself is raised instead
            raise refused[0]

    def _written(self, sent: Output, partition: int) -> RawRecord:
        """Return the output as it is read: in the partition that the service would choose."""
        if sent.partition is not None:
            partition = sent.partition
        elif sent.key is not None and not sent.same_key:
            partition = murmur_positive(sent.key) % self._partitions
        at_ms = UNSET_MS if sent.timestamp_ms is None else sent.timestamp_ms
        return RawRecord(sent.topic, partition, UNSET, at_ms, sent.key, sent.value, sent.headers)
