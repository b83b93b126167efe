"""Asks a schema registry, by Confluent's client. Everything here blocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import unquote, urlsplit
from zlib import crc32

from snapreplay.errors import RegistryUnavailable, UsageError, described
from snapreplay.registry.framing import AbsentSchema, Registered

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

T = TypeVar("T")

Subjects = Literal["topic", "record", "topic-record"]

TIMEOUT_SECONDS = 5.0
ABSENT_SECONDS = 2.0
"""How long a schema is asked for again that a registry does not know: a follower of the registry's leader may lag."""
_ABSENT = {40401, 40402, 40403}  # no such subject, version, schema
_LOCAL_FROM = 1 << 31
"""Ids of schemas that no registry has: registries number from 1 in a Java int."""


class Client:
    """A schema registry; its answers are kept for the life of the process.

    Attributes:
        shown_url: without user and password.
        subjects: how the subjects of what is written are named.
        auto_register: whether schemas of outputs are registered.
    """

    def __init__(self, url: str, config: Mapping[str, object], subjects: Subjects, *, auto_register: bool) -> None:
        self.subjects, self.auto_register = subjects, auto_register
        if subjects not in ("topic", "record", "topic-record"):
            raise UsageError(f"{subjects!r} names no subjects", hint='use "topic", "record" or "topic-record"')
        self.shown_url = ",".join(map(_without_credentials, url.split(",")))
        try:
            given = {"timeout": TIMEOUT_SECONDS, "max.retries": 0, **_credentials(url), **config}
        except ValueError as error:
            raise UsageError(f"schema registry {self.shown_url}: {error}") from error
        self._config = {**given, "url": self.shown_url}  # the client's library logs each address that it asks
        self._schemas: dict[int, Registered] = {}
        self._opened().close()

    def schema(self, schema_id: int, met_s: float) -> Registered:
        """Return the schema with this id, or raise AbsentSchema `ABSENT_SECONDS` after `met_s`, when a record with this
        id was met, by `time.monotonic`."""
        known = self._schemas.get(schema_id)
        if known is None:
            if schema_id >= _LOCAL_FROM:
                raise AbsentSchema
            while known is None:
                try:
                    known = self._asked(
                        f"schema {schema_id}", lambda client: _resolved(client, client.get_schema(schema_id))
                    )
                except AbsentSchema:
                    if time.monotonic() >= met_s + ABSENT_SECONDS:
                        raise
                    time.sleep(ABSENT_SECONDS / 4)  # in a thread of its own: the loop continues
            self._schemas[schema_id] = known
        return known

    def id_of(self, subject: str, schema: Registered) -> int:
        """Return the id under which a subject has this schema. Raises AbsentSchema."""
        what = f"the id of subject {subject}"
        return self._asked(what, lambda client: _id_in(client.lookup_schema(subject, _sent(schema)).schema_id))

    def version(self, subject: str, version: int) -> tuple[int, Registered]:
        """Return the id and the schema of a version of a subject. Raises AbsentSchema."""

        def fetched(client: SchemaRegistryClient) -> tuple[int, Registered]:
            found = client.get_version(subject, version)
            return _id_in(found.schema_id), _resolved(client, found.schema)

        return self._asked(f"version {version} of subject {subject}", fetched)

    def register(self, subject: str, schema: Registered) -> int:
        """Register the schema, unless the subject has it. Returns its id. Raises UsageError: it is not compatible."""
        what = f"the registration of subject {subject}"
        return self._asked(what, lambda client: _id_in(client.register_schema(subject, _sent(schema))))

    def is_compatible(self, subject: str, schema: Registered) -> bool:
        """Say whether the subject takes this schema as its next version; a new subject takes any."""
        what = f"the compatibility of subject {subject}"
        try:
            return self._asked(what, lambda client: client.test_compatibility(subject, _sent(schema)))
        except AbsentSchema:
            return True

    def rehearsed(self, schema: Registered) -> int:
        """Return an id for a schema that no registry has, the same in every process."""
        schema_id = _LOCAL_FROM | crc32(f"{schema.kind} {schema.text}".encode())
        self._schemas[schema_id] = schema
        return schema_id

    def _opened(self) -> SchemaRegistryClient:
        """Return a client for one question: there are few, and an idle connection may be dead by the next one."""
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise UsageError(
                f"a schema registry needs packages that are not installed: {error}",
                hint="`pip install 'snapreplay[registry]'`",
            ) from error
        try:
            return SchemaRegistryClient(self._config)
        except (TypeError, ValueError, OSError) as error:
            raise UsageError(f"schema registry {self.shown_url}: {error}") from error

    def _asked(self, what: str, ask: Callable[[SchemaRegistryClient], T]) -> T:
        from confluent_kafka.schema_registry import SchemaRegistryError  # noqa: PLC0415 - an extra

        try:
            with self._opened() as client:
                return ask(client)
        except SchemaRegistryError as error:
            status, code, said = error.http_status_code, error.error_code, str(error.error_message)[:300]
            if code in _ABSENT:
                raise AbsentSchema(said) from error
            if status in (409, 422):
                raise UsageError(f"{self.shown_url} refuses {what}: {said}") from error
            raise self._unavailable(what, f"it answers {status}: {said}", _hint(status)) from error
        except Exception as error:  # the client and its libraries document no base class
            raise self._unavailable(what, described(error), "is the address that of a schema registry?") from error

    def _unavailable(self, what: str, why: str, hint: str) -> RegistryUnavailable:
        return RegistryUnavailable(
            f"waiting for {what} of the schema registry {self.shown_url}: {why}", hint=hint, url=self.shown_url
        )


def _resolved(
    client: SchemaRegistryClient, found: Schema, name: str = "", above: frozenset[tuple[object, object]] = frozenset()
) -> Registered:
    """Fetch the references, too. Any error here is the fault of the registry's answer."""
    if not isinstance(found.schema_str, str):
        raise TypeError("the answer has no schema")
    references = []
    for each in found.references or ():
        place = (each.subject, each.version)
        if place in above:
            raise ValueError(f"subject {each.subject} refers to itself")
        referred = client.get_version(str(each.subject), each.version or "latest")
        references.append(_resolved(client, referred.schema, each.name or "", above | {place}))
    return Registered(found.schema_type or "AVRO", found.schema_str, tuple(references), name)


def _hint(status: int) -> str:
    if status in (401, 403):
        return 'give the registry\'s credentials: `SchemaRegistry(url, {"basic.auth.user.info": "USER:PASSWORD"})`'
    if status == 404:
        return "is it the address of its API? Apicurio's ends in /apis/ccompat/v7"
    return "nothing is skipped; processing resumes once the registry answers"


def _id_in(found: object) -> int:
    if type(found) is not int:
        raise TypeError("the answer has no id")
    return found


def _sent(schema: Registered) -> Any:
    from confluent_kafka.schema_registry import Schema  # noqa: PLC0415 - an extra

    return Schema(schema.text, schema.kind)


def _credentials(url: str) -> dict[str, str]:
    """Return user and password of the first address that has them, as the client's configuration."""
    for parts in map(urlsplit, url.split(",")):
        if parts.username is not None:
            return {"basic.auth.user.info": f"{unquote(parts.username)}:{unquote(parts.password or '')}"}
    return {}


def _without_credentials(url: str) -> str:
    scheme, slashes, rest = url.strip().rpartition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{authority.rpartition('@')[2]}{slash}{path}"
