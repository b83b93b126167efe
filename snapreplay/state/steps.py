"""Work in steps of at most about a millisecond, so that an event loop can run between them. Pure."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Must be run to the end, which returns the result. If it is abandoned, a part of the work is done."""


def all_of(steps: Steps[T]) -> T:
    """Run every step without a pause and return the result. Raises what a step raises."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: T = end.value
            return answer
