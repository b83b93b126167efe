"""JSON and Protobuf in Confluent's wire format."""

import json
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import snapreplay
from snapreplay import App, MapState, SchemaRegistry, Topic, UsageError, avro
from snapreplay.registry.avro import schema_of
from snapreplay.testing import Harness


class Item(msgspec.Struct):
    sku: str
    count: int = 1


class Order(msgspec.Struct):
    id: str
    at: datetime
    items: list[Item] = []


ORDER = Order("a", datetime(2026, 1, 2, tzinfo=UTC), [Item("x")])


def value_of(codec: Any) -> Any:
    return Topic("orders", value=codec).value


# --------------------------------------------------------------------- JSON


def test_json(registry, scripted):
    """The schema of a type is its own; the bytes behind the prefix are JSON."""
    value = value_of(registry.json(Order))
    data = value.encode(ORDER)
    assert data[:5] == b"\0\0\0\0\1"
    assert json.loads(data[5:]) == {"id": "a", "at": "2026-01-02T00:00:00Z", "items": [{"sku": "x", "count": 1}]}
    assert value.decode(data) == ORDER
    schema = json.loads(scripted.schemas[1]["schema"])
    assert (schema["title"], schema["required"], scripted.schemas[1]["schemaType"]) == ("Order", ["id", "at"], "JSON")
    with pytest.raises(msgspec.ValidationError):
        value.encode(Order(5, ORDER.at))  # type: ignore[arg-type]
    with pytest.raises(msgspec.ValidationError):
        value.decode(data[:5] + b'{"id": 5}')
    with pytest.raises(ValueError, match="hold a null"):
        value_of(registry.json()).decode(data[:5] + b"null")
    with pytest.raises(ValueError, match="prefix"):
        value.decode(b'{"id": "a"}')


def test_json_by_a_schema_that_was_given(registry):
    schema = {"type": "object", "title": "T", "properties": {"n": {"type": "integer", "minimum": 3}}, "required": ["n"]}
    value = value_of(registry.json(schema=json.dumps(schema)))
    assert value.decode(value.encode({"n": 4})) == {"n": 4}
    for bad, words in (({"n": 2}, r"\$\.n: 2 is less"), ({}, "'n' is a required")):
        with pytest.raises(ValueError, match=words):
            value.encode(bad)
    for wrong in ("{", '{"type": 5}', "[]"):
        with pytest.raises(UsageError, match="is not a JSON Schema"):
            registry.json(schema=wrong)
    with pytest.raises(UsageError, match="no schema to write by"):
        value_of(registry.json()).encode({})


def test_json_with_references(registry, scripted):
    item = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    scripted.add(item, "item", "JSON")
    order = json.dumps({"type": "object", "properties": {"item": {"$ref": "item.json"}}})
    scripted.add(order, "orders-value", "JSON", references=[{"name": "item.json", "subject": "item", "version": 1}])
    value = value_of(registry.json(version=1))
    assert value.encode({"item": {"n": 1}}) == b'\0\0\0\0\2{"item":{"n":1}}'
    with pytest.raises(ValueError, match="'n' is a required"):
        value.encode({"item": {}})


# --------------------------------------------------------------------- Protobuf

STRING, INT64, MESSAGE = 9, 3, 11


def _message(of: Any, name: str, *fields: tuple[str, int]) -> Any:
    found = of.add(name=name)
    for number, (field, kind) in enumerate(fields, 1):
        found.field.add(name=field, number=number, type=kind, label=1)
    return found


def _classes(file: str, *more: tuple[str, int], imports: tuple[str, ...] = ()) -> Any:
    proto = descriptor_pb2.FileDescriptorProto(name=file, package="shop", syntax="proto3", dependency=imports)
    _message(proto.message_type, "Other", ("id", STRING))
    order = _message(proto.message_type, "Order", ("id", STRING), ("cents", INT64), *more)
    _message(order.nested_type, "Line", ("sku", STRING))
    _message(order.nested_type, "Note", ("text", STRING))
    pool = descriptor_pool.DescriptorPool()
    for each in imports:
        pool.Add(descriptor_pb2.FileDescriptorProto(name=each, syntax="proto3"))
    pool.Add(proto)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))
        for name in ("Other", "Order", "Order.Line", "Order.Note")
    }


PB = _classes("shop.proto")
LATER = _classes("shop.proto", ("note", STRING))


