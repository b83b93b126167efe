"""Asking a cluster that is being broken."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaException

from tests.chaos.processes import until
from tests.chaos.world import World
from tests.support.deadlines import scaled

T = TypeVar("T")
ASK_S = 60.0
PAUSE_S = 0.1
IN_SYNC_S = 60.0


def asked(question: Callable[[], T]) -> T:
    """The answer, asked again while no broker gives one or it names no leader (-1).

    Raises:
        TimeoutError: none for a minute, or longer on a busy machine.
    """
    deadline = time.monotonic() + scaled(ASK_S)
    while True:
        try:
            answer = question()
        except (KafkaException, KeyError, OSError) as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no broker answers: {error}") from error
        else:
            if answer != -1:
                return answer
            if time.monotonic() > deadline:
                raise TimeoutError("there is no leader")
        time.sleep(PAUSE_S)


def wait_in_sync(world: World) -> None:
    """The next fault is to hit a cluster that has all copies: two at once are a kind of their own."""
    if not until(lambda: asked(lambda: world.facts.in_sync(world.topics)), IN_SYNC_S):
        world.timeline.problem(
            f"replicas still out of sync {scaled(IN_SYNC_S):.0f} s after healing"
        )
