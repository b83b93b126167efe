"""A real registry: what it answers, what Confluent's own serializers read and write, and an app that is killed."""

import importlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from snapreplay import SchemaRegistry, Topic, UsageError
from snapreplay.registry.avro import schema_of
from snapreplay.testing import RealHarness, record
from tests.snapreplay.registry import test_avro, test_formats
from tests.support import registry_app
from tests.support.apicurio import apicurio
from tests.support.deadlines import scaled
from tests.support.registry_app import Order

pytestmark = pytest.mark.whole

CONTEXT = SerializationContext("theirs", MessageField.VALUE)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with apicurio(tmp_path_factory.mktemp("apicurio") / "log") as started:
        yield started


@pytest.fixture
def theirs(url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": url}) as client:
        yield client


def value_of(codec: Any, topic: str = "theirs") -> Any:
    return Topic(topic, value=codec).value


CODECS = {
    "avro": (lambda registry: registry.avro(test_avro.Order), test_avro.ORDER),
    "json": (lambda registry: registry.json(test_formats.Order), test_formats.ORDER),
    "protobuf": (
        lambda registry: registry.protobuf(test_formats.PB["Order"]),
        test_formats.PB["Order"](id="a", cents=5),
    ),
    "nested": (
        lambda registry: registry.protobuf(test_formats.PB["Order.Note"]),
        test_formats.PB["Order.Note"](text="n"),
    ),
}


@pytest.mark.parametrize("name", CODECS)
def test_registered_found_and_read_by_another_process(url, name):
    """Each registry object knows nothing of the other's answers."""
    make, value = CODECS[name]
    with pytest.raises(UsageError, match="has no version with the schema"):
        value_of(make(SchemaRegistry(url)), name).encode(value)
    data = value_of(make(SchemaRegistry(url, auto_register=True)), name).encode(value)
    other = value_of(make(SchemaRegistry(url)), name)
    assert other.decode(data) == value
    assert other.encode(value) == data
    assert other.schemas.check().startswith("ok ")


def test_confluents_avro_is_ours(url, theirs):
    """Byte for byte, both ways."""
    schema = json.dumps(schema_of(Order))
    value, plain = Order("a", "ada", 5), {"id": "a", "customer": "ada", "cents": 5}
    data = AvroSerializer(theirs, schema)(plain, CONTEXT)
    ours = value_of(SchemaRegistry(url).avro(Order))
    assert ours.decode(data) == value
    assert ours.encode(value) == data
    assert AvroDeserializer(theirs, schema)(data, CONTEXT) == plain


def test_confluents_protobuf_is_ours(url, theirs):
    order, conf = test_formats.PB["Order"], {"use.deprecated.format": False}
    context = SerializationContext("theirs-pb", MessageField.VALUE)
    data = ProtobufSerializer(order, theirs, conf)(order(id="a", cents=5), context)
    ours = value_of(SchemaRegistry(url).protobuf(order), "theirs-pb")
    assert ours.decode(data) == order(id="a", cents=5)
    assert ours.encode(order(id="a", cents=5)) == data
    assert ProtobufDeserializer(order, conf)(data, context) == order(id="a", cents=5)


def test_compatibility_and_references(url, theirs):
    """A subject that is checked refuses another type of a field; a reference is resolved."""
    city = {"type": "record", "name": "City", "namespace": "geo", "fields": [{"name": "n", "type": "string"}]}
    home = {"type": "record", "name": "Home", "namespace": "geo", "fields": [{"name": "city", "type": "City"}]}
    theirs.register_schema("city", Schema(json.dumps(city), "AVRO"))
    references = [{"name": "geo.City", "subject": "city", "version": 1}]
    theirs.register_schema("home-value", Schema.from_dict({"schema": json.dumps(home), "references": references}))
    value = value_of(SchemaRegistry(url).avro(version=1), "home")
    assert value.decode(value.encode({"city": {"n": "Rome"}})) == {"city": {"n": "Rome"}}
    value_of(SchemaRegistry(url, auto_register=True).avro(Order), "checked").schemas.check()
    theirs.set_compatibility("checked-value", "BACKWARD")
    other = json.dumps(schema_of(Order)).replace('"long"', '"boolean"')
    with pytest.raises(UsageError, match="not compatible"):
        value_of(SchemaRegistry(url).avro(Order, schema=other), "checked").schemas.check()
    with pytest.raises(UsageError, match="checked-value"):
        value_of(SchemaRegistry(url, auto_register=True).avro(Order, schema=other), "checked").schemas.check()


@pytest.mark.parametrize("mode", ["changes", "replay"])
async def test_an_app_that_is_killed(url, broker, monkeypatch, mode):
    """Avro in, Avro out, killed between its orders: each counts once."""
    monkeypatch.setenv("REGISTRY_URL", url)
    program = importlib.reload(registry_app)
    options: Any = {"prefix": f"avro-{mode}-", "deadline_s": scaled(60), "settings": {"restore": {"mode": mode}}}
    made = [program.Order(f"o{number}", f"c{number % 3}", number) for number in range(12)]
    async with RealHarness(program.app, broker, **options) as harness:
        await harness.feed_all([record(program.orders, key=each.id, value=each) for each in made], kills=2)
        await harness.compare(program.added_up)
