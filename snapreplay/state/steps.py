"""Work in steps of about a millisecond at most, so that an event loop can turn between them. Pure."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""To be run to its end, where the answer is. Given up half-way, it has done a part of its work."""


def all_of(steps: Steps[T]) -> T:
    """Every step, one right after the other. Raises whatever a step raises."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: T = end.value
            return answer
