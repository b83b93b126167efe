"""Avro in Confluent's wire format, with a registry that is scripted, and the schemas that are made of types."""

import enum
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from snapreplay import App, MapState, RegistryUnavailable, SchemaRegistry, Topic, UsageError, avro, nullable
from snapreplay import json as plain_json
from snapreplay.registry.avro import NoSchema, schema_of
from snapreplay.testing import ErrorPolicy, Harness
from tests.support.wire import refusing


class Kind(enum.Enum):
    NEW = "new"
    PAID = "paid"


class Item(msgspec.Struct):
    sku: str
    count: int = 1


class Order(msgspec.Struct):
    id: str
    at: datetime
    items: list[Item]
    kind: Kind = Kind.NEW
    note: str | None = None
    first: Item | None = None
    tags: dict[str, str] = {}
    number: UUID | None = None
    day: date | None = None
    rate: float | None = 1.5


ORDER = Order("a", datetime(2026, 1, 2, 3, tzinfo=UTC), [Item("x"), Item("y", 2)], Kind.PAID, number=UUID(int=7))


class Later(msgspec.Struct):
    """A reader of another version: without most fields, and with one more."""

    id: str
    priority: int = 3


@dataclass
class AsDataclass:
    id: str
    priority: int = 3


class AsModel(pydantic.BaseModel):
    id: str
    priority: int = 3


@pytest.fixture
def closed_port() -> Iterator[int]:
    with refusing() as port:
        yield port


def value_of(registry: SchemaRegistry, type_: Any = Any, **more: Any) -> Any:
    return Topic("orders", value=registry.avro(type_, **more)).value


def test_a_value_is_written_with_its_id_and_read_back(registry, scripted):
    """The schema is asked for once; another process reads by the id."""
    value = value_of(registry, Order)
    data = value.encode(ORDER)
    assert data[:5] == b"\0\0\0\0\1"
    assert [value.decode(data) for _ in range(3)] == [ORDER] * 3
    assert list(scripted.subjects) == ["orders-value"]
    other = value_of(SchemaRegistry(scripted.url), Order)
    before = len(scripted.asked)
    assert other.decode(data) == other.decode(data) == ORDER
    assert scripted.asked[before:] == ["/schemas/ids/1"]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: data[:3], "it has 3 of 5 bytes"),
        (lambda data: data[:-1], "end inside the value"),
        (lambda data: data + b"x", "1 byte follows the value"),
        (lambda data: data + b"xy", "2 bytes follow the value"),
        (lambda _: b'{"id": "a"}', "does not begin with the prefix"),
        (lambda _: b"", "it has 0 of 5 bytes"),
    ],
)
def test_damaged_bytes(registry, damage, words):
    value = value_of(registry, Later)
    with pytest.raises(ValueError, match=words):
        value.decode(damage(value.encode(Later("a", 4))))


def test_keys_and_nulls(registry, scripted):
    topic = Topic("orders", key=registry.avro(str), value=nullable(registry.avro(Order)))
    assert topic.key.decode(topic.key.encode("k")) == "k"
    assert topic.value.schemas is not None
    topic.value.schemas.prepare()
    assert sorted(scripted.subjects) == ["orders-key", "orders-value"]
    app: App[Any] = App("nulls", inputs=[topic], state=lambda: MapState(str, bool))

    @app.handler(topic)
    def on_order(one: Any, state: Any, out: Any) -> None:
        state[one.key] = one.value is None

    harness = Harness(app)
    harness.feed(topic, key="a", value=ORDER)
    harness.feed(topic, key="b", value=None)
    assert dict(harness.state) == {"a": False, "b": True}


LATER_SCHEMA = json.dumps(schema_of(Later))


@pytest.mark.parametrize(("type_", "schema"), [(Later, None), (AsDataclass, None), (AsModel, LATER_SCHEMA)])
def test_a_reader_of_another_version_takes_what_it_has(registry, type_, schema):
    """Fields that the type lacks are left out, and those that the record lacks take its defaults."""
    data = value_of(registry, Order).encode(ORDER)
    read = value_of(registry, type_, subject="later", schema=schema)
    assert value_of(registry, type_).decode(data) == type_(id="a", priority=3)
    assert read.decode(read.encode(type_(id="b", priority=4))) == type_(id="b", priority=4)


def test_a_reader_schema_brings_its_defaults_and_aliases(registry, scripted, tmp_path):
    written = value_of(registry, Later).encode(Later("a", 4))
    path = tmp_path / "order.avsc"
    fields = [{"name": "name", "aliases": ["id"], "type": "string"}, {"name": "size", "type": "int", "default": 9}]
    path.write_text(json.dumps({"type": "record", "name": "Later", "fields": fields}))
    assert value_of(registry, dict, schema=path).decode(written) == {"name": "a", "size": 9}


