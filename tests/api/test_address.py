"""Addresses as URLs."""

from __future__ import annotations

import pytest

from snapreplay.api.address import Address


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8080"),
        ("0.0.0.0", "http://127.0.0.1:8080"),  # noqa: S104 - a string to convert
        ("::", "http://[::1]:8080"),
        ("localhost", "http://localhost:8080"),
    ],
)
def test_url_can_be_used_from_this_machine(host, url):
    """An any-address is for binding; the URL names loopback, IPv6 in brackets."""
    assert Address(host, 8080).url == url
