"""Kafka's own properties under `kafka.`: which there are, and which are ours."""

import inspect

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from hypothesis import given, settings
from hypothesis import strategies as st

from snapreplay.service.config.kafka_properties import (
    OWNED,
    PROPERTIES,
    PropertyRefused,
    contradictions,
    dotted,
    parse_property,
)

CLIENTS = {"consumer": AIOKafkaConsumer, "producer": AIOKafkaProducer}
NO_PROPERTIES = {"self", "topics", "loop", "api.version", "ssl.context", "consumer.timeout.ms"}


def names_of(client):
    return {dotted(name) for name in inspect.signature(client.__init__).parameters}


def test_every_property_of_the_clients_is_accepted_or_refused_with_a_reason():
    """A new argument of aiokafka must be decided on, not forgotten."""
    every = set().union(*(names_of(c) for c in (*CLIENTS.values(), AIOKafkaAdminClient)))
    files = {name for name, known in PROPERTIES.items() if known.client == "ssl"}
    assert every - NO_PROPERTIES == (set(PROPERTIES) - files) | set(OWNED)
    assert not set(PROPERTIES) & set(OWNED)


@pytest.mark.parametrize("name", [n for n, known in PROPERTIES.items() if known.client != "ssl"])
def test_a_property_goes_to_a_client_that_takes_it(name):
    """Common ones to all of them."""
    client = PROPERTIES[name].client
    for taker in CLIENTS.values() if client == "common" else [CLIENTS[client]]:
        assert name in names_of(taker)


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("ssl.truststore.location", "kafka.ssl.cafile"),
        ("ssl.ca.location", "kafka.ssl.cafile"),
        ("sasl.username", "kafka.sasl.plain.username"),
        ("bootstrap.serverss", "kafka.bootstrap.servers"),
        ("qqqqqqqq", "docs/settings.md"),
    ],
)
def test_an_unknown_property_comes_with_the_way_out(name, here):
    """Names of the Java client and of librdkafka are translated."""
    with pytest.raises(PropertyRefused, match=here):
        parse_property(name, "x")


@pytest.mark.parametrize(
    ("name", "given", "parsed"),
    [
        ("request.timeout.ms", "5000", 5000),
        ("request.timeout.ms", 5000, 5000),
        ("check.crcs", "False", False),
        ("check.crcs", True, True),
        ("bootstrap.servers", ["a:1", "b:2"], "a:1,b:2"),
        ("client.id", 7, "7"),
    ],
)
def test_values_become_what_the_client_wants(name, given, parsed):
    """From the environment everything is text."""
    value = parse_property(name, given)
    assert (value, type(value)) == (parsed, type(parsed))


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("request.timeout.ms", "5s"),
        ("request.timeout.ms", 5),
        ("request.timeout.ms", -5000),
        ("check.crcs", "perhaps"),
        ("security.protocol", "TLS"),
        ("bootstrap.servers", ""),
    ],
)
def test_a_value_of_the_wrong_kind_is_shown(name, given):
    """With what is expected instead."""
    with pytest.raises(PropertyRefused, match=repr(given)):
        parse_property(name, given)


@settings(max_examples=30)
@given(st.text(max_size=30), st.one_of(st.text(), st.integers(), st.booleans(), st.none()))
def test_anything_else_is_refused_and_never_an_error_of_another_kind(name, value):
    """Any content of a file ends in a message."""
    try:
        said = repr(parse_property(dotted(name), value))
    except PropertyRefused as refused:
        said = str(refused)
    assert said


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"ssl.cafile": "x"}, ["kafka.ssl.cafile"]),
        ({"sasl.plain.username": "x"}, ["kafka.sasl.plain.username"]),
        ({"security.protocol": "SASL_SSL"}, ["plain.username", "plain.password"]),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, []),
        ({"security.protocol": "SSL", "ssl.cafile": "x"}, []),
    ],
)
def test_properties_that_have_no_effect_or_lack_another_are_named(properties, named):
    """ssl.cafile without SSL is somebody who believes to be encrypted."""
    found = contradictions(properties)
    assert len(found) == len(named)
    assert all(name in line for name, line in zip(named, found, strict=True))