def test_what_the_writer_would_change_silently_is_refused(registry):
    """fastavro makes 5 of 5.7, True of "no", and reads a naive datetime by the machine's zone."""
    fields = [
        {"name": "n", "type": "int"},
        {"name": "b", "type": "boolean"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
    ]
    value = value_of(registry, schema=json.dumps({"type": "record", "name": "R", "fields": fields}))
    east = timezone(timedelta(hours=2))
    good = {"n": 1, "b": True, "at": datetime(2026, 1, 1, 2, tzinfo=east), "price": Decimal("1.5")}
    assert value.decode(value.encode(good)) == {**good, "at": datetime(2026, 1, 1, tzinfo=UTC)}
    for bad in (
        {"n": 5.7},
        {"n": 1 << 40},
        {"n": True},
        {"b": "no"},
        {"at": ORDER.at.replace(tzinfo=None)},
        {"more": 1},
    ):
        with pytest.raises(ValueError):  # noqa: PT011 - worded by fastavro, or by us
            value.encode({**good, **bad})
    with pytest.raises(ValueError, match="cale"):
        value.encode({**good, "price": Decimal("1.555")})


def test_references_are_resolved(registry, scripted):
    """A schema names a type of another subject, which names one, too."""
    scripted.add(
        {"type": "record", "name": "City", "namespace": "geo", "fields": [{"name": "n", "type": "string"}]}, "c"
    )
    home = {"type": "record", "name": "Home", "namespace": "geo", "fields": [{"name": "city", "type": "geo.City"}]}
    scripted.add(home, "h", references=[{"name": "geo.City", "subject": "c", "version": 1}])
    person = {"type": "record", "name": "P", "fields": [{"name": "home", "type": "geo.Home"}]}
    number = scripted.add(person, "orders-value", references=[{"name": "geo.Home", "subject": "h", "version": 1}])
    value = value_of(registry, version=1)
    data = value.encode({"home": {"city": {"n": "Rome"}}})
    assert data == b"\0" + number.to_bytes(4) + b"\x08Rome"
    assert value.decode(data) == {"home": {"city": {"n": "Rome"}}}


@pytest.mark.parametrize(
    ("subjects", "found"), [("topic", "orders-value"), ("record", "Order"), ("topic-record", "orders-Order")]
)
def test_the_subject(scripted, subjects, found):
    value_of(SchemaRegistry(scripted.url, subjects=subjects, auto_register=True), Order).encode(ORDER)
    value_of(SchemaRegistry(scripted.url, auto_register=True), Order, subject="own").encode(ORDER)
    assert list(scripted.subjects) == [found, "own"]


def test_nothing_is_registered_unless_asked(scripted):
    """The error says whether the subject would take the schema."""
    topic = value_of(SchemaRegistry(scripted.url), Order)
    scripted.add(schema_of(Later), "orders-value")
    with pytest.raises(UsageError, match="would take it"):
        topic.encode(ORDER)
    scripted.compatible = False
    with pytest.raises(UsageError, match="not compatible"):
        topic.schemas.check()
    with pytest.raises(UsageError, match="the field amount is gone"):
        value_of(SchemaRegistry(scripted.url, auto_register=True), Order).schemas.check()
    scripted.add(schema_of(Order), "orders-value")
    assert topic.schemas.check() == f"ok {scripted.url} has the schema of subject orders-value"
    assert len(scripted.schemas) == 2


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (("{", "AVRO"), "cannot be used"),
        (('{"type": "record", "name": "R", "fields": [{"name": "x", "type": "Nowhere"}]}', "AVRO"), "Nowhere"),
        (("{}", "JSON"), r"is for JSON: declare registry\.json"),
        (('syntax = "proto3";', "PROTOBUF"), r"declare registry\.protobuf"),
    ],
)
def test_a_schema_that_cannot_be_used_is_the_records_fault(registry, scripted, schema, words):
    number = scripted.add(schema[0], kind=schema[1])
    with pytest.raises(ValueError, match=words):
        value_of(registry).decode(b"\0" + number.to_bytes(4) + b"\2")


def test_a_schema_that_comes_late_is_found(registry, scripted, monkeypatch):
    """A refusal lasts for seconds, not for ever."""
    monkeypatch.setattr("snapreplay.registry.client.ABSENT_SECONDS", 0.01)
    value, data = value_of(registry), b"\0\0\0\0\1\2a"
    with pytest.raises(ValueError, match="no schema with id 1"):
        value.decode(data)
    assert value.schemas.unknown(data) is None
    monkeypatch.setattr("snapreplay.registry.framing.REFUSED_SECONDS", 0.0)
    assert value.schemas.unknown(data) == 1
    scripted.add('"string"')
    value.schemas.fetch(1)
    assert value.decode(data) == "a"


class Node(msgspec.Struct):
    name: str
    next: "Node | None" = None


class Tree(msgspec.Struct):
    children: "dict[str, list[Tree]]"


