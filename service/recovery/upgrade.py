"""Upgrades a restored state to the app's `schema_version`, and makes the decision that the log records.

The state changes only when nothing can fail any more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from snapreplay.app.upgrade import upgrading
from snapreplay.counted import counted
from snapreplay.service.core.chain import standing_for
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.publish.state import by_process
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.cooperative import run_cooperatively
from snapreplay.snapshots.format.records import UPGRADED_KIND, Increment
from snapreplay.state.contract import Store
from snapreplay.state.digest import EMPTY, Digest
from snapreplay.state.recorded import Recorded


async def upgraded(
    context: Context, store: Store, last: FoundIncrement, topic_ids: Mapping[str, str]
) -> tuple[Increment, dict[str, str]]:
    """Upgrade the state after `last` in place. Other tasks run between two steps.

    Returns:
        The increment that stands for the new state, and the decision.

    Raises:
        UpgradeFailed, StoredValueUnreadable, UnknownStore: the state is as it was.
    """
    app, increment = context.app, last.increment
    recorded, before = increment.origin.schema_version, store.digest or EMPTY
    await run_cooperatively(upgrading(app.upgrades.values(), recorded, store))
    values = Recorded(increment.fields, increment.layouts).without(app.upgrades_from(recorded))
    standing = msgspec.structs.replace(
        standing_for(last, store.digest, store.store_digests),
        topic_ids=dict(topic_ids),
        fields=values.fields,
        layouts=values.layouts,
    )
    return standing, _decision(context, last, before, store.digest or EMPTY)


def _decision(context: Context, last: FoundIncrement, before: Digest, after: Digest) -> dict[str, str]:
    app, increment = context.app, last.increment
    recorded = increment.origin.schema_version
    facts = f"{context.increments} {last.offset} {app.version} {after}"
    return {
        "finding": f"{UPGRADED_KIND}-{hashlib.sha256(facts.encode()).hexdigest()[:8]}",
        "problem": f"the state after batch {increment.batch} was written with schema_version {recorded}, by app version"
        f" {increment.origin.app_version}",
        "decided": f"upgraded to schema_version {app.schema_version} by app version {app.version}:"
        f" {counted(before.count, 'entry')} became {after.count:,}; digest {before} became {after}; no outputs were"
        " written",
        "reason": f"the app declares an upgrade from schema_version {recorded}",
        "by": by_process(context),
    }
