"""Kafka's own commands, as hints print them. Pure."""

from __future__ import annotations


def alter(topic: str, config: str, servers: str = "HOST:PORT") -> str:
    """Return Kafka's own command that sets `name=value` on a topic."""
    return f"kafka-configs.sh --bootstrap-server {servers} --alter --topic {topic} --add-config {config}"
