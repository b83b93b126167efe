"""Says how many copies the partitions of a process are given, and why not as many as are wanted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from snapreplay.counted import counted


class Copies(msgspec.Struct, frozen=True):
    """The warm copies that the group has given to each partition of a process."""

    wanted: Annotated[
        int, msgspec.Meta(description="Of each partition: the largest `standby.replicas` of the group.")
    ] = 0
    given: Annotated[
        int, msgspec.Meta(description="Of those, the ones that a process is to hold, whether warm or not.")
    ] = 0
    why_missing: Annotated[str, msgspec.Meta(description="Why fewer are given than wanted; or empty.")] = ""
    on_owners_rack: Annotated[
        int, msgspec.Meta(description="Partitions of this process whose copies are all on its own rack.")
    ] = 0
    why_on_owners_rack: Annotated[str, msgspec.Meta(description="Why they are; or empty.")] = ""


def copies_given(wanted: int, holders: int, idle: Mapping[str, int], on_rack: int, other_racks: int) -> Copies:
    """Say what a process is told of the copies of its partitions.

    Args:
        wanted: the copies of each partition.
        holders: the other processes that hold copies.
        idle: those that hold none, counted by the reason.
        on_rack: the partitions whose copies are all on the rack of this process.
        other_racks: the racks of the holders, without the one of this process.
    """
    given = min(wanted, holders)
    why_missing = _missing(holders, idle) if given < wanted else ""
    full = "the processes on other racks hold as many copies as their part"
    why_rack = full if other_racks else "no process on another rack holds copies"
    return Copies(wanted, given, why_missing, on_rack, why_rack if on_rack else "")


def _missing(holders: int, idle: Mapping[str, int]) -> str:
    others = holders + sum(idle.values())
    if not others:
        return "it is the only process of the group"
    listed = ", ".join(f"{count} {why}" for why, count in idle.items() if count)
    return f"the group has {counted(others, 'other process')}" + (f": {listed}" if holders < others else "")
