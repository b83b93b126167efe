"""The ways between three brokers and their clients that are cut. Pure: what is done about it, others decide."""

from __future__ import annotations

from typing import Literal

CLIENTS = -1
"""Everybody who is no broker. Brokers count from 0."""

Side = Literal["peers", "clients"]
Direction = Literal["in", "out", "both"]
Flow = tuple[int, int]
"""From, to."""


def flows(broker: int, side: Side, direction: Direction, size: int) -> frozenset[Flow]:
    """The ways between `broker` and one side of it; "in" is towards the broker."""
    others = [CLIENTS] if side == "clients" else [n for n in range(size) if n != broker]
    inwards = {(other, broker) for other in others} if direction != "out" else set()
    outwards = {(broker, other) for other in others} if direction != "in" else set()
    return frozenset(inwards | outwards)
