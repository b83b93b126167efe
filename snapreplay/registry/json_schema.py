"""JSON with a JSON Schema: values are read as `json(type)` reads them, and written as the schema wants them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from snapreplay.app.codecs import Codec, json
from snapreplay.errors import UsageError
from snapreplay.registry.framing import PREFIX_BYTES, Decode, Encode, Registered


class JsonFormat:
    """JSON for one type. Has the attributes and methods of `framing.Format`."""

    kind = "JSON"

    def __init__(self, type_: Any, schema: str | None) -> None:
        """Take the schema to write with; None: made from the type. Raises UsageError: as `json`, or it is not a
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
                raise UsageError(f"{self.name}: schema={schema[:80]!r} is not a JSON Schema: {error}") from error
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
    import jsonschema  # noqa: PLC0415 - slow to import, and only a schema needs it
    import referencing  # noqa: PLC0415 - slow to import, and only a schema needs it
    from referencing.jsonschema import DRAFT7  # noqa: PLC0415 - slow to import, and only a schema needs it

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
