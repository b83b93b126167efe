"""The mutants, by the part of the scheme that they break."""

from __future__ import annotations

from tests.mutants import commits, identities, ownerships, recoveries, snapshots
from tests.mutants.mutant import Mutant

GALLERY: tuple[Mutant, ...] = (
    *recoveries.MUTANTS,
    *commits.MUTANTS,
    *snapshots.MUTANTS,
    *ownerships.MUTANTS,
    *identities.MUTANTS,
)
