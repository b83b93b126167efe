"""The history of a partition of T-ZengLiang, as the checker reads it, from the first record to the last."""

from contextlib import closing
from dataclasses import dataclass, field

from tests.checker import wire
from tests.checker.chain import Chain
from tests.checker.reading import Bounds, Logs
from tests.checker.verdict import Verdict


@dataclass
class History:
    """The committed increments and claims by offset, in order; and what is there unseen.

    Attributes:
        entries: all records of ours, (offset, decoded, value).
        aborted: offsets of records that only read_uncommitted shows.
    """

    topic: str
    start: int
    entries: list[tuple[int, wire.Entry, bytes]] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)

    @property
    def increments(self) -> dict[int, wire.Increment]:
        return {at: each for at, each, _ in self.entries if isinstance(each, wire.Increment)}

    @property
    def claims(self) -> dict[int, wire.Claim]:
        return {at: each for at, each, _ in self.entries if isinstance(each, wire.Claim)}

    def assert_one_chain(self) -> None:
        """Every increment follows the one before it, and is of the owner that claimed last: each restore had found
        the last increment, and no owner that was replaced has committed anything since. What was trimmed is not judged.
        """
        verdict = Verdict()
        chain = Chain(self.topic.removesuffix("-increments"), self.topic, self.start, verdict)
        for offset, entry, value in self.entries:
            match entry:
                case wire.Claim():
                    chain.claim(offset, entry)
                case wire.Changes():
                    chain.changes(entry, value)
                case wire.Increment() if not chain.is_orphan(offset, entry):
                    chain.increment(offset, entry)
        chain.end()
        assert verdict.good, str(verdict)


def history(bootstrap_servers: str, topic: str, partition: int) -> History:
    """Read with and without what was aborted, up to the end as of now; waits for open transactions."""
    with closing(Logs(bootstrap_servers)) as logs:
        start, _, end = logs.bounds(topic, partition)
        told = History(topic, start)
        for record in logs.both(topic, partition, Bounds(start, end, end), _differ):
            if not record.committed:
                told.aborted.append(record.offset)
            elif not wire.is_foreign(record.value, record.headers):
                value = record.value or b""
                told.entries.append((record.offset, wire.decode(value), value))
    return told


def _differ(offset: int, what: str) -> None:
    raise AssertionError(f"offset {offset}: {what}")
