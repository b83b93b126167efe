"""The tables of settings, each value with its unit, default and bounds. Pure."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta
from msgspec.structs import FieldInfo

from snapreplay.service.config.table import Table


class HttpSettings(Table):
    """The HTTP API."""

    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    """Address to listen on; 0.0.0.0 in a container. Any but the loopback address needs a login."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 8080
    """Port to listen on; 0 = any free one."""
    probes_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """Second port, only for probes and metrics, without login and TLS; 0 = none."""
    allowed_hosts: str = ""
    """Further host names of this API, comma-separated."""
    advertised_url: str = ""
    """URL at which the other processes of the app reach this API; empty: from host and port."""
    token_file: str = ""
    """File with the tokens of this API, one per line. Empty: no token is needed, and none is sent."""
    tls_certificate_file: str = ""
    """PEM file with the certificate of this API and its intermediate certificates. Empty: no TLS."""
    tls_key_file: str = ""
    """PEM file with the private key, not encrypted. Empty: it is in the certificate file."""
    tls_ca_file: str = ""
    """PEM file with the authorities of the other processes. Empty: those that this machine trusts."""
    client_ca_file: str = ""
    """PEM file with the authorities of client certificates. Empty: clients need no certificate."""
    insecure: bool = False
    """Allow every request without a login, also at an address other than loopback."""
    suspect_after_ms: Annotated[int, Meta(ge=2000, le=600_000)] = 3000
    """Silence after which another process of the group is suspected to be dead (ms)."""

    @classmethod
    def taken(cls, field: FieldInfo, value: object, prefix: str, problems: list[str]) -> object:
        taken = super().taken(field, value, prefix, problems)
        if field.name != "advertised_url":
            return taken
        if taken and not _is_server(str(taken)):
            written = "not the URL of a server; write it as http://ledger-0.ledger:8080"
            raise ValueError(f"{prefix}{field.name}={value!r}: {written}")
        return str(taken).rstrip("/")


