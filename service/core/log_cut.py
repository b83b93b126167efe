"""The question whether a manifest shows that committed increments were lost. Pure.

An owner writes a manifest only after the commit of its batch was answered OK. So a manifest of a later batch than the
last increment proves that the increments topic was cut. It must be an owner's. A proposal proves nothing, and neither
does a manifest that this chain cannot have.
"""

from __future__ import annotations

from snapreplay.service.core.search import FoundIncrement
from snapreplay.snapshots.format.records import Increment, Manifest


def shows_cut(manifest: Manifest, last: FoundIncrement) -> bool:
    """Say whether only an owner whose increments were lost can have written it.

    In one chain a later batch lies at a higher offset. A manifest that is ahead of the last increment by its batch, and
    not by its offset, was written by no owner of this chain.
    """
    ahead = lies_ahead(manifest.batch, manifest.increment_offset, last)
    return ahead and _is_of_owner(manifest, last.increment)


def lies_ahead(batch: int, increment_offset: int, last: FoundIncrement) -> bool:
    """Say whether a batch is later than the last one, in the same chain: its increment lies behind the last one."""
    return batch > last.increment.batch and increment_offset > last.offset


def is_recent(manifest: Manifest, last: FoundIncrement) -> bool:
    """Say whether nothing older need be looked at: it is of a batch that the log has, by the last increment's owner
    or a later one. A zombie may have written an older one behind it."""
    increment = last.increment
    return (
        _is_of_owner(manifest, increment)
        and manifest.owner_epoch >= increment.owner_epoch
        and manifest.batch <= increment.batch
    )


def _is_of_owner(manifest: Manifest, last: Increment) -> bool:
    same_app = manifest.origin.app_id == last.origin.app_id
    return manifest.proposed_by is None and same_app and manifest.genesis == last.genesis
