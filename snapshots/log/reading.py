"""Asks for records instead of reading them: whoever can read sends them, a service without blocking, a job by waiting.

A `Reading` is a generator. It yields a `Source` to get the next records of it, a function to get its result, which
may be computed in a thread, and None after a step of work. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from snapreplay.app.record import InputRecord

T = TypeVar("T")

Slice = Sequence[InputRecord]
"""Records of one partition in the order of their offsets; empty at the end only."""


class Source(NamedTuple):
    """The records of a partition of `topic` with start_offset <= offset < end_offset, read forward once. Own topics and
    inputs have different names, and the partition is always the same."""

    topic: str
    start_offset: int
    end_offset: int


Reading = Generator[Source | Callable[[], Any] | None, Any, T]
"""Must be run to the end, which returns the result."""


class Waiting:
    """Runs readings one after the other without a pause; each source goes on where the last one has left it."""

    def __init__(self, read: Callable[[Source], Iterable[Slice]]) -> None:
        self._read = read
        self._cursors: dict[Source, Iterator[Slice]] = {}

    def all_of(self, steps: Reading[T]) -> T:
        """Run every step and return the result. Raises whatever a step raises, and `read`."""
        answer: Any = None
        while True:
            try:
                wanted = steps.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(wanted, Source):
                if wanted not in self._cursors:
                    self._cursors[wanted] = iter(self._read(wanted))
                answer = next(self._cursors[wanted], ())
            else:
                answer = wanted and wanted()