def _is_server(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_rest_empty = not (parts.path.strip("/") or parts.query or parts.fragment or parts.username)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and is_rest_empty
    except ValueError:
        return False


class BatchSettings(Table):
    """The grouping of input records into transactions."""

    records_max: Annotated[int, Meta(ge=1, le=100_000)] = 5000
    """Maximum number of input records in a batch."""
    linger_ms: Annotated[int, Meta(ge=0, le=10_000)] = 2
    """Time to wait for a fuller batch (ms); 0 = none. More means fewer transactions and later outputs."""
    input_wait_ms: Annotated[int, Meta(ge=-1, le=3_600_000)] = 0
    """Time that other inputs wait for a quiet one (ms); 0 = only for known records; -1 = never."""


class StreamTimeSettings(Table):
    """The advance of the time that timers and entries with a ttl follow."""

    idle_advance_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 0
    """After this long without input, stream time follows the clock at this distance (ms); 0 = never."""


class SnapshotSettings(Table):
    """The times at which full snapshots are written, and their form."""

    every_records: Annotated[int, Meta(ge=0)] = 0
    """Write a snapshot after this many applied records; 0 = not by records."""
    every_seconds: Annotated[float, Meta(ge=0)] = 300.0
    """Write a snapshot if the last one is this old (seconds) and something changed; 0 = not by time."""
    jitter_ratio: Annotated[float, Meta(ge=0, le=0.5)] = 0.1
    """Each partition's two intervals are shortened by up to this share, so that not all write at once."""
    before_stop: bool = True
    """Also write a snapshot on SIGTERM if something changed. The next start then only loads it."""
    by: Literal["owner", "both"] = "both"
    """Who writes snapshots. owner: no proposal of a job is adopted."""
    chunk_bytes_max: Annotated[int, Meta(ge=10_000, le=950_000)] = 900_000
    """Maximum bytes of a chunk (a record of a snapshot); below Kafka's default max.message.bytes of 1,048,588."""


class ChangelogSettings(Table):
    """The contents of the increments topic beside the increments."""

    enabled: bool = True
    """Write each batch's changes: a recovery need not run handlers. false: smallest log, recovery only by replay."""


class RestoreSettings(Table):
    """The way in which state comes back."""

    mode: Literal["changes", "replay"] = "changes"
    """Preferred mode from the snapshot to the last increment. The other mode is the fallback."""
    concurrency: Annotated[int, Meta(ge=1, le=64)] = 2
    """Maximum number of full restores at once in this process. Each needs CPU and memory."""
    retry_backoff_ms: Annotated[int, Meta(ge=10, le=600_000)] = 1000
    """Pause after the first failed attempt (ms). It doubles with each further one."""
    retry_backoff_max_ms: Annotated[int, Meta(ge=10, le=3_600_000)] = 60_000
    """Longest pause between two attempts (ms)."""
    objective_seconds: Annotated[float, Meta(ge=0)] = 0.0
    """Take a snapshot before the predicted time of a restore exceeds this (seconds); 0 = no objective."""
    drill_every_seconds: Annotated[float, Meta(ge=0)] = 0.0
    """Drill each live partition once per period (seconds); 0 = never."""
    drill_share: Annotated[float, Meta(gt=0, le=0.5)] = 0.1
    """Maximum share of the event loop that a drill uses."""


class StandbySettings(Table):
    """Warm copies of the partitions that other processes own."""

    replicas: Annotated[int, Meta(ge=0, le=10)] = 0
    """Copies of each partition, each in another process; 0 = none, and this process holds none."""


class ErrorSettings(Table):
    """The treatment of a record that the app cannot process."""

    policy: Literal["fail", "dead_letter"] = "fail"
    """fail: the partition stops and is FAILED. dead_letter: the record goes to the dead-letter topic."""
    dead_letters_consecutive_max: Annotated[int, Meta(ge=1)] = 100
    """With dead_letter, more dead letters in a row than this make the partition FAILED."""
    dead_letters_percent_max: Annotated[float, Meta(gt=0, le=100)] = 50.0
    """With dead_letter, more dead letters than this percentage of a window make the partition FAILED."""
    window_records: Annotated[int, Meta(ge=1)] = 1000
    """Size of a window for `dead_letters_percent_max` (records)."""


class TimeoutSettings(Table):
    """The deadlines, all in milliseconds."""

    metadata_ms: Annotated[int, Meta(ge=100)] = 300_000
    """Deadline for getting end offsets and metadata, retries included (ms)."""
    progress_ms: Annotated[int, Meta(ge=100)] = 300_000
    """A read fails when its position has not moved for this long (ms)."""
    fence_ms: Annotated[int, Meta(ge=100)] = 15_000
    """Deadline for starting a transactional producer (ms)."""
    commit_ms: Annotated[int, Meta(ge=100)] = 15_000
    """Deadline for a whole transaction, from its first send to the answer to the commit (ms)."""
    transaction_ms: Annotated[int, Meta(ge=1000)] = 30_000
    """The broker aborts a transaction that is open for longer (ms); at most its transaction.max.timeout.ms."""
    claim_grace_ms: Annotated[int, Meta(ge=10)] = 500
    """If a log seems to end before this owner's claim, a new client is used after this time (ms)."""
    shutdown_ms: Annotated[int, Meta(ge=100)] = 25_000
    """Deadline for a graceful stop, from signal to exit, LeaveGroup included (ms). Kubernetes kills after 30,000."""
    revoke_ms: Annotated[int, Meta(ge=100)] = 20_000
    """Time for a moving partition to finish its batch (ms), then it is aborted. A state only in memory is kept."""


class GroupSettings(Table):
    """The consumer group that assigns partitions to processes."""

    session_timeout_ms: Annotated[int, Meta(ge=1000, le=1_800_000)] = 10_000
    """A process without heartbeats loses its partitions after this time (ms)."""
    heartbeat_interval_ms: Annotated[int, Meta(ge=100, le=60_000)] = 1000
    """Time between two heartbeats (ms), and so until members notice a rebalance."""
    rebalance_timeout_ms: Annotated[int, Meta(ge=1000, le=1_800_000)] = 30_000
    """Time that members have to give up their partitions in a rebalance (ms)."""


class RetentionSettings(Table):
    """The data that the owner keeps when it trims increments and snapshots."""

    snapshots_kept: Annotated[int, Meta(ge=2, le=100)] = 3
    """Number of full snapshots kept, with everything after the oldest of them."""
