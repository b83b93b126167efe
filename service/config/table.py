"""A table of settings: frozen, unknown names refused, and every problem told by its name. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from snapreplay.errors import UsageError
from snapreplay.service.config.kafka_properties import PROPERTIES
from snapreplay.service.config.sources import environment_name

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


_NAME = re.compile(r"[\w.]+")


class _NamesProblems(ModelMetaclass):
    """A call of the class raises errors of ours. A table inside another one is not made by a call: its problems are
    told together with those of the other tables."""

    def __call__(cls, *values: object, **given: Any) -> Any:  # noqa: N805 - of a metaclass
        if values:
            raise UsageError(
                f"{cls.__name__}({values[0]!r}): settings are given by their names",
                hint=f"a dict is unpacked, `{cls.__name__}(**table)`",
            )
        try:
            return super().__call__(**given)
        except ValidationError as error:
            model: Any = cls
            raise told([line for each in error.errors() for line in _lines(model, each)]) from None


class Table(BaseModel, metaclass=_NamesProblems):
    """The common base of all tables.

    Raises (when made):
        UsageError: lists every wrong setting by its name, with value, reason and remedy.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def told(lines: list[str]) -> UsageError:
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
    return told(lines) if lines else error


def _lines(model: type[BaseModel], error: ErrorDetails) -> list[str]:
    name = ".".join(str(part) for part in error["loc"])
    if error["type"] == "value_error":
        return str(error["ctx"]["error"]).splitlines()
    if error["type"] == "extra_forbidden":
        return [f"{name}={error['input']!r}: unknown setting; {_nearest(model, error['loc'], error['input'])}"]
    return [f"{name}={error['input']!r}: {error['msg'][0].lower()}{error['msg'][1:]}"]


def _names_inside(model: type[BaseModel]) -> Iterator[str]:
    """Yield the dotted names of what the tables of this table have, Kafka's properties included."""
    for name, field in model.model_fields.items():
        inner: Any = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from (f"{name}.{each}" for each in inner.model_fields)
        elif name == "kafka":
            yield from (f"kafka.{each}" for each in PROPERTIES)


def _nearest(model: type[BaseModel], location: tuple[int | str, ...], value: object) -> str:
    for part in location[:-1]:
        inner = model.model_fields[str(part)].annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            model = inner
    path = [str(part) for part in location]
    group, dot, rest = path[-1].partition(".")
    if dot and group in model.model_fields:
        return f"in Python a table is a dict: `{group}={{{rest!r}: {value!r}}}`; `load_settings` takes dotted names"
    if len(path) == 1:
        inside = {name.replace(".", "_"): name for name in _names_inside(model)}
        found = difflib.get_close_matches(path[0], inside, n=1, cutoff=0.85)
        if found:
            meant = inside[found[0]]
            return f"did you mean {meant}, in the environment {environment_name(meant)}?"
    near = difflib.get_close_matches(path[-1], model.model_fields, n=1)
    if near:
        return f"did you mean {'.'.join([*path[:-1], near[0]])}?"
    return f"there are {', '.join(sorted(model.model_fields))}"
