"""The events of a run, kept for the table at the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from examples.demo.asking import Json
from examples.demo.plan import Kill
from examples.demo.verify import Findings


@dataclass(frozen=True)
class Comeback:
    """The recovery of all partitions after a start.

    Attributes:
        http_s, owned_s, live_s: from the start of the process to the first answer, to the
            assignment of its partitions, and to the last one LIVE.
        phases: phase → seconds of the slowest partition.
        modes: mode → partitions that took it; those with nothing to bring forward took none.
        replayed: records that handlers saw again.
        proven: partitions whose digest was compared with the recorded one and is equal.
        snapshots: partition → id of the snapshot that it began from.
    """

    http_s: float
    owned_s: float
    live_s: float
    phases: dict[str, float]
    modes: dict[str, int]
    replayed: int
    proven: int
    snapshots: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, restore: Json, http_s: float, owned_s: float, live_s: float) -> Comeback:
        """Make one from the restore status of a service whose partitions are all live."""
        phases: dict[str, float] = {}
        modes: dict[str, int] = {}
        for each in restore["partitions"]:
            for phase, seconds in each["seconds_per_phase"].items():
                phases[phase] = max(phases.get(phase, 0.0), seconds)
            if each["mode"]:
                modes[each["mode"]] = modes.get(each["mode"], 0) + 1
        proofs = [each["proof"] for each in restore["partitions"]]
        return cls(
            http_s=http_s,
            owned_s=owned_s,
            live_s=live_s,
            phases=phases,
            modes=modes,
            replayed=sum(each["records_replayed"] for each in restore["partitions"]),
            proven=sum(bool(proof and proof["equal"]) for proof in proofs),
            snapshots={
                each["partition"]: each["snapshot"]["snapshot_id"] for each in restore["partitions"] if each["snapshot"]
            },
        )


@dataclass
class Restart:
    """A kill, and how the service came back from it. `comeback` None: it was killed again before."""

    kill: Kill
    killed_at_records: int
    struck: str  # what the partitions were doing
    comeback: Comeback | None = None


@dataclass(frozen=True)
class Adoption:
    """The fate of Spark's proposal for a partition. `why` is empty if the owner points to it."""

    partition: int
    snapshot_id: str = ""
    entries: int = 0  # that the owner has hashed
    batch: int = 0
    why: str = ""


@dataclass(frozen=True)
class Takeover:
    """The act with two processes: the seconds from SIGKILL until the standby was LIVE with all partitions, which ones
    the killed process had, and which of these are proven by digest."""

    seconds: float
    moved: frozenset[int]
    proven: frozenset[int]


@dataclass
class RunLog:
    """The whole run up to the last record."""

    seed: int
    records: int = 0
    loaded: int = 0  # of them, before the first start; the others arrive in the last acts
    arrived_beside: int = 0  # of them, in the act with two processes
    restarts: list[Restart] = field(default_factory=list)
    first_start: Comeback | None = None
    snapshots: set[str] = field(default_factory=set)  # ids that a committed increment points to
    wall_s: float = 0.0  # from the first start of the service to the last loaded record committed
    live_s: float = 0.0  # of that, LIVE
    takeover: Takeover | None = None
    adoptions: list[Adoption] = field(default_factory=list)
    not_compacted: str = ""  # why there are none
    killed_in_time: bool = False  # while Spark was compacting
    from_adopted: Comeback | None = None  # of the restart after the adoptions


@dataclass(frozen=True)
class Verdict:
    """One line of the table: whether it holds, and what differs."""

    name: str
    holds: bool
    detail: str
    findings: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, found: Findings, detail: str) -> Verdict:
        """Judge by the findings; `detail` says what was compared."""
        if not found.count:
            return cls(name, holds=True, detail=detail)
        return cls(name, holds=False, detail=f"{found.count:,} differ", findings=found.first)
