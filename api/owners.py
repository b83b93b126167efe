"""Finds the process that has to carry out what is asked of a partition. Pure."""

from __future__ import annotations

from snapreplay.api import problems
from snapreplay.api.fleet_views import Covered, Held, Process, held
from snapreplay.errors import PartitionNotLive
from snapreplay.service.core.phase import Phase

Share = tuple[Process, list[int]]


def find_partition(covered: Covered, partition: int) -> Held | None:
    """Find what is known of a partition; None: there is no such partition, or not here."""
    return next((each for each in held(covered) if each.partition == partition), None)


def elsewhere(covered: Covered, partition: int) -> Process | None:
    """Return the other process that has the partition; None: this process must know what to do.

    Raises:
        ProblemError: it cannot be asked.
    """
    found = find_partition(covered, partition)
    holder = found.holder if found else None
    if holder is None or holder == covered.says[0].process:
        return None
    if not holder.can_be_asked:
        raise problems.owner_away(holder, holder.last_error)
    return holder


def shares(covered: Covered, partitions: list[int] | None) -> tuple[tuple[int, ...] | None, list[Share]]:
    """Say which of these partitions are this process's matter (None: all that are live; empty: none), and which are
    that of other ones. `partitions` None: all that are live.

    Raises:
        ProblemError, PartitionNotLive: one of them is refused by what is known of it.
    """
    this, found = covered.says[0].process, {each.partition: each for each in held(covered)}
    if covered.own.facts.partition_count is None:
        raise problems.not_reached()
    if partitions is None:
        live = [number for number, each in found.items() if each.phase_now == Phase.LIVE]
        if not live:
            raise problems.nothing_live()
    else:
        live = sorted(set(partitions))
    found_shares: dict[str, Share] = {}
    for number in live:
        holder = found[number].holder if number in found else None
        who = holder or this
        if who != this and not who.can_be_asked:
            raise problems.owner_away(who, who.last_error)
        if who != this and found[number].phase_now != Phase.LIVE:
            raise PartitionNotLive(number, f"it is {found[number].phase_now}, not live, in process {who.process_id}")
        found_shares.setdefault(who.process_id, (who, []))[1].append(number)
    _, own = found_shares.pop(this.process_id, (this, []))
    return (None if partitions is None and own else tuple(own)), list(found_shares.values())
