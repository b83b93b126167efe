"""Asking a service over HTTP."""

import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import msgspec
import pytest

from snapreplay.api.cli.client import Client, ServiceUnreachable
from snapreplay.api.cli.output import ExitCode, OperationRefused
from snapreplay.service.control.operations import TriggerSnapshot


def test_proxies_of_the_environment_are_not_asked(url, monkeypatch):
    """A proxy for the internet must not be asked for a service on this machine."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    with Client(url) as client:
        assert client.restore_status()["app_id"] == "ledger"


@pytest.mark.parametrize(
    ("status", "answer"),
    [(200, b"<h1>hello</h1>"), (200, b'{"hello": 1}'), (404, b'{"detail": "Not Found"}'), (500, b"[]")],
)
def test_another_server_there_is_named(status, answer):
    """Another program on the port: its answer is taken for no status and for no refusal, JSON or not."""

    class Other(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with Client(url) as client, pytest.raises(ServiceUnreachable, match="is not a snapreplay service"):
            client.restore_status()
        server.shutdown()


def test_cluster_not_reached_counts_as_unreachable(url, control):
    """503 means: it cannot be done until a broker answers."""
    control.service_facts = msgspec.structs.replace(control.service_facts, partition_count=None)
    with Client(url) as client, pytest.raises(OperationRefused) as refused:
        client.carry_out(TriggerSnapshot())
    assert refused.value.code == ExitCode.UNREACHABLE


@pytest.mark.parametrize(
    "words",
    [
        ("cancel", "a/b"),
        ("cancel", ""),
        ("cancel", "."),
        ("cancel", ".."),
        ("cancel", "\udcff"),
        ("get", "", "ada"),
        ("scan", "a/b"),
        ("get", "", "ada", "--history"),
    ],
)
def test_a_name_that_would_be_another_path_is_refused(invoke, url, words):
    """By itself, and not as if the service were of another version, or none."""
    refused = invoke(*words, "--url", url)
    assert refused.exit_code == 2
    assert re.search(r"error: '(a/b|\.+|\\udcff)?' is no (id of an operation|name of a store)", refused.stderr)
