"""From options to settings and URLs."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapreplay.api.cli.options import service_url, settings_from
from snapreplay.errors import UsageError


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of the person who runs the tests."""
    monkeypatch.chdir(tmp_path)


def test_command_line_wins_over_environment_over_file(tmp_path, monkeypatch):
    """--set over SNAPREPLAY_… over --config, and a dedicated option over --set."""
    config = tmp_path / "here.toml"
    config.write_text("[http]\nport = 1001\nhost = '::1'\n[batch]\nrecords_max = 7\n")
    monkeypatch.setenv("SNAPREPLAY_HTTP__PORT", "1002")
    settings = settings_from(config, ["http.port=1003", "kafka.client.id=me"], "k:1", 1004)
    assert (settings.http.port, settings.http.host, settings.batch.records_max) == (1004, "::1", 7)
    assert settings.kafka["bootstrap.servers"] == "k:1"
    assert settings.kafka["client.id"] == "me"
    assert settings_from(config, ["http.port=1003"]).http.port == 1003
    assert settings_from(config, None).http.port == 1002


@pytest.mark.parametrize("override", ["http.port", "=1", " =1"])
def test_set_without_name_or_value_is_refused(override):
    """--set wants NAME=VALUE and says so."""
    with pytest.raises(UsageError, match="NAME=VALUE"):
        settings_from(None, [override])


def test_unknown_setting_is_refused_by_name():
    """A typing error in --set is not ignored."""
    with pytest.raises(UsageError, match=r"http\.prot"):
        settings_from(None, ["http.prot=1"])


def test_value_may_hold_an_equals_sign():
    """Only the first = separates: JAAS strings hold more of them."""
    settings = settings_from(None, ["kafka.client.id=a=b"])
    assert settings.kafka["client.id"] == "a=b"


def test_url_follows_the_settings(monkeypatch):
    """Without --url the service is where the settings say it listens, loopback for any-address."""
    monkeypatch.setenv("SNAPREPLAY_HTTP__HOST", "0.0.0.0")  # noqa: S104 - a setting, nothing is bound
    monkeypatch.setenv("SNAPREPLAY_HTTP__PORT", "9000")
    assert service_url(None, None, None) == "http://127.0.0.1:9000"
    assert service_url(None, 9001, None) == "http://127.0.0.1:9001"


def test_a_port_beside_a_url_is_refused():
    """Neither of them is silently ignored."""
    with pytest.raises(UsageError, match="--url http://host:1 and --http-port 2 both say"):
        service_url("http://host:1", 2, None)


def test_url_loses_its_trailing_slash():
    """Paths are appended to it."""
    assert service_url("http://host:1/", None, None) == "http://host:1"


def test_url_without_scheme_is_refused():
    """host:port alone is no URL; the message shows one."""
    with pytest.raises(UsageError) as refused:
        service_url("localhost:8080", None, None)
    assert "http://127.0.0.1:8080" in refused.value.hint


def test_open_port_needs_a_url(monkeypatch):
    """http.port 0 says nothing about where the service is."""
    monkeypatch.setenv("SNAPREPLAY_HTTP__PORT", "0")
    with pytest.raises(UsageError) as refused:
        service_url(None, None, None)
    assert "--http-port" in refused.value.hint
    assert "--url" in refused.value.hint
