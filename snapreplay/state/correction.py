"""Corrections of single entries of a state: read from JSON lines, compared with the state, made in it. Pure."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

import msgspec

from snapreplay.counted import counted, lines_of
from snapreplay.errors import RecordError, UsageError
from snapreplay.state.composite import Store
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.gate import OPEN
from snapreplay.state.map import MapState
from snapreplay.state.scheduled import ExpiringStore
from snapreplay.state.steps import all_of
from snapreplay.state.stores import maps_of
from snapreplay.state.timers import TimerKey

LINES_MAX = 10_000
"""The most lines of one file: all of them are in memory, and one batch makes all changes."""
SHOWN_CHARS = 200
_HINT = (
    'each line is a JSON object such as {"store": "accounts", "key": "ada", "expected": {"n": 4}, "value": {"n": 5},'
    ' "reason": "ticket 17"}; `"absent": true` stands for an expected value where there is none, `"delete": true` for'
    " a new one"
)


class NotCorrected(UsageError):
    """Some lines cannot be applied, so none was.

    Safe: Nothing was changed in the partition that the message names. If it names none, nothing was changed in any.
    Partitions that the command has printed as corrected stay corrected, and the same file skips them.
    """


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: msgspec.Raw
    store: str = DEFAULT_STORE
    expected: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    absent: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    delete: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    reason: str = ""
    partition: int | None = None


class Correction(NamedTuple):
    """One entry and what becomes of it.

    Attributes:
        line: its number in the file, from 1.
        place: store and key as a message names them.
        expected: the value that it must have; UNSET: there must be none.
        value: the new value; UNSET: the entry is deleted.
        stored: expected and new value as this app stores them; None for UNSET.
        partition: whose state it is in; None: the partition that has the key.
    """

    line: int
    store: str
    key: Any
    place: str
    expected: Any
    value: Any
    stored: tuple[bytes | None, bytes | None]
    reason: str
    partition: int | None

    def __str__(self) -> str:
        return f"{self.place}: {shown(self.expected)} → {shown(self.value)}"

    def refused(self, found: Any, stored: bytes | None) -> str:
        """Say why the correction cannot be made; empty: it can. `found`: the present value, UNSET: there is none;
        `stored`: as this app stores it."""
        expected, becomes = self.stored
        if stored == expected:
            return ""
        if stored is None:
            what = f"{self.place} is not there, but {shown(self.expected)} was expected"
        else:
            what = f"{self.place} is {shown(found)}, but was expected to be {shown(self.expected)}"
        return f"{what}; applying the line would change nothing" if stored == becomes else what

    def undone(self) -> str:
        was = {"absent": True} if self.value is msgspec.UNSET else {"expected": self.value}
        becomes = {"delete": True} if self.expected is msgspec.UNSET else {"value": self.expected}
        line = {"store": self.store, "key": self.key, **was, **becomes, "partition": self.partition}
        return msgspec.json.encode(line | {"reason": f"takes back: {self.reason}"}).decode()


def shown(value: Any) -> str:
    """Show a value as a line has it, cut off where it is long."""
    if value is msgspec.UNSET:
        return "no entry"
    try:
        return _cut(msgspec.json.encode(value).decode(errors="replace"))
    except RecursionError:
        return "a value that is nested too deep to be shown"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def corrections_of(lines: Iterable[bytes], state: object, partitions: int, reason: str = "") -> list[Correction]:
    """Read every line; empty ones are passed over.

    Args:
        state: what the app's factory made; its types say how keys and values are read.
        partitions: how many the app has.
        reason: for lines that give none.

    Returns:
        At least one, in the order of the lines.

    Raises:
        NotCorrected: lines that cannot be read, or none at all.
    """
    maps = _maps(state)
    found: dict[tuple[str, Any, int | None], Correction] = {}
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            made = _correction(number, line, maps, partitions, reason)
        except Exception as error:  # noqa: BLE001 - a user's type may raise anything
            problems.append(f"line {number}: {error}")
            continue
        twin = found.setdefault((made.store, made.key, made.partition), made)
        if twin is not made:
            problems.append(f"line {number}: {made.place} is in line {twin.line} already")
        elif len(found) > LINES_MAX:
            raise NotCorrected(
                f"the file has more than {LINES_MAX:,} lines", hint="divide it: each file is one decision"
            )
    refuse(problems)
    if not found:
        raise NotCorrected("the file has no line", hint=_HINT)
    return list(found.values())


def refuse(problems: Sequence[str], where: str = "") -> None:
    """Raise NotCorrected if there are any. `where`: " in partition 1"; else nothing was changed anywhere."""
    if not problems:
        return
    what = f"{counted(len(problems), 'line')} cannot be carried out, so nothing was changed{where}"
    raise NotCorrected(f"{what}:{lines_of(problems)}", hint=_HINT)


def _correction(
    number: int, line: bytes, maps: Mapping[str, MapState[Any, Any]], partitions: int, reason: str
) -> Correction:
    given = msgspec.json.decode(line, type=_Line)
    if given.store not in maps:
        near = difflib.get_close_matches(given.store, maps, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"the state has no store {given.store!r}; {meant}it has {', '.join(maps)}")
    if (given.expected is msgspec.UNSET) == (given.absent is msgspec.UNSET):
        raise UsageError('either "expected" or "absent": true must be there')
    if (given.value is msgspec.UNSET) == (given.delete is msgspec.UNSET):
        raise UsageError('either "value" or "delete": true must be there')
    if given.absent is True and given.delete is True:
        raise UsageError("an entry that is not there cannot be deleted")
    if given.partition is not None and not 0 <= given.partition < partitions:
        raise UsageError(f"partition {given.partition} does not exist: there are {partitions} (0 to {partitions - 1})")
    if not (given.reason.strip() or reason.strip()):
        raise UsageError('no reason was given: write "reason" into the line, or use --reason for all lines')
    state, why = maps[given.store], given.reason.strip() or reason.strip()
    key_type, value_type = state.__snapreplay_types__()
    key = msgspec.json.decode(given.key, type=key_type)
    place = f"{'state' if given.store == DEFAULT_STORE else f'state.{given.store}'}[{_cut(repr(key))}]"
    expected, value = (_value(raw, value_type) for raw in (given.expected, given.value))
    stored = _stored(state, key, expected), _stored(state, key, value)
    if stored[0] == stored[1]:
        raise UsageError(f"{place} would stay as it is")
    return Correction(number, given.store, key, place, expected, value, stored, why, given.partition)


def _value(raw: msgspec.Raw | msgspec.UnsetType, value_type: Any) -> Any:
    """Read a value, or raise UsageError: it has a field that its type has not, which would be lost without a word."""
    if raw is msgspec.UNSET:
        return msgspec.UNSET
    value = msgspec.json.decode(raw, type=value_type)
    unknown = _unknown(msgspec.json.decode(raw), value, "")
    if unknown:
        raise UsageError(f"its type has no field {unknown}")
    return value


def _unknown(raw: object, value: object, path: str) -> str:
    """Return the path of the first member of `raw` that was not read into `value`; empty: all were."""
    if isinstance(raw, dict):
        known = _members(value)
        if known is None:
            return ""
        for name, part in raw.items():
            if name not in known:
                return f"{path}{name}"
            if found := _unknown(part, known[name], f"{path}{name}."):
                return found
    elif isinstance(raw, list) and isinstance(value, list | tuple):
        for part, read in zip(raw, value, strict=False):
            if found := _unknown(part, read, path):
                return found
    return ""


def _members(value: object) -> Mapping[str, object] | None:
    """Return the parts of an object by their stored names; None: it has no names."""
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        members: dict[str, object] = {stored: getattr(value, name) for stored, name in names}
        return members | ({config.tag_field: config.tag} if config.tag_field else {})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    return value if isinstance(value, Mapping) else None


def _stored(state: MapState[Any, Any], key: Any, value: Any) -> bytes | None:
    if value is msgspec.UNSET:
        return None
    (stored,) = all_of(state.__snapreplay_store__().encoding({key: value})).values()
    return stored


def entry_of(store: Store, correction: Correction) -> tuple[Any, bytes | None]:
    """Return the committed value that the entry has now, and how this app stores it; (UNSET, None): there is none."""
    committed = store.committed_view()
    entries = committed if isinstance(store.view, MapState) else getattr(committed, correction.store)
    value = entries.get(correction.key, msgspec.UNSET)
    return value, _stored(_maps(store.view)[correction.store], correction.key, value)


def refusals(store: Store, corrections: Iterable[Correction]) -> Iterator[str]:
    """Yield the reason for each line that cannot be carried out in this state."""
    maps = _maps(store.view)
    for each in corrections:
        expires = isinstance(maps[each.store].__snapreplay_store__(), ExpiringStore)
        if why := each.refused(*entry_of(store, each)):
            yield f"line {each.line}: {why}"
        elif expires and each.stored[1] is not None and store.stream_time_ms < 0:
            yield f"line {each.line}: {each.place} would expire with the first record: none has been processed yet"


def _maps(view: object) -> dict[str, MapState[Any, Any]]:
    return {name or DEFAULT_STORE: each for name, each in maps_of(view).items()}


def timers_of(store: Store, corrections: Iterable[Correction]) -> dict[int, list[TimerKey]]:
    """Return the pending timers of the entries that are deleted, by line: they would fire without their entry."""
    timers = None if store.timetable is None else store.timetable.timers
    if timers is None:
        return {}
    maps, lines = _maps(store.view), dict[tuple[str, bytes], int]()
    for each in corrections:
        if each.value is msgspec.UNSET:
            of = maps[each.store].__snapreplay_store__()
            lines[of.name, of.encoded_key(each.key)] = each.line
    found: dict[int, list[TimerKey]] = {}
    for key in timers.committed_view() if lines else ():
        timer = TimerKey.decoded(key)
        line = lines.get((timer.store, timer.key))
        if line is not None:
            found.setdefault(line, []).append(timer)
    return found


def correct(store: Store, corrections: Sequence[Correction]) -> None:
    """Correct the entries as a handler would; the timers of an entry that is deleted go with it. Call `refusals` first.
    Raises NotCorrected: a new value cannot be stored; the state is as it was."""
    maps, pending = _maps(store.view), timers_of(store, corrections)
    for of_store in maps.values():
        of_store.__snapreplay_store__().gate = OPEN  # a replay has closed it behind the last handler
    store.begin()
    for each in corrections:
        if each.value is msgspec.UNSET:
            del maps[each.store][each.key]
        else:
            maps[each.store][each.key] = each.value
    if store.timetable is not None and store.timetable.timers is not None:
        for timer in chain.from_iterable(pending.values()):
            store.timetable.timers.set(timer.encoded(), None)
    try:
        all_of(store.staging())
    except RecordError as error:
        store.rollback()
        raise NotCorrected(
            f"a new value cannot be stored, so nothing was written: {error.message}", hint=error.hint
        ) from error
    all_of(store.sealing())
    store.merge()
