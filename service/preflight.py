"""The checks that refuse a start before any partition is touched."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.app.ways import app_name, new_app
from snapreplay.errors import UsageError
from snapreplay.service.config.settings import Settings
from snapreplay.service.core import inspected
from snapreplay.service.ports import Cluster, TopicFacts
from snapreplay.service.runtime.context import ClusterView
from snapreplay.service.topics.requirements import (
    check_internal_topics,
    check_own_topic,
    check_replayable,
    described,
    incomplete,
    left_out,
    limits_of,
    matched_inputs,
    misfits_of,
    missing_topic,
    own_topics,
    partition_count,
)

log = logging.getLogger("snapreplay")

_RAN_BEFORE = (
    "; or, if the app ran before (then init refuses), restore both from a backup or mirror; or start over under a"
    f" new app id: {new_app()}"
)


class OwnTopicsMissing(UsageError):
    """The increments and snapshots topics, or the dead-letter topic, do not exist.

    Safe: Nothing was started or created. Do not stop any process of the app that still runs: it may have the state in
    memory, and writes it once the topics exist.

    Attributes:
        partition_count: of the inputs.
        pair_is_missing: increments and snapshots topic are among them.
    """

    def __init__(
        self, message: str, *, hint: str, partition_count: int, pair_is_missing: bool, **facts: object
    ) -> None:
        super().__init__(message, hint=hint, **facts)
        self.partition_count = partition_count
        self.pair_is_missing = pair_is_missing


async def inspect(
    app: App[Any], settings: Settings, cluster: Cluster, *, running: ClusterView | None = None
) -> ClusterView:
    """Check everything that an app needs of the cluster.

    Args:
        running: the view by which partitions are owned. Then a missing topic of our own is left to their owners, which
            have its content in memory.

    Raises:
        UsageError, StopError: by name, with the command that repairs it.
        NotAuthenticated, NotAuthorized: an operator must act first.
        Unreachable: ask again later.
    """
    outputs = tuple(topic.name for topic in app.outputs)
    own = own_topics(app, settings)
    own_pair = set(own[:2])
    before = running.matched if running is not None else ()
    facts = await described(app, settings, cluster, before)
    for name in (*app.input_names, *app.broadcast_names, *outputs):
        if name not in facts and (running is not None or name not in own):
            raise await missing_topic(cluster, app, name)
    count = partition_count(app, facts, running=before)
    matched = matched_inputs(app, settings, facts, count, before)
    inputs = (*app.input_names, *matched)
    if running is not None:
        own = tuple(name for name in own if name in facts)
    else:
        _check_present(app, own, facts, count)
    for name in (each for each in own if each in own_pair):
        check_own_topic(app, facts[name], count)
    check_internal_topics(app, facts, count)
    check_replayable(settings, [facts[name] for name in (*app.broadcast_names, *inputs) if name in facts])
    cluster_facts = await cluster.facts()
    _check_limits(settings, cluster_facts.broker_config, is_member=running is not None)
    return ClusterView(
        cluster_facts.cluster_id,
        count,
        limits_of({*outputs, *own} - own_pair, facts),
        inspected.transaction_timeout_max_ms(cluster_facts.broker_config),
        _retention_ms([facts[name].config for name in inputs]),
        _topic_ids([facts[name] for name in (*inputs, *own) if name in {*inputs, *own_pair}]),
        matched,
        tuple(misfits_of(app, settings, facts, count, before).values()),
        left_out(app, facts, before),
    )


def warn_mismatched_topics(app: App[Any], view: ClusterView) -> None:
    """Say which topics match a pattern and cannot be inputs, and which patterns have no topic."""
    for misfit in view.misfits:
        log.error("%s", misfit)
    for sentence in view.left_out.values():
        log.warning("%s", sentence)
    for pattern in app.patterns:
        if not any(map(pattern.matches, view.matched)):
            log.warning("no topic that can be read matches %r yet; a topic that appears later is added", pattern.name)


def _retention_ms(configs: Iterable[Mapping[str, str]]) -> int | None:
    """Return the shortest `retention.ms`; None: no record is deleted by time."""
    deleting = (each for each in configs if "delete" in each.get("cleanup.policy", "delete"))
    found = (int(each.get("retention.ms", -1)) for each in deleting)
    return min((ms for ms in found if ms >= 0), default=None)


def _topic_ids(topics: list[TopicFacts]) -> dict[str, str]:
    return {facts.name: facts.topic_id for facts in topics if facts.topic_id}


def _check_present(app: App[Any], own: tuple[str, ...], facts: dict[str, TopicFacts], count: int) -> None:
    missing = [name for name in own if name not in facts]
    pair = [name for name in own[:2] if name in missing]
    if len(pair) == 1:
        raise incomplete(app, pair[0])
    if missing:
        policy = " --set errors.policy=dead_letter" if names.dead_letters_topic(app.app_id) in own else ""
        raise OwnTopicsMissing(
            f"topics of app {app.app_id!r} are missing: {', '.join(missing)}",
            hint=f"`snapreplay topics ensure {app_name(app)}{policy}`"
            + (f", then `snapreplay init {app_name(app)}`{_RAN_BEFORE}" if pair else ""),
            topics=missing,
            partition_count=count,
            pair_is_missing=bool(pair),
        )


def _check_limits(settings: Settings, broker_config: Mapping[str, str], *, is_member: bool) -> None:
    """Raise UsageError if the brokers refuse one of our timeouts. Only joins are refused: members are not affected."""
    found = inspected.transaction_timeout(settings.timeouts.transaction_ms, broker_config)
    if found is None and not is_member:
        found = inspected.session_timeout(settings.group.session_timeout_ms, broker_config)
    if found is not None:
        raise UsageError(found.problem, hint=found.remedy)
