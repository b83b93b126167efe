"""The address of this machine towards a broker."""

import socket

import pytest

from snapreplay.service.service import local_host


@pytest.mark.parametrize(
    ("servers", "found"),
    [
        (["127.0.0.1:9092"], "127.0.0.1"),
        (["no-such-host.invalid:9092", "localhost:9092"], "127.0.0.1"),
        (["localhost"], "127.0.0.1"),
        (["[::1]:9092", "127.0.0.1"], "127.0.0.1"),
        (["x.invalid:1"], ""),
    ],
)
def test_the_first_broker_that_can_be_resolved_decides(servers, found):
    """No server needs to listen there."""
    assert local_host(servers, socket.AF_INET) == found
