"""The settings as they are used: each with its value, where it was given, and secrets masked. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from snapreplay.service.config.kafka_properties import PROPERTIES, TOKEN_PROVIDER, provider_shown
from snapreplay.service.config.settings import Settings
from snapreplay.service.config.table import Table, fields_of

MASKED = "***"
DEFAULT = "default"
BY_PROGRAM = "by the program"


class SettingShown(msgspec.Struct, frozen=True):
    """A setting as this process uses it."""

    name: Annotated[str, Meta(description="Dotted.", examples=["http.port"])]
    value: Annotated[bool | int | float | str, Meta(description="A secret is masked: `***`.")]
    origin: Annotated[
        str, Meta(description="Where it was given; or `default`.", examples=["in snapreplay.toml", DEFAULT])
    ]


def effective(settings: Settings) -> tuple[SettingShown, ...]:
    """List all settings, ordered by name. Kafka's properties are those that were given, and `bootstrap.servers`."""
    origins = settings.origins
    found = [
        SettingShown(name, value, origins.get(name, BY_PROGRAM) if is_given else DEFAULT)
        for name, value, is_given in _all(settings)
    ]
    return tuple(sorted(found, key=lambda each: each.name))


def _all(settings: Settings) -> Iterator[tuple[str, Any, bool]]:
    for name in fields_of(type(settings)):
        value = getattr(settings, name)
        if isinstance(value, Table):
            for inner in fields_of(type(value)):
                yield f"{name}.{inner}", getattr(value, inner), value.was_given(inner)
        elif name == "kafka":
            for inner, given in value.items():
                is_given = settings.was_given(name) and (f"kafka.{inner}" in settings.origins or not settings.origins)
                shown = provider_shown(given) if inner == TOKEN_PROVIDER else given
                yield f"kafka.{inner}", MASKED if PROPERTIES[inner].secret else shown, is_given
        else:
            yield name, value, settings.was_given(name)