LINKED = json.dumps({"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]})


@pytest.mark.parametrize("written", [{}, {"schema": LINKED}])
@pytest.mark.parametrize("without_registry", [True, False])
def test_a_type_that_contains_itself_is_refused_when_declared(registry, written, without_registry):
    """fastavro's reader crashes the process at some thousand levels."""
    codec = avro if without_registry else registry.avro
    words = f"^{'' if without_registry else 'registry.'}avro.Node.: the type Node contains itself"
    with pytest.raises(UsageError, match=words) as refused:
        codec(Node, **written)
    assert "store it flat" in refused.value.hint
    value = plain_json(Node)
    assert value.decode(value.encode(Node("a", Node("b")))) == Node("a", Node("b"))
    with pytest.raises(UsageError, match="the type Tree contains itself"):
        codec(list[Tree])


def test_records_whose_schema_contains_itself_are_refused(registry, scripted):
    schema_id = scripted.add(LINKED)
    with pytest.raises(ValueError, match=f"schema {schema_id} cannot be used: the type Node contains itself"):
        value_of(registry).decode(b"\0" + schema_id.to_bytes(4) + b"\2" * 1_000_000 + b"\0")
    with pytest.raises(UsageError, match=r"written_by=.* the type Node contains itself") as refused:
        avro(dict, schema='{"type": "map", "values": "string"}', written_by=LINKED)
    assert "store it flat" in refused.value.hint


def test_the_password_in_an_address_is_sent_and_never_shown(scripted, caplog):
    """The client's library logs each address that it asks."""
    scripted.add('"string"')
    caplog.set_level("DEBUG")
    url = scripted.url.replace("//", "//ada:s%40cret@")
    assert value_of(SchemaRegistry(url)).decode(b"\0\0\0\0\1\2a") == "a"
    assert scripted.headers[-1]["Authorization"] == "Basic YWRhOnNAY3JldA=="
    assert scripted.url in caplog.text
    assert "cret" not in caplog.text
    for wrong in ("ada:secret@registry:8081", "http://ada:secret@[::1"):
        with pytest.raises(UsageError) as caught:
            SchemaRegistry(wrong)
        assert "secret" not in str(caught.value)


def test_who_cannot_be_reached_is_named_without_the_password(scripted, closed_port):
    for url in (f"http://ada:secret@127.0.0.1:{closed_port}", scripted.url.replace("//", "//ada:secret@")):
        scripted.broken = (401, "{}")
        with pytest.raises(RegistryUnavailable) as caught:
            value_of(SchemaRegistry(url)).decode(b"\0\0\0\0\1\2a")
        assert "schema 1" in str(caught.value)
        assert "secret" not in str(caught.value)
        assert "127.0.0.1" in str(caught.value)


def test_credentials_are_sent(scripted):
    scripted.add('"string"')
    bearer = {
        "bearer.auth.credentials.source": "STATIC_TOKEN",
        "bearer.auth.token": "t0k3n",
        "bearer.auth.logical.cluster": "lsrc-1",
    }
    for config, sent in (({"basic.auth.user.info": "ada:secret"}, "Basic YWRhOnNlY3JldA=="), (bearer, "Bearer t0k3n")):
        assert value_of(SchemaRegistry(scripted.url, config)).decode(b"\0\0\0\0\1\2a") == "a"
        assert scripted.headers[-1]["Authorization"] == sent


def test_wrong_declarations(scripted):
    registry = SchemaRegistry(scripted.url)
    for wrong, words in (
        (lambda: SchemaRegistry("registry:8081"), "Invalid url"),
        (lambda: SchemaRegistry(scripted.url, {"nonsense": 1}), "nonsense"),
        (lambda: SchemaRegistry(scripted.url, subjects="all"), "'all'"),  # type: ignore[arg-type]
        (lambda: registry.avro(Order, schema="{}"), "no Avro schema"),
        (lambda: value_of(registry).encode({}), "no schema to write by"),
        (lambda: registry.avro(Order).encode(ORDER), "name its subject"),
    ):
        with pytest.raises(UsageError, match=words):
            wrong()


class Money(msgspec.Struct):
    amount: Decimal


class Tagged(msgspec.Struct, tag="t"):
    id: str


@pytest.mark.parametrize(
    ("type_", "words"),
    [(Money, "precision"), (Tagged, "tag"), (dict[int, str], "Dict"), (Any, "Any"), (AsModel, "Custom")],
)
def test_a_type_without_a_schema_says_why(type_, words):
    with pytest.raises(NoSchema, match=words):
        schema_of(type_)


def test_a_record_whose_schema_cannot_be_fetched_is_no_dead_letter(closed_port):
    """Also where nothing has fetched it before: the fold passes the error on."""
    orders = Topic("orders", value=SchemaRegistry(f"http://127.0.0.1:{closed_port}").avro(Order))
    app: App[Any] = App("unread", inputs=[orders], state=lambda: MapState(str, int))
    app.handler(orders)(lambda *_: None)
    harness = Harness(app, policy=ErrorPolicy.DEAD_LETTER)
    with pytest.raises(RegistryUnavailable, match="schema 5"):
        harness.feed_raw(orders, b"k", b"\0\0\0\0\5x")
    assert not harness.dead_letters
