"""A table of settings: frozen, unknown names refused, and every problem reported by its name. Pure.

pydantic, which serves the HTTP API, is not used: to import it takes longer than joining the group and a recovery.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, dataclass_transform, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields

from snapreplay.errors import UsageError
from snapreplay.service.config.kafka_properties import BOOLS, PROPERTIES
from snapreplay.service.config.sources import environment_name

_NAME = re.compile(r"[\w.]+")


class _NamesProblems(msgspec.StructMeta):
    """A call of the class checks every value, and tells the problems of all tables inside of it together."""

    def __call__(cls, *values: object, **given: Any) -> Any:  # noqa: N805 - of a metaclass
        if values:
            raise UsageError(
                f"{cls.__name__}() was given a {type(values[0]).__name__}: pass settings by their names",
                hint=f"unpack a dict: `{cls.__name__}(**table)`",
            )
        problems: list[str] = []
        table: Any = cls
        made = table.of(given, "", problems)
        problems = problems or list(made.contradictions())
        if problems:
            raise usage_error(problems)
        return made


if TYPE_CHECKING:  # a metaclass that takes anything would hide names and types from a checker

    @dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
    class _Frozen:
        pass
else:

    class _Frozen(msgspec.Struct, frozen=True, kw_only=True, dict=True, metaclass=_NamesProblems):
        pass


class Table(_Frozen):
    """The common base of all tables.

    Raises (when made):
        UsageError: lists every wrong setting by its name, with value, reason and remedy.
    """

    @classmethod
    def of(cls, given: Mapping[str, Any], prefix: str, problems: list[str]) -> Any:
        """Return a table of these values; those that are wrong are left out, and listed in `problems`."""
        known = fields_of(cls)
        values = {}
        for name, value in given.items():
            if name not in known:
                # Without its value: that may be a password whose name is misspelt.
                problems.append(f"{prefix}{name}: unknown setting; {_nearest(cls, prefix, name)}")
                continue
            try:
                values[name] = cls.taken(known[name], value, prefix, problems)
            except ValueError as refused:
                problems += str(refused).splitlines()
        return _with_given(msgspec.StructMeta.__call__(cls, **values), given)

    @classmethod
    def taken(cls, field: FieldInfo, value: object, prefix: str, problems: list[str]) -> object:
        """Return a value as it is kept, or raise ValueError, with a line for each problem."""
        name = prefix + field.name
        if not is_table(field.type):
            return _converted(name, field.type, value)
        if isinstance(value, field.type):
            return value
        if not isinstance(value, dict):
            kind = type(value).__name__
            raise ValueError(f"{name}: a {kind}; expected a table, in Python a dict")  # noqa: TRY004 - it is collected
        return field.type.of(value, f"{name}.", problems)

    def contradictions(self) -> list[str]:
        """Return a line for each of the values that do not go together."""
        return []

    def replaced(self, **values: object) -> Self:
        """Return the same table with other values, which are not checked."""
        other = msgspec.structs.replace(self, **values)  # type: ignore[type-var]  # as in `fields_of`
        replaced: Self = _with_given(other, [*self.__dict__["given"], *values])
        return replaced

    def was_given(self, name: str) -> bool:
        """Say whether it is no default."""
        return name in self.__dict__["given"]

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to the tasks of a Spark job; what was checked once is not checked again."""
        values = {name: getattr(self, name) for name in fields_of(type(self))}
        return _unpickled, (type(self), values, self.__dict__["given"])


def _with_given(table: Any, names: Iterable[str]) -> Any:
    table.__dict__["given"] = frozenset(names)
    return table


def _unpickled(table: type[Table], values: dict[str, Any], names: frozenset[str]) -> Any:
    return _with_given(msgspec.StructMeta.__call__(table, **values), names)


_FIELDS: dict[type[Table], Mapping[str, FieldInfo]] = {}
"""Of each table that was asked for: to read the annotations of a class takes longer than to make its table."""


def fields_of(table: type[Table]) -> Mapping[str, FieldInfo]:
    if table not in _FIELDS:
        struct: Any = table  # unless for a checker
        _FIELDS[table] = {field.name: field for field in fields(struct)}
    return _FIELDS[table]


def is_table(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Table)


def _converted(name: str, kind: Any, value: object) -> object:
    """Take what a setting is in the environment, too: text."""
    text = value.strip() if isinstance(value, str) else value
    if kind is bool and isinstance(text, str):
        text = BOOLS.get(text.lower(), text)
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError as error:
        why = str(error)
    if get_origin(kind) is Literal:
        why = f"expected {' or '.join(map(repr, get_args(kind)))}"
    raise ValueError(f"{name}={value!r}: {why[0].lower()}{why[1:]}")


def usage_error(lines: list[str]) -> UsageError:
    """Make one error for these problems, a line each."""
    listed = "\n".join(f"  {line}" for line in lines)
    count = "a setting is" if len(lines) == 1 else f"{len(lines)} settings are"
    return UsageError(f"{count} wrong (docs/settings.md describes each one):\n{listed}", problems=lines)


def with_origins(error: UsageError, origins: Mapping[str, str]) -> UsageError:
    """Return the same problems, each with where its setting was given. `origins`: dotted name → where."""
    problems: Any = error.facts.get("problems", ())
    lines = []
    for line in problems:
        name = _NAME.match(line)
        where = origins.get(name[0]) if name else None
        lines.append(line if where is None else f"{line} (given {where})")
    return usage_error(lines) if lines else error


def _names_inside(table: type[Table]) -> Iterator[str]:
    """Yield the dotted names of what the tables of this table have, Kafka's properties included."""
    for name, field in fields_of(table).items():
        if is_table(field.type):
            yield from (f"{name}.{each}" for each in fields_of(field.type))
        elif name == "kafka":
            yield from (f"kafka.{each}" for each in PROPERTIES)


def _nearest(table: type[Table], prefix: str, name: str) -> str:
    known = fields_of(table)
    group, dot, rest = name.partition(".")
    if dot and group in known:
        return f"in Python a table is a dict: `{group}={{{rest!r}: …}}`; `load_settings` takes dotted names"
    if not prefix:
        inside = {each.replace(".", "_"): each for each in _names_inside(table)}
        found = difflib.get_close_matches(name, inside, n=1, cutoff=0.85)
        if found:
            meant = inside[found[0]]
            return f"did you mean {meant}, in the environment {environment_name(meant)}?"
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"did you mean {prefix}{near[0]}?"
    return f"the names are {', '.join(sorted(known))}"
