"""A schema registry as an app declares it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack, overload

from snapreplay.app.codecs import Codec
from snapreplay.errors import UsageError
from snapreplay.registry.client import Client, Subjects
from snapreplay.registry.framing import codec_of, text_of

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
        from snapreplay.registry.json_schema import JsonFormat  # noqa: PLC0415 - the extra

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
