"""Computes what a deployment needs from what was measured on two cores (docs/benchmarks.md), which limit comes first,
and what to set. Pure.

The figures are those of programs as small as the ledger of the benchmarks. Measure one partition of yours, and scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from snapreplay.service.core.assignment import PEERS_BYTES_MAX, PEERS_BYTES_MAX_LARGE

CPU_PER_RECORD = 9.7e-6
"""Seconds of the owner: reading, handler, state, changes, commit ("Standbys")."""
CPU_PER_COPIED_RECORD = 2.2e-6
CPU_PER_PARTITION = 0.00025
"""Of a core, while nothing comes ("Many partitions in one process")."""
CPU_PER_COPY, COPY_BYTES = 0.00035, 0.2e6
"""The same of a copy, and its memory without entries ("Copies of many partitions")."""
PROCESS_BYTES, PARTITION_BYTES, ENTRY_BYTES = 57e6, 0.28e6, 160
"""Resident memory; an entry is one of three numbers under a short key ("Memory")."""
STORED_PER_RESIDENT = 13.4 / 160
"""Bytes of an entry in a snapshot, compressed, per byte of it in memory ("The seal": 6.7 MB of 500,000 keys)."""
CHANGE_BYTES, INCREMENT_BYTES = 6.8, 400
"""What a record changes, compressed, and an increment without it ("The seal")."""
SNAPSHOTS_KEPT = 3
"""Of a partition, by default; one more is there while a snapshot is written."""
CONNECTIONS = 11
"""Of a process, besides those of its partitions: one of each that it owns, and one of each copy."""
COMMITS_PER_PARTITION, COMMITS_PER_BROKER = 340, 1300
"""Transactions a second: one after the other by one producer, and together."""
TAKE_PER_PARTITION = 0.023
"""Seconds of CPU: fence, claim and last increment."""
RESTORE_PER_PARTITION, LOAD_PER_ENTRY, ADVANCE_PER_RECORD = 0.053, 2.1e-6, 2.4e-6
"""The same with a snapshot to load, where a process restores many, and what is in it and behind it ("With entries")."""
SNAPSHOT_SECONDS = 300.0
"""Between two snapshots of a partition, by default."""
TAKEOVER_SECONDS = 0.3
"""From a kill to the next output of a copied partition ("A partition moves to another process")."""
START_SECONDS = 0.9
"""Until a process fences ("Start of a process")."""
GROUP_BYTES_MAX = 1_000_000
"""A coordinator writes a whole group as one record (`message.max.bytes` of `__consumer_offsets`)."""
COMMIT_SECONDS_MAX = 1.0
"""Between two commits of a partition: what an output waits for."""
CORE_SHARE_MAX = 0.7
"""Of the one core that a process uses: beyond it, a restore of others' partitions finds no time."""


@dataclass(frozen=True)
class Deployment:
    """A deployment to be planned. All numbers are of the whole app.

    Attributes:
        racks: the processes are spread over so many; one may be lost.
        entry_bytes: what an entry takes in memory.
    """

    processes: int
    partitions: int
    records_per_second: float = 0.0
    entries: int = 0
    replicas: int = 0
    brokers: int = 3
    racks: int = 3
    session_seconds: float = 10.0
    entry_bytes: float = ENTRY_BYTES

    @property
    def owned(self) -> int:
        """The most partitions of one process."""
        return math.ceil(self.partitions / self.processes)

    @property
    def copies(self) -> int:
        return math.ceil(self.partitions * min(self.replicas, self.processes - 1) / self.processes)

    @property
    def lost(self) -> int:
        """The processes of the largest rack; of one rack alone nothing would be left, so then one process."""
        return math.ceil(self.processes / self.racks) if self.racks > 1 else 1

    @property
    def left(self) -> int:
        return max(0, self.processes - self.lost)

    @property
    def owned_afterwards(self) -> int:
        """The most partitions of one process after a rack was lost."""
        return math.ceil(self.partitions / self.left) if self.left else 0


@dataclass(frozen=True)
class Need:
    """One row of the answer.

    Attributes:
        share: of the limit; 0 where there is none.
        remedy: what to set when it is exceeded.
    """

    what: str
    amount: str
    share: float = 0.0
    remedy: str = ""


def needs(deployment: Deployment) -> list[Need]:
    """Return what a deployment needs, in a fixed order; `first_limit` says what comes first."""
    return [
        *_of_a_process(deployment),
        _commits(deployment),
        _topics(deployment),
        _group(deployment),
        _rebalances(deployment),
        _after_a_loss(deployment),
    ]


def first_limit(found: list[Need]) -> Need | None:
    """Return the need that uses most of its limit; None: nothing has one."""
    return max((need for need in found if need.share), key=lambda need: need.share, default=None)


def restore_seconds(deployment: Deployment, partitions: int) -> float:
    """Return how long one process restores so many partitions: one core does it, half a snapshot's interval behind."""
    entries = deployment.entries / deployment.partitions
    behind = deployment.records_per_second / deployment.partitions * SNAPSHOT_SECONDS / 2
    return partitions * (RESTORE_PER_PARTITION + entries * LOAD_PER_ENTRY + behind * ADVANCE_PER_RECORD)


