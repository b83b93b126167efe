"""The largest record that a topic takes."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from snapreplay.app.out import DEFAULT_LIMIT_BYTES
from snapreplay.service.ports import Cluster, TopicFacts


def limits_of(names: Collection[str], facts: Mapping[str, TopicFacts]) -> dict[str, int]:
    """Map topic → max.message.bytes; without those that do not exist."""
    return {
        name: int(facts[name].config.get("max.message.bytes", DEFAULT_LIMIT_BYTES))
        for name in names
        if name in facts
    }


async def limits_now(cluster: Cluster, known: Mapping[str, int]) -> dict[str, int]:
    """Ask afresh for the limits of the same topics; a topic that does not exist now keeps its own.

    Raises:
        NotAuthenticated, NotAuthorized, Unreachable: as `ports.Cluster.topics`.
    """
    return {**known, **limits_of(known, await cluster.topics(known))}
