"""Tests of what our clients look like."""

import ssl
from typing import Any

import pytest

from snapreplay.errors import UsageError
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka import config
from snapreplay.service.kafka.config import client_arguments, fetch_limits

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


def test_connections_are_made_with_the_settings():
    """Each property has a default, or is there only when it is set."""
    given = client_arguments(FULL)
    assert (given["client_id"], given["connections_max_idle_ms"], given["metadata_max_age_ms"]) == (
        "mine",
        9000,
        30_000,
    )
    assert given["request_timeout_ms"] == FULL.request_timeout_ms
    assert "sasl_mechanism" not in given


def test_exactly_once_does_not_depend_on_settings():
    """Isolation is ours."""
    limits = fetch_limits(FULL, read_committed=True, large=False)
    assert limits.read_committed
    assert limits.wait_ms == 100


def test_an_encrypted_key_without_a_password_is_refused_without_a_prompt(tmp_path, monkeypatch):
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


@pytest.mark.parametrize(
    ("protocol", "mechanism", "lines"),
    [("SASL_PLAINTEXT", "PLAIN", 1), ("SASL_SSL", "PLAIN", 0), ("SASL_PLAINTEXT", "SCRAM-SHA-512", 0)],
)
def test_a_password_in_clear_text_is_warned_of_once(protocol, mechanism, lines, caplog):
    config._warn_of_clear_text.cache_clear()
    login = {"sasl.mechanism": mechanism, "sasl.plain.username": "ada", "sasl.plain.password": "secret"}
    for _ in range(2):
        client_arguments(Settings(kafka={"security.protocol": protocol, **login}))
    assert caplog.text.count("sent in clear text") == lines
    assert "secret" not in caplog.text