def group_bytes(processes: int, partitions: int, replicas: int) -> int:
    """Return about how large the record of the group is, with processes that have long names and addresses."""
    copied = min(replicas, 1) * partitions
    said = 260 * processes + 11 * partitions + 3 * copied
    given = 50 * processes + 8 * partitions + 5 * copied
    told = processes * (32 * processes + 2.4 * partitions)
    if told > PEERS_BYTES_MAX:
        told = 31 * processes**2 + 3 * copied
    return round(said + given + (told if told <= PEERS_BYTES_MAX_LARGE else 0))


def _of_a_process(deployment: Deployment) -> Iterator[Need]:
    per_partition = deployment.records_per_second / deployment.partitions
    owned, copies = deployment.owned, deployment.copies
    cpu = owned * (per_partition * CPU_PER_RECORD + CPU_PER_PARTITION)
    cpu += copies * (per_partition * CPU_PER_COPIED_RECORD + CPU_PER_COPY)
    more = "more processes (or `run --processes N`: a process uses one core)"
    yield Need("partitions of a process", f"{owned:,} owned, {copies:,} copied")
    yield Need("CPU of a process", f"{cpu:.2f} cores", cpu / CORE_SHARE_MAX, more)
    held = (owned + copies) * deployment.entries / deployment.partitions
    resident = PROCESS_BYTES + owned * PARTITION_BYTES + copies * COPY_BYTES + held * deployment.entry_bytes
    afterwards = deployment.owned_afterwards
    grown = resident + max(0, afterwards - owned) * (
        PARTITION_BYTES + held / max(1, owned + copies) * deployment.entry_bytes
    )
    yield Need("memory of a process", f"{resident / 1e6:,.0f} MB, {grown / 1e6:,.0f} MB after a rack is lost")
    yield Need("connections of a process", f"{owned + copies + CONNECTIONS:,}")
    total = deployment.partitions + (copies + CONNECTIONS) * deployment.processes
    yield Need("connections of a broker", f"{math.ceil(total / deployment.brokers):,}")


def _commits_wanted(deployment: Deployment) -> float:
    return min(deployment.records_per_second, deployment.partitions * COMMITS_PER_PARTITION)


def _commits(deployment: Deployment) -> Need:
    """Return the commits of all partitions. Where brokers take less, batches are larger and outputs come later."""
    wanted, possible = _commits_wanted(deployment), deployment.brokers * COMMITS_PER_BROKER
    each = f"{min(wanted, possible) / deployment.brokers:,.0f} a second"
    if wanted <= possible:
        return Need("transactions of a broker", each)
    seconds = deployment.partitions / possible
    return Need(
        "transactions of a broker",
        f"{each}; a partition commits every {seconds:,.2f} s",
        seconds / COMMIT_SECONDS_MAX,
        "more brokers; or fewer partitions, with more records each",
    )


def _topics(deployment: Deployment) -> Need:
    """Return the bytes of the app's topics, of each replica: the snapshots that are kept and one that is written, and
    the increments since the oldest of them."""
    snapshots = (SNAPSHOTS_KEPT + 1) * deployment.entries * deployment.entry_bytes * STORED_PER_RESIDENT
    commits = min(_commits_wanted(deployment), deployment.brokers * COMMITS_PER_BROKER)
    each_second = deployment.records_per_second * CHANGE_BYTES + commits * INCREMENT_BYTES
    increments = (SNAPSHOTS_KEPT + 1) * SNAPSHOT_SECONDS * each_second
    return Need("topics of the app, each replica", f"{_size(snapshots)} snapshots, {_size(increments)} increments")


def _size(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"


def _rebalances(deployment: Deployment) -> Need:
    """Return how often the group rebalances in a rolling restart: each process leaves and joins, and a copy
    that was to become warm first asks for one more. Partitions are processed meanwhile, and each rebalance writes the
    group's record."""
    written = 2 * deployment.processes * _group_bytes(deployment)
    return Need(
        "rebalances of a rolling restart", f"at least {2 * deployment.processes:,}, which write {_size(written)}"
    )


def _group_bytes(deployment: Deployment) -> int:
    return group_bytes(deployment.processes, deployment.partitions, deployment.replicas)


def _group(deployment: Deployment) -> Need:
    size = _group_bytes(deployment)
    remedy = "fewer, larger processes; or a larger `max.message.bytes` of the topic `__consumer_offsets`"
    return Need("record of the group", f"{size / 1000:,.0f} kB", size / GROUP_BYTES_MAX, remedy)


def _after_a_loss(deployment: Deployment) -> Need:
    """Return how long the partitions of a lost rack are down: the session timeout or, with warm copies, a suspicion."""
    what = "down after a rack is lost"
    if not deployment.left:
        seconds = START_SECONDS + restore_seconds(deployment, deployment.partitions)
        return Need("down for a restart", f"{seconds:,.0f} s; nothing is left to go on meanwhile")
    more = max(0, deployment.owned_afterwards - deployment.owned)
    if deployment.replicas and deployment.racks > 1:
        return Need(what, f"{TAKEOVER_SECONDS + more * TAKE_PER_PARTITION:,.1f} s, by warm copies on other racks")
    seconds = deployment.session_seconds + restore_seconds(deployment, more)
    return Need(what, f"{seconds:,.0f} s; `standby.replicas=1` with `client.rack` makes it a second")
