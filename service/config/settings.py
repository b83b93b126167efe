"""All settings, checked: each value by itself, and the limits against each other.

The command line overrides the environment, which overrides the TOML file, which overrides the defaults.
docs/settings.md describes every setting; a test compares.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field
from msgspec.structs import FieldInfo

from snapreplay.errors import UsageError
from snapreplay.service.config.groups import (
    BatchSettings,
    ChangelogSettings,
    ErrorSettings,
    GroupSettings,
    HttpSettings,
    RestoreSettings,
    RetentionSettings,
    SnapshotSettings,
    StandbySettings,
    StreamTimeSettings,
    TimeoutSettings,
)
from snapreplay.service.config.kafka_properties import (
    PROPERTIES,
    TOKEN_PROVIDER,
    PropertyRefused,
    contradictions,
    dotted,
    parse_property,
    provider_shown,
)
from snapreplay.service.config.sources import (
    DEFAULT_FILE,
    environment_names,
    environment_tree,
    file_tree,
    merged,
    names_in,
    unfold,
)
from snapreplay.service.config.table import Table, fields_of, with_origins

REQUEST_TIMEOUT_MS = 10_000
"""`kafka.request.timeout.ms` where it is not set: long enough for a failover, below all our deadlines."""


_WITHOUT_KAFKA = {"bootstrap.servers": "127.0.0.1:9092"}


class Settings(Table):
    """All settings, checked. Build with `load_settings`, or directly to use only the given values and the defaults.

    Raises (when made):
        UsageError: lists every wrong setting by its name, with value, reason and remedy.
    """

    kafka: dict[str, Any] = field(default_factory=lambda: dict(_WITHOUT_KAFKA))
    """Kafka's own client properties, by their dotted names."""
    instance_id: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9._-]*$", max_length=249)] = ""
    """Name of this process that survives a restart: static membership. Empty: dynamic membership."""
    tracing: Literal["off", "carry", "spans"] = "carry"
    """carry: outputs carry the W3C trace context of their record. spans: also OpenTelemetry spans."""
    http: HttpSettings = HttpSettings()
    batch: BatchSettings = BatchSettings()
    stream_time: StreamTimeSettings = StreamTimeSettings()
    changelog: ChangelogSettings = ChangelogSettings()
    snapshot: SnapshotSettings = SnapshotSettings()
    restore: RestoreSettings = RestoreSettings()
    standby: StandbySettings = StandbySettings()
    errors: ErrorSettings = ErrorSettings()
    timeouts: TimeoutSettings = TimeoutSettings()
    group: GroupSettings = GroupSettings()
    retention: RetentionSettings = RetentionSettings()

    @classmethod
    def taken(cls, field: FieldInfo, value: object, prefix: str, problems: list[str]) -> object:
        return _properties(value) if field.name == "kafka" else super().taken(field, value, prefix, problems)

    def contradictions(self) -> list[str]:
        missing = self.tracing == "spans" and find_spec("opentelemetry") is None
        missing_packages = ["tracing=spans needs OpenTelemetry: `pip install 'snapreplay[otel]'`"] if missing else []
        return broken_relations(self) + missing_packages

    @property
    def origins(self) -> Mapping[str, str]:
        """The places where settings were given, by dotted name; empty if a program has made them itself."""
        found: Mapping[str, str] = self.__dict__.get("origins", {})
        return found

    @property
    def request_timeout_ms(self) -> int:
        return int(self.kafka.get("request.timeout.ms", REQUEST_TIMEOUT_MS))

    @property
    def bootstrap_servers(self) -> list[str]:
        """The addresses, host:port each, never empty, in the order given."""
        return [server.strip() for server in str(self.kafka["bootstrap.servers"]).split(",")]


def _properties(given: object) -> dict[str, Any]:
    """Return Kafka's properties, or raise ValueError, with a line for each problem."""
    if not isinstance(given, dict):
        raise ValueError(  # noqa: TRY004 - it is collected
            f"kafka: a {type(given).__name__} is not a table of properties; write `kafka={{'bootstrap.servers': …}}`"
        )
    parsed: dict[str, Any] = dict(_WITHOUT_KAFKA)
    problems = []
    for name, value in given.items():
        try:
            parsed[dotted(name)] = parse_property(dotted(name), value)
        except PropertyRefused as refused:
            problems.append(f"kafka.{dotted(name)}: {refused}")
    problems += contradictions(parsed)
    if problems:
        raise ValueError("\n".join(problems))
    return parsed


