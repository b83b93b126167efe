"""Tests of the way from options to settings and URLs."""

import re
from pathlib import Path

import pytest

from snapreplay.api.cli.options import carry_out, service_url, settings_from
from snapreplay.api.cli.output import ExitCode
from snapreplay.errors import UsageError


@pytest.mark.parametrize(("done", "code"), [(None, 0), (ExitCode.FINDINGS, 1), (130, 130)])
def test_the_exit_code_is_what_the_command_returns(done, code):
    assert carry_out(lambda: done, {}) == code


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of the person who runs the tests."""
    monkeypatch.chdir(tmp_path)


def test_command_line_wins_over_environment_over_file(tmp_path, monkeypatch):
    """--set over SNAPREPLAY_… over --config, and a dedicated option over --set. Only the first = separates."""
    config = tmp_path / "here.toml"
    config.write_text("[http]\nport = 1001\nhost = '::1'\n[batch]\nrecords_max = 7\n")
    monkeypatch.setenv("SNAPREPLAY_HTTP__PORT", "1002")
    settings = settings_from(config, ["http.port=1003", "kafka.client.id=a=b"], "k:1", 1004)
    assert (settings.http.port, settings.http.host, settings.batch.records_max) == (1004, "::1", 7)
    assert settings.kafka["bootstrap.servers"] == "k:1"
    assert settings.kafka["client.id"] == "a=b"
    assert settings_from(config, ["http.port=1003"]).http.port == 1003
    assert settings_from(config, None).http.port == 1002


@pytest.mark.parametrize("override", ["http.port", "=1", " =1"])
def test_set_without_name_or_value_is_refused(override):
    """--set wants NAME=VALUE and says so."""
    with pytest.raises(UsageError, match="NAME=VALUE"):
        settings_from(None, [override])


@pytest.mark.parametrize(
    ("bound", "host"),
    [
        ("0.0.0.0", "127.0.0.1"),  # noqa: S104 - a setting, nothing is bound
        ("::", "[::1]"),
        ("localhost", "localhost"),
    ],
)
def test_url_follows_the_settings(monkeypatch, bound, host):
    """Without --url the service is where the settings say it listens, loopback for any-address."""
    monkeypatch.setenv("SNAPREPLAY_HTTP__HOST", bound)
    monkeypatch.setenv("SNAPREPLAY_HTTP__PORT", "9000")
    assert service_url(None, None, None) == f"http://{host}:9000"
    assert service_url(None, 9001, None) == f"http://{host}:9001"


@pytest.mark.parametrize(
    ("url", "port", "said"),
    [
        ("http://host:1", 2, "--url http://host:1 and --http-port 2 both say"),
        ("localhost:8080", None, "http://127.0.0.1:8080"),
        (None, None, "--http-port.*--url"),
        ("https://", None, "--url 'https://' names no host"),
        ("http://:8080", None, "names no host"),
        ("http://host:99999", None, "is not a URL: Port out of range"),
        ("http://host:0", None, "has port 0"),
        ("http://host:1?a=b", None, "has something behind the address"),
        ("ftp://host", None, "begins with http:// or https://"),
    ],
    ids=["both", "no scheme", "port 0", *("no host", "port alone", "large", "0", "query", "ftp")],
)
def test_what_names_no_place_is_refused_with_one_that_does(monkeypatch, url, port, said):
    """Two places; host:port alone, which is no URL; http.port 0, which says nothing about where the service is."""
    monkeypatch.setenv("SNAPREPLAY_HTTP__PORT", "0")
    with pytest.raises(UsageError) as refused:
        service_url(url, port, None)
    assert re.search(said, f"{refused.value.message} {refused.value.hint}")
