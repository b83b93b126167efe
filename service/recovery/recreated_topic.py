"""A log that does not fit together may be another topic. If its id shows that, nothing else is to blame."""

from __future__ import annotations

from collections.abc import Mapping

from snapreplay.errors import SnapreplayError
from snapreplay.service.core.refusals import LEADS_NOWHERE
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.topic_changes import TopicChange, changes
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.manifests import newest_of_owner
from snapreplay.service.topics.reading import reading
from snapreplay.snapshots.plan import NoUsableSnapshot

HINT = "the former records are gone with the old topic: bring them back, with their offsets, from a backup or mirror"


async def with_cause(
    error: SnapreplayError, context: Context, last: FoundIncrement | None
) -> SnapreplayError:
    """Return the same error. If an own topic was created again, its message says so first. `last`: the last
    increment."""
    if not isinstance(error, LEADS_NOWHERE):
        return error
    try:
        remade = await _remade(context, last)
    except SnapreplayError:
        return error  # the cluster does not answer: the error stays without a cause
    if not remade:
        return error
    error.message = "; ".join((*map(str, remade), error.message))
    if not isinstance(error, NoUsableSnapshot):  # which names what is left as well
        error.hint = HINT
    return error


async def _remade(context: Context, last: FoundIncrement | None) -> tuple[TopicChange, ...]:
    own = (context.increments.topic, context.snapshots.topic)
    recorded = last.increment.topic_ids if last is not None else await _in_newest_manifest(context)
    return changes(own, recorded, await context.cluster.topic_ids(own))


async def _in_newest_manifest(context: Context) -> Mapping[str, str]:
    """Return the topic ids, if no increment is left that records them."""
    async with reading(context.cluster, read_committed=False) as reader:
        bounds = await reader.bounds(context.snapshots)
        manifest = await newest_of_owner(reader, context.snapshots, bounds)
    return manifest.topic_ids if manifest is not None else {}
