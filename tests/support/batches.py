"""A batch of a store, from what handlers touched to its end."""

from typing import Any

from snapreplay.state.contract import Sealed
from snapreplay.state.steps import all_of


def seal(store: Any) -> Sealed:
    """Stage and seal what was touched."""
    all_of(store.staging())
    sealed: Sealed = all_of(store.sealing())
    return sealed


def commit(store: Any) -> Sealed:
    """The same, and it is committed."""
    sealed = seal(store)
    store.merge()
    return sealed
