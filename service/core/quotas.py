"""The quotas that hold for a client: Kafka knows them by user and by client id, and the most exact one counts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

DEFAULT = None
"""The name of the entity that stands for all users, or all client ids, without a quota of their own."""


class Quota(NamedTuple):
    """A limit, and whom it is for, such as "client id 'snapreplay'"; `options`: of kafka-configs.sh."""

    name: str
    value: float
    who: str
    options: str


class Entry(NamedTuple):
    """What a broker knows: an entity, {"user": name, "client-id": name}, each name or DEFAULT, and its limits."""

    entity: Mapping[str, str | None]
    limits: Mapping[str, float]


def quotas_of(entries: Iterable[Entry], user: str, client_id: str) -> list[Quota]:
    """Return the quotas that hold for this user and client id, one per name, in Kafka's order of precedence."""
    known = {tuple(sorted(each.entity.items(), key=str)): each for each in entries}
    found: dict[str, Quota] = {}
    order: list[Mapping[str, str | None]] = [
        *({"user": user, "client-id": client_id}, {"user": user, "client-id": DEFAULT}, {"user": user}),
        *({"user": DEFAULT, "client-id": client_id}, {"user": DEFAULT, "client-id": DEFAULT}, {"user": DEFAULT}),
        *({"client-id": client_id}, {"client-id": DEFAULT}),
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
