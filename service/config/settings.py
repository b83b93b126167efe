"""All settings, checked: each value by itself, and the limits against each other.

The command line overrides the environment, which overrides the TOML file, which overrides the defaults.
docs/settings.md describes every setting; a test compares.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

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
    StreamTimeSettings,
    TimeoutSettings,
)
from snapreplay.service.config.kafka_properties import (
    PropertyRefused,
    Value,
    contradictions,
    dotted,
    parse_property,
)
from snapreplay.service.config.sources import environment_tree, file_tree, merged, unfold

REQUEST_TIMEOUT_MS = 10_000
"""`kafka.request.timeout.ms` where it is not set: long enough for a failover, below every deadline of ours."""


class Settings(BaseModel):
    """All settings, checked. Build with `load_settings`, or directly to use only the given values and the defaults.

    Raises (when built directly):
        pydantic.ValidationError: `load_settings` turns it into a UsageError with one line per problem.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    kafka: dict[str, Value] = {"bootstrap.servers": "127.0.0.1:9092"}
    """Kafka's own client properties, by their dotted names; table below."""
    instance_id: str = Field(default="", pattern=r"^[a-zA-Z0-9._-]*$", max_length=249)
    """This process's own name, the same after a restart: static membership. Empty: dynamic membership. See below."""
    http: HttpSettings = HttpSettings()
    batch: BatchSettings = BatchSettings()
    stream_time: StreamTimeSettings = StreamTimeSettings()
    changelog: ChangelogSettings = ChangelogSettings()
    snapshot: SnapshotSettings = SnapshotSettings()
    restore: RestoreSettings = RestoreSettings()
    errors: ErrorSettings = ErrorSettings()
    timeouts: TimeoutSettings = TimeoutSettings()
    group: GroupSettings = GroupSettings()
    retention: RetentionSettings = RetentionSettings()

    @field_validator("kafka", mode="before")
    @classmethod
    def _kafka_properties(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        parsed: dict[str, Value] = {"bootstrap.servers": "127.0.0.1:9092"}
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

    @model_validator(mode="after")
    def _relations(self) -> Self:
        if problems := list(broken_relations(self)):
            raise ValueError("\n".join(problems))
        return self

    @property
    def request_timeout_ms(self) -> int:
        """Timeout of one request to a broker (ms)."""
        return int(self.kafka.get("request.timeout.ms", REQUEST_TIMEOUT_MS))

    @property
    def bootstrap_servers(self) -> list[str]:
        """host:port each, never empty, in the order given."""
        return [server.strip() for server in str(self.kafka["bootstrap.servers"]).split(",")]


def broken_relations(settings: Settings) -> list[str]:
    """Limits that contradict each other: names, values, reason, remedy. Empty if there are none."""
    timeouts, group = settings.timeouts, settings.group
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
            f" timeouts.metadata_ms={timeouts.metadata_ms}: no second client would ever be tried; lower it",
        ),
        (
            settings.restore.retry_backoff_ms <= settings.restore.retry_backoff_max_ms,
            f"restore.retry_backoff_ms={settings.restore.retry_backoff_ms} is above"
            f" restore.retry_backoff_max_ms={settings.restore.retry_backoff_max_ms}: swap them",
        ),
        (
            settings.changelog.enabled
            or settings.restore.mode == "replay"
            or "mode" not in settings.restore.model_fields_set,
            "restore.mode=changes needs changelog.enabled=true: without changes in the log only a replay is possible;"
            " change one of the two",
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
        environment: None: the process's own.

    Raises:
        UsageError: lists every wrong key by its dotted name, with value, reason and remedy.
    """
    from_file = file_tree(config_file)
    from_environment = environment_tree(
        os.environ if environment is None else environment, Settings.model_fields
    )
    given = {name: value for name, value in (cli_overrides or {}).items() if value is not None}

    try:
        return Settings(**merged(unfold(given), from_environment, from_file))
    except ValidationError as error:
        raise _usage_error(error.errors()) from None


def _usage_error(errors: list[ErrorDetails]) -> UsageError:
    lines = [line for error in errors for line in _lines(error)]
    listed = "\n".join(f"  {line}" for line in lines)
    count = "a setting is" if len(lines) == 1 else f"{len(lines)} settings are"
    return UsageError(
        f"{count} wrong (docs/settings.md describes each one):\n{listed}", problems=lines
    )


def _lines(error: ErrorDetails) -> list[str]:
    """One line per problem of one pydantic error."""
    name = ".".join(str(part) for part in error["loc"])
    if error["type"] == "value_error":
        return str(error["ctx"]["error"]).splitlines()
    if error["type"] == "extra_forbidden":
        return [f"{name}={error['input']!r}: unknown setting; {_nearest(error['loc'])}"]
    return [f"{name}={error['input']!r}: {error['msg'][0].lower()}{error['msg'][1:]}"]


def _nearest(location: tuple[int | str, ...]) -> str:
    model: type[BaseModel] = Settings
    for part in location[:-1]:
        inner = model.model_fields[str(part)].annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            model = inner
    path = [str(part) for part in location]
    near = difflib.get_close_matches(path[-1], model.model_fields, n=1)
    if near:
        return f"did you mean {'.'.join([*path[:-1], near[0]])}?"
    return f"there are {', '.join(sorted(model.model_fields))}"
