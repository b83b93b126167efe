"""What the log records of stored values, compared with what the code declares: their fields and their layout. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from snapreplay.errors import StopError
from snapreplay.state.fields import (
    DROPPED,
    StoredFields,
    StoreFields,
    in_entries,
    is_below,
    last_name,
    place_of_store,
    recorded_after,
    refuse_fields,
)
from snapreplay.state.layout import UNSET_TEXT, Layout, MeaningChanged, differing_members, exchanged_tags, same_default

Layouts = Mapping[str, Layout]
"""Store → the layout of its values."""


class Recorded(NamedTuple):
    """What an increment records of the values.

    Attributes:
        layouts: None: a build wrote it that did not record them.
    """

    fields: StoredFields
    layouts: Layouts | None

    def of_entries(self, counts: Mapping[str, int]) -> Recorded:
        """Return what is recorded of the stores that have entries: without a value, none can be misread. `counts`:
        store → number of entries."""
        layouts = self.layouts
        if layouts is not None:
            layouts = {store: layouts.get(store, Layout()) for store, count in counts.items() if count}
        return Recorded(in_entries(self.fields, counts), layouts)

    def without(self, stores: frozenset[str]) -> Recorded:
        """Return what is recorded of the other stores."""
        fields = {name: paths for name, paths in self.fields.items() if name not in stores}
        layouts = self.layouts
        if layouts is not None:
            layouts = {name: layout for name, layout in layouts.items() if name not in stores}
        return Recorded(fields, layouts)

    def after(self, declared: Mapping[str, StoreFields]) -> Recorded:
        """Return what the next increment records, by code that declares this."""
        before = self.layouts or {}
        layouts = {name: layout for name, layout in before.items() if name not in declared}
        for name, fields in declared.items():
            layouts[name] = _layout_after(self.fields.get(name, ()), before.get(name, Layout()), fields)
        layouts = {name: layout for name, layout in sorted(layouts.items()) if layout != Layout()}
        return Recorded(recorded_after(self.fields, declared), layouts)

    def refuse(self, declared: Mapping[str, StoreFields], by: str) -> StopError | None:
        """Say why code that declares this must not use values of which this is recorded; None: it may.

        Args:
            by: the app version that recorded it.

        Returns:
            UnknownFields or MeaningChanged.
        """
        unknown = refuse_fields(self.fields, declared, by)
        if unknown is not None or self.layouts is None:
            return unknown
        for name, fields in declared.items():
            before = self.layouts.get(name)
            found = None if before is None else _differing(name, self.fields.get(name, ()), before, fields, by)
            if found is not None:
                return found
        return None


def _layout_after(recorded: Any, before: Layout, fields: StoreFields) -> Layout:
    """Keep what earlier values need, and add what fields mean that earlier values do not have."""
    now = fields.layout
    had = {path for path in recorded if not path.startswith(DROPPED)}
    parents = {_parent(path) for path in had}
    added = {
        path: text for path, text in fields.defaults.items() if path not in had and _parent(path) in parents
    }  # an object that is new as a whole has all its fields
    kept = {
        path: fields.defaults.get(fields.at(path), text)
        for path, text in before.absent.items()
        if fields.at(path) in fields.paths
    }
    members = {path: {**before.members.get(path, {}), **names} for path, names in now.members.items()}
    return Layout(
        places={**before.places, **now.places},
        absent=dict(sorted({**kept, **added, **now.absent}.items())),
        members={**before.members, **members},
        tags={**before.tags, **now.tags},
        sets=now.sets,
    )


def _parent(path: str) -> str:
    return path.removesuffix(last_name(path))


def _differing(store: str, recorded: Any, before: Layout, fields: StoreFields, by: str) -> MeaningChanged | None:
    place, now = place_of_store(store), fields.layout
    for path, name in before.places.items():
        found = now.places.get(fields.at(path))
        if found not in (None, name):
            return _changed(
                store,
                path,
                f"values in {place} are stored as arrays: the place {path!r} has the field {name!r}, as app version"
                f" {by} recorded, and this code would read it as {found!r}",
                "keep the order of the fields, and add new ones at the end, with a default. If the field was renamed,"
                f' keep its stored name: `{found}: … = msgspec.field(name="{name}")` in a Struct with array_like=True',
            )
    for path, text in before.absent.items():
        at = fields.at(path)
        found = fields.defaults.get(at)
        if at in fields.paths and not same_default(text, found) and not is_below(path, fields.dropped):
            is_what = "requires the field" if found is None else f"takes {_shown(found)} for it"
            right = (
                ""
                if found is None
                else (
                    "; or, if that is right for the values written without the field:"
                    f' `MapState(…, dropped=("{path}",))`'
                )
            )
            return _changed(
                store,
                path,
                f"values in {place} may lack {path!r}, which meant {_shown(text)}, as app version {by} recorded, and"
                f" this code {is_what}",
                f"keep the default{right}",
            )
    for path, value, names, found_names in differing_members(before, now):
        where = f"{path!r} of values in {place}" if path else f"values in {place}"
        alias = f"`{names[0]} = {value!r}`" if not value.lstrip("-").isdigit() else f"`{names[0]} = {value}`"
        return _changed(
            store,
            path,
            f"the stored {value} in {where} is the member {names[0]}, as app version {by} recorded, and this code would"
            f" read it as {found_names[0]}",
            "give each member the value that it had. If the member was renamed, keep the old name as an alias, behind"
            f" the new one: {alias}",
        )
    for path, name, found_class in exchanged_tags(before.tags, now.tags):
        return _changed(
            store,
            path,
            f"objects with the tag {path!r} in values in {place} are of the class {name}, as app version {by} recorded,"
            f" and this code would read them as {found_class}",
            f"give {name} the tag that it had",
        )
    known = {path for path in recorded if not path.startswith(DROPPED)}
    for path in now.sets:
        if path not in before.sets and _existed(path, known):
            where = f"{path!r} of values in {place}" if path else f"values in {place}"
            return _changed(
                store,
                path,
                f"{where}: app version {by} stored no set there, and this code would read one: repeated items and their"
                " order would be lost with the next write",
                "keep the type",
            )
    return None


def _existed(path: str, known: set[str]) -> bool:
    """Say whether values had something in this place."""
    field = re.sub(r"(\[\d*\]|\{\})+$", "", path)
    return not field or field in known


def _shown(text: str) -> str:
    return "no value" if text == UNSET_TEXT else text


def _changed(store: str, path: str, what: str, hint: str) -> MeaningChanged:
    return MeaningChanged(
        what,
        hint=f"nothing is lost: {hint}; otherwise raise `schema_version`, and say with `@app.upgrade(from_schema=…,"
        " value=TYPE_THAT_WAS_STORED)` what becomes of each entry. The version that wrote the values can still read"
        " them",
        store=store,
        field=path,
    )