@pytest.mark.parametrize(
    ("name", "indexes"), [("Other", b"\0"), ("Order", b"\2\2"), ("Order.Line", b"\4\2\0"), ("Order.Note", b"\4\2\2")]
)
def test_protobuf_with_its_message_indexes(registry, name, indexes):
    """The first message of a file has the short form, a nested one its whole path."""
    message, codec = PB[name](), registry.protobuf(PB[name])
    setattr(message, message.DESCRIPTOR.fields[0].name, "a")
    value = value_of(codec)
    data = value.encode(message)
    assert data == b"\0\0\0\0\1" + indexes + b"\n\1a"
    assert value.decode(data) == message
    assert value_of(registry.protobuf(PB["Other"])).decode(b"\0\0\0\0\1\2\0\n\1a") == PB["Other"](id="a"), (
        "the long form"
    )


def test_protobuf_keeps_unknown_fields(registry):
    data = value_of(registry.protobuf(LATER["Order"])).encode(LATER["Order"](id="a", cents=5, note="n"))
    read = value_of(registry.protobuf(PB["Order"])).decode(data)
    assert (read.id, read.cents) == ("a", 5)
    assert b"n" in read.SerializeToString()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\0\n\1a", r"message \[0\] of its file, and shop\.Order is \[1\]"),
        (b"\2\2\n\x7fa", "no shop.Order"),
        (b"\2", "inside the message indexes"),
        (b"", "inside the message indexes"),
        (b"\xfe\xff\xff\xff\x0f", "message indexes"),
    ],
)
def test_damaged_protobuf(registry, data, words):
    value = value_of(registry.protobuf(PB["Order"]))
    value.schemas.prepare()
    with pytest.raises(ValueError, match=words):
        value.decode(b"\0\0\0\0\1" + data)


def test_wrong_protobuf(registry):
    value = value_of(registry.protobuf(PB["Order"]))
    with pytest.raises(TypeError, match=r"expected shop\.Order"):
        value.encode(PB["Other"](id="a"))
    with pytest.raises(UsageError, match="no Protobuf message"):
        registry.protobuf(Order)
    importing = _classes("more.proto", imports=("other.proto",))["Order"]
    with pytest.raises(UsageError, match=r"imports other\.proto"):
        value_of(registry.protobuf(importing)).encode(importing(id="a"))


def test_a_harness_of_all_formats(registry):
    """Without a question to the registry."""
    quiet = SchemaRegistry("http://127.0.0.1:9")
    orders, lines = Topic("o", value=quiet.protobuf(PB["Order"])), Topic("l", value=quiet.json(Item))
    app: App[Any] = App("formats", inputs=[orders], outputs=[lines], state=lambda: MapState(str, int, default=int))

    @app.handler(orders)
    def on_order(one: Any, state: Any, out: Any) -> None:
        state[one.value.id] += one.value.cents
        out.send(lines, key=one.key, value=Item(one.value.id, state[one.value.id]))

    harness = Harness(app)
    for cents in (5, 7):
        harness.feed(orders, key="k", value=PB["Order"](id="a", cents=cents))
    assert [each.value for each in harness.outputs(lines)] == [Item("a", 5), Item("a", 12)]


# --------------------------------------------------------------------- without a registry


def test_avro_without_a_registry():
    """The bytes are those of the value alone; a reader's schema may be another one."""
    codec = avro(Item)
    assert codec.encode(Item("x", 2)) == b"\2x\4"
    assert codec.decode(b"\2x\4") == Item("x", 2)
    older = '{"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]}'
    assert avro(Item, schema=json.dumps(schema_of(Item)), written_by=older).decode(b"\2x") == Item("x", 1)
    with pytest.raises(ValueError, match="1 byte follows"):
        codec.decode(b"\2x\4\0")
    for wrong, words in (
        (avro, "Any"),
        (lambda: avro(Item, written_by="{}"), "written_by='{}' cannot be used"),
        (lambda: avro(Item, schema="{}"), "^avro.Item.: schema='{}' is no Avro schema"),
    ):
        with pytest.raises(UsageError, match=words):
            wrong()


def test_without_the_extra(monkeypatch):
    """All names can be imported, and the error says what to install."""
    for name in ("fastavro", "confluent_kafka", "confluent_kafka.schema_registry"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "snapreplay.registry.avro", raising=False)
    assert {"avro", "SchemaRegistry"} <= set(snapreplay.__all__)
    for make in (lambda: avro(Item), lambda: SchemaRegistry("http://127.0.0.1:9")):
        with pytest.raises(UsageError) as caught:
            make()
        assert "snapreplay[registry]" in caught.value.hint
