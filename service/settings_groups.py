"""The tables of settings, each value with its unit, default and bounds. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Group(BaseModel):
    """A table of settings: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Http(Group):
    """The HTTP API."""

    host: str = Field("127.0.0.1", min_length=1)
    """Address to listen on; 0.0.0.0 in a container."""
    port: int = Field(8080, ge=0, le=65535)
    """Port to listen on; 0 = any free one."""


class Batch(Group):
    """How input records are grouped into transactions."""

    records_max: int = Field(5000, ge=1, le=100_000)
    """Most input records in a batch."""
    linger_ms: int = Field(2, ge=0, le=10_000)
    """Time to wait for a fuller batch (ms); 0 = none. Fewer transactions, later outputs."""


class Snapshot(Group):
    """When full snapshots are written, and how."""

    every_records: int = Field(0, ge=0)
    """A snapshot after this many applied records; 0 = not by records."""
    every_seconds: float = Field(300.0, ge=0)
    """A snapshot when the last one is this old (seconds) and something changed; 0 = not by time, see below."""
    jitter_ratio: float = Field(0.1, ge=0, le=0.5)
    """Spread of both over the partitions, as a part of their value."""
    before_stop: bool = True
    """Also on SIGTERM, when something changed: the next start then has nothing to bring forward."""
    digest_every_batches: int = Field(100, ge=0)
    """A state that is no map is hashed as a whole after this many batches, see below; 0 = only at a graceful stop."""
    chunk_bytes_max: int = Field(900_000, ge=10_000, le=950_000)
    """Most bytes of a chunk (a record of a snapshot); below Kafka's default max.message.bytes of 1,048,588."""


class Restore(Group):
    """How state comes back."""

    road: Literal["changes", "replay"] = "changes"
    """Preferred road from the snapshot to the last increment; the other one is the fallback."""
    concurrency: int = Field(2, ge=1, le=64)
    """Full restores at once in this process: each needs CPU and memory."""
    retry_backoff_ms: int = Field(1000, ge=10, le=600_000)
    """First pause after a failed attempt (ms); doubles."""
    retry_backoff_max_ms: int = Field(60_000, ge=10, le=3_600_000)
    """Longest such pause (ms)."""


class Errors(Group):
    """What happens to a record that the app cannot process."""

    policy: Literal["fail", "dead_letter"] = "fail"
    """fail: the partition stops, FAILED. dead_letter: the record goes to the dead-letter topic."""
    dead_letters_in_a_row_max: int = Field(100, ge=1)
    """More dead letters in a row than this: FAILED after all."""
    dead_letters_percent_max: float = Field(50.0, gt=0, le=100)
    """More dead letters than this percentage of the window: FAILED after all."""
    window_records: int = Field(1000, ge=1)
    """Size of that window (records)."""


class Timeouts(Group):
    """Deadlines. All in milliseconds."""

    metadata_ms: int = Field(300_000, ge=100)
    """Getting end offsets and metadata, retries included (ms)."""
    progress_ms: int = Field(300_000, ge=100)
    """A read fails when its position has not moved for this long (ms)."""
    fence_ms: int = Field(15_000, ge=100)
    """Starting a transactional producer (ms); the client itself would wait for ever."""
    commit_ms: int = Field(15_000, ge=100)
    """A whole transaction, from its first send to the answer of the commit (ms)."""
    transaction_ms: int = Field(30_000, ge=1000)
    """The broker aborts a transaction open for longer (ms); at most its transaction.max.timeout.ms."""
    claim_grace_ms: int = Field(500, ge=10)
    """Asking the same client again for an end beyond our claim (ms), before a new client is made."""
    shutdown_ms: int = Field(25_000, ge=100)
    """A graceful stop, from the signal to the exit, leaving the group included (ms); Kubernetes kills after 30,000."""
    revoke_ms: int = Field(20_000, ge=100)
    """A partition that moved away may finish its batch (ms); then it is cut off. A state only in memory stays there."""


class Membership(Group):
    """The consumer group that says which process owns which partition."""

    session_timeout_ms: int = Field(10_000, ge=1000, le=1_800_000)
    """A silent process loses its partitions after this (ms)."""
    heartbeat_interval_ms: int = Field(1000, ge=100, le=60_000)
    """Between heartbeats (ms); also how soon members notice a rebalance."""
    rebalance_timeout_ms: int = Field(30_000, ge=1000, le=1_800_000)
    """Members have this long to give up their partitions in a rebalance (ms)."""


class Retention(Group):
    """What the owner keeps when it trims the two topics."""

    snapshots_kept: int = Field(3, ge=2, le=100)
    """Full snapshots kept, with everything after the oldest of them."""