def broken_relations(settings: Settings) -> list[str]:
    """Find limits that contradict each other: names, values, reason, remedy. Empty if there are none."""
    timeouts, group, http = settings.timeouts, settings.group, settings.http
    relations = [
        (
            2 * timeouts.commit_ms <= timeouts.transaction_ms,
            f"timeouts.commit_ms={timeouts.commit_ms} is more than half of"
            f" timeouts.transaction_ms={timeouts.transaction_ms}: the broker could abort a transaction"
            " that is still being filled; raise transaction_ms or lower commit_ms",
        ),
        (
            settings.request_timeout_ms < min(timeouts.fence_ms, timeouts.commit_ms),
            f"kafka.request.timeout.ms={settings.request_timeout_ms} is not below"
            f" timeouts.fence_ms={timeouts.fence_ms} and timeouts.commit_ms={timeouts.commit_ms}: one"
            " unanswered request would use up the deadline; lower kafka.request.timeout.ms",
        ),
        (
            3 * group.heartbeat_interval_ms <= group.session_timeout_ms,
            f"group.heartbeat_interval_ms={group.heartbeat_interval_ms} is more than a third of"
            f" group.session_timeout_ms={group.session_timeout_ms}: two lost heartbeats would cost all"
            " partitions; lower heartbeat_interval_ms",
        ),
        (
            timeouts.revoke_ms + group.heartbeat_interval_ms < group.rebalance_timeout_ms,
            f"timeouts.revoke_ms={timeouts.revoke_ms} plus"
            f" group.heartbeat_interval_ms={group.heartbeat_interval_ms} is not below"
            f" group.rebalance_timeout_ms={group.rebalance_timeout_ms}: the group would drop a process while it"
            " gives up partitions; raise rebalance_timeout_ms or lower revoke_ms",
        ),
        (
            timeouts.claim_grace_ms < timeouts.metadata_ms,
            f"timeouts.claim_grace_ms={timeouts.claim_grace_ms} is not below"
            f" timeouts.metadata_ms={timeouts.metadata_ms}: no second client would ever be tried; lower claim_grace_ms",
        ),
        (
            settings.restore.retry_backoff_ms <= settings.restore.retry_backoff_max_ms,
            f"restore.retry_backoff_ms={settings.restore.retry_backoff_ms} is above"
            f" restore.retry_backoff_max_ms={settings.restore.retry_backoff_max_ms}: swap them",
        ),
        (
            settings.changelog.enabled or settings.restore.mode == "replay" or not settings.restore.was_given("mode"),
            "restore.mode=changes needs changelog.enabled=true: without changes in the log only a replay is possible;"
            " change one of the two",
        ),
        (
            http.tls_certificate_file or not (http.tls_key_file or http.client_ca_file),
            "http.tls_key_file and http.client_ca_file need http.tls_certificate_file: without a certificate there is"
            " no TLS; set it, or leave both out",
        ),
    ]
    return [problem for holds, problem in relations if not holds]


def load_settings(
    cli_overrides: Mapping[str, object] | None = None,
    config_file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Read, merge and check all settings.

    Args:
        cli_overrides: by dotted name ("http.port", "kafka.bootstrap.servers"); None values count as not given.
        config_file: must exist; None: `snapreplay.toml` in the working directory, if there is one.
        environment: by default that of the process.

    Raises:
        UsageError: lists every wrong key by its dotted name, with value, reason and remedy.
    """
    from_file = file_tree(config_file)
    variables = os.environ if environment is None else environment
    from_environment = environment_tree(variables)
    given = {name: value for name, value in (cli_overrides or {}).items() if value is not None}
    options = unfold(given)
    origins = {
        **dict.fromkeys(names_in(from_file), f"in {config_file or DEFAULT_FILE}"),
        **{name: f"by {given} in the environment" for name, given in environment_names(variables).items()},
        **dict.fromkeys(names_in(options), "by an option or the program"),
    }
    try:
        settings = Settings(**merged(options, from_environment, from_file))
    except UsageError as error:
        raise with_origins(error, origins) from None
    settings.__dict__["origins"] = origins
    return settings


def used_settings(given: Settings | None) -> Settings:
    """Return what a program gave, or the settings from environment and file. Raise UsageError: what it gave is not a
    `Settings`; or as `load_settings`."""
    if given is None:
        return load_settings()
    if not isinstance(given, Settings):
        raise UsageError(
            f"the settings are of type {type(given).__name__}, not Settings",
            hint="create one: `Settings(http={'port': 0})`, or from a dict: `Settings(**table)`",
        )
    return given


MASKED = "***"
DEFAULT = "default"
BY_PROGRAM = "by the program"


class SettingShown(msgspec.Struct, frozen=True):
    """A setting as this process uses it."""

    name: Annotated[str, Meta(description="Dotted.", examples=["http.port"])]
    value: Annotated[bool | int | float | str, Meta(description="A secret is masked: `***`.")]
    origin: Annotated[
        str, Meta(description="Where it was given; or `default`.", examples=["in snapreplay.toml", DEFAULT])
    ]


def effective(settings: Settings) -> tuple[SettingShown, ...]:
    """List all settings, ordered by name. Kafka's properties are those that were given, and `bootstrap.servers`."""
    origins = settings.origins
    found = [
        SettingShown(name, value, origins.get(name, BY_PROGRAM) if is_given else DEFAULT)
        for name, value, is_given in _all(settings)
    ]
    return tuple(sorted(found, key=lambda each: each.name))


def _all(settings: Settings) -> Iterator[tuple[str, Any, bool]]:
    for name in fields_of(type(settings)):
        value = getattr(settings, name)
        if isinstance(value, Table):
            for inner in fields_of(type(value)):
                yield f"{name}.{inner}", getattr(value, inner), value.was_given(inner)
        elif name == "kafka":
            for inner, given in value.items():
                is_given = settings.was_given(name) and (f"kafka.{inner}" in settings.origins or not settings.origins)
                shown = provider_shown(given) if inner == TOKEN_PROVIDER else given
                yield f"kafka.{inner}", MASKED if PROPERTIES[inner].secret else shown, is_given
        else:
            yield name, value, settings.was_given(name)
