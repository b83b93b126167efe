"""Tests of what our clients look like."""

import inspect
import ssl
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient

from snapreplay.errors import UsageError
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.config import client_arguments, fetch_limits, membership_arguments

FULL = Settings(
    kafka={
        "bootstrap.servers": "a:1, b:2,c:3",
        "client.id": "mine",
        "fetch.max.wait.ms": 100,
        "compression.type": "zstd",
        "connections.max.idle.ms": 9000,
    },
    instance_id="one",
)


def accepted(client):
    return set(inspect.signature(client.__init__).parameters)


@pytest.mark.parametrize(
    ("client", "arguments"),
    [(AIOKafkaConsumer, membership_arguments(FULL, "app")), (AIOKafkaAdminClient, client_arguments(FULL))],
)
def test_every_argument_is_one_that_the_client_takes(client, arguments):
    """A renamed argument of aiokafka shows here, not at a customer's."""
    assert set(arguments) <= accepted(client)
    assert arguments["client_id"] == "mine"
    assert arguments["connections_max_idle_ms"] == 9000


def test_exactly_once_does_not_depend_on_settings():
    """Isolation is ours."""
    limits = fetch_limits(FULL, read_committed=True, large=False)
    assert limits.read_committed
    assert limits.wait_ms == 100


def test_addresses_are_shuffled_anew_for_each_client():
    """A new client must have a chance to reach another broker than the last one."""
    seen = {tuple(client_arguments(FULL)["bootstrap_servers"]) for _ in range(200)}
    assert len(seen) == 6
    assert all(sorted(order) == ["a:1", "b:2", "c:3"] for order in seen)


def test_an_encrypted_key_without_a_password_is_refused_and_nobody_asked(tmp_path, monkeypatch):
    """OpenSSL would ask at the terminal and wait for ever: it must always be given a password."""
    given = []

    def load(_context, _certificate, _key, password=None):
        given.append(password)
        raise ssl.SSLError("bad decrypt")

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load)
    certificate: dict[str, Any] = {"security.protocol": "SSL", "ssl.certfile": str(tmp_path / "cert.pem")}
    with pytest.raises(UsageError, match="bad decrypt") as refused:
        client_arguments(Settings(kafka=certificate))
    assert given == [""]
    assert "kafka.ssl.password" in refused.value.hint


def test_a_pem_file_that_cannot_be_loaded_is_named(tmp_path):
    """Which setting, which file, why."""
    bad = tmp_path / "ca.pem"
    bad.write_text("no certificate")
    for path in (bad, tmp_path / "missing.pem"):
        secure = Settings(kafka={"security.protocol": "SSL", "ssl.cafile": str(path)})
        with pytest.raises(UsageError, match=rf"kafka\.ssl\.cafile={path}"):
            client_arguments(secure)
