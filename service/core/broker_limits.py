"""The limits that brokers set to this process: their settings, and the quotas for its user and client id. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

DEFAULT_TRANSACTION_TIMEOUT_MAX_MS = 900_000  # Kafka's default of transaction.max.timeout.ms
SESSION_MIN, SESSION_MAX = "group.min.session.timeout.ms", "group.max.session.timeout.ms"


class BeyondLimit(NamedTuple):
    """A setting of this process that the brokers refuse."""

    setting: str
    problem: str
    remedy: str


def transaction_timeout_max_ms(broker_config: Mapping[str, str]) -> int:
    return int(broker_config.get("transaction.max.timeout.ms", DEFAULT_TRANSACTION_TIMEOUT_MAX_MS))


def transaction_timeout(wanted_ms: int, broker_config: Mapping[str, str]) -> BeyondLimit | None:
    """Compare `timeouts.transaction_ms` with what the coordinators accept."""
    limit_ms = transaction_timeout_max_ms(broker_config)
    if wanted_ms <= limit_ms:
        return None
    return BeyondLimit(
        "timeouts.transaction_ms",
        f"timeouts.transaction_ms={wanted_ms} is above the brokers' transaction.max.timeout.ms={limit_ms}: no producer"
        " can start",
        f"`--set timeouts.transaction_ms={limit_ms} --set timeouts.commit_ms={limit_ms // 2}`; or raise"
        " transaction.max.timeout.ms on every broker",
    )


def session_timeout(wanted_ms: int, broker_config: Mapping[str, str]) -> BeyondLimit | None:
    """Compare `group.session_timeout_ms` with what the coordinators accept."""
    for name, verb, beyond, sign in ((SESSION_MIN, "lower", "below", 1), (SESSION_MAX, "raise", "above", -1)):
        limit_ms = int(broker_config.get(name, wanted_ms))
        if sign * wanted_ms < sign * limit_ms:
            return BeyondLimit(
                "group.session_timeout_ms",
                f"group.session_timeout_ms={wanted_ms} is {beyond} the brokers' {name}={limit_ms}: no process can join"
                " the app's group",
                f"`--set group.session_timeout_ms={limit_ms}`; or {verb} {name} on every broker",
            )
    return None
