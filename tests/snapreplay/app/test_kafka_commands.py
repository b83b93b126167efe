"""Kafka's own commands, as hints print them. Carried out: tests/hints."""

from snapreplay.app.kafka_commands import alter


def test_a_config_is_set_by_kafka_s_tool():
    """On the topic that is named, at the address that is known."""
    said = alter("balances", "max.message.bytes=7", "kafka:9092")
    assert said == (
        "kafka-configs.sh --bootstrap-server kafka:9092 --alter --topic balances --add-config"
        " max.message.bytes=7"
    )
