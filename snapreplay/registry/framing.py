"""Confluent's wire format: a zero byte, four bytes of the id of a schema, and a value that the schema describes."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from snapreplay.app.codecs import Codec
from snapreplay.errors import UsageError

if TYPE_CHECKING:
    from snapreplay.registry.client import Client

_PREFIX = struct.Struct(">BI")
PREFIX_BYTES = _PREFIX.size
REFUSED_SECONDS = 5.0
"""How long a schema that a registry lacks is not asked for again, so that a flood of such records costs little."""

REFUSED_MAX = 1000
"""Of refused schemas: damaged records may name a new one each."""

_CODECS = {"AVRO": "registry.avro(…)", "JSON": "registry.json(…)", "PROTOBUF": "registry.protobuf(…)"}

Decode = Callable[[bytes], Any]
Encode = Callable[[Any], bytes]


class Registered(NamedTuple):
    """A schema as a registry has it. `references` are the schemas that it names; `name`: under which another schema
    names this one."""

    kind: str
    text: str
    references: tuple[Registered, ...] = ()
    name: str = ""


class AbsentSchema(Exception):
    """The registry answers that it has no such schema."""


class Format(Protocol):
    """A format that a registry has schemas of, for one type of values.

    Attributes:
        kind: as a registry names it: "AVRO".
        name: of the codec, "registry.avro(Order)".
        schema: to write by; None: none was given, and `why_no_schema` says why none is made of the type.
    """

    kind: str
    name: str
    schema: Registered | None
    why_no_schema: str

    def reader(self, schema: Registered) -> Decode:
        """Return what decodes a record behind its prefix. Raises ValueError: the schema cannot be used."""

    def writer(self, schema: Registered) -> Encode:
        """Return what encodes a value. Raises ValueError: the schema cannot be used."""

    def full_name(self, schema: Registered) -> str:
        """Return the name that the schema gives to the type."""


def codec_of(registry: Client, form: Format, subject: str | None, version: int | None) -> Codec[Any]:
    """Return the codec of a format; a topic makes its own of it, see `TopicSchemas.of_topic`."""
    reader = _Reader(registry, form)
    schemas = TopicSchemas(registry, form, reader, subject, version)
    return Codec(form.name, reader.decode, schemas.encode, schemas=schemas)


def text_of(schema: str | Path | None) -> str | None:
    if isinstance(schema, Path):
        try:
            return schema.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UsageError(f"the schema {schema} cannot be read: {error}") from error
    return schema


class _Reader:
    """Decodes records, each by the schema that it names."""

    def __init__(self, registry: Client, form: Format) -> None:
        self._registry, self._form = registry, form
        self._decoders: dict[int, Decode] = {}
        self._refused: dict[int, tuple[str, float]] = {}

    def decode(self, data: bytes) -> Any:
        if len(data) < PREFIX_BYTES or data[0]:
            raise ValueError(_unlike(data))
        decode = self._decoders.get(schema_id := _PREFIX.unpack_from(data)[1])
        if decode is None:
            decode = self._met(schema_id)
        return decode(data)

    def unknown(self, data: bytes) -> int | None:
        """Return the id of the schema that these bytes need, unless it is known."""
        if len(data) < PREFIX_BYTES or data[0]:
            return None
        schema_id: int = _PREFIX.unpack_from(data)[1]
        if schema_id in self._decoders:
            return None
        _, asked_at = self._refused.get(schema_id, ("", -REFUSED_SECONDS))
        return schema_id if time.monotonic() >= asked_at + REFUSED_SECONDS else None

    def fetch(self, schema_id: int, since_s: float | None = None) -> None:
        """Learn to read by this schema. An unusable schema is refused until it is fetched again."""
        try:
            met_s = time.monotonic() if since_s is None else since_s
            schema = self._registry.schema(schema_id, met_s if schema_id not in self._refused else -math.inf)
        except AbsentSchema as error:
            self._refuse(schema_id, f"{self._registry.shown_url} has no schema with id {schema_id}: {error}")
            return
        if schema.kind != self._form.kind:
            way = _CODECS.get(schema.kind, "another codec")
            self._refuse(schema_id, f"schema {schema_id} is for {schema.kind}: declare {way}")
            return
        try:
            self._decoders[schema_id] = self._form.reader(schema)
            self._refused.pop(schema_id, None)
        except ValueError as error:
            self._refuse(schema_id, f"schema {schema_id} cannot be used: {error}")

    def _met(self, schema_id: int) -> Decode:
        """Return the decoder of a schema that nothing has fetched before the record was met: outside of a service."""
        if schema_id not in self._refused:
            self.fetch(schema_id)
        if schema_id in self._refused:
            raise ValueError(self._refused[schema_id][0])
        return self._decoders[schema_id]

    def _refuse(self, schema_id: int, why: str) -> None:
        self._refused[schema_id] = why, time.monotonic()
        while len(self._refused) > REFUSED_MAX:
            del self._refused[next(iter(self._refused))]


class TopicSchemas:
    """The schemas of the keys, or of the values, of one topic. What fetches blocks, and raises RegistryUnavailable."""

    def __init__(
        self,
        registry: Client,
        form: Format,
        reader: _Reader,
        subject: str | None,
        version: int | None,
        place: tuple[str, str] = ("", ""),
    ) -> None:
        """Take `place`: the topic, and "key" or "value"."""
        self._registry, self._form, self._reader = registry, form, reader
        self._given, self._version, self._place = subject, version, place
        self._writing: _Writing | None = None
        self._is_rehearsed = False
        self.unknown, self.fetch = reader.unknown, reader.fetch

    @property
    def registry_url(self) -> str:
        """The address of the registry, without credentials."""
        return self._registry.shown_url

    def of_topic(self, codec: Codec[Any], topic: str, side: str) -> Codec[Any]:
        """Return the codec as it is for one topic; `side`: "key" or "value"."""
        own = TopicSchemas(self._registry, self._form, self._reader, self._given, self._version, (topic, side))
        return replace(codec, encode=own.encode, schemas=own)

    def encode(self, value: Any) -> bytes:
        if self._writing is None:
            self.prepare()
        writing = self._writing
        return writing.prefix + writing.encode(value)  # type: ignore[union-attr] # `prepare` has set it, or raised

    def prepare(self) -> None:
        """Fetch what writing needs. Raises UsageError: nothing can be written by this codec."""
        if self._writing is not None and not self._is_rehearsed:
            return
        registry, subject = self._registry, self._subject()
        try:
            if self._version is not None:
                self._write_by(*registry.version(subject, self._version))
            elif registry.auto_register:
                self._write_by(registry.register(subject, self._own()), self._own())
            else:
                self._write_by(registry.id_of(subject, self._own()), self._own())
        except AbsentSchema as error:
            raise self._not_registered(subject, error) from error
        self._is_rehearsed = False

    def check(self) -> str:
        """Say in a line whether the registry takes what this codec writes. Raises UsageError: it does not."""
        self.prepare()
        done = "registered" if self._registry.auto_register and self._version is None else "has"
        return f"ok {self._registry.shown_url} {done} the schema of subject {self._subject()}"

    def rehearse(self) -> None:
        """Write without a registry until `prepare` is called, so that a test needs none."""
        if self._writing is None and self._form.schema is not None:
            self._write_by(self._registry.rehearsed(self._form.schema), self._form.schema)
            self._is_rehearsed = True

    def _write_by(self, schema_id: int, schema: Registered) -> None:
        try:
            encode = self._form.writer(schema)
        except ValueError as error:
            raise UsageError(f"{self._form.name}: schema {schema_id} cannot be written by: {error}") from error
        self._writing = _Writing(_PREFIX.pack(0, schema_id), encode)

    def _own(self) -> Registered:
        if self._form.schema is None:
            raise UsageError(
                f"{self._form.name} has no schema to write by: {self._form.why_no_schema}",
                hint='give one: `schema=Path("order.avsc")`, or a registered one: `version=3`',
            )
        return self._form.schema

    def _subject(self) -> str:
        topic, side = self._place
        if self._given is not None:
            return self._given
        if not topic:
            raise UsageError(f"{self._form.name} writes for a topic", hint="give it to a Topic, or name its subject=")
        if self._registry.subjects == "topic":
            return f"{topic}-{side}"
        name = self._form.full_name(self._own())
        return name if self._registry.subjects == "record" else f"{topic}-{name}"

    def _not_registered(self, subject: str, cause: AbsentSchema) -> UsageError:
        where = f"{self._registry.shown_url}, subject {subject}"
        if self._version is not None:
            return UsageError(f"{where} has no version {self._version}: {cause}")
        if self._registry.is_compatible(subject, self._own()):
            return UsageError(
                f"{where} has no version with the schema of {self._form.name}, but would take it",
                hint="register it; while developing, `SchemaRegistry(…, auto_register=True)` does",
            )
        return UsageError(
            f"{where}: the schema of {self._form.name} is not compatible with what is registered",
            hint="change it as the subject's compatibility allows, or write by a registered one: `version=3`",
        )


class _Writing(NamedTuple):
    prefix: bytes
    encode: Encode


def _unlike(data: bytes) -> str:
    if data[:1] == b"\0" or not data:
        return f"it ends inside the prefix of a schema registry: it has {len(data)} of {PREFIX_BYTES} bytes"
    return "it does not begin with the prefix of a schema registry: a zero, and four bytes of the schema's id"
