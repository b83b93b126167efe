"""The healing of a cluster: no transaction open, everything processed, one owner per partition."""

import json
import time
import urllib.request
from collections.abc import Iterator, Sequence

from tests.checker import wire
from tests.checker.reading import Bounds, Logs, Names
from tests.checker.verdict import Check, Verdict

ASK_AGAIN_S = 0.2
FIRST_WINDOW = 64
ANSWER_S = 5.0

Trouble = tuple[str, str]
"""Where, and what is the matter there."""


def wait_healed(logs: Logs, names: Names, urls: Sequence[str], deadline_seconds: float, verdict: Verdict) -> None:
    """Wait until nothing is the matter; what still is at the deadline is a violation. Says how long it took."""
    began = time.monotonic()
    while left := troubles(logs, names, urls):
        if time.monotonic() - began > deadline_seconds:
            for where, what in left:
                verdict.add(Check.HEALED, where, f"{what}, after {deadline_seconds:.0f} s")
            return
        time.sleep(ASK_AGAIN_S)  # between two looks at the cluster; bounded by the deadline
    verdict.counts["milliseconds to heal"] += int((time.monotonic() - began) * 1000)


def troubles(logs: Logs, names: Names, urls: Sequence[str]) -> list[Trouble]:
    """Return what is the matter. The cheap questions first; the dearer ones only when those are answered well."""
    return (
        [*_pinned(logs, names)]
        or [t for n in range(names.partitions) for t in _lag(logs, names, n)]
        or [*_owners(names, urls)]
    )


def _pinned(logs: Logs, names: Names) -> Iterator[Trouble]:
    for topic in names.all:
        for partition in range(names.partitions):
            bounds = logs.bounds(topic, partition)
            if bounds.stable != bounds.high:
                what = f"last stable offset {bounds.stable}, high watermark {bounds.high}"
                yield f"{topic}-{partition}", what


def _lag(logs: Logs, names: Names, partition: int) -> Iterator[Trouble]:
    last = last_increment(logs, names.increments, partition)
    if last is None:
        return  # there is no genesis: the chain says so
    for topic, position in last.positions.items():
        end = logs.bounds(topic, partition).stable
        if next(logs.read(topic, partition, position, end), None) is not None:
            yield f"{topic}-{partition}", f"processed up to {position}, the input ends at {end}"


def last_increment(logs: Logs, topic: str, partition: int) -> wire.Increment | None:
    """Find the last increment by windows that grow backwards to the log's start."""
    bounds = logs.bounds(topic, partition)
    reach = FIRST_WINDOW
    while True:
        start = max(bounds.start, bounds.stable - reach)
        found = _last_in(logs, topic, partition, start, bounds)
        if found is not None or start == bounds.start:
            return found
        reach *= 8


def _last_in(logs: Logs, topic: str, partition: int, start: int, bounds: Bounds) -> wire.Increment | None:
    last = None
    for record in logs.read(topic, partition, start, bounds.stable):
        try:
            entry = wire.decode(record.value or b"")
        except wire.Damaged:
            continue  # the judge of the partition names it
        if isinstance(entry, wire.Increment):
            last = entry
    return last


def _owners(names: Names, urls: Sequence[str]) -> Iterator[Trouble]:
    """Check that of all processes exactly one says that it is LIVE in a partition."""
    if not urls:
        return
    owners: dict[int, list[str]] = {number: [] for number in range(names.partitions)}
    for url in urls:
        try:
            with urllib.request.urlopen(f"{url}/restore-status?scope=local", timeout=ANSWER_S) as answer:  # noqa: S310 - a test's own
                status = json.load(answer)
        except OSError as error:
            yield url, f"does not answer: {error}"
            continue
        for each in status["partitions"]:
            if each["phase"] == "live":
                owners[each["partition"]].append(url)
    for number, live in owners.items():
        if len(live) != 1:
            yield (f"{names.increments}-{number}", f"{len(live)} owners: {', '.join(live) or 'none'}")
