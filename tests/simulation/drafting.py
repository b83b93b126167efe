"""Drafts of upgrades: what a job writes of the entries of the next version, before that version is deployed.

A draft that is forged has an entry that nobody stored, and one thing that gives it away.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from snapreplay.service.ports import TopicPartition
from snapreplay.snapshots.format.envelope import encode
from snapreplay.snapshots.format.records import DraftOf, Increment, Manifest
from snapreplay.state.digest import EMPTY, Digest, digest_of, digest_of_stores, recorded_digests
from tests.simulation import told
from tests.simulation.by_time import PlainInTime
from tests.simulation.deciding import SCHEMA_MAX
from tests.simulation.network import NOWHERE
from tests.simulation.program import INCREMENTS, SNAPSHOTS
from tests.support.proposals import propose

if TYPE_CHECKING:
    from tests.simulation.world import World

BY = "draft-upgrade@simulation/1"
Forge = Callable[[Manifest], Manifest]
_replaced = msgspec.structs.replace
GIVEN_AWAY: dict[str, Forge] = {
    "by its old state": lambda it: _replaced(it, draft_of=_replaced(_of(it), digest=Digest(1, 2, 3))),
    "by its old schema": lambda it: _replaced(it, draft_of=_replaced(_of(it), schema_version=7)),
    "by its batch": lambda it: _replaced(it, batch=it.batch + 5),
    "by its code": lambda it: _replaced(it, origin=_replaced(it.origin, app_version="0")),
    "by its sums": lambda it: _replaced(it, digest=Digest(1, 2, 3), entries_digest=Digest(1, 2, 3), entry_count=1),
    "by its stores": lambda it: _replaced(it, store_digests={"odd": Digest(1, 2, 3)}),
}


def draft(world: World, how: str, seconds: float) -> bool:
    """Draft the upgrade of each partition, and deploy it, at once or later.

    Args:
        how: good, older (of the state after some batch that was shown), forged, or killed (before the manifest).
    """
    schema = world.decisions.schema + 1
    if schema > SCHEMA_MAX:
        return False
    drafted = [_draft(world, how, number, schema) for number in range(world.scenario.partitions)]
    if not any(drafted):
        return False
    later = seconds * (0.5 + world.rng.random() / 2) if how == "older" else 0.0
    world.loop.call_later(later, world.decisions.upgrade, "all", seconds, context=NOWHERE)
    return True


def _draft(world: World, how: str, number: int, schema: int) -> bool:
    views = [each for each in world.views if each.number == number and each.batch is not None]
    if not views:
        return False
    view = world.rng.choice(views) if how == "older" else views[-1]
    log = world.broker.logs[TopicPartition(INCREMENTS, number)]
    committed = told.newest(log, Increment, log.stable)
    at, increment = next((each for each in committed if each[1].batch == view.batch), (-1, None))
    if increment is None or increment.digest != digest_of_stores(_digests(view.stored)):
        return False
    plain = PlainInTime.of(view.stored, schema=increment.origin.schema_version, **world.scenario.variant)
    plain.upgrade(schema)
    if how == "forged":
        plain.results["forged"] = 1
        plain.touched_ms["forged"] = plain.now_ms
    _write(world, how, number, at, increment, plain)
    return True


def _write(world: World, how: str, number: int, at: int, increment: Increment, plain: PlainInTime) -> None:
    snapshots, stores = world.broker.logs[TopicPartition(SNAPSHOTS, number)], plain.stored()
    digests, given_away = _digests(stores), world.rng.choice(sorted(GIVEN_AWAY))

    def append(value: bytes, headers: tuple[tuple[str, bytes], ...]) -> int:
        return snapshots.append(None, value, headers, 0, None)

    def encoded(manifest: Manifest) -> bytes:
        if how == "killed":
            raise _Killed
        if how != "forged":
            return encode(manifest)
        world.network.met(f"draft given away {given_away}")
        return encode(GIVEN_AWAY[given_away](manifest))

    total, version = digest_of_stores(digests), world.deployed(schema=plain.schema).version
    with suppress(_Killed):
        propose(
            increment,
            at,
            {},
            append,
            encoded=encoded,
            stores=stores,
            snapshot_id=f"{world.rng.getrandbits(64):016x}",
            proposed_by=BY,
            origin=_replaced(increment.origin, app_version=version, schema_version=plain.schema),
            draft_of=DraftOf(increment.origin.schema_version, increment.digest or EMPTY, keeps_places=True),
            digest=total,
            entries_digest=total,
            entry_count=total.count,
            store_digests=recorded_digests(digests),
        )


class _Killed(Exception):
    """The job is dead."""


def _of(manifest: Manifest) -> DraftOf:
    assert manifest.draft_of is not None
    return manifest.draft_of


def _digests(stores: dict[str, dict[bytes, bytes]]) -> dict[str, Digest]:
    return {store: digest_of(inner.items()) for store, inner in stores.items()}
