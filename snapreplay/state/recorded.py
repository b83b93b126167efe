"""What the log records of stored values, compared with what the code declares: their fields and their layout. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from snapreplay.errors import StopError
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.fields import ANY, UNSET_TEXT, Layout, StoreFields


class MeaningChanged(StopError):
    """This code would read stored values differently than the code that wrote them.

    Safe: The partition stops before this code uses a value, and the stored values stay as they are.
    """


DROPPED = "-"

StoredFields = Mapping[str, Collection[str]]
"""Store → the paths of its values."""


class UnknownFields(StopError):
    """Stored values have a field that this code does not declare, or lack a field that it declares.

    Safe: The partition stops before this code writes anything, and the stored values stay as they are.
    """


def recorded_after(recorded: StoredFields, declared: Mapping[str, StoreFields]) -> dict[str, list[str]]:
    """Return what the next increment records: the fields of this code, and those that were dropped until now."""
    found = {name: list(paths) for name, paths in recorded.items() if name not in declared}
    for name, fields in declared.items():
        before = recorded.get(name, ())
        live = {path for path in before if not path.startswith(DROPPED)}
        dropped = {f"{DROPPED}{path}" for path in live if not _covers(fields, path)}
        dropped |= {path for path in before if path.startswith(DROPPED)}
        kept = (path for path in dropped if fields.at(path[1:]) not in fields.paths)
        paths = sorted((*fields.paths, *kept))
        if paths:
            found[name] = paths
    return dict(sorted(found.items()))


def refuse_fields(recorded: StoredFields, declared: Mapping[str, StoreFields], by: str) -> UnknownFields | None:
    """Say why this code must not continue with values that have the recorded fields; None: it may. `by`: the app
    version that recorded them."""
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
            if path.startswith(DROPPED)
            and fields.at(path[1:]) in fields.paths
            and not is_below(path[1:], fields.dropped)
        ]
        if missing:
            return _missing(name, _topmost(missing), by)
    return None


def _covers(fields: StoreFields, path: str) -> bool:
    """Say whether code with these fields keeps the field: it has it, or keeps any fields in its place."""
    paths, path = fields.paths, fields.at(path)
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
        f"values in {place} may have {which}, as app version {by} recorded, which this code does not declare: it"
        " would drop the stored data",
        hint=f"nothing is lost: {keep}; or deploy the version that has it again."
        f"{renamed} If it is no longer needed, declare that:"
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
        f" right for the values written meanwhile, declare that: `MapState(…, dropped=({_listed(paths)}))`",
        store=store,
        fields=paths,
    )


def _listed(paths: list[str]) -> str:
    return "".join(f'"{path}", ' for path in paths).strip()


class Recorded(NamedTuple):
    """What an increment records of the values, by store."""

    fields: StoredFields
    layouts: Mapping[str, Layout]

    def of_entries(self, counts: Mapping[str, int]) -> Recorded:
        """Return what is recorded of the stores that have entries: without a value, no field of it can be
        unknown or misread. `counts`: store → number of entries."""
        layouts = {store: self.layouts.get(store, Layout()) for store, count in counts.items() if count}
        return Recorded({store: paths for store, paths in self.fields.items() if counts.get(store)}, layouts)

    def without(self, stores: Collection[str]) -> Recorded:
        """Return what is recorded of the other stores."""
        fields = {store: paths for store, paths in self.fields.items() if store not in stores}
        return Recorded(fields, {store: layout for store, layout in self.layouts.items() if store not in stores})

    def after(self, declared: Mapping[str, StoreFields]) -> Recorded:
        """Return what the next increment records, by code that declares this."""
        layouts = dict(self.layouts)
        for store, fields in declared.items():
            layouts[store] = _layout_after(_present(self.fields, store), layouts.get(store, Layout()), fields)
        layouts = {store: layout for store, layout in sorted(layouts.items()) if layout != Layout()}
        return Recorded(recorded_after(self.fields, declared), layouts)

    def refuse(self, declared: Mapping[str, StoreFields], by: str) -> UnknownFields | MeaningChanged | None:
        """Return why code that declares this must not use these values; None: it may. `by`: the app version that
        recorded them."""
        unknown = refuse_fields(self.fields, declared, by)
        if unknown is not None:
            return unknown
        for store in sorted(declared.keys() & self.layouts):
            differences = _differences(store, _present(self.fields, store), self.layouts[store], declared[store], by)
            for path, what, hint in differences:
                return MeaningChanged(
                    what,
                    hint=f"nothing is lost: {hint}; otherwise raise `schema_version`, and"
                    " convert each entry with `@app.upgrade(from_schema=…, value=TYPE_THAT_WAS_STORED)`. The version"
                    " that wrote the values can still read them",
                    store=store,
                    field=path,
                )
        return None


def _present(recorded: StoredFields, store: str) -> set[str]:
    return {path for path in recorded.get(store, ()) if not path.startswith(DROPPED)}


def _layout_after(present: set[str], before: Layout, fields: StoreFields) -> Layout:
    """Keep what earlier values need, and add what fields mean that earlier values do not have."""
    now, parents = fields.layout, {_parent(path) for path in present}
    kept = {
        path: fields.defaults.get(fields.at(path), text)
        for path, text in before.absent.items()
        if fields.at(path) in fields.paths
    }
    added = {  # an object that is new as a whole has all its fields
        path: text for path, text in fields.defaults.items() if path not in present and _parent(path) in parents
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


Difference = tuple[str, str, str]
"""Path, what would be misread, remedy."""


def _differences(store: str, present: set[str], before: Layout, fields: StoreFields, by: str) -> Iterator[Difference]:
    """Yield what this code would misread in values of which `before` is recorded."""
    place, now = place_of_store(store), fields.layout
    for path, name in before.places.items():
        found = now.places.get(fields.at(path), name)
        if found != name:
            yield (
                path,
                f"values in {place} are stored as arrays: the place {path!r} has the field {name!r}, as app version"
                f" {by} recorded, and this code would read it as {found!r}",
                "keep the order of the fields, and add new ones at the end, with a default. If the field was renamed,"
                f' keep its stored name: `{found}: … = msgspec.field(name="{name}")` in a Struct with array_like=True',
            )
    for path, text in before.absent.items():
        default = fields.defaults.get(fields.at(path))
        if fields.at(path) not in fields.paths or _same(text, default) or is_below(path, fields.dropped):
            continue
        takes, right = "requires the field", ""
        if default is not None:
            takes = f"takes {_shown(default)} for it"
            right = (
                f'; or, if that is right for the values written without the field: `MapState(…, dropped=("{path}",))`'
            )
        yield (
            path,
            f"values in {place} may lack {path!r}, which meant {_shown(text)}, as app version {by} recorded, and"
            f" this code {takes}",
            f"keep the default{right}",
        )
    for path, values in before.members.items():
        for value, names in values.items():
            names_now = now.members.get(path, {}).get(value, names)
            if set(names).isdisjoint(names_now):
                literal = value if value.lstrip("-").isdigit() else repr(value)
                yield (
                    path,
                    f"the stored {value} in {_where(path, place)} is the member {names[0]}, as app version {by}"
                    f" recorded, and this code would read it as {names_now[0]}",
                    "give each member the value that it had. If the member was renamed, keep the old name as an alias,"
                    f" behind the new one: `{names[0]} = {literal}`",
                )
    for path, name in before.tags.items():
        found = now.tags.get(path, name)
        if found != name and (name in now.tags.values() or found in before.tags.values()):  # else it was renamed
            yield (
                path,
                f"objects with the tag {path!r} in values in {place} are of the class {name}, as app version {by}"
                f" recorded, and this code would read them as {found}",
                f"give {name} the tag that it had",
            )
    for path in now.sets:
        field = re.sub(r"(\[\d*\]|\{\})+$", "", path)
        if path not in before.sets and (not field or field in present):
            yield (
                path,
                f"{_where(path, place)}: app version {by} stored no set there, and this code would read one: repeated"
                " items and their order would be lost with the next write",
                "keep the type",
            )


def _same(one: str, other: str | None) -> bool:
    """Say whether two defaults are the same value: 0 and 0.0 are."""
    if one == other:
        return True
    try:
        return other is not None and bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except msgspec.DecodeError:
        return False


def _where(path: str, place: str) -> str:
    return f"{path!r} of values in {place}" if path else f"values in {place}"


def _shown(text: str) -> str:
    return "no value" if text == UNSET_TEXT else text
