"""A trial of an upgrade: the stored entries of every partition are upgraded in memory, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from snapreplay.app.app import App
from snapreplay.app.upgrade import upgrading
from snapreplay.errors import RetryableError, SnapreplayError
from snapreplay.service.config.settings import Settings
from snapreplay.service.ports import Cluster
from snapreplay.service.preflight import inspect
from snapreplay.service.recovery.examine import Examiner, News
from snapreplay.service.runtime.context import Context, contexts_of
from snapreplay.service.runtime.cooperative import run_cooperatively
from snapreplay.state.composite import Store
from snapreplay.state.steps import Steps

INSTANCE_ID = "snapreplay-upgrade"


class UpgradeTrial(NamedTuple):
    """The result of one partition.

    Attributes:
        batch: the batch after which the state was; None: it could not be restored.
        schema_version: of the state; None: it is not known.
        entries: their number before.
        upgraded: their number after; None: they were not upgraded.
        error: why this version cannot take over the partition.
    """

    partition: int
    batch: int | None = None
    schema_version: int | None = None
    entries: int = 0
    upgraded: int | None = None
    error: SnapreplayError | None = None


async def try_upgrade(
    app: App[Any], settings: Settings, cluster: Cluster, on_news: Callable[[str], None]
) -> list[UpgradeTrial]:
    """Restore each partition as its owner would, and upgrade it, one after the other. Only reads; an owner may run.

    Raises:
        UsageError, Unreachable: as preflight.
        RetryableError: a partition could not be read now.
    """
    view = await inspect(app, settings, cluster)
    contexts = contexts_of(app, settings, cluster, view, INSTANCE_ID)
    return [await _tried(each, on_news) for each in contexts]


async def _tried(context: Context, on_news: Callable[[str], None]) -> UpgradeTrial:
    examiner = Examiner(context, context.app.new_store(), News(on_news, context.partition))
    found = UpgradeTrial(context.partition)
    try:
        error = await examiner.examine_beside_owner()
        if examiner.last is not None:
            increment = examiner.last.increment
            found = found._replace(batch=increment.batch, schema_version=increment.origin.schema_version)
        if error is not None:
            return found._replace(error=await examiner.hinted(error))
        return await _upgraded(context, examiner, found)
    finally:
        await examiner.close()


def _reading(store: Store) -> Steps[None]:
    """Read every entry as the types of this version."""
    yield from store.refusing_pending()
    for _ in store.checking():
        yield


async def _upgraded(context: Context, examiner: Examiner, found: UpgradeTrial) -> UpgradeTrial:
    app, store = context.app, examiner.store
    recorded = examiner.found.increment.origin.schema_version
    found = found._replace(entries=store.digest.count)
    try:
        if recorded == app.schema_version:
            await run_cooperatively(_reading(store))
            return found
        await run_cooperatively(upgrading(app.upgrades.values(), recorded, store))
    except RetryableError:
        raise
    except SnapreplayError as error:
        return found._replace(error=error)
    return found._replace(upgraded=store.digest.count)
