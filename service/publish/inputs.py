"""Commits a change of the inputs: an increment in the chain as it is. The state is not written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from snapreplay.service.clock import wall_ms
from snapreplay.service.core.input_change import Added, InputChange
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.ports import Producer, TopicPartition
from snapreplay.service.publish.owned import commit_increment
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.reading import reading
from snapreplay.snapshots.format.records import Increment


async def appeared(context: Context, last: Increment, topics: Sequence[str]) -> InputChange:
    """Return the change that adds these topics, as far as they still exist, from their beginnings. A topic that was
    retired before goes on there: an older version of the app, whose pattern it matches, may run once more.

    Raises:
        Unreachable: the cluster could not be asked.
    """
    ids = await context.cluster.topic_ids(topics)
    added = {}
    async with reading(context.cluster, topic_ids=ids) as reader:
        places = {name: TopicPartition(name, context.partition) for name in ids}
        bounds = await reader.bounds_of(places.values())
        for name, topic_id in ids.items():
            before = last.retired_inputs.get(name)
            if before is not None and before.topic_id == topic_id:
                added[name] = Added.again(before)
                continue
            added[name] = Added(bounds[places[name]].start_offset)
    return InputChange(added, topic_ids={name: each for name, each in ids.items() if each})


async def commit_change(
    context: Context,
    producer: Producer,
    owner_epoch: int,
    last: FoundIncrement,
    change: InputChange,
    decision: Mapping[str, str],
) -> FoundIncrement:
    """Commit it behind `last`.

    Args:
        producer: has fenced every older one; its claim is committed at `owner_epoch` and seen.

    Raises:
        Fenced, CommitInDoubt, RefusedRecord: the producer is spent; the log shows what happened.
    """
    increment = change.behind(last, owner_epoch, decision, wall_ms())
    return FoundIncrement(increment, await commit_increment(context, producer, increment))
