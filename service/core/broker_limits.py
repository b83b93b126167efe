"""The limits that brokers set to this process: their settings, and the quotas for its user and client id. Pure.

`broker_config` is a broker's settings by name, as far as this user may read them. Kafka knows quotas by user and by
client id; the most exact one counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

DEFAULT_TRANSACTION_TIMEOUT_MAX_MS = 900_000  # Kafka's default of transaction.max.timeout.ms
SESSION_MIN, SESSION_MAX = "group.min.session.timeout.ms", "group.max.session.timeout.ms"


class BeyondLimit(NamedTuple):
    """A setting of ours that the brokers refuse."""

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


EVERYBODY = None
"""The name of the entity that stands for all users, or all client ids, without a quota of their own."""


class Quota(NamedTuple):
    """A limit, and whom it is for, such as "client id 'snapreplay'"; `options`: of kafka-configs.sh."""

    name: str
    value: float
    who: str
    options: str


class QuotaEntry(NamedTuple):
    """What a broker knows: an entity, {"user": name, "client-id": name}, each name or EVERYBODY, and its limits."""

    entity: Mapping[str, str | None]
    limits: Mapping[str, float]


def quotas_of(entries: Iterable[QuotaEntry], user: str, client_id: str) -> list[Quota]:
    """Return the quotas that hold for this user and client id, one per name, in Kafka's order of precedence."""
    known = {tuple(sorted(each.entity.items(), key=str)): each for each in entries}
    found: dict[str, Quota] = {}
    order: list[Mapping[str, str | None]] = [
        *({"user": user, "client-id": client_id}, {"user": user, "client-id": EVERYBODY}, {"user": user}),
        *(
            {"user": EVERYBODY, "client-id": client_id},
            {"user": EVERYBODY, "client-id": EVERYBODY},
            {"user": EVERYBODY},
        ),
        *({"client-id": client_id}, {"client-id": EVERYBODY}),
    ]
    for entity in order:
        entry = known.get(tuple(sorted(entity.items(), key=str)))
        for name, value in (entry.limits if entry else {}).items():
            found.setdefault(name, Quota(name, value, _who(entity), _options(entity)))
    return list(found.values())


def _who(entity: Mapping[str, str | None]) -> str:
    words = {"user": "user", "client-id": "client id"}
    return ", ".join(f"{words[kind]} {name!r}" if name else f"each {words[kind]}" for kind, name in entity.items())


def _options(entity: Mapping[str, str | None]) -> str:
    kinds = {"user": "users", "client-id": "clients"}
    return " ".join(
        f"--entity-type {kinds[kind]} {f'--entity-name {name}' if name else '--entity-default'}"
        for kind, name in entity.items()
    )
