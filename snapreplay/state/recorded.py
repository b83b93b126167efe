"""The fields of stored values that the log records, compared with those that the code declares. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from snapreplay.errors import StopError
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.fields import ANY, StoreFields

DROPPED = "-"


StoredFields = Mapping[str, Collection[str]]
"""Store → the paths of its values."""


class UnknownFields(StopError):
    """Stored values have a field that this code does not know, or lack one that it has.

    Safe: The partition stops before this code writes anything, and what is stored stays as it is.
    """


def recorded_after(recorded: StoredFields, declared: Mapping[str, StoreFields]) -> dict[str, list[str]]:
    """Return what the next increment records: the fields of this code, and those that were dropped until now."""
    found = {name: list(paths) for name, paths in recorded.items() if name not in declared}
    for name, fields in declared.items():
        before = recorded.get(name, ())
        gone = {path for path in before if not path.startswith(DROPPED)}
        dropped = {f"{DROPPED}{path}" for path in gone if not _covers(fields, path)}
        dropped |= {path for path in before if path.startswith(DROPPED)}
        kept = (path for path in dropped if path[1:] not in fields.paths)
        paths = sorted((*fields.paths, *kept))
        if paths:
            found[name] = paths
    return dict(sorted(found.items()))


def in_entries(recorded: StoredFields, counts: Mapping[str, int]) -> StoredFields:
    """Return what is recorded of the stores that have entries: without a value, none can have an unknown field.
    `counts`: store → number of entries."""
    return {store: paths for store, paths in recorded.items() if counts.get(store)}


def refuse_fields(recorded: StoredFields, declared: Mapping[str, StoreFields], by: str) -> UnknownFields | None:
    """Say why this code must not go on with values that have the recorded fields; None: it may.

    Args:
        recorded: see `in_entries`.
        by: the app version that recorded them.
    """
    for name, fields in declared.items():
        before = recorded.get(name, ())
        unknown = [
            path
            for path in before
            if not path.startswith(DROPPED) and not _covers(fields, path) and not is_below(path, fields.dropped)
        ]
        if unknown:
            return _unknown(name, _topmost(unknown), by)
        missing = [
            path[1:]
            for path in before
            if path.startswith(DROPPED) and path[1:] in fields.paths and not is_below(path[1:], fields.dropped)
        ]
        if missing:
            return _missing(name, _topmost(missing), by)
    return None


def _covers(fields: StoreFields, path: str) -> bool:
    """Say whether code with these fields keeps the field: it has it, or keeps whatever there is in its place."""
    paths = fields.paths
    if is_below(path, fields.cycles):
        return True  # the same type is followed elsewhere
    tops = [each.removesuffix(ANY).removesuffix(".") for each in paths if last_name(each) == ANY]
    return path in paths or any(_keeps(top, paths, path) for top in tops)


def _keeps(top: str, paths: Collection[str], path: str) -> bool:
    """Say whether what keeps any field in its place keeps this one, too. The objects in a dict keep only their own."""
    values = f"{top}{{}}"
    if path.startswith(values) and any(each.startswith(values) for each in paths):
        return False
    return not top or is_below(path, [top])


def is_below(path: str, tops: Iterable[str]) -> bool:
    return any(path == top or path.startswith((f"{top}.", f"{top}[", f"{top}{{", f"{top}<")) for top in tops)


def _topmost(paths: list[str]) -> list[str]:
    return [each for each in paths if not is_below(each, [top for top in paths if top != each])]


def place_of_store(store: str) -> str:
    return "state" if store == DEFAULT_STORE else f"state.{store}"


def _unknown(store: str, paths: list[str], by: str) -> UnknownFields:
    place, names = place_of_store(store), ", ".join(map(repr, paths))
    which = "any field" if paths == [ANY] else f"the field{'s'[: len(paths) - 1]} {names}"
    is_dict = all(last_name(path) == ANY for path in paths)
    keep = "declare a `dict` there" if is_dict else "declare the field too, with a default"
    kept = next((name for path in paths if (name := _stored_name(path))), None)
    renamed = (
        ""
        if kept is None
        else f' If a field was renamed, keep its stored name: `new: str = msgspec.field(name="{kept}")`.'
    )
    return UnknownFields(
        f"values in {place} may have {which}, as app version {by} recorded, which this code does not know: it would"
        " drop what is stored there",
        hint=f"nothing is lost: {keep}; or deploy the version that has it again."
        f"{renamed} If it is not needed any more, say so:"
        f" `MapState(…, dropped=({_listed(paths)}))`",
        store=store,
        fields=paths,
    )


def _stored_name(path: str) -> str | None:
    """Return the name under which the object itself has the field. None: it has no name there."""
    name = last_name(path)
    return None if name == ANY or name.endswith("=") else name


def last_name(path: str) -> str:
    return re.split(r"[.\]}>]", path)[-1]


def _missing(store: str, paths: list[str], by: str) -> UnknownFields:
    place, names = place_of_store(store), ", ".join(map(repr, paths))
    return UnknownFields(
        f"values in {place} may lack {names}, which app version {by} does not have: this code would begin with the"
        " default in each of them",
        hint="deploy the later version again; or give the field another name. If the default is"
        f" right for the values written meanwhile, say so: `MapState(…, dropped=({_listed(paths)}))`",
        store=store,
        fields=paths,
    )


def _listed(paths: list[str]) -> str:
    return "".join(f'"{path}", ' for path in paths).strip()
