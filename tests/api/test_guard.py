"""Requests that none of our clients sends."""

import pytest

from snapreplay.api.guard import Hosts, refusal

HOSTS = Hosts("10.0.0.7", ("ledger.example.com",))


def told(method="POST", *, is_public=True, **headers):
    """The name of the problem, None when the request is let through."""
    given = {"host": "127.0.0.1:8080"} | {n.replace("_", "-"): v for n, v in headers.items()}
    refused = refusal(method, given, HOSTS, is_public=is_public)
    return refused.kind.name if refused else None


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:8080", "10.0.0.7", "192.0.2.9"),
        *("ledger-0:8080", "app.localhost", "ledger.example.com:8080", "Ledger.Example.com."),
    ],
)
def test_hosts_that_are_ours(host):
    """Addresses, names without a dot, and what is allowed; an Origin of the same host is our own page."""
    assert told(host=host) is None
    assert told(host=host, origin=f"http://{host}", sec_fetch_site="same-origin") is None


@pytest.mark.parametrize("host", ["rebound.example", "ledger.example.com.evil.org:8080", "a.b"])
def test_a_foreign_host_may_only_read_what_is_public(host):
    """The name of another site leads to us when its DNS says so; a browser then takes our answers for that site's."""
    assert told(host=host) == "foreign-host"
    assert told("GET", host=host) is None
    assert told("GET", is_public=False, host=host) == "foreign-host"


def test_without_a_login_a_foreign_page_reads_nothing(client):
    """A probe and a scrape may come by any name. So may the page itself, whose questions are then refused."""
    foreign = {"host": "rebound.example:8080"}
    refused = client.get("/restore-status", headers=foreign)
    assert refused.status_code == 403
    assert refused.json()["hint"].endswith("set http.allowed_hosts=rebound.example")
    for path in ("/healthz", "/metrics", "/"):
        assert client.get(path, headers=foreign).status_code == 200, path
    assert client.get("/restore-status", headers={"host": "127.0.0.1:8080"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://elsewhere.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_a_page_of_another_site_may_only_read(headers):
    """Another port is another site, too."""
    assert told(**headers) == "foreign-origin"
    assert told("HEAD", **headers) is None


@pytest.mark.parametrize(
    ("media", "expected"),
    [
        ("application/json", None),
        ("application/json; charset=utf-8", None),
        ("application/problem+json", None),
        ("text/plain", "media-type"),
        ("application/x-www-form-urlencoded", "media-type"),
        ("", "media-type"),
    ],
)
def test_a_content_type_must_be_json(media, expected):
    """The others are those that a form of any site may send without asking."""
    assert told(content_type=media) == expected


@pytest.mark.parametrize(
    "headers",
    [
        *({"host": "[::1"}, {"host": "[::1:8080"}, {"host": "[x]"}, {"host": "a]"}),
        *({"origin": "http://[x"}, {"origin": "http://[::1"}, {"host": "[::1", "origin": "http://[::1"}),
    ],
)
def test_a_header_that_cannot_be_read_is_refused(client, control, headers):
    """It is not our name, and the answer says which header it is."""
    asked = {"host": "localhost"} | headers
    response = client.post("/trigger-snapshot", headers=asked)
    assert response.status_code == 400
    assert response.json()["type"].endswith("malformed-header")
    (name,) = headers if len(headers) == 1 else ("host",)
    assert response.json()["detail"] == f"{name.title()} is not an address: {headers[name]!r}"
    assert not control.operations()
    assert client.get("/healthz", headers=asked).status_code == 200


def test_two_lengths_are_refused_for_every_method():
    """A proxy in front may believe the other one."""
    assert told("GET", content_length="3", transfer_encoding="chunked") == "two-lengths"
