"""A schema registry as an app declares it, and its JSON: values are read as `json(type)` reads them, and written as the
schema wants them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack, overload

import msgspec

from snapreplay.app.codecs import Codec, json
from snapreplay.errors import UsageError
from snapreplay.registry.client import Client, Subjects
from snapreplay.registry.framing import PREFIX_BYTES, Decode, Encode, Registered, codec_of, text_of


class JsonFormat:
    """JSON for one type. Has the attributes and methods of `framing.Format`."""

    kind = "JSON"

    def __init__(self, type_: Any, schema: str | None) -> None:
        """Take the schema to write by; None: one is made of the type. Raises UsageError: as `json`, or it is no
        schema."""
        self._codec: Codec[Any] = json(type_)
        self.name = f"registry.{self._codec.name}"
        self.why_no_schema = "it is for any JSON"
        self.schema: Registered | None = None
        self._is_made = schema is None
        if schema is not None:
            self.schema = Registered(self.kind, schema)
            try:
                _validating(self.schema)
            except ValueError as error:
                raise UsageError(f"{self.name}: schema={schema[:80]!r} is no JSON Schema: {error}") from error
        elif type_ is not Any:
            self.schema = Registered(self.kind, _schema_of(type_))

    def full_name(self, schema: Registered) -> str:
        return str(msgspec.json.decode(schema.text).get("title", "") or self.name)

    def reader(self, _: Registered) -> Decode:
        decode = self._codec.decode
        return lambda data: decode(data[PREFIX_BYTES:])

    def writer(self, schema: Registered) -> Encode:
        encode = self._codec.encode
        # Where the schema is made of the type, reading the value back as the type is the same check, and takes less.
        check = self._codec.decode if self._is_made and schema == self.schema else _validating(schema)

        def encode_checked(value: Any) -> bytes:
            data = encode(value)
            check(data)
            return data

        return encode_checked


def _schema_of(type_: Any) -> str:
    if hasattr(type_, "model_json_schema"):  # Pydantic's
        return msgspec.json.encode(type_.model_json_schema(), order="deterministic").decode()
    (found,), parts = msgspec.json.schema_components([type_], ref_template="#/$defs/{name}")
    name = str(found.get("$ref", "")).rpartition("/")[2]
    whole = {"title": getattr(type_, "__name__", str(type_)), **parts.get(name, found), "$defs": parts}
    return msgspec.json.encode(whole, order="deterministic").decode()


def _validating(schema: Registered) -> Callable[[bytes], object]:
    """Return what raises ValueError for JSON that does not fit the schema. Raises ValueError: it is no schema."""
    import jsonschema  # noqa: PLC0415 - only those pay for it who give a schema
    import referencing  # noqa: PLC0415 - as above
    from referencing.jsonschema import DRAFT7  # noqa: PLC0415 - as above

    try:
        document = msgspec.json.decode(schema.text)
        known = [
            (each.name, referencing.Resource.from_contents(msgspec.json.decode(each.text), DRAFT7))
            for each in schema.references
        ]
        kind = jsonschema.validators.validator_for(document, default=jsonschema.Draft7Validator)
        kind.check_schema(document)
        validator = kind(document, registry=referencing.Registry().with_resources(known))
    except (msgspec.MsgspecError, jsonschema.SchemaError, TypeError, AttributeError) as error:
        raise ValueError(str(error).partition("\n")[0]) from error

    def validate(data: bytes) -> None:
        found = next(validator.iter_errors(msgspec.json.decode(data)), None)
        if found is not None:
            raise ValueError(f"{found.json_path}: {found.message}")

    return validate


T = TypeVar("T")


class _Options(TypedDict, total=False):
    """The options of a codec, for its overloads."""

    schema: str | Path | None
    subject: str | None
    version: int | None


class SchemaRegistry:
    """A schema registry: Confluent's, or one with the same API, such as Karapace and Apicurio (`/apis/ccompat/v7`).

    `Topic("orders", value=registry.avro(Order))` reads and writes Avro in Confluent's wire format. Each schema is
    fetched once per process, when a record first needs it, because schemas never change.
    """

    def __init__(
        self,
        url: str,
        config: Mapping[str, object] | None = None,
        *,
        subjects: Subjects = "topic",
        auto_register: bool = False,
    ) -> None:
        """Declare a registry.

        Args:
            url: of the registry, or several with commas.
            config: what else Confluent's Python client takes, by its names: "basic.auth.user.info",
                "bearer.auth.credentials.source", "ssl.ca.location", "proxy", "timeout" (seconds), ...
            subjects: how the subject of a written schema is named: "topic" (`orders-value`), "record" (the full name of
                the schema) or "topic-record" (`orders-shop.Order`), as Confluent's strategies do.
            auto_register: register the schemas of outputs; for development.

        Raises:
            UsageError: the extra is not installed, or the client refuses the configuration.
        """
        self._client = Client(url, config or {}, subjects, auto_register=auto_register)

    @overload
    def avro(self, type_: type[T], **options: Unpack[_Options]) -> Codec[T]: ...
    @overload
    def avro(self, type_: object = Any, **options: Unpack[_Options]) -> Codec[Any]: ...
    def avro(
        self,
        type_: Any = Any,
        *,
        schema: str | Path | None = None,
        subject: str | None = None,
        version: int | None = None,
    ) -> Codec[Any]:
        """Return a codec for Avro.

        A value is read with the schema with which it was written, and converted to `type_`. Values are written with
        the given schema, or with one made from the type.

        Args:
            type_: a msgspec Struct, dataclass, TypedDict or Pydantic model; Any: dict, list, str, ...
            schema: the Avro schema as JSON, or the path of a file. Values are then read through this schema, with its
                defaults and aliases.
            subject: the subject of the schema for writing; None: chosen by the registry's `subjects`.
            version: write with this version of the subject and its references, instead of `schema`.

        Raises:
            UsageError: the schema, or the type, cannot be used.
        """
        from snapreplay.registry.avro import AvroFormat  # noqa: PLC0415 - the extra

        return codec_of(self._client, AvroFormat(type_, text_of(schema)), subject, version)

    @overload
    def json(self, type_: type[T], **options: Unpack[_Options]) -> Codec[T]: ...
    @overload
    def json(self, type_: object = Any, **options: Unpack[_Options]) -> Codec[Any]: ...
    def json(
        self,
        type_: Any = Any,
        *,
        schema: str | Path | None = None,
        subject: str | None = None,
        version: int | None = None,
    ) -> Codec[Any]:
        """Return a codec for JSON with a JSON Schema.

        A value is read as `json(type_)` reads it. A value that does not fit the schema is not written.

        Args:
            schema: JSON Schema, or the path of a file; None: made from the type.
            subject, version: as in `avro`.

        Raises:
            UsageError: as `avro`.
        """
        from snapreplay.registry.registry import JsonFormat  # noqa: PLC0415 - the extra

        return codec_of(self._client, JsonFormat(type_, text_of(schema)), subject, version)

    def protobuf(
        self,
        type_: type[T],
        *,
        schema: str | Path | None = None,
        subject: str | None = None,
        version: int | None = None,
    ) -> Codec[T]:
        """Return a codec for a class that `protoc` has generated.

        Fields that the class does not know are kept. A record of another message of the file is refused.

        Args:
            schema: the registered .proto file, as text or as a path; None: the class's own file.
            subject, version: as in `avro`. A file that imports others needs the version.

        Raises:
            UsageError: it is no such class.
        """
        from snapreplay.registry.protobuf import ProtobufFormat  # noqa: PLC0415 - the extra

        return codec_of(self._client, ProtobufFormat(type_, text_of(schema)), subject, version)

    def __repr__(self) -> str:
        return f"SchemaRegistry({self._client.shown_url!r})"


@overload
def avro(type_: type[T], /, *, schema: str | Path | None = None, written_by: str | Path | None = None) -> Codec[T]: ...
@overload
def avro(
    type_: object = Any, /, *, schema: str | Path | None = None, written_by: str | Path | None = None
) -> Codec[Any]: ...
def avro(type_: Any = Any, /, *, schema: str | Path | None = None, written_by: str | Path | None = None) -> Codec[Any]:
    """Return a codec for Avro without a registry, for a topic whose records all have one schema. Values are converted
    as in `SchemaRegistry.avro`.

    Args:
        schema: the Avro schema as JSON, or the path of a file; None: made from the type.
        written_by: the schema with which the records were written, if it is another one.

    Raises:
        UsageError: a schema, or the type, cannot be used.
    """
    try:
        from snapreplay.registry.avro import codec_without_registry  # noqa: PLC0415 - the extra
    except ImportError as error:
        raise UsageError(f"Avro needs a package: {error}", hint="`pip install 'snapreplay[registry]'`") from error
    return codec_without_registry(type_, schema, written_by)
